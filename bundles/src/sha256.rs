//! The digest of bytes, computed beside whoever has them.
//!
//! In: bytes, in any portions. Out: their digest. Hashing what comes out of a decompressor takes as long as decompressing
//! it, and an archive's content is hashed twice: as a tar, and file by file. Where no thread can be had it is hashed where
//! it is. Not here: what the digest should be.

use std::io;
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
    /// Nobody as long as there is not enough.
    by: Option<By>,
}

enum By {
    /// A thread.
    Beside(Beside),
    /// Whoever has the bytes.
    Oneself(Sha256),
}

struct Beside {
    full: SyncSender<Vec<u8>>,
    /// Portions that were hashed, to be filled again.
    empty: Receiver<Vec<u8>>,
    thread: JoinHandle<Sha256>,
}

impl Hasher {
    pub(crate) fn new() -> Self {
        Self { portion: Vec::new(), by: None }
    }

    pub(crate) fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(PORTION - self.portion.len()));
            self.portion.extend_from_slice(now);
            bytes = later;
            if self.portion.len() == PORTION {
                self.hash();
            }
        }
    }

    /// The portion, which is empty then.
    fn hash(&mut self) {
        match self.by.get_or_insert_with(By::begin) {
            By::Beside(beside) => self.portion = beside.exchange(std::mem::take(&mut self.portion)),
            By::Oneself(sha256) => {
                sha256.update(&self.portion);
                self.portion.clear();
            }
        }
    }

    pub(crate) fn finish(self) -> Digest {
        let mut sha256 = match self.by {
            None => Sha256::new(),
            Some(By::Beside(beside)) => beside.finish(),
            Some(By::Oneself(sha256)) => sha256,
        };
        sha256.update(&self.portion);
        Digest::from_sha256(sha256.finalize().into())
    }
}

impl By {
    fn begin() -> Self {
        Beside::begin().map_or_else(|_| Self::Oneself(Sha256::new()), Self::Beside)
    }
}

impl Beside {
    fn begin() -> io::Result<Self> {
        let (full, to_hash) = sync_channel::<Vec<u8>>(AHEAD);
        let (hashed, empty) = sync_channel(2 * AHEAD);
        let hashing = move || {
            let mut sha256 = Sha256::new();
            for mut portion in to_hash {
                sha256.update(&portion);
                portion.clear();
                // One that finds no place is let go.
                let _full = hashed.try_send(portion);
            }
            sha256
        };
        let thread = std::thread::Builder::new().name("sha256".to_owned()).spawn(hashing)?;
        Ok(Self { full, empty, thread })
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
                for by in [None, Some(By::Oneself(Sha256::new()))] {
                    let mut hasher = Hasher { portion: Vec::new(), by };
                    bytes[..length].chunks(portions).for_each(|portion| hasher.update(portion));
                    let what = format!("{length} in portions of {portions}");
                    assert_eq!(hasher.finish(), Digest::of(&bytes[..length]), "{what}");
                }
            }
        }
    }

    #[test]
    fn one_that_is_given_up_ends_its_thread() {
        let mut hasher = Hasher::new();
        hasher.update(&vec![7; 3 * PORTION]);
        let Some(By::Beside(Beside { full, thread, .. })) = hasher.by else { panic!("there is a thread") };
        drop(full);
        assert!(thread.join().is_ok());
    }
}
