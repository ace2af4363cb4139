//! Leaving the queue group under load: nothing is lost. The same load loses requests where a member leaves as
//! one would at first think, so this can fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use mesh_protocol::bus::identity::User;
use mesh_protocol::bus::{Connection, Left, Link, Policy, SeatClient};
use mesh_protocol::verb::Verb;
use serde_json::json;
use tokio::task::JoinSet;

use crate::desk::{Instance, client};
use crate::support::{Bus, SOON, operator};

/// Requests a second, and for how long.
const RATE: u64 = 2_000;
const FOR: Duration = Duration::from_secs(2);
/// Asked in bursts this often.
const EVERY: Duration = Duration::from_millis(5);

#[derive(Debug)]
struct Asked {
    sent: u64,
    lost: u64,
}

/// Asks at [`RATE`] until `deadline`, each request once.
async fn ask_until(asker: SeatClient, deadline: Instant) -> Asked {
    let lost = Arc::new(AtomicU64::new(0));
    let mut asking = JoinSet::new();
    let started = Instant::now();
    let mut sent = 0;
    let mut ticks = tokio::time::interval(EVERY);
    while Instant::now() < deadline {
        ticks.tick().await;
        let due = u64::try_from(started.elapsed().as_micros()).unwrap() * RATE / 1_000_000;
        while sent < due {
            sent += 1;
            let (asker, lost) = (asker.clone(), lost.clone());
            asking.spawn(async move {
                let once = Policy::Once(Duration::from_secs(3));
                if asker.ask::<_, String>(Verb::Status, &json!({}), once).await.is_err() {
                    lost.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        while asking.try_join_next().is_some() {}
    }
    while asking.join_next().await.is_some() {}
    Asked { sent, lost: lost.load(Ordering::Relaxed) }
}

/// Two instances of which one leaves and joins again, in turns.
async fn leave_in_turns(work: Duration) {
    let bus = Bus::start().await;
    let members = joined(&bus, work).await;
    let asker = client(&bus, &operator()).await;
    leave_under_load(&members, asker, work).await;
}

async fn joined(bus: &Bus, work: Duration) -> [Instance; 2] {
    let members = [Instance::start(bus, "p-1", work).await, Instance::start(bus, "p-2", work).await];
    for member in &members {
        member.serve().await;
    }
    members
}

async fn leave_under_load(members: &[Instance; 2], asker: SeatClient, work: Duration) {
    let deadline = Instant::now() + FOR;
    let asking = tokio::spawn(ask_until(asker, deadline));
    let mut leaves = Vec::new();
    while Instant::now() < deadline {
        let member = &members[leaves.len() % 2];
        let leave = member.server.leave().await;
        assert_eq!(leave.left, Left::Filled, "{leave:?}");
        assert_eq!((leave.unfinished, leave.fenced), (0, true), "{leave:?}");
        leaves.push(leave);
        member.serve().await;
    }
    let asked = asking.await.unwrap();
    let mut took: Vec<u128> = leaves.iter().map(|leave| leave.took.as_millis()).collect();
    took.sort_unstable();
    let filled: u64 = leaves.iter().map(|leave| leave.filled).sum();
    eprintln!(
        "leave by filling the slack, {work:?} of work: {} leaves, {} requests, {} lost; a leave took {} ms in the middle, {} at most, {} messages to fill",
        leaves.len(),
        asked.sent,
        asked.lost,
        took[took.len() / 2],
        took[took.len() - 1],
        filled / leaves.len() as u64,
    );
    assert_eq!(asked.lost, 0);
    assert!(leaves.len() > 5);
    assert!(asked.sent > RATE);
}

#[tokio::test(flavor = "multi_thread")]
async fn leaving_loses_nothing() {
    leave_in_turns(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leaving_loses_nothing_when_an_answer_takes_its_time() {
    leave_in_turns(Duration::from_millis(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leaving_loses_nothing_after_the_bus_came_back() {
    let mut bus = Bus::start().await;
    let members = joined(&bus, Duration::ZERO).await;
    let asker = client(&bus, &operator()).await;
    // More than the slack each: the library counts on when the server begins anew.
    let once = Policy::Once(Duration::from_secs(1));
    for _ in 0..4_000 {
        let body = json!({});
        let asked = asker.ask::<_, String>(Verb::Status, &body, once);
        asked.await.unwrap();
    }
    let mut links = Vec::from(members.each_ref().map(|member| member.connection.link()));
    links.push(asker.connection().link());
    bus.go_down();
    bus.go_up().await;
    for link in &mut links {
        let back = link.wait_for(|link| matches!(link, Link::Up { count: 2, .. }));
        tokio::time::timeout(SOON, back).await.unwrap().unwrap();
    }
    for member in &members {
        member.connection.echo(SOON).await.unwrap();
    }
    asker.connection().echo(SOON).await.unwrap();
    leave_under_load(&members, asker, Duration::ZERO).await;
}

/// Serves until told to stop, and then leaves as one would at first think.
async fn serve_plainly(connection: Connection, stop: tokio::sync::oneshot::Receiver<()>) {
    let client = connection.client().clone();
    let mut subscriber =
        client.queue_subscribe("mesh.m1.seat.mesh-controller.*", "mesh-controller".to_owned()).await.unwrap();
    let mut stop = stop;
    loop {
        tokio::select! {
            Some(message) = subscriber.next() => {
                let answer = r#"{"by":{"instance":"p-1","form":"process","role":"serving","version":"1"},"answer":"x"}"#;
                client.publish(message.reply.unwrap(), answer.into()).await.unwrap();
            }
            _ = &mut stop => break,
        }
    }
    subscriber.unsubscribe().await.unwrap();
    connection.echo(SOON).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn unsubscribing_loses_some() {
    let bus = Bus::start().await;
    let connections = [bus.connect(&User::ControllerSeat).await, bus.connect(&User::ControllerSeat).await];
    let serve = |connection: &Connection| {
        let (stop, stopped) = tokio::sync::oneshot::channel();
        (stop, tokio::spawn(serve_plainly(connection.clone(), stopped)))
    };
    let mut serving = connections.each_ref().map(|connection| Some(serve(connection)));
    for connection in &connections {
        connection.echo(SOON).await.unwrap();
    }
    let asker = client(&bus, &operator()).await;
    let deadline = Instant::now() + FOR;
    let asking = tokio::spawn(ask_until(asker, deadline));
    let mut leaves = 0;
    while Instant::now() < deadline {
        let which = leaves % 2;
        let (stop, task) = serving[which].take().unwrap();
        stop.send(()).unwrap();
        task.await.unwrap();
        serving[which] = Some(serve(&connections[which]));
        connections[which].echo(SOON).await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
        leaves += 1;
    }
    let asked = asking.await.unwrap();
    eprintln!("leave by unsubscribing: {leaves} leaves, {} requests, {} lost", asked.sent, asked.lost);
    assert!(asked.lost > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_first_loses_many() {
    let bus = Bus::start().await;
    let members = [
        Instance::start(&bus, "p-1", Duration::ZERO).await,
        Instance::start(&bus, "p-2", Duration::ZERO).await,
    ];
    members[0].serve().await;
    let asker = client(&bus, &operator()).await;
    let deadline = Instant::now() + FOR;
    let asking = tokio::spawn(ask_until(asker, deadline));
    let mut leaves = 0;
    while Instant::now() < deadline {
        members[leaves % 2].server.leave().await;
        leaves += 1;
        members[leaves % 2].serve().await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let asked = asking.await.unwrap();
    eprintln!("stop first, start then: {leaves} leaves, {} requests, {} lost", asked.sent, asked.lost);
    assert!(asked.lost > 0);
}
