use mesh_protocol::bus::EventReader;
use mesh_protocol::id::Generation;
use mesh_protocol::plan::{Change, FailureOutcome, PlanState};
use mesh_protocol::verb::{
    DeclarationAnswer, DeclarationRequest, HistoryAnswer, HistoryRequest, Mode, PlanRequest, PlannedAnswer,
    PlansAnswer, RefusalCode, RollbackRequest, Verb,
};

use crate::host::Fate;
use crate::support::mesh;
use crate::world::{World, assign, module, push};

#[tokio::test]
async fn a_rollback_is_a_push_of_an_earlier_revision_and_the_history_says_so() {
    let world = World::start().await;
    let _controller = world.serving("p-1").await;
    let host = world.host("n1", None).await;
    for (request, version) in [("first", "1.0.0"), ("second", "2.0.0")] {
        world.push(&push(request, "web", version, &["n1"])).await;
        assert!(matches!(world.ended(&request.parse().unwrap()).await.state, PlanState::Done { .. }));
    }
    let back = |request: &str, to| RollbackRequest {
        request: request.parse().unwrap(),
        module: "web".parse().unwrap(),
        to,
        mode: Mode::Do,
    };
    let planned: PlannedAnswer = world.ask(Verb::Rollback, &back("third", None)).await.unwrap();
    assert!(matches!(world.ended(&planned.plan.id).await.state, PlanState::Done { .. }));
    let accepted = host.accepted().unwrap();
    assert_eq!((accepted.modules[0].revision, accepted.modules[0].version.as_str()), (3, "1.0.0"));
    // The same request again finds its own plan.
    let again: PlannedAnswer = world.ask(Verb::Rollback, &back("third", None)).await.unwrap();
    assert_eq!(again.plan.id, planned.plan.id);

    let asked = HistoryRequest { module: "web".parse().unwrap() };
    let history: HistoryAnswer = world.ask(Verb::History, &asked).await.unwrap();
    let revisions: Vec<(u64, Option<u64>)> =
        history.revisions.iter().map(|record| (record.revision, record.again)).collect();
    assert_eq!((revisions, history.current), (vec![(3, Some(1)), (2, None), (1, None)], Some(3)));
    for (request, to, code) in [
        ("fourth", None, RefusalCode::NotFound),
        ("fifth", Some(0), RefusalCode::Conflict),
        ("sixth", Some(9), RefusalCode::NotFound),
    ] {
        assert_eq!(world.refused(Verb::Rollback, &back(request, to)).await.0, code, "{to:?}");
    }
}

#[tokio::test]
async fn a_push_is_stored_carried_out_and_found_again() {
    let world = World::start().await;
    let _controller = world.serving("p-1").await;
    let host = world.host("n1", None).await;
    let request = push("first", "web", "1.0.0", &["n1"]);
    let answer = world.push(&request).await;
    assert_eq!(answer.plan.id, request.request);
    assert_eq!(answer.plan.changes[0].resources.len(), 4);
    assert!(answer.plan.changes[0].resources.iter().all(|change| change.change == Change::Create));
    let plan = world.ended(&request.request).await;
    assert!(matches!(plan.state, PlanState::Done { .. }), "{plan:?}");
    assert_eq!(plan.targets[&"n1".parse().unwrap()], Generation(1));

    // The same request again finds its own plan.
    assert_eq!(world.push(&request).await.plan, plan);
    assert_eq!(world.modules().await.modules[0].revision, 1);
    // The same module again is done at once, and makes no new revision.
    let again = world.push(&push("second", "web", "1.0.0", &[])).await;
    assert!(matches!(again.plan.state, PlanState::Done { .. }));
    assert_eq!(world.modules().await.modules[0].revision, 1);
    // A new version is another generation.
    world.push(&push("third", "web", "2.0.0", &[])).await;
    assert!(matches!(world.ended(&"third".parse().unwrap()).await.state, PlanState::Done { .. }));
    let accepted = host.accepted().unwrap();
    assert_eq!((accepted.generation, accepted.modules[0].revision), (Generation(2), 2));
    let asked = DeclarationRequest { node: "n1".parse().unwrap() };
    let declared: DeclarationAnswer = world.ask(Verb::Declaration, &asked).await.unwrap();
    assert_eq!(declared.declaration.unwrap().digest(), accepted.digest());

    let asked = HistoryRequest { module: "web".parse().unwrap() };
    let history: HistoryAnswer = world.ask(Verb::History, &asked).await.unwrap();
    let revisions: Vec<u64> = history.revisions.iter().map(|record| record.revision).collect();
    assert_eq!(revisions, [2, 1]);
    let plans: PlansAnswer = world.ask(Verb::Plans, &serde_json::json!({})).await.unwrap();
    let ids: Vec<&str> = plans.plans.iter().map(|plan| plan.id.as_str()).collect();
    assert_eq!(ids, ["third", "second", "first"]);
    let status = world.status().await;
    assert_eq!(status.nodes[0].generation.declared, Some(Generation(2)));
    world.until("the lock is free", async || world.status().await.plan_lock.holder.is_none()).await;

    let events = EventReader::new(world.operator.connection().clone(), mesh());
    for line in [
        "node n1 registered",
        "plan first (web): stored",
        "plan first (web): done",
        "n1 process:web: converged",
    ] {
        world
            .until(line, async || {
                let told = events.read_from(1).await.unwrap();
                told.iter().any(|recorded| recorded.event.what.line() == line)
            })
            .await;
    }
}

