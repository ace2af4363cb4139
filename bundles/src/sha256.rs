//! The digest of bytes, computed beside whoever has them.
//!
//! In: bytes, in any portions. Out: their digest. Hashing what comes out of a decompressor takes as long as decompressing
//! it, and an archive's content is hashed twice: as a tar, and file by file. Not here: what the digest should be.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use mesh_protocol::id::Digest;
use sha2::{Digest as _, Sha256};

/// How much goes over at once. What has less is hashed where it is, which takes less time than beginning a thread.
const PORTION: usize = 256 << 10;
/// How many portions wait.
const AHEAD: usize = 4;

/// A digest that is being computed.
pub(crate) struct Hasher {
    portion: Vec<u8>,
    beside: Option<Beside>,
}

struct Beside {
    full: SyncSender<Vec<u8>>,
    /// Portions that were hashed, to be filled again.
    empty: Receiver<Vec<u8>>,
    thread: JoinHandle<Sha256>,
}

impl Hasher {
    pub(crate) fn new() -> Self {
        Self { portion: Vec::new(), beside: None }
    }

    pub(crate) fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(PORTION - self.portion.len()));
            self.portion.extend_from_slice(now);
            bytes = later;
            if self.portion.len() == PORTION {
                let beside = self.beside.get_or_insert_with(Beside::begin);
                self.portion = beside.exchange(std::mem::take(&mut self.portion));
            }
        }
    }

    pub(crate) fn finish(self) -> Digest {
        let mut sha256 = match self.beside {
            None => Sha256::new(),
            Some(beside) => beside.finish(),
        };
        sha256.update(&self.portion);
        Digest::from_sha256(sha256.finalize().into())
    }
}

impl Beside {
    fn begin() -> Self {
        let (full, to_hash) = sync_channel::<Vec<u8>>(AHEAD);
        let (hashed, empty) = sync_channel(2 * AHEAD);
        let thread = std::thread::spawn(move || {
            let mut sha256 = Sha256::new();
            for mut portion in to_hash {
                sha256.update(&portion);
                portion.clear();
                // One that finds no place is let go.
                let _full = hashed.try_send(portion);
            }
            sha256
        });
        Self { full, empty, thread }
    }

    /// Takes a portion, and gives one to be filled.
    fn exchange(&self, portion: Vec<u8>) -> Vec<u8> {
        // It goes away only by a panic, which `finish` passes on.
        let _gone = self.full.send(portion);
        self.empty.try_recv().unwrap_or_else(|_| Vec::with_capacity(PORTION))
    }

    fn finish(self) -> Sha256 {
        drop(self.full);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_digest_of_all_bytes_whatever_the_portions() {
        let bytes: Vec<u8> = (0..20 * PORTION + 17).map(|at| (at % 251) as u8).collect();
        for length in [0, 1, PORTION - 1, PORTION, PORTION + 1, 3 * PORTION, bytes.len()] {
            for portions in [1013, PORTION, 10 * PORTION] {
                let mut hasher = Hasher::new();
                bytes[..length].chunks(portions).for_each(|portion| hasher.update(portion));
                assert_eq!(
                    hasher.finish(),
                    Digest::of(&bytes[..length]),
                    "{length} in portions of {portions}"
                );
            }
        }
    }

    #[test]
    fn one_that_is_given_up_ends_its_thread() {
        let mut hasher = Hasher::new();
        hasher.update(&vec![7; 3 * PORTION]);
        let Beside { full, thread, .. } = hasher.beside.take().unwrap();
        drop(full);
        assert!(thread.join().is_ok());
    }
}
