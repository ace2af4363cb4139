//! State: compare and set, lists, and writes that are not answered.

use std::time::Duration;

use mesh_protocol::bus::{Link, StateError};
use mesh_protocol::subject::bucket;
use mesh_protocol::verb::Check;

use crate::support::{Bus, until};

const LEASE: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_written_only_over_what_was_read() {
    let bus = Bus::start().await;
    let state = bus.state(LEASE).await;
    let nodes = bucket::NODES;
    assert!(state.read::<String>(nodes, "n1").await.unwrap().is_none());
    let first = state.create(nodes, "n1", &"a").await.unwrap();
    let error = state.create(nodes, "n1", &"b").await.unwrap_err();
    assert!(matches!(error, StateError::AlreadyExists { .. }), "{error:?}");
    let second = state.update(nodes, "n1", &"b", first).await.unwrap();
    assert!(second > first);
    let error = state.update(nodes, "n1", &"c", first).await.unwrap_err();
    assert!(matches!(error, StateError::Stale { expected, .. } if expected == first), "{error:?}");
    let error = state.delete(nodes, "n1", first).await.unwrap_err();
    assert!(matches!(error, StateError::Stale { .. }), "{error:?}");
    let read = state.read::<String>(nodes, "n1").await.unwrap().unwrap();
    assert_eq!((read.value.as_str(), read.revision), ("b", second));

    state.delete(nodes, "n1", second).await.unwrap();
    assert!(state.read::<String>(nodes, "n1").await.unwrap().is_none());
    let third = state.create(nodes, "n1", &"d").await.unwrap();
    assert!(third > second);
    assert_eq!(state.check().await, Check::Passed);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_who_create_one_wins() {
    let bus = Bus::start().await;
    let state = bus.state(LEASE).await;
    for round in 0..20 {
        let key = format!("k{round}");
        let tries = (0..4).map(|who| {
            let (state, key) = (state.clone(), key.clone());
            tokio::spawn(async move { state.create(bucket::PLANS, &key, &who).await.is_ok() })
        });
        let mut won = 0;
        for tried in tries.collect::<Vec<_>>() {
            won += u32::from(tried.await.unwrap());
        }
        assert_eq!(won, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_has_each_key_as_it_is_last() {
    let bus = Bus::start().await;
    let state = bus.state(LEASE).await;
    let revisions = bucket::REVISIONS;
    assert!(state.list::<u32>(revisions).await.unwrap().is_empty());
    for number in 0..50 {
        let key = format!("mesh-bus.{number}");
        state.create(revisions, &key, &number).await.unwrap();
    }
    let first = state.read::<u32>(revisions, "mesh-bus.0").await.unwrap().unwrap();
    state.update(revisions, "mesh-bus.0", &100, first.revision).await.unwrap();
    let gone = state.read::<u32>(revisions, "mesh-bus.1").await.unwrap().unwrap();
    state.delete(revisions, "mesh-bus.1", gone.revision).await.unwrap();
    let list = state.list::<u32>(revisions).await.unwrap();
    assert_eq!(list.len(), 49);
    assert_eq!(list["mesh-bus.0"].value, 100);
    assert_eq!(list["mesh-bus.49"].value, 49);
}

#[tokio::test(flavor = "multi_thread")]
async fn opening_again_changes_nothing_and_another_lease_is_taken_over() {
    let bus = Bus::start().await;
    let state = bus.state(LEASE).await;
    let revision = state.create(bucket::NODES, "n1", &1).await.unwrap();
    let again = bus.state(LEASE).await;
    let other = bus.state(LEASE * 2).await;
    for state in [again, other] {
        let read = state.read::<u32>(bucket::NODES, "n1").await.unwrap().unwrap();
        assert_eq!(read.revision, revision);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn large_documents_travel() {
    let bus = Bus::start().await;
    let state = bus.state(LEASE).await;
    let large = "x".repeat(3 * 1024 * 1024);
    state.create(bucket::MODULES, "large", &large).await.unwrap();
    let read = state.read::<String>(bucket::MODULES, "large").await.unwrap();
    assert_eq!(read.unwrap().value.len(), large.len());
    let too_large = "x".repeat(9 * 1024 * 1024);
    let error = state.create(bucket::MODULES, "larger", &too_large).await.unwrap_err();
    assert!(matches!(error, StateError::Unwritable { .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_whose_answer_came_too_late_is_known_for_ones_own() {
    let bus = Bus::start().await;
    let state = bus.state(LEASE).await;
    bus.signal("STOP");
    let writing = tokio::spawn({
        let state = state.clone();
        async move { state.create(bucket::PLANS, "p1", &"mine").await }
    });
    // Longer than an answer is waited for: the write is done when the server goes on, and nobody waits for
    // that answer any more.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    bus.signal("CONT");
    let revision = writing.await.unwrap().unwrap();
    let read = state.read::<String>(bucket::PLANS, "p1").await.unwrap().unwrap();
    assert_eq!((read.value.as_str(), read.revision), ("mine", revision));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_is_reported_unanswered_may_still_come_and_then_only_once() {
    let mut bus = Bus::start().await;
    let state = bus.state(LEASE).await;
    let revision = state.create(bucket::NODES, "n1", &1).await.unwrap();
    bus.go_down();
    // Before that is noticed, the write would go to a server that is no more, and not be kept.
    let mut link = state.connection().link();
    link.wait_for(|link| matches!(link, Link::Down { .. })).await.unwrap();
    let error = state.update(bucket::NODES, "n1", &2, revision).await.unwrap_err();
    assert!(matches!(error, StateError::Unanswered { .. }), "{error:?}");
    bus.go_up().await;
    until("the buffered write is done", async || {
        let read = state.read::<u32>(bucket::NODES, "n1").await;
        matches!(read, Ok(Some(read)) if read.value == 2)
    })
    .await
    .unwrap();
    let error = state.update(bucket::NODES, "n1", &3, revision).await.unwrap_err();
    assert!(matches!(error, StateError::Stale { .. }), "{error:?}");
}
