//! What a program needs from the machine it runs on, read from its ELF headers.
//!
//! In: a binary, as bytes or a file. Out: its system, its loader, the libraries it names; and whether it is
//! what a bundle's program must be: static, and for the right system. Not here: where libraries lie (see
//! `image::program`), and running anything.
//!
//! The rule: ELF64 for the system's processor, no `PT_INTERP`, no `DT_NEEDED`, and either `ET_EXEC`, or `ET_DYN`
//! with `DF_1_PIE`. A shared library may lack an interpreter too, and a static PIE has a dynamic section:
//! neither mark alone decides.

use std::io::{Read, Seek, SeekFrom};

use mesh_protocol::id::System;

/// More program headers than any linker writes.
const MAX_HEADERS: u16 = 512;
/// A dynamic section is a few hundred bytes; its strings are names of files.
const MAX_DYNAMIC: u64 = 1 << 20;
const MAX_STRING: usize = 4096;

const EXEC: u16 = 2;
const DYN: u16 = 3;

/// What an ELF file says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elf {
    /// What it runs on.
    pub system: System,
    /// The loader it asks for.
    pub interpreter: Option<String>,
    /// The libraries it names, in order.
    pub needed: Vec<String>,
    /// Where it says they are (`DT_RUNPATH`, or `DT_RPATH` where there is none), in order, `$ORIGIN` as it stands.
    pub search: Vec<String>,
    /// Can it be run at all? A shared library cannot.
    pub form: Form,
}

/// The kinds of ELF files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A program.
    Program,
    /// A shared library.
    Library,
    /// An object file or a core dump.
    Other,
}

/// Why a file is not what it should be.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    /// It could not be read.
    #[error("cannot read the binary")]
    Read(#[source] std::io::Error),
    /// It is something else.
    #[error("not an ELF file: begins with {begins}")]
    NotElf {
        /// Its first bytes.
        begins: String,
    },
    /// It is for an ELF class or a processor that there is no system for.
    #[error("an ELF file for {found}: expected linux/amd64 or linux/arm64")]
    UnknownSystem {
        /// What it is for.
        found: String,
    },
    /// It is for another system.
    #[error("for {found}, expected {expected}")]
    WrongSystem {
        /// What it is for.
        found: System,
        /// What it should be for.
        expected: System,
    },
    /// It needs libraries.
    #[error("dynamically linked: {}; expected a static binary", needs(.needed, .interpreter.as_deref()))]
    Dynamic {
        /// The libraries.
        needed: Vec<String>,
        /// The loader.
        interpreter: Option<String>,
    },
    /// It is a shared library.
    #[error("a shared library, expected a static binary")]
    Library,
    /// It is an object file or a core dump.
    #[error("an object file or a core dump, expected a static binary")]
    NotProgram,
    /// It contradicts itself.
    #[error("a damaged ELF file: {what}")]
    Malformed {
        /// What is wrong.
        what: &'static str,
    },
}

fn needs(needed: &[String], interpreter: Option<&str>) -> String {
    match (needed, interpreter) {
        ([], None) => "needs a loader".to_owned(),
        ([], Some(interpreter)) => format!("needs the loader {interpreter}"),
        (needed, None) => format!("needs {}", needed.join(", ")),
        (needed, Some(interpreter)) => format!("needs {} through {interpreter}", needed.join(", ")),
    }
}

/// Is this a bundle's program: a static binary for `system`?
///
/// # Errors
/// When it is not: the error says what it is.
pub fn check_static(binary: impl Read + Seek, system: System) -> Result<(), ElfError> {
    let elf = Elf::read(binary)?;
    if elf.system != system {
        return Err(ElfError::WrongSystem { found: elf.system, expected: system });
    }
    if elf.interpreter.is_some() || !elf.needed.is_empty() {
        return Err(ElfError::Dynamic { needed: elf.needed, interpreter: elf.interpreter });
    }
    match elf.form {
        Form::Program => Ok(()),
        Form::Library => Err(ElfError::Library),
        Form::Other => Err(ElfError::NotProgram),
    }
}

