//! Events: said once, read from any number on, followed.

use std::time::Duration;

use futures_util::StreamExt as _;
use jiff::Timestamp;
use mesh_protocol::bus::EventReader;
use mesh_protocol::event::{Event, FORMAT, What};

use crate::support::{Bus, SOON, mesh, operator};

fn event(node: &str) -> Event {
    Event {
        format: FORMAT,
        time: Timestamp::UNIX_EPOCH,
        by: "p-1".parse().unwrap(),
        what: What::NodeRegistered { node: node.parse().unwrap() },
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_read_from_a_number_on_and_followed_across_a_restart() {
    let mut bus = Bus::start().await;
    let state = bus.state(Duration::from_secs(5)).await;
    for number in 1..=20 {
        let said = event(&format!("n{number}"));
        state.publish_event(&said, &format!("e{number}")).await.unwrap();
        state.publish_event(&said, &format!("e{number}")).await.unwrap();
    }
    let reader = EventReader::new(bus.connect(&operator()).await, mesh());
    let all = reader.read_from(1).await.unwrap();
    assert_eq!(all.len(), 20);
    let rest = reader.read_from(all[14].sequence + 1).await.unwrap();
    assert_eq!(rest.len(), 5);
    assert_eq!(rest[0].event, event("n16"));

    let mut following = Box::pin(reader.follow(all[18].sequence));
    assert_eq!(following.next().await.unwrap().unwrap().event, event("n19"));
    assert_eq!(following.next().await.unwrap().unwrap().event, event("n20"));
    let next = tokio::spawn(async move {
        let mut seen = Vec::new();
        while seen.len() < 2 {
            // While the bus is away there are errors between.
            if let Some(Ok(recorded)) = following.next().await {
                seen.push(recorded.event);
            }
        }
        seen
    });
    state.publish_event(&event("n21"), "e21").await.unwrap();
    bus.go_down();
    bus.go_up().await;
    crate::support::until("an event is said", async || {
        state.publish_event(&event("n22"), "e22").await.is_ok()
    })
    .await
    .unwrap();
    let seen = tokio::time::timeout(SOON, next).await.unwrap().unwrap();
    assert_eq!(seen, [event("n21"), event("n22")]);
}
