//! Every user can do what it must, and cannot do what it must not.

use std::time::Duration;

use async_nats::HeaderMap;
use bytes::Bytes;
use futures_util::StreamExt as _;
use mesh_protocol::bus::identity::User;
use mesh_protocol::bus::{AskError, ConnectError, Connection, EchoError, HostBus, Policy, StateError};
use mesh_protocol::subject::bucket;
use mesh_protocol::verb::{Answer, Verb};
use serde_json::{Value, json};

use crate::desk::{Instance, client};
use crate::support::{Bus, SOON, host, mesh, operator};

const LEASE: Duration = Duration::from_secs(5);

/// Whether the server complains of `subject` after `deed`.
async fn is_refused(connection: &Connection, subject: &str, deed: impl AsyncFnOnce(&Connection)) -> bool {
    let mut violations = connection.violations();
    deed(connection).await;
    connection.echo(SOON).await.unwrap();
    let named = async {
        loop {
            if violations.recv().await.unwrap().contains(&format!("\"{subject}\"")) {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_millis(500), named).await.is_ok()
}

async fn may_not_publish(connection: &Connection, subject: &str) {
    let refused = is_refused(connection, subject, async |connection| {
        let client = connection.client();
        client.publish(subject.to_owned(), Bytes::from_static(b"{}")).await.unwrap();
    });
    assert!(refused.await, "publish to {subject} was not refused");
}

async fn may_not_subscribe(connection: &Connection, subject: &str) {
    let refused = is_refused(connection, subject, async |connection| {
        let subscriber = connection.client().subscribe(subject.to_owned()).await.unwrap();
        connection.echo(SOON).await.unwrap();
        drop(subscriber);
    });
    assert!(refused.await, "subscribe to {subject} was not refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_cannot_touch_another_nodes_declaration() {
    let bus = Bus::start().await;
    let state = bus.state(LEASE).await;
    let instance = Instance::start(&bus, "p-1", Duration::ZERO).await;
    instance.serve().await;
    let declarations = bucket::DECLARATIONS;
    state.create(declarations, "n1", &json!({"node": "n1"})).await.unwrap();
    let revision = state.create(declarations, "n2", &json!({"node": "n2"})).await.unwrap();
    let other = state.create(bucket::REPORTS, "n2", &json!({"node": "n2"})).await.unwrap();

    let n1 = bus.connect(&host("n1")).await;
    for subject in [
        "$KV.declarations.n2",
        "$KV.declarations.n1",
        "$KV.reports.n2",
        "$JS.API.DIRECT.GET.KV_declarations.$KV.declarations.n2",
        "$JS.API.DIRECT.GET.KV_declarations",
        "$JS.API.DIRECT.GET.EVENTS",
        "$JS.API.STREAM.INFO.KV_declarations",
        "$JS.API.STREAM.PURGE.KV_declarations",
        "$JS.API.CONSUMER.CREATE.KV_declarations",
        "mesh.m1.event.plan",
        "mesh.m1.declared.n2",
        "mesh.m1.seat.mesh-controller.push",
        "mesh.m1.seat.mesh-controller.noop",
        "mesh.m1.seat.mesh-controller.fallback.status",
        "mesh.m1.seat.mesh-controller.at.p-1.push",
        "_INBOX.h.n2.x",
    ] {
        may_not_publish(&n1, subject).await;
    }
    for subject in [
        "_INBOX.>",
        "_INBOX.h.n2.>",
        "_INBOX.h.>",
        "mesh.m1.declared.n2",
        "mesh.m1.declared.*",
        "mesh.m1.event.>",
        "mesh.m1.seat.mesh-controller.*",
        "$KV.>",
        ">",
    ] {
        may_not_subscribe(&n1, subject).await;
    }

    // What may be published, with a reply subject that is somebody else's key.
    let victim = "$KV.declarations.n2";
    let tricks: [(&str, Bytes); 4] = [
        ("mesh.m1.seat.mesh-controller.status", Bytes::from_static(b"{}")),
        ("mesh.m1.seat.mesh-controller.at.p-1.ready", Bytes::from_static(b"{}")),
        ("$KV.reports.n1", Bytes::from_static(b"{\"a\":1}")),
        ("$JS.API.DIRECT.GET.KV_declarations.$KV.declarations.n1", Bytes::new()),
    ];
    for (subject, body) in tricks {
        n1.client().publish_with_reply(subject, victim, body).await.unwrap();
    }
    let consumer = json!({
        "stream_name": "KV_declarations",
        "config": { "deliver_subject": victim, "ack_policy": "none", "deliver_policy": "all" },
    });
    for subject in
        ["$JS.API.CONSUMER.CREATE.KV_declarations", "$JS.API.CONSUMER.DURABLE.CREATE.KV_declarations.x"]
    {
        let body = serde_json::to_vec(&consumer).unwrap();
        n1.client().publish_with_reply(subject, victim, body.into()).await.unwrap();
    }
    // A rollup of one's own key, which would erase everybody's.
    let mut headers = HeaderMap::new();
    headers.insert("Nats-Rollup", "all");
    let request = async_nats::Request::new().headers(headers).payload("{}".into());
    let refused = n1.client().send_request("$KV.reports.n1", request).await.unwrap();
    assert!(String::from_utf8_lossy(&refused.payload).contains("rollup"), "{refused:?}");

    // A report that is acknowledged came after all of it; so did a read over the other connection.
    let answered = n1.client().request("$KV.reports.n1", "{}".into()).await.unwrap();
    assert!(String::from_utf8_lossy(&answered.payload).contains("seq"), "{answered:?}");
    instance.connection.echo(SOON).await.unwrap();
    let found = state.read::<Value>(declarations, "n2").await.unwrap().unwrap();
    assert_eq!((found.revision, found.value), (revision, json!({"node": "n2"})));
    let found = state.read::<Value>(bucket::REPORTS, "n2").await.unwrap().unwrap();
    assert_eq!(found.revision, other);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_does_what_it_must() {
    let bus = Bus::start().await;
    let state = bus.state(LEASE).await;
    let instance = Instance::start(&bus, "p-1", Duration::ZERO).await;
    instance.serve().await;
    let connection = bus.connect(&host("n1")).await;
    let n1 = HostBus::new(connection, mesh(), "n1".parse().unwrap());
    assert!(n1.declaration().await.unwrap().is_none());

    let mut hints = Box::pin(n1.hints());
    hints.next().await.unwrap();
    n1.connection().echo(SOON).await.unwrap();
    let declaration = declaration("n1");
    state.create(bucket::DECLARATIONS, "n2", &declaration).await.unwrap();
    state.create(bucket::DECLARATIONS, "n1", &declaration).await.unwrap();
    tokio::time::timeout(SOON, hints.next()).await.unwrap().unwrap();
    assert_eq!(n1.declaration().await.unwrap().unwrap(), declaration);

    let asker = client(&bus, &host("n1")).await;
    let instance_id = "p-1".parse().unwrap();
    let at = asker.ask_at::<String>(&instance_id, Verb::Ready, SOON);
    assert_eq!(at.await.unwrap().by.instance.as_str(), "p-1");
    let body = json!({});
    let public = asker.ask::<_, String>(Verb::Status, &body, Policy::Once(SOON));
    public.await.unwrap();

    let n2 = HostBus::new(asker.connection().clone(), mesh(), "n2".parse().unwrap());
    let error = n2.declaration().await.unwrap_err();
    assert!(matches!(error, StateError::NotPermitted(_)), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_asks_and_reads_and_writes_nothing() {
    let bus = Bus::start().await;
    let _state = bus.state(LEASE).await;
    let instance = Instance::start(&bus, "p-1", Duration::ZERO).await;
    instance.serve().await;
    let asker = client(&bus, &operator()).await;
    for verb in [Verb::Status, Verb::Push] {
        let answer: Answer<String> = asker.ask(verb, &json!({}), Policy::Change).await.unwrap();
        assert_eq!(answer.by.instance.as_str(), "p-1");
    }
    for subject in [
        "mesh.m1.event.plan",
        "mesh.m1.seat.mesh-controller.at.p-1.ready",
        "$KV.plans.x",
        "$JS.API.DIRECT.GET.KV_reports.$KV.reports.n1",
        "$JS.API.STREAM.INFO.EVENTS",
        "_INBOX.o.op2.x",
    ] {
        may_not_publish(asker.connection(), subject).await;
    }
    for subject in ["_INBOX.>", "_INBOX.o.op2.>", "mesh.m1.declared.n1", "mesh.m1.seat.>"] {
        may_not_subscribe(asker.connection(), subject).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prober_asks_for_the_status_and_nothing_else() {
    let bus = Bus::start().await;
    let instance = Instance::start(&bus, "p-1", Duration::ZERO).await;
    instance.serve().await;
    let prober = client(&bus, &User::Prober).await;
    let once = Policy::Once(SOON);
    prober.ask::<_, String>(Verb::Status, &json!({}), once).await.unwrap();
    let error = prober.ask::<_, String>(Verb::Nodes, &json!({}), once).await.unwrap_err();
    assert!(matches!(error, AskError::NotPermitted(_)), "{error:?}");
    may_not_publish(prober.connection(), "mesh.m1.seat.mesh-controller.at.p-1.ready").await;
    may_not_subscribe(prober.connection(), "mesh.m1.event.>").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_seat_has_no_state_and_the_state_no_seat() {
    let bus = Bus::start().await;
    let _state = bus.state(LEASE).await;
    let seat = bus.connect(&User::ControllerSeat).await;
    for subject in ["$JS.API.INFO", "$KV.plans.x", "mesh.m1.event.plan", "mesh.m1.seat.mesh-controller.push"]
    {
        may_not_publish(&seat, subject).await;
    }
    // Not without the queue group: it would get every request.
    for subject in ["mesh.m1.seat.mesh-controller.*", "_INBOX.>"] {
        may_not_subscribe(&seat, subject).await;
    }
    let state = bus.connect(&User::ControllerState).await;
    may_not_publish(&state, "$JS.API.STREAM.DELETE.KV_plans").await;
    may_not_publish(&state, "mesh.m1.seat.mesh-controller.status").await;
    may_not_subscribe(&state, "$KV.>").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_connection_is_said() {
    let mut bus = Bus::start().await;
    let mut settings = bus.settings(&host("n1"));
    settings.inbox = "_INBOX.h.n2".to_owned();
    let error = Connection::open(&settings).await.unwrap_err();
    let silent = matches!(&error, ConnectError::InboxSilent { source: EchoError::NotPermitted(_), .. });
    assert!(silent, "{error:?}");

    let stranger = Bus::start().await;
    let mut settings = bus.settings(&host("n1"));
    settings.credential = stranger.settings(&host("n1")).credential;
    let error = Connection::open(&settings).await.unwrap_err();
    assert!(matches!(error, ConnectError::CredentialRefused { .. }), "{error:?}");

    settings.credential = "/nowhere/at.all".into();
    let error = Connection::open(&settings).await.unwrap_err();
    assert!(matches!(error, ConnectError::CredentialUnreadable { .. }), "{error:?}");

    let settings = bus.settings(&host("n1"));
    bus.go_down();
    let error = Connection::open(&settings).await.unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable { .. }), "{error:?}");
    let waiting = tokio::spawn(async move { Connection::open_when_there(&settings).await });
    bus.go_up().await;
    tokio::time::timeout(SOON, waiting).await.unwrap().unwrap();
}

fn declaration(node: &str) -> mesh_protocol::declaration::Declaration {
    use mesh_protocol::id::{Generation, Token};
    mesh_protocol::declaration::Declaration {
        format: mesh_protocol::declaration::FORMAT,
        mesh: mesh(),
        node: node.parse().unwrap(),
        generation: Generation(2),
        token: Token::default(),
        issued: Vec::new(),
        plan: None,
        modules: Vec::new(),
        adopted: Vec::new(),
    }
}
