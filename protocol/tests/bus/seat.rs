//! Asking and answering for a seat.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mesh_protocol::bus::identity::{Rights, User};
use mesh_protocol::bus::{AskError, Left, Policy, ServeError};
use mesh_protocol::verb::{Answer, Outcome, RefusalCode, Verb};
use serde_json::json;

use crate::desk::{Instance, client};
use crate::support::{Bus, SOON, host, mesh, operator};

#[tokio::test(flavor = "multi_thread")]
async fn a_seat_is_asked_where_it_is_served_and_else_on_its_fallback() {
    let bus = Bus::start().await;
    let asker = client(&bus, &operator()).await;
    let once = Policy::Once(SOON);
    let error = asker.ask::<_, String>(Verb::Status, &json!({}), once).await.unwrap_err();
    assert!(matches!(error, AskError::NoResponders { .. }), "{error:?}");

    let instance = Instance::start(&bus, "p-1", Duration::ZERO).await;
    let error = asker.ask::<_, String>(Verb::Status, &json!({}), once).await.unwrap_err();
    assert!(matches!(error, AskError::NoResponders { .. }), "{error:?}");
    let (path, by) = asker.ask_for::<_, String>(Verb::Status, &json!({}), Policy::Read).await.unwrap();
    assert_eq!((path.as_str(), by.instance.as_str()), ("fallback", "p-1"));
    let host = client(&bus, &host("n1")).await;
    let own = host.ask_at::<String>(&"p-1".parse().unwrap(), Verb::Ready, SOON).await.unwrap();
    assert_eq!(own.outcome, Outcome::Answer("at".to_owned()));
    let other = host.ask_at::<String>(&"p-2".parse().unwrap(), Verb::Ready, SOON).await;
    assert!(matches!(other, Err(AskError::NoResponders { .. })), "{other:?}");

    instance.serve().await;
    instance.server.serve().await.unwrap();
    let (path, _) = asker.ask_for::<_, String>(Verb::Status, &json!({}), once).await.unwrap();
    assert_eq!(path, "public");
    // Joined once, though told twice.
    assert_eq!(instance.server.leave().await.left, Left::Filled);
    assert_eq!(instance.server.leave().await.left, Left::NotJoined);
    let error = asker.ask::<_, String>(Verb::Status, &json!({}), once).await.unwrap_err();
    assert!(matches!(error, AskError::NoResponders { .. }), "{error:?}");
    instance.server.close().await;
    let other = host.ask_at::<String>(&"p-1".parse().unwrap(), Verb::Ready, SOON).await;
    assert!(matches!(other, Err(AskError::NoResponders { .. })), "{other:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changing_verb_is_asked_again_until_somebody_serves() {
    let bus = Bus::start().await;
    let instance = Instance::start(&bus, "p-1", Duration::ZERO).await;
    let asker = client(&bus, &operator()).await;
    let asking = tokio::spawn(async move {
        asker.ask_for::<_, String>(Verb::Push, &json!({"request": "r1"}), Policy::Change).await
    });
    crate::support::until("it was refused", async || instance.desk.calls.load(Ordering::Relaxed) > 2)
        .await
        .unwrap();
    instance.serve().await;
    // It may come on either subject: the one that was refused on the fallback serves by now.
    let (path, by) = asking.await.unwrap().unwrap();
    assert!(path == "public" || path == "fallback", "{path}");
    assert_eq!(by.instance.as_str(), "p-1");
}

#[tokio::test(flavor = "multi_thread")]
async fn asking_ends_though_nobody_comes() {
    let bus = Bus::start().await;
    let asker = client(&bus, &operator()).await;
    let started = Instant::now();
    let error = asker.ask::<_, String>(Verb::Status, &json!({}), Policy::Read).await.unwrap_err();
    assert!(matches!(error, AskError::NoResponders { .. }), "{error:?}");
    assert!(started.elapsed() < Duration::from_secs(30));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_verb_that_nobody_knows_is_refused_by_name() {
    let bus = Bus::start().await;
    let instance = Instance::start(&bus, "c-1", Duration::ZERO).await;
    instance.serve().await;
    let asker = bus.connect(&operator()).await;
    for verb in ["frobnicate", "ready"] {
        let subject = format!("mesh.{}.seat.mesh-controller.{verb}", mesh());
        let message = asker.client().request(subject, "{}".into()).await.unwrap();
        let answer: Answer<()> = serde_json::from_slice(&message.payload).unwrap();
        let Outcome::Refused(refusal) = answer.outcome else {
            panic!("{verb} was answered");
        };
        assert_eq!(refusal.code, RefusalCode::UnknownVerb);
        assert!(refusal.message.contains(verb));
    }
    assert_eq!(instance.desk.calls.load(Ordering::Relaxed), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_join_is_told_so_and_stands_by_on() {
    let bus = Bus::start().await;
    let Rights { publish, mut subscribe } = User::ControllerSeat.rights(&mesh());
    subscribe.retain(|subject| !subject.contains(' '));
    let narrow = Rights { publish, subscribe };
    let connection = bus.connect_with("narrow", &narrow, "_INBOX.c").await;
    let instance = Instance::over(connection, "p-1", Duration::ZERO).await;
    for _ in 0..3 {
        let error = instance.server.serve().await.unwrap_err();
        assert!(
            matches!(&error, ServeError::NotPermitted(text) if text.contains("mesh-controller")),
            "{error:?}"
        );
    }
    assert_eq!(instance.server.leave().await.left, Left::NotJoined);
    let host = client(&bus, &host("n1")).await;
    host.ask_at::<String>(&"p-1".parse().unwrap(), Verb::Ready, SOON).await.unwrap();
}