/// The system that a binary of this beginning (64 bytes) is for.
///
/// # Errors
/// When it is no ELF file, or for a system that has no name.
pub fn system_of(begin: &[u8]) -> Result<System, ElfError> {
    if begin.get(..4) != Some(b"\x7fELF") {
        let shown = begin[..begin.len().min(16)].escape_ascii().to_string();
        let begins = match begin {
            [] => "nothing: it is empty".to_owned(),
            [b'#', b'!', ..] => "'#!'".to_owned(),
            _ => format!("'{shown}'"),
        };
        return Err(ElfError::NotElf { begins });
    }
    let Some(header) = begin.get(..64) else {
        return Err(ElfError::Malformed { what: "its header is cut off" });
    };
    if header[4] != 2 || header[5] != 1 {
        let found = if header[4] == 2 { "a big-endian processor" } else { "a 32-bit processor" };
        return Err(ElfError::UnknownSystem { found: found.to_owned() });
    }
    // System V (0) and Linux (3) are what Linux binaries say.
    if header[7] != 0 && header[7] != 3 {
        return Err(ElfError::UnknownSystem { found: format!("the operating system {}", header[7]) });
    }
    match u16_at(header, 18)? {
        62 => Ok(System::LinuxAmd64),
        183 => Ok(System::LinuxArm64),
        machine => Err(ElfError::UnknownSystem { found: format!("the processor {machine}") }),
    }
}

struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    size: u64,
}

impl Elf {
    /// What an ELF file says of itself.
    ///
    /// # Errors
    /// When it is none, cannot be read, or contradicts itself.
    pub fn read(mut file: impl Read + Seek) -> Result<Self, ElfError> {
        let mut header = Vec::new();
        file.by_ref().take(64).read_to_end(&mut header).map_err(ElfError::Read)?;
        let system = system_of(&header)?;
        let kind = u16_at(&header, 16)?;
        let segments = segments(&mut file, &header)?;
        let interpreter = match segments.iter().find(|s| s.kind == 3) {
            Some(segment) => {
                let bytes = bytes_at(&mut file, segment.offset, segment.size, MAX_STRING as u64)?;
                Some(string(&bytes)?)
            }
            None => None,
        };
        let dynamic = match segments.iter().find(|s| s.kind == 2) {
            Some(segment) => Dynamic::read(&mut file, segment, &segments)?,
            None => Dynamic::default(),
        };
        let form = match kind {
            EXEC => Form::Program,
            DYN if dynamic.is_pie || interpreter.is_some() => Form::Program,
            DYN => Form::Library,
            _ => Form::Other,
        };
        Ok(Self { system, interpreter, needed: dynamic.needed, search: dynamic.search, form })
    }
}

fn segments(file: &mut (impl Read + Seek), header: &[u8]) -> Result<Vec<Segment>, ElfError> {
    let (offset, size, count) = (u64_at(header, 32)?, u16_at(header, 54)?, u16_at(header, 56)?);
    if count == 0 {
        return Ok(Vec::new());
    }
    if size != 56 || count > MAX_HEADERS {
        return Err(ElfError::Malformed { what: "the size or number of its program headers" });
    }
    let bytes = bytes_at(file, offset, 56 * u64::from(count), 56 * u64::from(MAX_HEADERS))?;
    let segment = |bytes: &[u8]| {
        let kind = u32::try_from(u64_at(bytes, 0)? & 0xffff_ffff).unwrap_or(0);
        Ok(Segment { kind, offset: u64_at(bytes, 8)?, address: u64_at(bytes, 16)?, size: u64_at(bytes, 32)? })
    };
    bytes.chunks_exact(56).map(segment).collect()
}

#[derive(Default)]
struct Dynamic {
    needed: Vec<String>,
    search: Vec<String>,
    is_pie: bool,
}

impl Dynamic {
    fn read(file: &mut (impl Read + Seek), at: &Segment, all: &[Segment]) -> Result<Self, ElfError> {
        let bytes = bytes_at(file, at.offset, at.size, MAX_DYNAMIC)?;
        let mut pairs = Vec::new();
        for pair in bytes.chunks_exact(16) {
            match (u64_at(pair, 0)?, u64_at(pair, 8)?) {
                (0, _) => break,
                pair => pairs.push(pair),
            }
        }
        let of = |tag: u64| pairs.iter().filter(move |pair| pair.0 == tag).map(|pair| pair.1);
        let is_pie = of(0x6fff_fffb).any(|flags| flags & 0x0800_0000 != 0);
        let strings = match (of(5).next(), of(10).next()) {
            (Some(address), Some(size)) => {
                let offset = offset_of(address, all)?;
                bytes_at(file, offset, size, 64 * MAX_DYNAMIC)?
            }
            _ => Vec::new(),
        };
        let string_at = |offset: u64| {
            let begin = usize::try_from(offset).ok().and_then(|offset| strings.get(offset..));
            string(begin.ok_or(ElfError::Malformed { what: "a name lies outside its string table" })?)
        };
        let needed = of(1).map(string_at).collect::<Result<_, _>>()?;
        let search = match of(29).next().or_else(|| of(15).next()) {
            Some(offset) => string_at(offset)?.split(':').map(str::to_owned).collect(),
            None => Vec::new(),
        };
        Ok(Self { needed, search, is_pie })
    }
}

