//! Archives that nobody thought of. What holds for each: it is refused, and nothing is left; or it is taken, and then
//! what lies on the disk is what was said, packing that again gives the same, and tar reads the same names in it.

use std::process::Command;

use super::*;
use crate::SILENT;
use crate::entries::walk;
use crate::pack::{inspect, pack_entries};
use crate::testing::fuzz::{Random, corpus, mutate, seeds};
use crate::testing::{a_bundle, gzip, packed};
use crate::unpack::unpack;

const LIMITS: Limits = Limits { compressed: 1 << 20, unpacked: 1 << 20, entries: 200 };

/// With right checksums, so that what is behind them is looked at.
fn with_checksums(tar: &mut [u8]) {
    for block in tar.chunks_exact_mut(512).filter(|block| &block[257..262] == b"ustar") {
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|b| u32::from(*b)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
}

#[test]
fn archives_that_nobody_thought_of() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let tars = corpus("archives");
    packed(a_bundle("prog", "1"), &at("own"));
    let (mut taken, mut refused, mut asked_tar) = (0, 0, 0);
    for case in seeds() {
        let mut random = Random::of(case.seed);
        let mut tar = random.one_of(&tars).clone();
        // Now and then as it is: what the corpus has in it is taken or refused as ever.
        if random.below(16) > 0 {
            mutate(&mut random, &mut tar, &tars);
        }
        if random.below(4) > 0 {
            with_checksums(&mut tar);
        }
        let mut gz = gzip(&tar);
        if random.below(8) == 0 {
            mutate(&mut random, &mut gz, &tars);
        }
        std::fs::write(at("archive"), &gz).unwrap();
        let layer = match inspect(&at("archive"), LIMITS) {
            Ok(layer) => layer,
            Err(_) => {
                refused += 1;
                if random.below(16) == 0 {
                    unpack(&at("archive"), None, &at("out"), LIMITS).unwrap_err();
                    assert!(!at("out").exists());
                }
                continue;
            }
        };
        taken += 1;
        let unpacked = unpack(&at("archive"), Some(&Digest::of(&gz)), &at("out"), LIMITS).unwrap();
        assert_eq!(unpacked, layer);
        let again = pack_entries(walk(&at("out")).unwrap(), &at("again"), 1, SILENT).unwrap();
        let mut files = layer.files.clone();
        files.sort_by(|one, other| one.path.cmp(&other.path));
        let mut links = layer.links.clone();
        links.sort_by(|one, other| one.path.cmp(&other.path));
        assert_eq!((again.files, again.links), (files, links));
        if asked_tar < 100 {
            asked_tar += 1;
            let output = Command::new("tar").arg("-tzf").arg(at("archive")).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let names = String::from_utf8(output.stdout).unwrap();
            let mut files = names.lines().filter(|name| !name.ends_with('/')).collect::<Vec<_>>();
            files.sort_unstable();
            let ours = layer.files.iter().map(|file| file.path.as_str());
            let mut ours: Vec<_> = ours.chain(layer.links.iter().map(|link| link.path.as_str())).collect();
            ours.sort_unstable();
            // tar writes what is not ASCII with escapes.
            if names.is_ascii() && !names.contains('\\') && ours.iter().all(|name| name.is_ascii()) {
                assert_eq!(files, ours);
            }
        }
        std::fs::remove_dir_all(at("out")).unwrap();
    }
    let names = std::fs::read_dir(&folder).unwrap().map(|found| found.unwrap().file_name());
    assert!(
        names
            .map(|name| name.into_string().unwrap())
            .all(|name| ["own", "archive", "again"].contains(&&*name))
    );
    assert!(taken + refused > 0);
}
