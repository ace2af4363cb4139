//! Compression on every processor whose bytes do not depend on how many there are.
//!
//! In: bytes, in any portions. Out: one gzip member, its sha256 and length, and the sha256 and length of what
//! went in, all in one pass and in constant memory. Not here: what the bytes are, and files.
//!
//! The bytes are part of the bundle format, so everything they depend on is fixed: blocks of [`BLOCK`]
//! bytes, each compressed by an encoder of its own (an encoder that is used again remembers) which is shown what
//! lies before it in a reader's [`WINDOW`], and ended with a sync flush, so that they can be put one behind the other;
//! then one empty block that says the end.

use std::io::Write;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use flate2::{Compress, Compression, Crc, FlushCompress};
use mesh_protocol::id::Digest;
use sha2::{Digest as _, Sha256};

/// How much is compressed at once: small enough that two processors share even a small program, large enough that
/// beginning with an encoder and its window costs nothing that counts.
const BLOCK: usize = 256 << 10;
/// How far back deflate looks: a block is told as much of the one before it, and so costs no size.
const WINDOW: usize = 32 << 10;
/// Of programs zlib-rs makes at 5 what is 0.3 % larger than at 6, in five sixths of the time.
const LEVEL: u32 = 5;
/// No name, no time, no hint about the level, system unknown.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
/// An empty block with fixed codes, marked as the last one.
const LAST: [u8; 2] = [0x03, 0x00];

/// What came out, and of what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Compressed {
    /// Of the gzip member.
    pub(crate) digest: Digest,
    /// Length of the gzip member.
    pub(crate) size: u64,
    /// Of what went in.
    pub(crate) plain_digest: Digest,
    /// Length of what went in.
    pub(crate) plain_size: u64,
}

/// Why nothing came out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DeflateError<E> {
    /// The producer of the bytes failed.
    #[error(transparent)]
    Produce(E),
    /// They could not be written.
    #[error(transparent)]
    Write(std::io::Error),
}

/// Where a producer puts its bytes.
pub(crate) struct Plain {
    block: Vec<u8>,
    /// The end of the block before.
    window: Vec<u8>,
    sha256: Sha256,
    crc: Crc,
    size: u64,
    jobs: SyncSender<Job>,
    order: SyncSender<Receiver<Vec<u8>>>,
    /// The writer went away; it has the reason.
    closed: bool,
}

/// A block, what is before it, and where it goes when it is compressed.
struct Job {
    block: Vec<u8>,
    window: Vec<u8>,
    done: SyncSender<Vec<u8>>,
}

/// Compresses what `produce` puts, with `workers` threads, to `sink`.
pub(crate) fn gzip<E: Send>(
    sink: impl Write + Send,
    workers: usize,
    produce: impl FnOnce(&mut Plain) -> Result<(), E>,
) -> Result<Compressed, DeflateError<E>> {
    let workers = workers.max(1);
    thread::scope(|scope| {
        let (jobs, queue) = sync_channel::<Job>(workers);
        let (order, compressed) = sync_channel(2 * workers);
        // One owner a worker: when all workers are gone, so is the queue, and nobody waits for it.
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..workers {
            let queue = Arc::clone(&queue);
            scope.spawn(move || work(&queue));
        }
        drop(queue);
        let writer = scope.spawn(move || write(sink, &compressed));
        let mut plain = Plain {
            block: Vec::with_capacity(BLOCK),
            window: Vec::new(),
            sha256: Sha256::new(),
            crc: Crc::new(),
            size: 0,
            jobs,
            order,
            closed: false,
        };
        let produced = produce(&mut plain);
        let (sha256, crc, size) = plain.close();
        let written =
            writer.join().unwrap_or_else(|_| Err(std::io::Error::other("the writing thread panicked")));
        produced.map_err(DeflateError::Produce)?;
        let mut written = written.map_err(DeflateError::Write)?;
        written.put(&LAST).map_err(DeflateError::Write)?;
        written.put(&crc.sum().to_le_bytes()).map_err(DeflateError::Write)?;
        written.put(&crc.amount().to_le_bytes()).map_err(DeflateError::Write)?;
        written.sink.flush().map_err(DeflateError::Write)?;
        Ok(Compressed {
            digest: Digest::from_sha256(written.sha256.finalize().into()),
            size: written.size,
            plain_digest: Digest::from_sha256(sha256.finalize().into()),
            plain_size: size,
        })
    })
}

impl Plain {
    /// Some more bytes.
    pub(crate) fn put(&mut self, mut bytes: &[u8]) {
        self.sha256.update(bytes);
        self.crc.update(bytes);
        self.size += bytes.len() as u64;
        while !bytes.is_empty() && !self.closed {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK - self.block.len()));
            self.block.extend_from_slice(now);
            bytes = later;
            if self.block.len() == BLOCK {
                self.send();
            }
        }
    }

    /// Can what is put still be written? A producer of much asks now and then.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    fn send(&mut self) {
        let block = std::mem::replace(&mut self.block, Vec::with_capacity(BLOCK));
        let next = block[block.len().saturating_sub(WINDOW)..].to_vec();
        let window = std::mem::replace(&mut self.window, next);
        let (done, result) = sync_channel(1);
        self.closed =
            self.order.send(result).is_err() || self.jobs.send(Job { block, window, done }).is_err();
    }

    fn close(mut self) -> (Sha256, Crc, u64) {
        if !self.block.is_empty() && !self.closed {
            self.send();
        }
        (self.sha256, self.crc, self.size)
    }
}