/// Where in the file an address of the loaded program is.
fn offset_of(address: u64, segments: &[Segment]) -> Result<u64, ElfError> {
    let holds = |s: &&Segment| s.kind == 1 && address >= s.address && address - s.address < s.size;
    let segment =
        segments.iter().find(holds).ok_or(ElfError::Malformed { what: "its string table is not loaded" })?;
    segment
        .offset
        .checked_add(address - segment.address)
        .ok_or(ElfError::Malformed { what: "an offset overflows" })
}

fn bytes_at(file: &mut (impl Read + Seek), offset: u64, size: u64, most: u64) -> Result<Vec<u8>, ElfError> {
    if size > most {
        return Err(ElfError::Malformed { what: "a table is larger than any linker writes" });
    }
    file.seek(SeekFrom::Start(offset)).map_err(ElfError::Read)?;
    let mut bytes = Vec::new();
    file.by_ref().take(size).read_to_end(&mut bytes).map_err(ElfError::Read)?;
    if bytes.len() as u64 == size { Ok(bytes) } else { Err(ElfError::Malformed { what: "it is cut off" }) }
}

/// A text up to its NUL.
fn string(bytes: &[u8]) -> Result<String, ElfError> {
    let end = bytes.iter().take(MAX_STRING).position(|b| *b == 0);
    let text = end.and_then(|end| std::str::from_utf8(&bytes[..end]).ok());
    text.map(str::to_owned).ok_or(ElfError::Malformed { what: "a name has no end or is not UTF-8" })
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, ElfError> {
    let found = bytes.get(at..at + 2).and_then(|bytes| bytes.try_into().ok());
    found.map(u16::from_le_bytes).ok_or(ElfError::Malformed { what: "it is cut off" })
}

fn u64_at(bytes: &[u8], at: usize) -> Result<u64, ElfError> {
    let found = bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
    found.map(u64::from_le_bytes).ok_or(ElfError::Malformed { what: "it is cut off" })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Cursor;

    use super::*;

    /// The smallest file that the rule takes: a header, and no segments.
    fn smallest(machine: u8, kind: u8) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\x00");
        bytes[16] = kind;
        bytes[18] = machine;
        bytes
    }

    fn check(bytes: &[u8]) -> Result<(), ElfError> {
        check_static(Cursor::new(bytes), System::LinuxAmd64)
    }

    #[test]
    fn a_static_binary_passes() {
        check(&smallest(62, 2)).unwrap();
    }

    #[test]
    fn what_it_is_instead_is_said() {
        let says = |bytes: &[u8]| check(bytes).unwrap_err().to_string();
        assert_eq!(says(b"#!/bin/sh\n"), "not an ELF file: begins with '#!'");
        assert_eq!(says(b""), "not an ELF file: begins with nothing: it is empty");
        assert_eq!(says(b"MZ\x90"), "not an ELF file: begins with 'MZ\\x90'");
        assert_eq!(says(&smallest(183, 2)), "for linux/arm64, expected linux/amd64");
        assert_eq!(says(&smallest(62, 3)), "a shared library, expected a static binary");
        assert_eq!(says(&smallest(62, 1)), "an object file or a core dump, expected a static binary");
        assert_eq!(
            says(&smallest(40, 2)),
            "an ELF file for the processor 40: expected linux/amd64 or linux/arm64"
        );
        assert_eq!(says(&smallest(62, 2)[..40]), "a damaged ELF file: its header is cut off");
    }

    #[test]
    fn this_test_is_a_dynamic_program_and_says_what_it_needs() {
        let this = File::open("/proc/self/exe").unwrap();
        let error = check_static(&this, System::of_this_program()).unwrap_err();
        assert!(
            matches!(&error, ElfError::Dynamic { needed, interpreter: Some(_) }
            if needed.iter().any(|name| name.starts_with("libc."))),
            "{error}"
        );
    }

    #[test]
    fn damage_is_an_error_and_never_a_panic() {
        let mut whole = Vec::new();
        File::open("/proc/self/exe").unwrap().take(4096).read_to_end(&mut whole).unwrap();
        for at in 0..512 {
            for value in [0, 1, 0x7f, 0xff] {
                let mut damaged = whole.clone();
                damaged[at] = value;
                let _any = Elf::read(Cursor::new(damaged));
            }
        }
    }
}
