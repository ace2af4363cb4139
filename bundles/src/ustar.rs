//! One tar header, to bytes and back: ustar (POSIX.1-1988), with a pax record (POSIX.1-2001) where a path is
//! too long for it.
//!
//! In: an entry's path, kind, mode, size. Out: blocks of 512 bytes; and from blocks, the same. Everything
//! that says when and by whom is fixed, so that the same entry always gives the same bytes. The reader takes
//! a block only if there is one way to read it. Not here: what entries may stand together, and any file.

use crate::path::BundlePath;

/// The unit of a tar.
pub(crate) const BLOCK: usize = 512;
/// What ends a tar.
pub(crate) const END: [u8; 2 * BLOCK] = [0; 2 * BLOCK];
/// The largest size that eleven octal digits can say.
pub(crate) const MAX_SIZE: u64 = 0o77_777_777_777;
/// The time of every entry. Not 0, which some tools take for "no time" and others refuse.
const TIME: u64 = 1;

/// What an entry is, as a header says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    File,
    Folder,
    Link,
    Pax,
}

impl Type {
    const fn flag(self) -> u8 {
        match self {
            Self::File => b'0',
            Self::Folder => b'5',
            Self::Link => b'2',
            Self::Pax => b'x',
        }
    }
}

/// A header, read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) name: Vec<u8>,
    pub(crate) link: Vec<u8>,
    pub(crate) mode: u32,
    pub(crate) size: u64,
    pub(crate) kind: Type,
}

/// Why a block is not a header that we take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderFault {
    /// Not the ustar format.
    #[error("the header's format is {found:?}: expected ustar")]
    NotUstar {
        /// The format's magic and version.
        found: String,
    },
    /// The checksum does not fit.
    #[error("the header's checksum is {found}: expected {expected}")]
    Checksum {
        /// What the header says.
        found: u64,
        /// What its bytes add up to.
        expected: u64,
    },
    /// A number is not octal.
    #[error("the header's {field} is not an octal number")]
    NotOctal {
        /// The field.
        field: &'static str,
    },
    /// Bytes behind the end of a text.
    #[error("the header's {field} has bytes behind its end")]
    BytesBehindText {
        /// The field.
        field: &'static str,
    },
    /// A hard link.
    #[error("{name:?} is a hard link")]
    HardLink {
        /// The entry.
        name: String,
    },
    /// A device.
    #[error("{name:?} is a device")]
    Device {
        /// The entry.
        name: String,
    },
    /// A FIFO.
    #[error("{name:?} is a FIFO")]
    Fifo {
        /// The entry.
        name: String,
    },
    /// A GNU sparse file.
    #[error("{name:?} is a sparse file")]
    Sparse {
        /// The entry.
        name: String,
    },
    /// A GNU long name.
    #[error("the archive has GNU long names: expected pax records")]
    GnuLongName,
    /// A global pax header.
    #[error("the archive has a global pax header")]
    GlobalPax,
    /// Something else.
    #[error("{name:?} is of unknown type {kind:?}")]
    UnknownType {
        /// The entry.
        name: String,
        /// The type flag.
        kind: char,
    },
    /// Set-user, set-group or sticky bit.
    #[error("{name:?} has mode {mode:04o}: expected no set-user, set-group or sticky bit")]
    SpecialMode {
        /// The entry.
        name: String,
        /// The mode.
        mode: u32,
    },
    /// A folder or link with content.
    #[error("{name:?} is no file and has a size of {size}")]
    SizeOfNoFile {
        /// The entry.
        name: String,
        /// The size.
        size: u64,
    },
    /// A pax record that is not one.
    #[error("a pax record is malformed")]
    PaxMalformed,
    /// A pax record that could change what we understand.
    #[error("a pax record has the key {key:?}: expected path or linkpath, each once")]
    PaxKey {
        /// The key.
        key: String,
    },
}