fn work(queue: &Mutex<Receiver<Job>>) {
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { block, window, done }) = next else { return };
        // On failure nothing is sent: the writer finds the sender gone.
        if let Some(compressed) = compress(&block, &window) {
            let _gone = done.send(compressed);
        }
    }
}

/// One block by an encoder of its own, ended at a byte's border.
fn compress(block: &[u8], window: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = Compress::new(Compression::new(LEVEL), false);
    if !window.is_empty() {
        encoder.set_dictionary(window).ok()?;
    }
    let mut out = Vec::with_capacity(block.len() + block.len() / 4 + 1024);
    loop {
        let taken = usize::try_from(encoder.total_in()).ok()?;
        encoder.compress_vec(&block[taken..], &mut out, FlushCompress::Sync).ok()?;
        // Room to spare after a flush means that the flush is complete.
        if encoder.total_in() == block.len() as u64 && out.len() < out.capacity() {
            return Some(out);
        }
        out.reserve(out.capacity());
    }
}

struct Written<W> {
    sink: W,
    sha256: Sha256,
    size: u64,
}

impl<W: Write> Written<W> {
    fn put(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.sha256.update(bytes);
        self.size += bytes.len() as u64;
        self.sink.write_all(bytes)
    }
}

fn write<W: Write>(sink: W, order: &Receiver<Receiver<Vec<u8>>>) -> std::io::Result<Written<W>> {
    let mut written = Written { sink, sha256: Sha256::new(), size: 0 };
    written.put(&HEADER)?;
    for result in order {
        let bytes = result.recv().map_err(|_| std::io::Error::other("a block could not be compressed"))?;
        written.put(&bytes)?;
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::io::Read;

    use proptest::prelude::*;

    use super::*;

    fn gzipped(portions: &[&[u8]], workers: usize) -> (Vec<u8>, Compressed) {
        let mut out = Vec::new();
        let compressed = gzip::<Infallible>(&mut out, workers, |plain| {
            portions.iter().for_each(|portion| plain.put(portion));
            Ok(())
        })
        .unwrap();
        (out, compressed)
    }

    fn noise(length: usize) -> Vec<u8> {
        let mut state = 1_u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        (0..length).map(|at| if at % 3 == 0 { next() } else { b'a' }).collect()
    }

    #[test]
    fn the_bytes_do_not_depend_on_workers_or_portions() {
        let plain = noise(3 * BLOCK + 17);
        let (one, facts) = gzipped(&[&plain], 1);
        for workers in [2, 3] {
            let portions: Vec<&[u8]> = plain.chunks(10_007 * workers).collect();
            assert_eq!(gzipped(&portions, workers), (one.clone(), facts.clone()));
        }
        assert_eq!((Digest::of(&one), one.len() as u64), (facts.digest, facts.size));
        assert_eq!((Digest::of(&plain), plain.len() as u64), (facts.plain_digest, facts.plain_size));
    }

    #[test]
    fn what_a_block_has_of_the_one_before_costs_next_to_nothing() {
        let mut hard: Vec<u8> = Vec::new();
        for at in 0_u32..(WINDOW as u32 / 64) {
            hard.extend(Sha256::digest(at.to_le_bytes()));
        }
        let mut plain = vec![0; BLOCK - hard.len()];
        plain.extend(&hard);
        let before = gzipped(&[&plain], 2).1.size;
        plain.extend(&hard);
        assert!(gzipped(&[&plain], 2).1.size < before + 1000);
    }

    #[test]
    fn incompressible_bytes_and_whole_blocks_come_back() {
        let mut hard: Vec<u8> = Vec::new();
        for at in 0_u32..(BLOCK as u32 / 32 * 2) {
            hard.extend(Sha256::digest(at.to_le_bytes()));
        }
        for plain in [&hard[..], &hard[..BLOCK], &[]] {
            let mut back = Vec::new();
            flate2::read::GzDecoder::new(&gzipped(&[plain], 2).0[..]).read_to_end(&mut back).unwrap();
            assert!(back == plain);
        }
    }

    #[test]
    fn a_sink_that_fails_ends_it_with_its_reason() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
                Err(std::io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let result = gzip::<Infallible>(Full, 2, |plain| {
            let portion = noise(BLOCK);
            while !plain.is_closed() {
                plain.put(&portion);
            }
            Ok(())
        });
        assert!(matches!(result, Err(DeflateError::Write(e)) if e.kind() == std::io::ErrorKind::StorageFull));
    }

    proptest! {
        #[test]
        fn what_goes_in_comes_out(plain in prop::collection::vec(any::<u8>(), 0..2000), workers in 1_usize..4) {
            let mut back = Vec::new();
            flate2::read::GzDecoder::new(&gzipped(&[&plain], workers).0[..]).read_to_end(&mut back).unwrap();
            prop_assert_eq!(back, plain);
        }
    }
}
