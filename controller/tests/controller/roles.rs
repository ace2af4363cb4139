use std::time::{Duration, Instant};

use mesh_protocol::bus::identity::User;
use mesh_protocol::bus::{AskError, Policy, SeatClient};
use mesh_protocol::handover::{Form, Role};
use mesh_protocol::plan::PlanState;
use mesh_protocol::verb::{Check, RefusalCode, StatusAnswer, Verb};

use crate::host::Fate;
use crate::support::mesh;
use crate::world::{LEASE, World, push};

/// A lease that does not run out while a test waits for less.
const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn one_that_stands_by_answers_what_it_is_asked_and_changes_nothing() {
    let world = World::start().await;
    let mut standing = world.instance("c-1");
    standing.give(Role::StandingBy).await;
    let answer = world
        .operator
        .ask::<_, StatusAnswer>(Verb::Status, &serde_json::json!({}), Policy::Read)
        .await
        .unwrap();
    assert_eq!((answer.by.instance, answer.by.form), (standing.id.clone(), Form::Container));
    assert_eq!(answer.by.role, Role::StandingBy);
    let (code, _) = world.refused(Verb::Push, &push("p", "web", "1.0.0", &[])).await;
    assert_eq!(code, RefusalCode::StandingBy);
}

#[tokio::test]
async fn ready_says_what_was_tried() {
    let world = World::start().await;
    let mut instance = world.instance("p-1");
    instance.give(Role::StandingBy).await;
    let host = world.host_client("n1").await;
    let ready = world.ready(&host, &instance).await.unwrap();
    assert_eq!((ready.state, ready.lock, ready.lock_taken), (Check::Passed, Check::Passed, false));
    assert_eq!((ready.role, ready.open_plan), (Role::StandingBy, None));
    assert_eq!(ready.version, env!("CARGO_PKG_VERSION"));
    let program = std::fs::read(env!("CARGO_BIN_EXE_mesh-controller")).unwrap();
    assert_eq!(ready.program, mesh_protocol::id::Digest::of(&program));
    instance.give(Role::Serving).await;
    world
        .until("the lock was taken", async || {
            world.ready(&host, &instance).await.is_some_and(|ready| ready.lock_taken)
        })
        .await;
    world.until("it is given back", async || world.status().await.plan_lock.holder.is_none()).await;
}

#[tokio::test]
async fn orders_are_acknowledged_at_once_and_a_lost_acknowledgement_comes_back() {
    let world = World::start().await;
    let mut instance = world.instance("p-1");
    instance.give(Role::StandingBy).await;
    for _ in 0..5 {
        for role in [Role::Serving, Role::StandingBy] {
            let took = instance.give(role).await;
            assert!(took < Duration::from_secs(5), "{role:?} took {took:?}");
        }
    }
    std::fs::remove_file(instance.folder.join("role.ack")).unwrap();
    instance.acknowledged(Role::StandingBy, None).await;
}

#[tokio::test]
async fn one_that_may_not_join_says_so_and_stands_by() {
    let world = World::start().await;
    let mut rights = User::ControllerSeat.rights(&mesh());
    rights.subscribe.retain(|subject| !subject.ends_with(" mesh-controller"));
    let settings = world.bus.settings(&User::ControllerSeat);
    // Writes its credential where the settings say.
    let _other = world.bus.connect_with("controller-seat", &rights, "_INBOX.c").await;
    let state = world.bus.settings(&User::ControllerState);
    let mut instance = crate::instance::Instance::start(world.bus.path(), "p-1", &settings, &state, LEASE);
    instance.order(Role::Serving);
    instance.acknowledged(Role::StandingBy, Some("Permissions Violation")).await;
    // It still stands by.
    let host = world.host_client("n1").await;
    assert_eq!(world.ready(&host, &instance).await.unwrap().role, Role::StandingBy);
    instance.give(Role::StandingBy).await;
}

#[tokio::test]
async fn the_second_goes_on_with_the_plan_when_the_first_steps_down() {
    let world = World::start().await;
    let mut first = world.instance_with("c-1", LONG);
    first.give(Role::Serving).await;
    let host = world.host("n1", None).await;
    host.fate(Fate::Stall);
    world.push(&push("plan", "web", "1.0.0", &["n1"])).await;
    world.waits_for(&"plan".parse().unwrap(), "n1: ").await;
    world.until("the first has the lock", async || world.status().await.plan_lock.holder.is_some()).await;
    let before = world.status().await.plan_lock;
    assert_eq!(before.holder, Some(first.id.clone()));
    let mut second = world.instance_with("p-2", LONG);
    second.give(Role::StandingBy).await;
    let asking = world.host_client("n1").await;
    let ready = world.ready(&asking, &second).await.unwrap();
    assert_eq!(ready.open_plan, Some("plan".parse().unwrap()));
    second.give(Role::Serving).await;
    let took = first.give(Role::StandingBy).await;
    assert!(took < LONG, "the lock was given back, not run out: {took:?}");
    world
        .until("the second has the lock", async || {
            world.ready(&asking, &second).await.is_some_and(|ready| ready.lock_taken)
        })
        .await;
    let after = world.status().await.plan_lock;
    assert_eq!(after.holder, Some(second.id.clone()));
    assert!(after.token > before.token);
    assert!(
        !world.ready(&asking, &first).await.unwrap().lock_taken || after.holder != Some(first.id.clone())
    );
    host.fate(Fate::Converge);
    assert!(matches!(world.ended(&"plan".parse().unwrap()).await.state, PlanState::Done { .. }));
    assert_eq!(Some(host.accepted().unwrap().token), after.token, "what was put was put again");
    assert!(first.terminate().await.success());
    assert!(second.terminate().await.success());
}