/// The blocks that begin an entry.
pub(crate) fn encode(path: &BundlePath, kind: Type, mode: u32, size: u64, link: &str) -> Vec<u8> {
    let mut name = path.as_str().as_bytes().to_vec();
    if kind == Type::Folder {
        name.push(b'/');
    }
    let mut records = Vec::new();
    let (prefix, short) = split(&name).unwrap_or_else(|| {
        records.extend(pax_record("path", &name));
        (&[], &name[..100])
    });
    let link = link.as_bytes();
    if link.len() > 100 {
        records.extend(pax_record("linkpath", link));
    }
    let mut out = Vec::with_capacity(BLOCK);
    if !records.is_empty() {
        out.extend(block(b"PaxHeader", b"", Type::Pax, 0o644, records.len() as u64, b""));
        out.extend(&records);
        out.resize(out.len().next_multiple_of(BLOCK), 0);
    }
    out.extend(block(short, prefix, kind, mode, size, &link[..link.len().min(100)]));
    out
}

/// The name in its two fields: none where it does not fit.
fn split(name: &[u8]) -> Option<(&[u8], &[u8])> {
    if name.len() <= 100 {
        return Some((&[], name));
    }
    // The shortest prefix whose rest fits; the slash between belongs to neither, and the rest is not empty.
    let first = name.len().saturating_sub(101);
    let at = (first..name.len() - 1).find(|at| name[*at] == b'/')?;
    (at <= 155 && at > 0).then(|| (&name[..at], &name[at + 1..]))
}

/// `<length> key=value\n`, where the length counts itself.
fn pax_record(key: &str, value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    let mut record = format!("{length} {key}=").into_bytes();
    record.extend(value);
    record.push(b'\n');
    record
}

fn block(name: &[u8], prefix: &[u8], kind: Type, mode: u32, size: u64, link: &[u8]) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, name);
    put(100, format!("{mode:07o}").as_bytes());
    put(108, b"0000000");
    put(116, b"0000000");
    put(124, format!("{size:011o}").as_bytes());
    put(136, format!("{TIME:011o}").as_bytes());
    put(148, b"        ");
    put(156, &[kind.flag()]);
    put(157, link);
    put(257, b"ustar\x0000");
    put(329, b"0000000");
    put(337, b"0000000");
    put(345, prefix);
    let sum = format!("{:06o}\0 ", checksum(&block));
    block[148..156].copy_from_slice(sum.as_bytes());
    block
}

fn checksum(block: &[u8; BLOCK]) -> u64 {
    let counted = |(at, byte): (usize, &u8)| if (148..156).contains(&at) { 32 } else { u64::from(*byte) };
    block.iter().enumerate().map(counted).sum()
}

/// The header that a block is.
pub(crate) fn decode(block: &[u8; BLOCK]) -> Result<Header, HeaderFault> {
    if &block[257..265] != b"ustar\x0000" {
        return Err(HeaderFault::NotUstar { found: block[257..265].escape_ascii().to_string() });
    }
    let (found, expected) = (octal(&block[148..156], "checksum")?, checksum(block));
    if found != expected {
        return Err(HeaderFault::Checksum { found, expected });
    }
    let short = text(&block[..100], "name")?;
    let prefix = text(&block[345..500], "prefix")?;
    let name = if prefix.is_empty() { short.to_vec() } else { [prefix, b"/", short].concat() };
    let link = text(&block[157..257], "link")?.to_vec();
    let mode = u32::try_from(octal(&block[100..108], "mode")?)
        .map_err(|_| HeaderFault::NotOctal { field: "mode" })?;
    let size = octal(&block[124..136], "size")?;
    // What they say is not used; but what another reader chokes on is not one archive for everybody.
    for (bytes, field) in [
        (&block[108..116], "user"),
        (&block[116..124], "group"),
        (&block[136..148], "time"),
        (&block[329..337], "major device number"),
        (&block[337..345], "minor device number"),
    ] {
        let is_empty = bytes.iter().all(|b| *b == b' ' || *b == 0);
        if !is_empty {
            let _ = octal(bytes, field)?;
        }
    }
    let shown = || String::from_utf8_lossy(&name).into_owned();
    let kind = match block[156] {
        b'0' => Type::File,
        b'5' => Type::Folder,
        b'2' => Type::Link,
        b'x' => Type::Pax,
        b'1' => return Err(HeaderFault::HardLink { name: shown() }),
        b'3' | b'4' => return Err(HeaderFault::Device { name: shown() }),
        b'6' => return Err(HeaderFault::Fifo { name: shown() }),
        b'S' => return Err(HeaderFault::Sparse { name: shown() }),
        b'L' | b'K' => return Err(HeaderFault::GnuLongName),
        b'g' => return Err(HeaderFault::GlobalPax),
        other => return Err(HeaderFault::UnknownType { name: shown(), kind: char::from(other) }),
    };
    if mode & !0o777 != 0 {
        return Err(HeaderFault::SpecialMode { name: shown(), mode });
    }
    if size != 0 && matches!(kind, Type::Folder | Type::Link) {
        return Err(HeaderFault::SizeOfNoFile { name: shown(), size });
    }
    Ok(Header { name, link, mode, size, kind })
}