#[tokio::test]
async fn a_dry_run_shows_the_plan_and_the_needs_and_changes_nothing() {
    let world = World::start().await;
    let _controller = world.serving("p-1").await;
    let _host = world.host("n1", None).await;
    let mut request = push("dry", "web", "1.0.0", &["n1"]);
    request.mode = Mode::DryRun;
    request.bundles.clear();
    let answer = world.push(&request).await;
    assert_eq!(answer.plan.changes[0].resources.len(), 4);
    assert_eq!(answer.needs.len(), 1);
    assert_eq!((answer.needs[0].nodes.len(), &answer.needs[0].published), (1, &None));
    let plans: PlansAnswer = world.ask(Verb::Plans, &serde_json::json!({})).await.unwrap();
    assert_eq!(plans.plans, []);
    assert_eq!(world.modules().await.modules, []);
    // Done for good with what it needs not there, it is refused.
    request.mode = Mode::Do;
    let (code, message) = world.refused(Verb::Push, &request).await;
    assert_eq!(code, RefusalCode::Missing);
    assert!(message.contains("bundle web for linux/amd64 is not published, and n1 needs it"), "{message}");
}

#[tokio::test]
async fn what_is_handed_back_fails_the_plan_and_a_good_one_goes_on_from_there() {
    let world = World::start().await;
    let _controller = world.serving("p-1").await;
    let host = world.host("n1", None).await;
    host.fate(Fate::HandBack("process:web".parse().unwrap()));
    world.push(&push("bad", "web", "1.0.0", &["n1"])).await;
    let plan = world.ended(&"bad".parse().unwrap()).await;
    let PlanState::Failed { failures, .. } = &plan.state else { panic!("{plan:?}") };
    assert_eq!(failures.len(), 1);
    assert_eq!(failures[0].outcome, FailureOutcome::HandedBack);
    assert!(failures[0].error.contains("it exited with status 7"), "{}", failures[0].error);
    assert!(failures[0].error.contains("cannot bind"), "{}", failures[0].error);
    // The same once more is one more try.
    host.fate(Fate::Stall);
    let again = world.push(&push("again", "web", "1.0.0", &[])).await;
    host.fate(Fate::Converge);
    let retried: Vec<_> = again.plan.changes.iter().flat_map(|changes| &changes.resources).collect();
    assert!(
        !retried.is_empty() && retried.iter().all(|change| change.change == Change::Retry),
        "{retried:?}"
    );
    assert!(matches!(world.ended(&"again".parse().unwrap()).await.state, PlanState::Done { .. }));
    assert_eq!(host.accepted().unwrap().modules[0].revision, 2);
}

