use std::collections::BTreeMap;

use mesh_protocol::declaration::{Declaration, FORMAT};
use mesh_protocol::id::{Digest, Generation, Token};
use mesh_protocol::manifest::Manifest;
use mesh_protocol::plan::{Change, PlanState};
use mesh_protocol::report::SecretHeld;
use mesh_protocol::section::{NodeContext, compose};

use crate::support::mesh;
use crate::world::{World, bundles, module, push};

/// Generation 1 with one module in it, as genesis raises it.
fn genesis(name: &str) -> Declaration {
    let manifest = Manifest::parse("m", &module(name, "1.0.0")).unwrap();
    let secrets =
        [SecretHeld { module: name.parse().unwrap(), name: "key".to_owned(), digest: Digest::of(b"secret") }];
    let system = mesh_protocol::id::System::LinuxAmd64;
    let context = NodeContext { system, bundles: &bundles(name, "1.0.0"), secrets: &secrets, revision: 0 };
    let mut declaration = Declaration {
        format: FORMAT,
        mesh: mesh(),
        node: "n1".parse().unwrap(),
        generation: Generation::FIRST,
        token: Token::default(),
        issued: Vec::new(),
        plan: None,
        modules: vec![compose(&manifest, &context).unwrap()],
        adopted: Vec::new(),
    };
    declaration.issued = vec![declaration.issued()];
    declaration
}

#[tokio::test]
async fn what_genesis_raised_is_adopted_and_then_taken_over_untouched() {
    let world = World::start().await;
    let _controller = world.serving("c-1").await;
    let first = genesis("web");
    let host = world.host("n1", Some(first.clone())).await;
    world
        .until("it is adopted", async || {
            let status = world.status().await;
            status.nodes[0].resources.iter().filter(|resource| resource.adopted.is_some()).count() == 4
        })
        .await;
    world.push(&push("other", "other", "1.0.0", &["n1"])).await;
    assert!(matches!(world.ended(&"other".parse().unwrap()).await.state, PlanState::Done { .. }));
    let accepted = host.accepted().unwrap();
    assert_eq!((accepted.generation, accepted.adopted.len()), (Generation(2), 4));
    assert_eq!(accepted.issued[0], first.issued());

    let taken = world.push(&push("web", "web", "1.0.0", &["n1"])).await;
    let changes: BTreeMap<String, &Change> =
        taken.plan.changes[0].resources.iter().map(|c| (c.id.to_string(), &c.change)).collect();
    assert!(changes.values().all(|change| **change == Change::TakeOver), "{changes:?}");
    assert!(matches!(world.ended(&"web".parse().unwrap()).await.state, PlanState::Done { .. }));
    let accepted = host.accepted().unwrap();
    assert_eq!((accepted.modules.len(), accepted.adopted.len()), (2, 0));
    let status = world.status().await;
    assert!(status.nodes[0].resources.iter().all(|resource| resource.adopted.is_none()));
}
