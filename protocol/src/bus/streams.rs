//! The streams in which the state lies: how each is made.
//!
//! In: the mesh, the lease. Out: configurations, and streams that are there. Not here: keys and values.
//!
//! The library's own `create_key_value` cannot read the answer of the oldest server that must work; a bucket
//! is a stream with a few rules, so it is made as one.

use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::context::{CreateStreamError, CreateStreamErrorKind};
use async_nats::jetstream::stream::{Config, DiscardPolicy, Republish};

use crate::id::MeshId;
use crate::subject::{self, EVENTS, bucket};

use super::store::{Place, StateError};

/// Every bucket.
const BUCKETS: [&str; 9] = [
    bucket::DECLARATIONS,
    bucket::REPORTS,
    bucket::MODULES,
    bucket::REVISIONS,
    bucket::NODES,
    bucket::PLANS,
    bucket::LOCK,
    bucket::NUMBERS,
    bucket::SCRATCH,
];
/// Within it, an event that is said again is not stored again.
const DUPLICATES_WITHIN: Duration = Duration::from_secs(120);
/// What is kept of events: the oldest go first.
const EVENTS_KEPT: i64 = 100_000;
/// The server's error for a stream of that name with another configuration.
const NAME_IN_USE: u64 = 10058;

/// Makes every stream that is not there, and changes those that are otherwise.
pub(super) async fn ensure(context: &Context, mesh: &MeshId, lease: Duration) -> Result<(), StateError> {
    let buckets = BUCKETS.map(|bucket| bucket_config(mesh, bucket, lease));
    for config in buckets.into_iter().chain([events_config(mesh)]) {
        let name = config.name.clone();
        let place = Place { bucket: &name, key: "" };
        match context.create_stream(config.clone()).await {
            Ok(_) => {}
            Err(error) if is_name_in_use(&error) => {
                context.update_stream(config).await.map_err(|error| place.failed(error))?;
            }
            Err(error) => return Err(place.failed(error)),
        }
    }
    Ok(())
}

fn is_name_in_use(error: &CreateStreamError) -> bool {
    match error.kind() {
        CreateStreamErrorKind::JetStream(error) => error.error_code().0 == NAME_IN_USE,
        _ => false,
    }
}

fn bucket_config(mesh: &MeshId, bucket: &str, lease: Duration) -> Config {
    let max_age = if bucket == bucket::LOCK { lease } else { Duration::ZERO };
    let duplicate_window = if max_age.is_zero() {
        DUPLICATES_WITHIN
    } else {
        // The server refuses one above the greatest age.
        DUPLICATES_WITHIN.min(max_age)
    };
    // A hint, sent after it was stored, without the content: that is fetched by whoever may.
    let republish = (bucket == bucket::DECLARATIONS).then(|| Republish {
        source: format!("$KV.{bucket}.*"),
        destination: format!("mesh.{mesh}.declared.{{{{wildcard(1)}}}}"),
        headers_only: true,
    });
    Config {
        name: format!("KV_{bucket}"),
        subjects: vec![format!("$KV.{bucket}.>")],
        max_messages_per_subject: 1,
        max_age,
        duplicate_window,
        discard: DiscardPolicy::New,
        republish,
        ..common()
    }
}

fn events_config(mesh: &MeshId) -> Config {
    Config {
        name: EVENTS.to_owned(),
        subjects: vec![subject::events(mesh)],
        max_messages: EVENTS_KEPT,
        max_messages_per_subject: -1,
        duplicate_window: DUPLICATES_WITHIN,
        discard: DiscardPolicy::Old,
        ..common()
    }
}

fn common() -> Config {
    Config {
        max_bytes: -1,
        max_messages: -1,
        max_consumers: -1,
        max_message_size: -1,
        num_replicas: 1,
        allow_direct: true,
        deny_delete: true,
        // A rollup header on one's own key would erase everybody's.
        allow_rollup: false,
        ..Config::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(bucket: &str) -> Config {
        bucket_config(&"m1".parse().unwrap(), bucket, Duration::from_secs(10))
    }

    #[test]
    fn only_the_lock_forgets() {
        for bucket in BUCKETS {
            let expected = if bucket == bucket::LOCK { 10 } else { 0 };
            assert_eq!(config(bucket).max_age.as_secs(), expected, "{bucket}");
        }
        let lock = config(bucket::LOCK);
        assert!(lock.duplicate_window <= lock.max_age);
    }

    #[test]
    fn only_declarations_are_hinted_at_and_never_with_their_content() {
        let hinted: Vec<&str> =
            BUCKETS.into_iter().filter(|bucket| config(bucket).republish.is_some()).collect();
        assert_eq!(hinted, [bucket::DECLARATIONS]);
        let republish = config(bucket::DECLARATIONS).republish.unwrap();
        assert!(republish.headers_only);
        assert_eq!(republish.destination, "mesh.m1.declared.{{wildcard(1)}}");
    }

    #[test]
    fn no_bucket_can_be_rolled_up() {
        assert!(BUCKETS.iter().all(|bucket| !config(bucket).allow_rollup));
    }
}
