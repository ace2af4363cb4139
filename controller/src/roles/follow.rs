//! Follows the host's orders for as long as this instance lives.
//!
//! In: the run folder. Out: the seat served and left, the executor started and stopped, acknowledgements. Not
//! here: what to do about an order ([`super::decide`]).

use mesh_protocol::bus::SeatServer;
use mesh_protocol::chain::chain;
use mesh_protocol::handover::{Role, RoleAck};
use tokio::time::Instant;

use super::{Current, Failed, INTERVAL, Move, decide};
use crate::executor::{Executor, Means};
use crate::run_folder::RunFolder;

/// The seat, as this instance sits on it or beside it.
#[derive(Debug)]
pub struct Seat {
    /// Answers.
    pub server: SeatServer,
    /// What an executor works with.
    pub means: Means,
    /// At work while this instance serves.
    pub executor: Option<Executor>,
}

/// Follows orders until `stop`, then steps down and answers no more.
pub async fn follow(mut seat: Seat, folder: &RunFolder, stop: impl Future<Output = ()>) {
    let mut current = Current::at_start(seat.means.myself.instance().clone());
    let mut stop = std::pin::pin!(stop);
    loop {
        look(&mut seat, folder, &mut current).await;
        tokio::select! {
            biased;
            // cancel safe: pinned outside
            () = &mut stop => break,
            // cancel safe: a timer
            () = tokio::time::sleep(INTERVAL) => {}
        }
    }
    step_down(&mut seat).await;
    seat.server.close().await;
}

/// Looks at the order once, and does what it says.
async fn look(seat: &mut Seat, folder: &RunFolder, current: &mut Current) {
    let log = seat.means.log.clone();
    let order = match folder.order() {
        Ok(order) => {
            log.clear("role");
            order
        }
        Err(error) => {
            log.once("role", &chain(&error));
            None
        }
    };
    let written = folder.acknowledged();
    let ack = |current: &Current, number: u64, trouble: Option<String>| RoleAck {
        instance: current.instance.clone(),
        role: current.role,
        number,
        trouble,
    };
    match decide(order.as_ref(), written.as_ref(), current, Instant::now()) {
        Move::Stay => {}
        Move::Acknowledge(due) => current.said(folder, due, &log),
        Move::Serve(number) => match seat.server.serve().await {
            Ok(()) => {
                seat.means.myself.set_role(Role::Serving);
                seat.executor = Some(Executor::start(seat.means.clone()));
                current.role = Role::Serving;
                current.failed = None;
                current.said(folder, ack(current, number, None), &log);
                log.line(&format!("serving, by order {number}"));
            }
            Err(error) => {
                let trouble = chain(&error);
                log.once("serve", &trouble);
                current.failed = Some(Failed { number, at: Instant::now() });
                current.said(folder, ack(current, number, Some(trouble)), &log);
            }
        },
        Move::StandBy(number) => {
            step_down(seat).await;
            current.role = Role::StandingBy;
            current.failed = None;
            current.said(folder, ack(current, number, None), &log);
            log.line(&format!("standing by, by order {number}"));
        }
    }
}

/// Steps down without loss: nothing new is begun, the queue group is left with every request in it answered, the
/// running step ends, the plan lock is given back.
async fn step_down(seat: &mut Seat) {
    seat.means.myself.set_role(Role::StandingBy);
    let leave = seat.server.leave().await;
    if let Some(executor) = seat.executor.take() {
        executor.stop().await;
        seat.means.log.line(&format!("left the seat: {leave:?}"));
    }
}
