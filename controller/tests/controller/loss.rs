use std::time::Duration;

use mesh_protocol::plan::PlanState;

use crate::world::{World, push, within};

/// A store that is made anew is waited for by everybody: connections, buckets, reports, questions.
const LONG: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_state_that_was_lost_is_taken_over_from_the_hosts() {
    let mut world = World::start().await;
    let controller = world.serving("p-1").await;
    let one = world.host("n1", None).await;
    let two = world.host("n2", None).await;
    world.push(&push("web", "web", "1.0.0", &["n1", "n2"])).await;
    world.ended(&"web".parse().unwrap()).await;
    world.push(&push("web-2", "web", "2.0.0", &[])).await;
    world.ended(&"web-2".parse().unwrap()).await;
    world.push(&push("other", "other", "1.0.0", &["n1"])).await;
    world.ended(&"other".parse().unwrap()).await;
    let (before, records) = (one.accepted().unwrap(), world.modules().await.modules);

    world.bus.go_down();
    std::fs::remove_dir_all(world.bus.path().join("store")).unwrap();
    world.bus.go_up().await;

    // Nothing changed on the node, but for the number.
    within(LONG, "the host has what was taken over", async || {
        one.accepted().is_some_and(|accepted| accepted.generation > before.generation)
    })
    .await;
    within(LONG, "the modules are known again", async || {
        let modules = world.modules().await.modules;
        let nodes: usize = modules.iter().map(|module| module.nodes.len()).sum();
        (modules.len(), nodes) == (2, 3)
    })
    .await;
    let found = world.modules().await.modules;
    for (was, is) in records.iter().zip(&found) {
        assert_eq!((&was.name, was.revision, &was.manifest), (&is.name, is.revision, &is.manifest));
        assert_eq!((&was.bundles, &was.nodes), (&is.bundles, &is.nodes), "{}", controller.log());
    }
    let after = one.accepted().unwrap();
    assert_eq!(after.modules, before.modules);
    assert!(after.token > before.token, "{} {}", after.token, before.token);

    world.push(&push("web-3", "web", "3.0.0", &[])).await;
    let plan = world.ended(&"web-3".parse().unwrap()).await;
    assert!(matches!(plan.state, PlanState::Done { .. }), "{plan:?}");
    assert_eq!(two.accepted().unwrap().modules[0].revision, 3);
    assert_eq!(one.accepted().unwrap().modules.len(), 2);
}

#[tokio::test]
async fn a_bus_that_goes_away_for_a_while_costs_nothing_but_the_while() {
    let mut world = World::start().await;
    let mut controller = world.serving("p-1").await;
    let host = world.host("n1", None).await;
    host.fate(crate::host::Fate::Stall);
    world.push(&push("web", "web", "1.0.0", &["n1"])).await;
    world.waits_for(&"web".parse().unwrap(), "n1: ").await;
    world.bus.go_down();
    host.fate(crate::host::Fate::Converge);
    world.bus.go_up().await;
    within(LONG, "the plan is done", async || {
        matches!(world.plan(&"web".parse().unwrap()).await.state, PlanState::Done { .. })
    })
    .await;
    assert!(controller.terminate().await.success());
}
