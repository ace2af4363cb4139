//! Archives that somebody made to do harm. Each is refused, and each by the rule that it breaks.

use super::*;
use crate::testing::{Block, gzip, padded, some_bytes};

const END: [u8; 1024] = [0; 1024];

fn read(gz: &[u8], limits: Limits) -> Result<Vec<Member>, ArchiveError> {
    let mut archive = Archive::new(gz, limits);
    let mut members = Vec::new();
    while let Some(member) = archive.next_member()? {
        members.push(member);
    }
    Ok(members)
}

/// The error of an archive of these blocks, ended properly.
fn of(blocks: &[Vec<u8>]) -> ArchiveError {
    let tar = [blocks.concat(), END.to_vec()].concat();
    read(&gzip(&tar), Limits::default()).unwrap_err()
}

fn header(block: Block) -> HeaderFault {
    match of(&[block.done()]) {
        ArchiveError::Header { number: 1, fault } => fault,
        other => panic!("{other:?}"),
    }
}

fn path(name: &[u8]) -> PathFault {
    match of(&[Block::file(name, 0).done()]) {
        ArchiveError::Path { number: 1, fault } => fault,
        other => panic!("{other:?}"),
    }
}

fn tree(blocks: &[Block]) -> TreeFault {
    let blocks: Vec<_> = blocks.iter().map(|block| Block(block.0).done()).collect();
    match of(&blocks) {
        ArchiveError::Tree(fault) => fault,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_plain_archive_is_read() {
    let content = some_bytes(600);
    let tar =
        [Block::of(b"d/", b'5').done(), Block::file(b"d/f", 600).done(), padded(&content), END.to_vec()]
            .concat();
    let members = read(&gzip(&tar), Limits::default()).unwrap();
    assert_eq!(members[1].what, What::File { size: 600, mode: FileMode::Data });
    assert_eq!(members.len(), 2);
}

#[test]
fn paths_that_lead_elsewhere() {
    assert!(matches!(path(b"/etc/passwd"), PathFault::Absolute(_)));
    assert!(matches!(path(b"../f"), PathFault::Parent(_)));
    assert!(matches!(path(b"d/../../f"), PathFault::Parent(_)));
    assert!(matches!(path(b""), PathFault::Empty));
    assert!(matches!(path(b"./f"), PathFault::EmptyComponent(_)));
    assert!(matches!(path(b"d//f"), PathFault::EmptyComponent(_)));
    assert!(matches!(path(b"d\\f"), PathFault::Backslash(_)));
    assert!(matches!(path(b"a\x1b[2J"), PathFault::Control(_)));
    assert!(matches!(path(b"a\xff"), PathFault::NotUtf8(_)));
    assert!(matches!(path(b"._f"), PathFault::Metadata(_)));
    let record = b"13 path=a\0b\n";
    let nul = of(&[Block::file(b"x", 12).set(156, b"x").done(), padded(record), Block::file(b"f", 0).done()]);
    assert!(matches!(nul, ArchiveError::Header { fault: HeaderFault::PaxMalformed, .. }));
    let record = b"12 path=a\0b\n";
    let nul = of(&[Block::file(b"x", 12).set(156, b"x").done(), padded(record), Block::file(b"f", 0).done()]);
    assert!(matches!(nul, ArchiveError::Path { fault: PathFault::Nul(_), .. }));
    assert!(matches!(of(&[Block::file(b"f/", 0).done()]), ArchiveError::SlashBehindFile { .. }));
}

#[test]
fn entries_that_are_neither_file_nor_folder_nor_link() {
    assert!(matches!(header(Block::of(b"f", b'1').link(b"g")), HeaderFault::HardLink { .. }));
    assert!(matches!(header(Block::of(b"f", b'3')), HeaderFault::Device { .. }));
    assert!(matches!(header(Block::of(b"f", b'4')), HeaderFault::Device { .. }));
    assert!(matches!(header(Block::of(b"f", b'6')), HeaderFault::Fifo { .. }));
    assert!(matches!(header(Block::of(b"f", b'S')), HeaderFault::Sparse { .. }));
    assert!(matches!(header(Block::of(b"f", b'L')), HeaderFault::GnuLongName));
    assert!(matches!(header(Block::of(b"f", b'K')), HeaderFault::GnuLongName));
    assert!(matches!(header(Block::of(b"f", b'g')), HeaderFault::GlobalPax));
    assert!(matches!(header(Block::of(b"f", b'7')), HeaderFault::UnknownType { kind: '7', .. }));
    assert!(matches!(header(Block::of(b"f", 0)), HeaderFault::UnknownType { .. }));
}

#[test]
fn headers_that_can_be_read_in_two_ways() {
    assert!(matches!(header(Block::file(b"f", 0).set(257, b"ustar  \0")), HeaderFault::NotUstar { .. }));
    assert!(matches!(header(Block::file(b"f\0g", 0)), HeaderFault::BytesBehindText { field: "name" }));
    assert!(matches!(
        header(Block::file(b"f", 0).set(124, b"\x80")),
        HeaderFault::NotOctal { field: "size" }
    ));
    assert!(matches!(
        header(Block::file(b"f", 0).set(100, b"0009644")),
        HeaderFault::NotOctal { field: "mode" }
    ));
    for mode in [b"0004755", b"0002755", b"0001777"] {
        assert!(matches!(header(Block::file(b"f", 0).set(100, mode)), HeaderFault::SpecialMode { .. }));
    }
    assert!(matches!(header(Block::file(b"d/", 512).set(156, b"5")), HeaderFault::SizeOfNoFile { .. }));
    assert!(matches!(of(&[Block::file(b"f", 0).link(b"g").done()]), ArchiveError::TargetOfNoLink { .. }));
    let mut wrong = Block::file(b"f", 0).done();
    wrong[0] = b'g';
    assert!(matches!(of(&[wrong]), ArchiveError::Header { fault: HeaderFault::Checksum { .. }, .. }));
}

#[test]
fn pax_records_that_could_hide_something() {
    let pax = |record: &[u8]| {
        [Block::file(b"x", record.len() as u64).set(156, b"x").done(), padded(record)].concat()
    };
    let file = || Block::file(b"f", 0).done();
    let size = of(&[pax(b"12 size=999\n"), file()]);
    assert!(matches!(size, ArchiveError::Header { fault: HeaderFault::PaxKey { key }, .. } if key == "size"));
    let sparse = of(&[pax(b"22 GNU.sparse.major=1\n"), file()]);
    assert!(matches!(sparse, ArchiveError::Header { fault: HeaderFault::PaxKey { .. }, .. }));
    assert!(matches!(of(&[pax(b"10 path=a\n"), pax(b"10 path=a\n"), file()]), ArchiveError::StrayPax { .. }));
    assert!(matches!(of(&[pax(b"10 path=a\n")]), ArchiveError::StrayPax { .. }));
    let long = format!("7000 path={}\n", "a".repeat(6989));
    assert!(matches!(of(&[pax(long.as_bytes()), file()]), ArchiveError::StrayPax { .. }));
    let parent = of(&[pax(b"13 path=../a\n"), file()]);
    assert!(matches!(parent, ArchiveError::Path { fault: PathFault::Parent(_), .. }));
}

#[test]
fn entries_that_do_not_go_together() {
    let file = |name: &[u8]| Block::file(name, 0);
    let link = |name: &[u8], target: &[u8]| Block::of(name, b'2').link(target);
    assert!(matches!(tree(&[file(b"f"), file(b"f")]), TreeFault::Duplicate { .. }));
    assert!(matches!(tree(&[file(b"f"), file(b"F")]), TreeFault::DuplicateInCase { .. }));
    assert!(matches!(tree(&[file(b"f"), file(b"f/g")]), TreeFault::ParentNotFolder { .. }));
    assert!(matches!(tree(&[file(b"d/f")]), TreeFault::ParentMissing { .. }));
    assert!(matches!(tree(&[link(b"l", b"/etc")]), TreeFault::LinkAbsolute { .. }));
    assert!(matches!(tree(&[link(b"l", b"../etc")]), TreeFault::LinkOutside { .. }));
    assert!(matches!(tree(&[link(b"l", b"etc")]), TreeFault::LinkDangling { .. }));
    assert!(matches!(tree(&[link(b"l", b"."), file(b"l/f")]), TreeFault::ParentNotFolder { .. }));
    let target = of(&[Block::of(b"l", b'2').link(b"\xff").done()]);
    assert!(matches!(target, ArchiveError::TargetNotUtf8 { .. }));
}

#[test]
fn ends_that_are_none() {
    let file = Block::file(b"f", 3).done();
    let end = |tar: &[u8]| read(&gzip(tar), Limits::default()).unwrap_err();
    assert!(matches!(end(&[&file[..], &padded(b"abc")].concat()), ArchiveError::NoEnd));
    assert!(matches!(end(&[&file[..], &padded(b"abc"), &[0; 512]].concat()), ArchiveError::NoEnd));
    assert!(matches!(end(&file), ArchiveError::Truncated));
    assert!(matches!(end(&file[..100]), ArchiveError::Truncated));
    assert!(matches!(end(&[&END[..], &file].concat()), ArchiveError::BehindEnd));
    assert!(matches!(end(&[&[0; 512][..], &file, &END].concat()), ArchiveError::BehindEnd));
    let mut content = padded(b"abc");
    content[100] = 1;
    assert!(matches!(end(&[&file[..], &content, &END].concat()), ArchiveError::Padding { number: 1 }));
}

#[test]
fn gzip_that_is_not_one_plain_member() {
    let gz = gzip(&END);
    let error = |bytes: &[u8]| read(bytes, Limits::default()).unwrap_err();
    assert!(matches!(error(b"PK\x03\x04 and more"), ArchiveError::NotGzip { .. }));
    assert!(matches!(error(b""), ArchiveError::Truncated));
    assert!(matches!(error(&gz[..gz.len() - 1]), ArchiveError::Truncated));
    assert!(matches!(error(&[&gz[..], &gz].concat()), ArchiveError::SecondMember));
    assert!(matches!(error(&[&gz[..], b"more"].concat()), ArchiveError::BehindGzip));
    let damaged = |at: usize, value: u8| {
        let mut gz = gz.clone();
        gz[at] = value;
        error(&gz)
    };
    assert!(matches!(damaged(3, 8), ArchiveError::GzipOptions));
    assert!(matches!(damaged(4, 1), ArchiveError::GzipOptions));
    assert!(matches!(damaged(10, 0xff), ArchiveError::Deflate));
    assert!(matches!(damaged(gz.len() - 8, gz[gz.len() - 8] ^ 1), ArchiveError::Checksum));
    assert!(matches!(damaged(gz.len() - 1, 1), ArchiveError::Checksum));
}

#[test]
fn more_than_it_may_be() {
    let limits = Limits { unpacked: 4096, entries: 2, ..Limits::default() };
    let of = |tar: &[u8]| read(&gzip(tar), limits).unwrap_err();
    let claims = Block::file(b"f", 1 << 32).done();
    assert!(matches!(of(&[&claims[..], &END].concat()), ArchiveError::TooLarge { limit: 4096 }));
    assert!(matches!(of(&[0; 8192]), ArchiveError::TooLarge { limit: 4096 }));
    let files: Vec<u8> =
        [&b"a"[..], b"b", b"c"].iter().flat_map(|name| Block::file(name, 0).done()).collect();
    assert!(matches!(of(&[&files[..], &END].concat()), ArchiveError::TooManyEntries { limit: 2 }));

    let size = 64 << 20;
    let bomb = [Block::file(b"f", size as u64).done(), vec![0; size], END.to_vec()].concat();
    let error = read(&gzip(&bomb), Limits::default()).unwrap_err();
    assert!(matches!(error, ArchiveError::Ratio { .. }), "{error:?}");
}

#[test]
fn damage_anywhere_is_an_error_or_harmless_and_never_a_panic() {
    let tar =
        [Block::of(b"d/", b'5').done(), Block::file(b"d/f", 3).done(), padded(b"abc"), END.to_vec()].concat();
    for at in 0..1536 {
        for value in [0, 1, b'/', b'7', 0x80, 0xff] {
            let mut damaged = tar.clone();
            damaged[at] = value;
            let _any = read(&gzip(&damaged), Limits::default());
        }
    }
    let gz = gzip(&tar);
    for at in 0..gz.len() {
        let mut damaged = gz.clone();
        damaged[at] ^= 0x55;
        let _any = read(&damaged, Limits::default());
    }
}
