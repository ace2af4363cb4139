//! The role of this instance: what its host orders by file, followed and acknowledged.
//!
//! In: the file `role`. Out: the file `role.ack`, written when what it says is true. Not here: what serving
//! means; that is the seat's and the executor's.

use std::time::Duration;

use mesh_protocol::handover::{Role, RoleAck, RoleOrder};
use mesh_protocol::id::InstanceId;
use tokio::time::Instant;

use crate::run_folder::RunFolder;

mod follow;

pub use follow::{Seat, follow};

/// How often the order is looked at: an acknowledgement is due within 50 ms, and a change takes some of it.
pub const INTERVAL: Duration = Duration::from_millis(15);

/// An order that could not be followed is tried again after this long, for as long as it stands.
const RETRY: Duration = Duration::from_millis(500);

/// Where this instance stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Current {
    /// Who it is.
    pub instance: InstanceId,
    /// What it does.
    pub role: Role,
    /// The acknowledgement that is due, as it was last written; none before the first order.
    pub acknowledged: Option<RoleAck>,
    /// When an order could last not be followed.
    pub failed: Option<Failed>,
}

/// An order that could not be followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed {
    /// Its number.
    pub number: u64,
    /// When it was tried last.
    pub at: Instant,
}

/// What to do about an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Move {
    /// Nothing: all is as ordered, and was said.
    Stay,
    /// Begin to serve, then acknowledge this number.
    Serve(u64),
    /// Step down, then acknowledge this number.
    StandBy(u64),
    /// Write this: the role is right already, or the file was lost.
    Acknowledge(RoleAck),
}

/// What to do. `order` is what the file says now, `written` what the acknowledgement's file says now.
#[must_use]
pub fn decide(order: Option<&RoleOrder>, written: Option<&RoleAck>, current: &Current, now: Instant) -> Move {
    let repeat = || match &current.acknowledged {
        Some(due) if written != Some(due) => Move::Acknowledge(due.clone()),
        _ => Move::Stay,
    };
    let Some(order) = order.filter(|order| order.instance == current.instance) else {
        return repeat();
    };
    if order.role != current.role {
        return match (&current.failed, order.role) {
            (Some(failed), _) if failed.number == order.number && now < failed.at + RETRY => repeat(),
            (_, Role::Serving) => Move::Serve(order.number),
            (_, Role::StandingBy) => Move::StandBy(order.number),
        };
    }
    match &current.acknowledged {
        Some(due) if due.number == order.number && due.role == order.role && due.trouble.is_none() => {
            repeat()
        }
        _ => Move::Acknowledge(RoleAck {
            instance: current.instance.clone(),
            role: current.role,
            number: order.number,
            trouble: None,
        }),
    }
}

impl Current {
    /// At the start: standing by, and nothing said yet.
    #[must_use]
    pub const fn at_start(instance: InstanceId) -> Self {
        Self { instance, role: Role::StandingBy, acknowledged: None, failed: None }
    }

    /// After an acknowledgement was written.
    fn said(&mut self, folder: &RunFolder, ack: RoleAck, log: &crate::log::Log) {
        match folder.acknowledge(&ack) {
            Ok(()) => log.clear("role.ack"),
            Err(error) => log.once("role.ack", &mesh_protocol::chain::chain(&error)),
        }
        self.acknowledged = Some(ack);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(role: Role, number: u64) -> RoleOrder {
        RoleOrder { instance: "p-1".parse().unwrap(), role, number }
    }

    fn ack(role: Role, number: u64, trouble: Option<&str>) -> RoleAck {
        RoleAck { instance: "p-1".parse().unwrap(), role, number, trouble: trouble.map(str::to_owned) }
    }

    fn current() -> Current {
        Current::at_start("p-1".parse().unwrap())
    }

    #[test]
    fn without_an_order_nothing_happens() {
        assert_eq!(decide(None, None, &current(), Instant::now()), Move::Stay);
    }

    #[test]
    fn an_order_for_another_instance_is_nobody_s() {
        let mut order = order(Role::Serving, 1);
        order.instance = "p-2".parse().unwrap();
        assert_eq!(decide(Some(&order), None, &current(), Instant::now()), Move::Stay);
    }

    #[test]
    fn an_order_is_followed_and_then_acknowledged_once() {
        let now = Instant::now();
        let mut current = current();
        assert_eq!(decide(Some(&order(Role::Serving, 2)), None, &current, now), Move::Serve(2));
        current.role = Role::Serving;
        let due = ack(Role::Serving, 2, None);
        assert_eq!(
            decide(Some(&order(Role::Serving, 2)), None, &current, now),
            Move::Acknowledge(due.clone())
        );
        current.acknowledged = Some(due.clone());
        assert_eq!(decide(Some(&order(Role::Serving, 2)), Some(&due), &current, now), Move::Stay);
        assert_eq!(decide(Some(&order(Role::StandingBy, 3)), Some(&due), &current, now), Move::StandBy(3));
    }

    #[test]
    fn the_role_one_has_already_is_acknowledged_under_the_new_number() {
        let mut current = current();
        current.acknowledged = Some(ack(Role::StandingBy, 1, None));
        let found = decide(Some(&order(Role::StandingBy, 4)), None, &current, Instant::now());
        assert_eq!(found, Move::Acknowledge(ack(Role::StandingBy, 4, None)));
    }

    #[test]
    fn a_lost_acknowledgement_is_written_again_even_without_an_order() {
        let mut current = current();
        let due = ack(Role::Serving, 2, None);
        current.role = Role::Serving;
        current.acknowledged = Some(due.clone());
        let now = Instant::now();
        assert_eq!(decide(None, None, &current, now), Move::Acknowledge(due.clone()));
        let other = ack(Role::StandingBy, 1, None);
        assert_eq!(
            decide(Some(&order(Role::Serving, 2)), Some(&other), &current, now),
            Move::Acknowledge(due)
        );
    }

    #[test]
    fn what_could_not_be_followed_is_tried_again_later_and_the_trouble_stands_meanwhile() {
        let now = Instant::now();
        let mut current = current();
        let due = ack(Role::StandingBy, 2, Some("not permitted"));
        current.acknowledged = Some(due.clone());
        current.failed = Some(Failed { number: 2, at: now });
        let order = order(Role::Serving, 2);
        assert_eq!(decide(Some(&order), Some(&due), &current, now), Move::Stay);
        assert_eq!(decide(Some(&order), Some(&due), &current, now + RETRY), Move::Serve(2));
        let withdrawn = RoleOrder { role: Role::StandingBy, ..order };
        assert_eq!(
            decide(Some(&withdrawn), Some(&due), &current, now),
            Move::Acknowledge(ack(Role::StandingBy, 2, None))
        );
    }
}