#[tokio::test]
async fn one_plan_at_a_time_and_abort_makes_room() {
    let world = World::start().await;
    let _controller = world.serving("p-1").await;
    let host = world.host("n1", None).await;
    host.fate(Fate::Stall);
    world.push(&push("stuck", "web", "1.0.0", &["n1"])).await;
    world.waits_for(&"stuck".parse().unwrap(), "n1: ").await;
    let (code, message) = world.refused(Verb::Push, &push("next", "web", "2.0.0", &[])).await;
    assert_eq!(code, RefusalCode::PlanOpen);
    assert!(message.contains("stuck"), "{message}");
    let abort = PlanRequest { plan: "stuck".parse().unwrap() };
    world.ask::<_, serde_json::Value>(Verb::Abort, &abort).await.unwrap();
    let plan = world.ended(&abort.plan).await;
    assert!(matches!(plan.state, PlanState::Aborted { .. }), "{plan:?}");
    host.fate(Fate::Converge);
    world.push(&push("next", "web", "2.0.0", &[])).await;
    assert!(matches!(world.ended(&"next".parse().unwrap()).await.state, PlanState::Done { .. }));
}

#[tokio::test]
async fn assigning_and_unassigning_are_plans_too() {
    let world = World::start().await;
    let _controller = world.serving("p-1").await;
    let _one = world.host("n1", None).await;
    let two = world.host("n2", None).await;
    let recorded = world.push(&push("record", "web", "1.0.0", &[])).await;
    assert_eq!(recorded.plan.remarks, ["web is assigned to no node: it is recorded, and runs nowhere"]);
    world.ended(&"record".parse().unwrap()).await;
    // Pushed for no node, its bundle was told all the same, and is known.
    world.ask::<_, serde_json::Value>(Verb::Assign, &assign("on", "web", "n2")).await.unwrap();
    assert!(matches!(world.ended(&"on".parse().unwrap()).await.state, PlanState::Done { .. }));
    assert_eq!(two.accepted().unwrap().modules.len(), 1);
    world.ask::<_, serde_json::Value>(Verb::Unassign, &assign("off", "web", "n2")).await.unwrap();
    assert!(matches!(world.ended(&"off".parse().unwrap()).await.state, PlanState::Done { .. }));
    assert_eq!(two.accepted().unwrap().modules, []);
    let (code, _) = world.refused(Verb::Assign, &assign("x", "nothing", "n2")).await;
    assert_eq!(code, RefusalCode::NotFound);
    let (code, _) = world.refused(Verb::Assign, &assign("y", "web", "n9")).await;
    assert_eq!(code, RefusalCode::NotFound);
}

#[tokio::test]
async fn what_is_wrong_is_refused_and_changes_nothing() {
    let world = World::start().await;
    let _controller = world.serving("p-1").await;
    let _host = world.host("n1", None).await;
    let mut wrong = push("wrong", "web", "1.0.0", &["n1"]);
    wrong.manifest = module("web", "1.0.0").replace("mode = ", "mod = ");
    let (code, message) = world.refused(Verb::Push, &wrong).await;
    assert_eq!(code, RefusalCode::InvalidManifest);
    assert!(message.contains("web/module.toml:"), "{message}");
    let (code, _) = world.refused(Verb::Push, &serde_json::json!({"request": 7})).await;
    assert_eq!(code, RefusalCode::InvalidRequest);
    let (code, _) = world.refused(Verb::Push, &push("nowhere", "web", "1.0.0", &["n9"])).await;
    assert_eq!(code, RefusalCode::NotFound);
    let (code, message) = world.refused(Verb::Push, &push("secretless", "stranger", "1.0.0", &["n1"])).await;
    assert_eq!(code, RefusalCode::Missing);
    assert!(message.contains("secret key"), "{message}");
    world.push(&push("good", "web", "1.0.0", &["n1"])).await;
    world.ended(&"good".parse().unwrap()).await;
    let mut twin = push("twin", "other", "1.0.0", &["n1"]);
    twin.manifest = twin.manifest.replace("name = \"other\"\n\n[[bundle]]", "name = \"web\"\n\n[[bundle]]");
    twin.manifest = twin.manifest.replace("account = \"other\"", "account = \"web\"");
    let (code, message) = world.refused(Verb::Push, &twin).await;
    assert_eq!(code, RefusalCode::Conflict);
    assert!(message.contains("account:web"), "{message}");
    assert_eq!(world.modules().await.modules.len(), 1);
}
