//! The plan lock: one holder at a time, whatever becomes of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mesh_protocol::bus::{Held, PlanLock};
use mesh_protocol::id::Token;

use crate::support::{Bus, SOON, until};

const LEASE: Duration = Duration::from_millis(600);

async fn contender(bus: &Bus, name: &str) -> PlanLock {
    PlanLock::new(bus.state(LEASE).await, name.parse().unwrap())
}

async fn taken(lock: &PlanLock) -> Held {
    let mut held = None;
    until("the lock is taken", async || {
        held = lock.take(0).await.unwrap();
        held.is_some()
    })
    .await
    .unwrap();
    held.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn three_contenders_never_hold_it_at_once() {
    let bus = Bus::start().await;
    let inside = Arc::new(AtomicU64::new(0));
    let last = Arc::new(std::sync::Mutex::new(Token::default()));
    let deadline = Instant::now() + Duration::from_secs(3);
    let mut tasks = Vec::new();
    for name in ["c-1", "c-2", "c-3"] {
        let lock = contender(&bus, name).await;
        let (inside, last) = (inside.clone(), last.clone());
        tasks.push(tokio::spawn(async move {
            let mut times = 0u64;
            while Instant::now() < deadline {
                let Some(held) = lock.take(0).await.unwrap() else {
                    tokio::time::sleep(Duration::from_millis(3)).await;
                    continue;
                };
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two hold the lock");
                {
                    let mut last = last.lock().unwrap();
                    assert!(held.token() > *last, "{} after {last}", held.token());
                    *last = held.token();
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
                assert!(!held.is_lost());
                times += 1;
                assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
                if times.is_multiple_of(10) {
                    // As one that is killed.
                    drop(held);
                } else {
                    held.give_back().await;
                }
            }
            times
        }));
    }
    let mut total = 0;
    for task in tasks {
        total += task.await.unwrap();
    }
    eprintln!("lock: taken {total} times by three in 3 s, no overlap");
    assert!(total > 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_renewed_given_back_and_runs_out() {
    let bus = Bus::start().await;
    let (one, two) = (contender(&bus, "c-1").await, contender(&bus, "c-2").await);
    let held = taken(&one).await;
    held.note_plan(Some("plan-1".parse().unwrap())).await;
    let holder = two.holder().await.unwrap().unwrap();
    assert_eq!(holder.instance.as_str(), "c-1");
    assert_eq!(holder.token, Some(held.token()));
    assert_eq!(holder.plan, Some("plan-1".parse().unwrap()));
    // Held past its lease, for it is renewed.
    let started = Instant::now();
    while started.elapsed() < LEASE * 3 {
        assert!(two.take(0).await.unwrap().is_none());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(!held.is_lost());
    let token = held.token();
    held.give_back().await;
    assert!(two.holder().await.unwrap().is_none());

    let next = two.take(0).await.unwrap().expect("given back, and so free at once");
    assert!(next.token() > token);
    drop(next);
    let started = Instant::now();
    let again = taken(&one).await;
    let waited = started.elapsed();
    assert!(waited > LEASE / 2, "{waited:?}");
    again.give_back().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_epoch_is_above_what_any_host_has_seen() {
    let bus = Bus::start().await;
    let lock = contender(&bus, "c-1").await;
    let held = lock.take(0).await.unwrap().unwrap();
    assert_eq!(held.token().epoch, 1);
    held.give_back().await;
    let held = lock.take(41).await.unwrap().unwrap();
    assert_eq!(held.token().epoch, 42);
    held.give_back().await;
    let held = lock.take(7).await.unwrap().unwrap();
    assert_eq!(held.token().epoch, 43);

    let lower = Token { epoch: 42, revision: 1_000 };
    held.heard_of(lower);
    assert!(!held.is_lost());
    held.heard_of(Token { epoch: 44, revision: 1 });
    assert!(held.is_lost());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bus_that_is_away_for_a_lease_means_that_nobody_holds_it() {
    let mut bus = Bus::start().await;
    let lock = contender(&bus, "c-1").await;
    let held = lock.take(0).await.unwrap().unwrap();
    let mut lost = held.lost();
    bus.go_down();
    let started = Instant::now();
    tokio::time::timeout(SOON, lost.wait_for(|lost| *lost)).await.unwrap().unwrap();
    assert!(started.elapsed() < LEASE * 20, "{:?}", started.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bus_that_is_away_for_less_costs_nothing() {
    let mut bus = Bus::start().await;
    let lease = Duration::from_secs(6);
    let lock = PlanLock::new(bus.state(lease).await, "c-1".parse().unwrap());
    let held = lock.take(0).await.unwrap().unwrap();
    bus.go_down();
    bus.go_up().await;
    held.note_plan(Some("plan-1".parse().unwrap())).await;
    let holder = lock.holder().await.unwrap().unwrap();
    assert_eq!(holder.plan, Some("plan-1".parse().unwrap()));
    assert!(!held.is_lost());
}