/// A text field: up to its first NUL, with nothing behind that.
fn text<'a>(bytes: &'a [u8], field: &'static str) -> Result<&'a [u8], HeaderFault> {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    if bytes[end..].iter().any(|b| *b != 0) {
        return Err(HeaderFault::BytesBehindText { field });
    }
    Ok(&bytes[..end])
}

/// Octal digits, then nothing but spaces and NULs. GNU's binary numbers are not taken: two readers could
/// disagree about where the next header is.
fn octal(bytes: &[u8], field: &'static str) -> Result<u64, HeaderFault> {
    let digits = bytes.iter().take_while(|b| (b'0'..=b'7').contains(b)).count();
    if digits == 0 || bytes[digits..].iter().any(|b| *b != b' ' && *b != 0) {
        return Err(HeaderFault::NotOctal { field });
    }
    Ok(bytes[..digits].iter().fold(0, |sum, digit| sum * 8 + u64::from(digit - b'0')))
}

/// What pax records say of the entry that follows.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PaxRecords {
    pub(crate) path: Option<Vec<u8>>,
    pub(crate) link: Option<Vec<u8>>,
}

/// The records in a pax header's content.
pub(crate) fn decode_pax(mut bytes: &[u8]) -> Result<PaxRecords, HeaderFault> {
    let mut records = PaxRecords::default();
    while !bytes.is_empty() {
        let space = bytes.iter().position(|b| *b == b' ').ok_or(HeaderFault::PaxMalformed)?;
        let length: usize = std::str::from_utf8(&bytes[..space])
            .ok()
            .filter(|text| !text.starts_with('+'))
            .and_then(|text| text.parse().ok())
            .ok_or(HeaderFault::PaxMalformed)?;
        if length <= space + 1 || length > bytes.len() || bytes[length - 1] != b'\n' {
            return Err(HeaderFault::PaxMalformed);
        }
        let record = &bytes[space + 1..length - 1];
        let equals = record.iter().position(|b| *b == b'=').ok_or(HeaderFault::PaxMalformed)?;
        let (key, value) = (&record[..equals], record[equals + 1..].to_vec());
        let slot = match key {
            b"path" => &mut records.path,
            b"linkpath" => &mut records.link,
            _ => return Err(HeaderFault::PaxKey { key: String::from_utf8_lossy(key).into_owned() }),
        };
        if slot.replace(value).is_some() {
            return Err(HeaderFault::PaxKey { key: String::from_utf8_lossy(key).into_owned() });
        }
        bytes = &bytes[length..];
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> BundlePath {
        text.parse().unwrap()
    }

    fn only_block(bytes: &[u8]) -> [u8; BLOCK] {
        bytes.try_into().unwrap()
    }

    #[test]
    fn a_header_reads_back() {
        let header =
            decode(&only_block(&encode(&path("a/b"), Type::File, 0o755, 8_000_000_000, ""))).unwrap();
        assert_eq!(
            header,
            Header {
                name: b"a/b".to_vec(),
                link: vec![],
                mode: 0o755,
                size: 8_000_000_000,
                kind: Type::File
            }
        );
        let header = decode(&only_block(&encode(&path("l"), Type::Link, 0o777, 0, "a/b"))).unwrap();
        assert_eq!((header.kind, header.link), (Type::Link, b"a/b".to_vec()));
    }

    #[test]
    fn a_number_that_is_not_used_is_a_number_all_the_same_or_empty() {
        let fields = [
            (108..116, "user"),
            (116..124, "group"),
            (136..148, "time"),
            (329..337, "major device number"),
            (337..345, "minor device number"),
        ];
        for (at, field) in fields {
            let with = |bytes: &[u8]| {
                let mut block = only_block(&encode(&path("a"), Type::File, 0o644, 0, ""));
                block[at.clone()].fill(0);
                block[at.clone()][..bytes.len()].copy_from_slice(bytes);
                let sum = format!("{:06o}\0 ", checksum(&block));
                block[148..156].copy_from_slice(sum.as_bytes());
                decode(&block)
            };
            for taken in [&b""[..], b"        ", b"0001750 ", b"17"] {
                assert!(with(taken).is_ok(), "{field}: {taken:?}");
            }
            for refused in [&b"000000\x10"[..], b"\x80\0\0\0\x01", b"-1", b"8", b"\x007"] {
                assert_eq!(with(refused).unwrap_err(), HeaderFault::NotOctal { field }, "{refused:?}");
            }
        }
    }

    #[test]
    fn a_long_path_goes_into_the_prefix_where_it_fits() {
        let long = format!("{}/{}", "p".repeat(120), "n".repeat(99));
        let header = decode(&only_block(&encode(&path(&long), Type::File, 0o644, 0, ""))).unwrap();
        assert_eq!(header.name, long.as_bytes());
    }

    #[test]
    fn a_longer_path_goes_into_a_pax_record() {
        let long = format!("{}/{}", "p".repeat(120), "n".repeat(200));
        let bytes = encode(&path(&long), Type::File, 0o644, 0, "");
        assert_eq!(bytes.len(), 3 * BLOCK);
        let pax = decode(&only_block(&bytes[..BLOCK])).unwrap();
        assert_eq!(pax.kind, Type::Pax);
        let size = usize::try_from(pax.size).unwrap();
        let records = decode_pax(&bytes[BLOCK..BLOCK + size]).unwrap();
        assert_eq!(records.path.unwrap(), long.as_bytes());
    }

    #[test]
    fn a_record_counts_its_own_length() {
        for length in [1, 2, 85, 86, 87, 88, 89, 90, 91, 985, 986, 987, 988, 989, 990, 991] {
            let record = pax_record("path", &vec![b'a'; length]);
            let space = record.iter().position(|b| *b == b' ').unwrap();
            let said: usize = std::str::from_utf8(&record[..space]).unwrap().parse().unwrap();
            assert_eq!(said, record.len());
        }
    }

    #[test]
    fn other_pax_keys_are_refused() {
        for (bytes, key) in [(&b"12 size=100\n"[..], "size"), (b"10 path=a\n10 path=b\n", "path")] {
            assert_eq!(decode_pax(bytes).unwrap_err(), HeaderFault::PaxKey { key: key.to_owned() });
        }
        for bytes in [&b"11 path=a\n"[..], b"x", b"8 path=a\n", b"0 a=b\n", b"2 ", b"6 pat\n"] {
            assert_eq!(decode_pax(bytes).unwrap_err(), HeaderFault::PaxMalformed, "{bytes:?}");
        }
    }
}
