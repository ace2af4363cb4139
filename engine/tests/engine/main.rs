//! The room against the real engine: every deed twice, and every way in which it can fail.

// A test stops at the first thing that is not as it says, in its helpers too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod program;
mod reach;
mod world;

use std::future::ready;
use std::io::Cursor;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use mesh_engine::{
    Access, Error, ImageRemoved, Killed, LabelSelector, Mount, Removed, Signal, Started, State, Stopped,
    Waited,
};
use world::World;

const LIMIT: Duration = Duration::from_secs(30);

#[tokio::test]
async fn loading_twice_gives_the_same_image() {
    let world = World::new().await;
    let again = world.engine.load_image(|| ready(Ok(Cursor::new(world.archive())))).await.unwrap();
    assert_eq!(again, std::slice::from_ref(&world.image));
    assert_eq!(world.image.references, std::slice::from_ref(&world.reference));
    assert_eq!(world.image.labels["of"], "image");
    assert!(world.image.size > 0);

    let find = async |name: &str| world.engine.find_image(name).await.unwrap();
    assert_eq!(find(&world.reference).await, Some(world.image.clone()));
    assert_eq!(find(&world.image.id).await, Some(world.image.clone()));
    let id = world.image.id.strip_prefix("sha256:").unwrap();
    assert_eq!(find(&id[..12]).await, None, "the beginning of an id is not a name");
    assert_eq!(find("mesh-engine-test-not-there:1").await, None);
    let listed = world.engine.list_images(&world.selector()).await.unwrap();
    assert_eq!(listed, std::slice::from_ref(&world.image));

    assert_eq!(world.engine.remove_image(&world.image.id).await.unwrap(), ImageRemoved::Removed);
    assert_eq!(world.engine.remove_image(&world.image.id).await.unwrap(), ImageRemoved::Gone);
}

#[tokio::test]
async fn every_deed_says_the_second_time_that_it_was_done() {
    let world = World::new().await;
    let engine = &world.engine;
    let id = engine.create(&world.request("a", &["obey"])).await.unwrap();
    assert_eq!(engine.inspect(&id).await.unwrap().unwrap().state, State::Created);
    assert_eq!(engine.wait(&id, LIMIT).await.unwrap(), Waited::NeverStarted);
    assert_eq!(engine.kill(&id, Signal::Kill).await.unwrap(), Killed::NotRunning);
    assert_eq!(engine.stop(&id, LIMIT).await.unwrap(), Stopped::AlreadyStopped);

    assert_eq!(engine.start(&id).await.unwrap(), Started::Started);
    assert_eq!(engine.start(&id).await.unwrap(), Started::AlreadyRunning);
    assert_eq!(engine.remove(&id).await.unwrap(), Removed::StillRunning);
    assert!(matches!(engine.remove_image(&world.image.id).await.unwrap(), ImageRemoved::InUse { .. }));
    say_ready(&world, &id).await;

    assert_eq!(engine.stop(&id, LIMIT).await.unwrap(), Stopped::Stopped);
    assert_eq!(engine.stop(&id, LIMIT).await.unwrap(), Stopped::AlreadyStopped);
    let stopped = engine.inspect(&id).await.unwrap().unwrap();
    assert!(matches!(stopped.state, State::Exited { code: 0, out_of_memory: false, .. }), "{stopped:?}");

    assert_eq!(engine.remove(&id).await.unwrap(), Removed::Removed);
    assert_eq!(engine.remove(&id).await.unwrap(), Removed::Gone);
    assert_eq!(engine.inspect(&id).await.unwrap(), None);
    assert_eq!(engine.start(&id).await.unwrap(), Started::Gone);
    assert_eq!(engine.stop(&id, LIMIT).await.unwrap(), Stopped::Gone);
    assert_eq!(engine.kill(&id, Signal::Hangup).await.unwrap(), Killed::Gone);
    assert_eq!(engine.wait(&id, LIMIT).await.unwrap(), Waited::Gone);
    assert!(matches!(engine.logs_tail(&id, 1).await.unwrap_err(), Error::NotFound { .. }));
}

