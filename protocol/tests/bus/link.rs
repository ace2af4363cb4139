//! A server that goes and comes back.

use std::time::Duration;

use futures_util::StreamExt as _;
use mesh_protocol::bus::{EchoError, HostBus, Left, Link, Policy};
use mesh_protocol::verb::Verb;
use serde_json::json;

use crate::desk::{Instance, client};
use crate::support::{Bus, SOON, host, mesh, operator, until};

#[tokio::test(flavor = "multi_thread")]
async fn connection_and_subscriptions_come_back_and_the_link_says_so() {
    let mut bus = Bus::start().await;
    let instance = Instance::start(&bus, "p-1", Duration::ZERO).await;
    instance.serve().await;
    let asker = client(&bus, &operator()).await;
    let n1 = HostBus::new(bus.connect(&host("n1")).await, mesh(), "n1".parse().unwrap());
    let mut hints = Box::pin(n1.hints());
    hints.next().await.unwrap();

    let mut link = instance.connection.link();
    assert!(matches!(*link.borrow(), Link::Up { count: 1, .. }));
    bus.go_down();
    let down = link.wait_for(|link| !link.is_up());
    tokio::time::timeout(SOON, down).await.unwrap().unwrap();
    let echo = instance.connection.echo(Duration::from_millis(50)).await;
    assert!(matches!(echo, Err(EchoError::TimedOut { .. })), "{echo:?}");

    bus.go_up().await;
    let up = link.wait_for(|link| matches!(link, Link::Up { count: 2, .. }));
    tokio::time::timeout(SOON, up).await.unwrap().unwrap();
    // What came back may have missed something: so there is a hint, though nobody said anything.
    tokio::time::timeout(SOON, hints.next()).await.unwrap().unwrap();
    let once = Policy::Once(Duration::from_secs(5));
    until("the seat answers again", async || {
        asker.ask::<_, String>(Verb::Status, &json!({}), once).await.is_ok()
    })
    .await
    .unwrap();
    let operator = client(&bus, &host("n1")).await;
    operator.ask_at::<String>(&"p-1".parse().unwrap(), Verb::Ready, SOON).await.unwrap();

    // The server counts from nothing after it came back; leaving still ends by itself.
    for _ in 0..2_000 {
        asker.ask::<_, String>(Verb::Status, &json!({}), once).await.unwrap();
    }
    let leave = instance.server.leave().await;
    assert_eq!(leave.left, Left::Filled, "{leave:?}");
    assert!(leave.took < SOON, "{leave:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_was_asked_while_the_bus_was_away_is_answered() {
    let mut bus = Bus::start().await;
    let instance = Instance::start(&bus, "p-1", Duration::ZERO).await;
    instance.serve().await;
    let asker = client(&bus, &operator()).await;
    bus.go_down();
    let asking =
        tokio::spawn(async move { asker.ask_for::<_, String>(Verb::Status, &json!({}), Policy::Read).await });
    bus.go_up().await;
    asking.await.unwrap().unwrap();
}