#[tokio::test]
async fn the_second_goes_on_when_the_first_was_killed_and_its_lease_ran_out() {
    let world = World::start().await;
    let mut first = world.serving("p-1").await;
    let host = world.host("n1", None).await;
    host.fate(Fate::Stall);
    world.push(&push("plan", "web", "1.0.0", &["n1"])).await;
    world.waits_for(&"plan".parse().unwrap(), "n1: ").await;
    let second = world.serving("p-2").await;
    first.kill();
    host.fate(Fate::Converge);
    assert!(matches!(world.ended(&"plan".parse().unwrap()).await.state, PlanState::Done { .. }));
    let asking = world.host_client("n1").await;
    assert!(world.ready(&asking, &second).await.unwrap().lock_taken);
}

#[tokio::test]
async fn one_that_froze_under_the_lock_writes_nothing_when_it_wakes_up() {
    let world = World::start().await;
    let first = world.serving("p-1").await;
    let host = world.host("n1", None).await;
    host.fate(Fate::Stall);
    world.push(&push("plan", "web", "1.0.0", &["n1"])).await;
    world.waits_for(&"plan".parse().unwrap(), "n1: ").await;
    let second = world.serving("p-2").await;
    first.freeze();
    world
        .until("the second has the lock", async || {
            // Half of the questions go to the frozen one: ask the second.
            let asking = world.host_client("n1").await;
            world.ready(&asking, &second).await.is_some_and(|ready| ready.lock_taken)
        })
        .await;
    host.fate(Fate::Converge);
    first.thaw();
    assert!(matches!(world.ended(&"plan".parse().unwrap()).await.state, PlanState::Done { .. }));
    world.until("the lock is free", async || world.status().await.plan_lock.holder.is_none()).await;
    world.push(&push("next", "web", "2.0.0", &[])).await;
    assert!(matches!(world.ended(&"next".parse().unwrap()).await.state, PlanState::Done { .. }));
    assert_eq!(host.accepted().unwrap().modules[0].revision, 2);
}

#[tokio::test]
async fn nobody_who_asks_notices_that_the_seat_changes_hands() {
    let world = World::start().await;
    let mut first = world.serving("p-1").await;
    let mut second = world.instance("p-2");
    let _host = world.host("n1", None).await;
    second.give(Role::StandingBy).await;
    let prober =
        SeatClient::new(world.bus.connect(&User::Prober).await, mesh(), "mesh-controller".parse().unwrap());
    let (stop, mut stopped) = tokio::sync::watch::channel(false);
    let probing = tokio::spawn(async move {
        let mut tick = tokio::time::interval(Duration::from_millis(5));
        let mut probes = tokio::task::JoinSet::new();
        while !*stopped.borrow_and_update() {
            tick.tick().await;
            let prober = prober.clone();
            probes.spawn(async move {
                let began = Instant::now();
                let once = Policy::Once(Duration::from_secs(1));
                let asked =
                    prober.ask_for::<_, StatusAnswer>(Verb::Status, &serde_json::json!({}), once).await;
                (began.elapsed(), asked.map(|(_, by)| by.instance))
            });
        }
        probes.join_all().await
    });
    for _ in 0..5 {
        second.give(Role::Serving).await;
        first.give(Role::StandingBy).await;
        first.give(Role::Serving).await;
        second.give(Role::StandingBy).await;
    }
    second.give(Role::Serving).await;
    assert!(first.terminate().await.success());
    stop.send(true).unwrap();
    let answers = probing.await.unwrap();
    let failed: Vec<&AskError> = answers.iter().filter_map(|(_, answer)| answer.as_ref().err()).collect();
    assert!(failed.is_empty(), "{} of {} failed: {:?}", failed.len(), answers.len(), failed[0]);
    assert!(answers.len() > 20);
    let slowest = answers.iter().map(|(took, _)| *took).max().unwrap();
    println!(
        "{} asked, none failed, slowest {slowest:?}, peak {} kB",
        answers.len(),
        second.peak_kilobytes()
    );
}
