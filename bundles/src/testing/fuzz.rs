//! Fuzzing on stable Rust: a kept corpus, mutated from seeds, for so many seconds. Every case has a seed of its own,
//! which is printed when it fails and repeats it alone: `MESH_FUZZ_SEED=<seed> cargo nextest run -p mesh-bundles fuzz`.
//! A test run has the same cases each time, as many as five seconds let it have; `MESH_FUZZ_SECONDS` asks for new ones, for
//! so long.

use std::path::Path;
use std::time::{Duration, Instant};

/// Numbers that only depend on a seed (splitmix64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn of(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end.max(1) as u64).unwrap()
    }

    pub(crate) fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

/// The files of a folder of the corpus, in order, so that a seed means the same everywhere.
pub(crate) fn corpus(folder: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(folder);
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|found| found.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// Where the cases of an ordinary test run begin.
const FIRST: u64 = 2026;

/// How long an ordinary test run goes on.
const SECONDS: u64 = 5;

/// The seeds of a run: one that was asked for, new ones for as long as was asked for, or those of every run.
pub(crate) fn seeds() -> impl Iterator<Item = Case> {
    let variable = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let asked = variable("MESH_FUZZ_SEED");
    let seconds = variable("MESH_FUZZ_SECONDS");
    let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(SECONDS));
    let mut random = Random::of(seconds.map_or(FIRST, |_| {
        let nanos = u64::from(std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos());
        nanos ^ (u64::from(std::process::id()) << 32)
    }));
    let mut count = 0;
    std::iter::from_fn(move || {
        count += 1;
        match asked {
            Some(seed) => (count == 1).then_some(Case { seed }),
            None => (Instant::now() < end).then(|| Case { seed: random.next() }),
        }
    })
}

/// One case, which says its seed if it fails.
pub(crate) struct Case {
    pub(crate) seed: u64,
}

impl Drop for Case {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("repeat this case with MESH_FUZZ_SEED={}", self.seed);
        }
    }
}

const NUMBERS: [u64; 12] =
    [0, 1, 2, 511, 512, 513, 0xffff, 0x7fff_ffff, 0xffff_ffff, 1 << 33, i64::MAX as u64, u64::MAX];

/// Changes some bytes, in one to eight places.
pub(crate) fn mutate(random: &mut Random, bytes: &mut Vec<u8>, others: &[Vec<u8>]) {
    for _ in 0..=random.below(8) {
        if bytes.is_empty() {
            bytes.extend(random.one_of(others));
            continue;
        }
        let at = random.below(bytes.len());
        match random.below(11) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => {
                bytes[at] =
                    *random.one_of(&[0, 0xff, b'/', b'.', b'"', b'\n', b' ', 0x7f, 0x80, b'\\', b'7']);
            }
            2 => bytes[at] = bytes[at].wrapping_add(1),
            3 => bytes.truncate(at),
            4 => {
                let end = (at + 1 + random.below(64)).min(bytes.len());
                bytes.drain(at..end);
            }
            5 => {
                let end = (at + 1 + random.below(64)).min(bytes.len());
                let again = bytes[at..end].to_vec();
                bytes.splice(at..at, again);
            }
            6 => {
                // A whole block of a tar, once more or no more.
                let begin = at / 512 * 512;
                let end = (begin + 512).min(bytes.len());
                let block: Vec<u8> = bytes.drain(begin..end).collect();
                if random.below(2) == 0 {
                    let to = random.below(bytes.len() / 512 + 1) * 512;
                    bytes.splice(to..to, [block.clone(), block].concat());
                }
            }
            7 => {
                let other = random.one_of(others);
                let from = random.below(other.len()) / 512 * 512;
                let length = (512 * (1 + random.below(3))).min(other.len() - from);
                let to = at / 512 * 512;
                bytes.splice(to..to, other[from..from + length].iter().copied());
            }
            8 => {
                let number = NUMBERS[random.below(NUMBERS.len())];
                let text = if random.below(2) == 0 { number.to_string() } else { format!("{number:o}") };
                let end = (at + text.len()).min(bytes.len());
                bytes.splice(at..end, text.into_bytes());
            }
            9 => {
                let length = random.below(300);
                let byte = *random.one_of(b"a/0\xc3 ");
                bytes.splice(at..at, std::iter::repeat_n(byte, length));
            }
            _ => {
                let end = (at + 1 + random.below(16)).min(bytes.len());
                bytes[at..end].iter_mut().for_each(|byte| *byte = (random.next() >> 56) as u8);
            }
        }
        bytes.truncate(1 << 16);
    }
}
