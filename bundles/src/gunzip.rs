//! The one gzip member that a bundle is, decompressed, with nothing before, in or behind it left unlooked at.
//!
//! In: a reader of compressed bytes. Out: decompressed bytes, within limits; at the end, the certainty that
//! length and checksum fit and that nothing follows. Not here: what the bytes mean.

use std::io::{BufRead, BufReader, Read};

use flate2::{Crc, Decompress, FlushDecompress, Status};
use mesh_protocol::id::Digest;

use crate::archive::ArchiveError;
use crate::sha256::Hasher;

/// How many decompressed bytes one compressed byte may stand for once `RATIO_FREE` bytes have come out. Deflate
/// itself ends at 1032; programs with large empty tables reach 100.
pub(crate) const RATIO: u64 = 200;
/// What any archive may unpack to, whatever its size.
const RATIO_FREE: u64 = 16 << 20;

/// What a gzip header without options is, but for its last two bytes (level, system).
const HEADER: [u8; 8] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0];

/// A decompressing reader.
pub(crate) struct Gunzip<R> {
    source: BufReader<R>,
    inflate: Decompress,
    crc: Crc,
    sha256: Hasher,
    produced: u64,
    limit: u64,
    state: State,
}

#[derive(PartialEq, Eq)]
enum State {
    /// Nothing was read.
    Begin,
    /// The header was read.
    Within,
    /// Everything was read, and checked.
    Ended,
}

impl<R: Read> Gunzip<R> {
    /// Decompresses what `source` has, at most `limit` bytes of it.
    pub(crate) fn new(source: R, limit: u64) -> Self {
        Self {
            source: BufReader::with_capacity(128 << 10, source),
            inflate: Decompress::new(false),
            crc: Crc::new(),
            sha256: Hasher::new(),
            produced: 0,
            limit,
            state: State::Begin,
        }
    }

    /// How many bytes came out so far.
    pub(crate) fn produced(&self) -> u64 {
        self.produced
    }

    /// What was read from, and the digest of what came out: of all of it, once it has been read to its end.
    pub(crate) fn into_parts(self) -> (R, Digest) {
        (self.source.into_inner(), self.sha256.finish())
    }

    /// Some more bytes; 0 only at the end, when all was found right.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, ArchiveError> {
        if self.state == State::Begin {
            self.header()?;
            self.state = State::Within;
        }
        if self.state == State::Ended || buffer.is_empty() {
            return Ok(0);
        }
        loop {
            let input = self.source.fill_buf().map_err(ArchiveError::Read)?;
            let (before_in, before_out) = (self.inflate.total_in(), self.inflate.total_out());
            let flush = FlushDecompress::None;
            let exhausted = input.is_empty();
            let status = self.inflate.decompress(input, buffer, flush).map_err(|_| ArchiveError::Deflate)?;
            let taken = usize_of(self.inflate.total_in() - before_in);
            let made = usize_of(self.inflate.total_out() - before_out);
            self.source.consume(taken);
            self.crc.update(&buffer[..made]);
            self.sha256.update(&buffer[..made]);
            self.produced += made as u64;
            self.within_limits()?;
            if status == Status::StreamEnd {
                self.trailer()?;
                self.state = State::Ended;
                return Ok(made);
            }
            if made > 0 {
                return Ok(made);
            }
            if exhausted {
                return Err(ArchiveError::Truncated);
            }
            if taken == 0 {
                return Err(ArchiveError::Deflate);
            }
        }
    }

    fn within_limits(&self) -> Result<(), ArchiveError> {
        if self.produced > self.limit {
            return Err(ArchiveError::TooLarge { limit: self.limit });
        }
        if is_ratio_right(self.inflate.total_in(), self.produced) {
            return Ok(());
        }
        Err(ArchiveError::Ratio { limit: RATIO })
    }

    fn header(&mut self) -> Result<(), ArchiveError> {
        let mut header = [0; 10];
        self.exact(&mut header)?;
        if header[..3] != HEADER[..3] {
            return Err(ArchiveError::NotGzip { begins: header.escape_ascii().to_string() });
        }
        if header[..8] != HEADER {
            return Err(ArchiveError::GzipOptions);
        }
        Ok(())
    }

    fn trailer(&mut self) -> Result<(), ArchiveError> {
        let mut trailer = [0; 8];
        self.exact(&mut trailer)?;
        let [a, b, c, d, rest @ ..] = trailer;
        let (crc, length) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes(rest));
        if crc != self.crc.sum() || length != self.crc.amount() {
            return Err(ArchiveError::Checksum);
        }
        match self.source.fill_buf().map_err(ArchiveError::Read)? {
            [] => Ok(()),
            [0x1f, ..] => Err(ArchiveError::SecondMember),
            _ => Err(ArchiveError::BehindGzip),
        }
    }

    fn exact(&mut self, buffer: &mut [u8]) -> Result<(), ArchiveError> {
        self.source.read_exact(buffer).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => ArchiveError::Truncated,
            _ => ArchiveError::Read(error),
        })
    }
}

/// May so many bytes stand for so many?
pub(crate) fn is_ratio_right(compressed: u64, plain: u64) -> bool {
    plain <= RATIO_FREE.max(compressed.saturating_mul(RATIO))
}

/// Of a number of bytes that lay in a buffer.
fn usize_of(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
