//! The digest of what comes in, found out beside whoever receives it.
//!
//! In: portions of bytes, in order. Out: their digest. Hashing takes as long as a registry on the same machine takes to
//! send; one behind the other they would take twice as long. Not here: what the digest should be.

use bytes::Bytes;
use mesh_protocol::id::Digest;
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// How many portions wait to be hashed; a portion is what a connection has read at once, less than half a megabyte.
const AHEAD: usize = 8;

pub(super) struct Digesting {
    portions: mpsc::Sender<Bytes>,
    digest: JoinHandle<Digest>,
}

impl Digesting {
    pub(super) fn begin() -> Self {
        let (portions, mut waiting) = mpsc::channel::<Bytes>(AHEAD);
        let digest = tokio::task::spawn_blocking(move || {
            let mut sha256 = Sha256::new();
            while let Some(portion) = waiting.blocking_recv() {
                sha256.update(&portion);
            }
            Digest::from_sha256(sha256.finalize().into())
        });
        Self { portions, digest }
    }

    pub(super) async fn put(&self, portion: Bytes) {
        // Whoever hashes goes away only with the runtime, and then the digest is not told.
        let _gone = self.portions.send(portion).await;
    }

    /// Of all that was put.
    pub(super) async fn finish(self) -> Digest {
        drop(self.portions);
        finished(self.digest).await
    }
}

/// What a thread has found out; a panic in it is one here.
pub(super) async fn finished<T>(thread: JoinHandle<T>) -> T {
    match thread.await {
        Ok(found) => found,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // It never began, for the runtime ends, and with it whoever waits here.
            Err(_) => std::future::pending().await,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_is_the_digest_of_all_portions_in_order() {
        let bytes: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
        let digesting = Digesting::begin();
        for portion in bytes.chunks(1013) {
            digesting.put(Bytes::copy_from_slice(portion)).await;
        }
        assert_eq!(digesting.finish().await, Digest::of(&bytes));
        assert_eq!(Digesting::begin().finish().await, Digest::of(b""));
    }
}
