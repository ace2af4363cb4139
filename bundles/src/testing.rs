//! What the tests of several rooms need: programs made of a few bytes, contents, archives with any fault.

pub(crate) mod fuzz;

use std::io::Write as _;

use mesh_protocol::id::System;

use crate::SILENT;
use crate::archive::FileMode;
use crate::entries::{Entry, Source};
use crate::pack::{Bundle, Packed, pack};

/// A static program for linux/amd64 that ends with this exit code, and does nothing else.
pub(crate) fn exits_with(code: u8) -> Vec<u8> {
    let machine_code = [0xbf, code, 0, 0, 0, 0xb8, 60, 0, 0, 0, 0x0f, 0x05];
    let (base, begin) = (0x40_0000_u64, 64 + 56_u64);
    let length = begin + machine_code.len() as u64;
    let mut elf = b"\x7fELF\x02\x01\x01\x00".to_vec();
    elf.extend([0; 8]);
    elf.extend([2, 0, 62, 0, 1, 0, 0, 0]);
    elf.extend((base + begin).to_le_bytes());
    elf.extend(64_u64.to_le_bytes());
    elf.extend([0; 12]);
    elf.extend([64, 0, 56, 0, 1, 0, 64, 0, 0, 0, 0, 0]);
    elf.extend([1, 0, 0, 0, 5, 0, 0, 0]);
    for word in [0, base, base, length, length, 0x1000] {
        elf.extend(word.to_le_bytes());
    }
    elf.extend(machine_code);
    elf
}

/// Bytes that compress somewhat, the same each time.
pub(crate) fn some_bytes(length: usize) -> Vec<u8> {
    let mut state = 7_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..length).map(|at| if at % 4 == 0 { b'a' } else { next() }).collect()
}

pub(crate) fn file(path: &str, content: &[u8], mode: FileMode) -> Entry {
    Entry { path: path.parse().unwrap(), source: Source::Bytes { content: content.to_vec(), mode } }
}

/// A bundle of a small program and a large file beside it.
pub(crate) fn a_bundle(name: &str, version: &str) -> Bundle {
    Bundle {
        name: name.parse().unwrap(),
        version: version.to_owned(),
        system: "linux/amd64".parse().unwrap(),
        entrypoint: name.parse().unwrap(),
        entries: vec![
            file(name, &exits_with(42), FileMode::Program),
            file("share/data", &some_bytes(700_000), FileMode::Data),
            Entry { path: "share/link".parse().unwrap(), source: Source::Link { target: "data".to_owned() } },
        ],
    }
}

/// The same for any system.
pub(crate) fn for_system(name: &str, version: &str, system: System) -> Bundle {
    let mut bundle = a_bundle(name, version);
    let mut program = exits_with(42);
    program[18] = match system {
        System::LinuxAmd64 => 62,
        System::LinuxArm64 => 183,
    };
    bundle.system = system;
    bundle.entries[0] = file(name, &program, FileMode::Program);
    bundle
}

pub(crate) fn packed(bundle: Bundle, output: &std::path::Path) -> Packed {
    pack(bundle, output, 2, SILENT).unwrap()
}

/// One gzip member around these bytes, as anybody's tool makes it.
pub(crate) fn gzip(tar: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(tar).unwrap();
    encoder.finish().unwrap()
}

/// A tar header in which anything can be wrong; its checksum is right.
pub(crate) struct Block(pub(crate) [u8; 512]);

impl Block {
    pub(crate) fn file(name: &[u8], size: u64) -> Self {
        let mut block = [0; 512];
        block[..name.len()].copy_from_slice(name);
        block[100..107].copy_from_slice(b"0000644");
        block[108..115].copy_from_slice(b"0000000");
        block[116..123].copy_from_slice(b"0000000");
        block[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
        block[136..147].copy_from_slice(b"00000000001");
        block[156] = b'0';
        block[257..265].copy_from_slice(b"ustar\x0000");
        Self(block)
    }

    pub(crate) fn of(name: &[u8], kind: u8) -> Self {
        Self::file(name, 0).set(156, &[kind])
    }

    pub(crate) fn set(mut self, at: usize, bytes: &[u8]) -> Self {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    pub(crate) fn link(self, target: &[u8]) -> Self {
        self.set(157, target)
    }

    /// With its checksum.
    pub(crate) fn done(mut self) -> Vec<u8> {
        self.0[148..156].fill(b' ');
        let sum: u64 = self.0.iter().map(|b| u64::from(*b)).sum();
        self.0[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.0.to_vec()
    }
}

/// A content, padded.
pub(crate) fn padded(content: &[u8]) -> Vec<u8> {
    let mut padded = content.to_vec();
    padded.resize(content.len().next_multiple_of(512), 0);
    padded
}