async fn say_ready(world: &World, id: &mesh_engine::ContainerId) {
    tokio::time::timeout(LIMIT, async {
        while world.engine.logs_tail(id, 1).await.unwrap() != ["ready"] {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn what_is_observed_is_what_was_asked_for() {
    let world = World::new().await;
    let folder = tempfile::tempdir().unwrap();
    let mut request = world.request("a", &["deaf"]);
    request.mounts.push(Mount {
        source: folder.path().to_owned(),
        target: "/seen".into(),
        access: Access::ReadOnly,
    });
    let id = world.engine.create(&request).await.unwrap();
    world.engine.start(&id).await.unwrap();
    let found = world.engine.find(&request.name).await.unwrap().unwrap();
    assert_eq!(found.id, id);
    assert_eq!(found.image_id, world.image.id);
    assert_eq!(found.image_reference, world.reference);
    assert_eq!(found.user, "65534:65534");
    assert_eq!(found.labels["of"], "container");
    assert_eq!(found.restart_count, 0);
    assert!(found.mounts.contains(&request.mounts[0]), "{:?}", found.mounts);
    let State::Running { pid, started_at } = found.state else { panic!("{found:?}") };
    assert_eq!(found.started_at, Some(started_at));

    // As the machine sees it: the user, no capabilities, no way to new privileges, the machine's network.
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    for line in ["Uid:\t65534\t65534\t65534\t65534", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"] {
        assert!(status.contains(line), "{line} is not in {status}");
    }
    let network = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).unwrap();
    assert_eq!(network(&pid.to_string()), network("self"));
    let listed = world.engine.list(&world.selector()).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].id, id);
    assert!(world.engine.list(&LabelSelector::has("mesh.test.none")).await.unwrap().is_empty());
    assert!(world.engine.list(&world.selector().and_is("of", "image")).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_program_that_is_deaf_is_ended_after_its_grace() {
    let world = World::new().await;
    let id = world.engine.create(&world.request("a", &["deaf"])).await.unwrap();
    world.engine.start(&id).await.unwrap();
    let still = world.engine.wait(&id, Duration::from_millis(100)).await.unwrap_err();
    assert!(matches!(still, Error::TimedOut { .. }), "{still}");
    assert_eq!(world.engine.stop(&id, Duration::from_millis(300)).await.unwrap(), Stopped::Stopped);
    assert_eq!(world.engine.wait(&id, LIMIT).await.unwrap(), Waited::Exited { code: 137 });
    world.engine.start(&id).await.unwrap();
    assert_eq!(world.engine.kill(&id, Signal::Kill).await.unwrap(), Killed::Signalled);
    assert_eq!(world.engine.wait(&id, LIMIT).await.unwrap(), Waited::Exited { code: 137 });
}

#[tokio::test]
async fn exit_status_and_log_are_kept() {
    let world = World::new().await;
    let run = async |name: &str, command: &[&str]| {
        let id = world.engine.create(&world.request(name, command)).await.unwrap();
        world.engine.start(&id).await.unwrap();
        (world.engine.wait(&id, LIMIT).await.unwrap(), id)
    };
    assert_eq!(run("exit", &["exit", "7"]).await.0, Waited::Exited { code: 7 });
    let (waited, id) = run("say", &["say", "one", "two", "three"]).await;
    assert_eq!(waited, Waited::Exited { code: 0 });
    let tail = world.engine.logs_tail(&id, 10).await.unwrap();
    assert_eq!(tail.len(), 4, "{tail:?}");
    assert!(["one", "two", "three", "done"].iter().all(|line| tail.iter().any(|said| said == line)));
    assert_eq!(world.engine.logs_tail(&id, 2).await.unwrap().len(), 2);
    // The root is read-only.
    assert_eq!(run("write", &["write", "/x"]).await.0, Waited::Exited { code: 9 });
    assert_eq!(world.engine.list(&world.selector()).await.unwrap().len(), 3);
}

#[tokio::test]
async fn a_held_name_tells_its_holder() {
    let world = World::new().await;
    let mut request = world.request("a", &["exit", "0"]);
    let holder = world.engine.create(&request).await.unwrap();
    request.labels.insert("of".to_owned(), "another".to_owned());
    match world.engine.create(&request).await.unwrap_err() {
        Error::Conflict { holder: found } => {
            assert_eq!(found.id, holder);
            assert_eq!(found.name, request.name);
            assert_eq!(found.labels["of"], "container");
            assert_eq!(found.state, State::Created);
        }
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn two_that_remove_the_same_both_see_it_gone() {
    let world = World::new().await;
    let request = world.request("a", &["exit", "0"]);
    let id = world.engine.create(&request).await.unwrap();
    let (one, other) = tokio::join!(world.engine.remove(&id), world.engine.remove(&id));
    let both = [one.unwrap(), other.unwrap()];
    assert!(both.iter().all(|removed| matches!(removed, Removed::Removed | Removed::Gone)), "{both:?}");
    assert_eq!(world.engine.inspect(&id).await.unwrap(), None);
    // Its name can be had again at once.
    world.engine.create(&request).await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_run_is_refused_with_the_engines_words() {
    let world = World::new().await;
    let mut request = world.request("a", &[]);
    request.image = "mesh-engine-test-not-there:1".to_owned();
    let error = world.engine.create(&request).await.unwrap_err();
    assert!(matches!(&error, Error::NotFound { what } if what.contains("not-there")), "{error}");

    let mut request = world.request("b", &["read", "/seen"]);
    let (source, target) = ("/not/there/at/all".into(), "/seen".into());
    request.mounts.push(Mount { source, target, access: Access::ReadOnly });
    let error = world.engine.create(&request).await.unwrap_err();
    assert!(error.to_string().contains("/not/there/at/all"), "{error}");
    assert!(!std::path::Path::new("/not/there/at/all").exists());

    let mut request = world.request("c", &[]);
    request.command = vec!["/no-such-program".to_owned()];
    let id = world.engine.create(&request).await.unwrap();
    let error = world.engine.start(&id).await.unwrap_err();
    assert!(
        matches!(&error, Error::Refused { message, .. } if message.contains("no-such-program")),
        "{error}"
    );
}

/// The engine loads an image's content and its name one after the other: who takes the last other name of the same
/// content away in between takes the content.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loading_and_removing_hold_though_somebody_removes_the_same_image() {
    let world = World::new().await;
    let theirs = world.archive();
    let ours_name = world.reference.replace(":1", ":2");
    let ours = program::archive(&ours_name, &world.labels());
    let done = Arc::new(AtomicBool::new(false));
    let others: Vec<_> = (0..2)
        .map(|_| {
            let (reference, theirs, done) = (world.reference.clone(), theirs.clone(), Arc::clone(&done));
            tokio::spawn(async move {
                let engine = world::connect().await;
                while !done.load(Ordering::Relaxed) {
                    let _raced = engine.load_image(|| ready(Ok(Cursor::new(theirs.clone())))).await;
                    let _raced = engine.remove_image(&reference).await;
                }
            })
        })
        .collect();
    for round in 0..60 {
        let loaded = world.engine.load_image(|| ready(Ok(Cursor::new(ours.clone())))).await;
        loaded.unwrap_or_else(|error| panic!("round {round}: {error}"));
        world.engine.remove_image(&ours_name).await.unwrap();
    }
    done.store(true, Ordering::Relaxed);
    for other in others {
        other.await.unwrap();
    }
}

#[tokio::test]
async fn an_archive_that_is_none_or_breaks_off_is_refused() {
    let world = World::new().await;
    let error =
        world.engine.load_image(|| ready(Ok(Cursor::new(b"not an archive".repeat(100))))).await.unwrap_err();
    assert!(matches!(error, Error::Refused { .. } | Error::Nonsense { .. }), "{error:?}");
    let half = world.archive();
    let broken = || ready(Ok(Broken(Cursor::new(half[..half.len() / 2].to_vec()))));
    let error = world.engine.load_image(broken).await.unwrap_err();
    assert!(
        matches!(&error, Error::Archive { source } if source.to_string() == "the disk is gone"),
        "{error:?}"
    );
}

/// A reader whose disk fails at its end.
struct Broken(Cursor<Vec<u8>>);

impl tokio::io::AsyncRead for Broken {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        if self.0.position() == self.0.get_ref().len() as u64 {
            return Poll::Ready(Err(std::io::Error::other("the disk is gone")));
        }
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

#[tokio::test]
async fn a_registry_out_of_reach_is_said() {
    let engine = world::connect().await;
    // Nobody listens at port 1 of this machine.
    let error = engine.pull_image("127.0.0.1:1/nobody/none:1", LIMIT).await.unwrap_err();
    assert!(matches!(error, Error::RegistryUnreachable { .. }), "{error:?}");
}

#[tokio::test]
async fn the_engine_says_what_it_is() {
    let engine = world::connect().await;
    let facts = engine.facts().await.unwrap();
    assert!(facts.api >= mesh_engine::OLDEST_API);
    assert_eq!(facts.os, "linux");
    assert!(facts.root_folder.starts_with('/'));
    assert!(!facts.version.is_empty() && !facts.architecture.is_empty());
    assert!(!facts.cgroup_driver.is_empty());
    let off = facts.time.unwrap().duration_until(jiff::Timestamp::now());
    assert!(off.abs().as_secs() < 5, "its clock is this machine's: {off}");
}
