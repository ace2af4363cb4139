//! What comes back of what was sent, beside the file that it was sent from.
//!
//! In: portions of bytes, in order. Out: where they differ from the file. Reading what was just sent from the kernel's
//! memory and comparing it takes a quarter of the time that hashing takes; and a thread of its own for it would take the
//! registry's. Not here: whether the file is what it should be.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};

use super::error::StoreError;

/// What is read of the file at once: little enough to stay near the processor.
const PORTION: usize = 64 << 10;

pub(super) struct Comparing {
    path: PathBuf,
    file: File,
    buffer: Vec<u8>,
    at: u64,
    differs: Option<u64>,
}

impl Comparing {
    pub(super) fn with(path: &Path) -> Result<Self, StoreError> {
        let file =
            File::open(path).map_err(|source| StoreError::File { path: path.to_path_buf(), source })?;
        Ok(Self { path: path.to_path_buf(), file, buffer: vec![0; PORTION], at: 0, differs: None })
    }

    pub(super) fn put(&mut self, portion: &[u8]) -> Result<(), StoreError> {
        for there in portion.chunks(PORTION) {
            if self.differs.is_none() {
                let here = self.read(there.len());
                let here = here.map_err(|source| StoreError::File { path: self.path.clone(), source })?;
                let here = &self.buffer[..here];
                if here != there {
                    let same = here.iter().zip(there).take_while(|(here, there)| here == there).count();
                    self.differs = Some(self.at + same as u64);
                }
                self.at += there.len() as u64;
            }
        }
        Ok(())
    }

    /// As much, or all that there is.
    fn read(&mut self, wanted: usize) -> io::Result<usize> {
        let mut have = 0;
        while have < wanted {
            match self.file.read(&mut self.buffer[have..wanted]) {
                Ok(0) => break,
                Ok(count) => have += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(have)
    }

    /// From the beginning.
    pub(super) fn start_over(&mut self) -> Result<(), StoreError> {
        (self.at, self.differs) = (0, None);
        self.file.rewind().map_err(|source| StoreError::File { path: self.path.clone(), source })
    }

    /// Is all that was put as in the file? The file may have more.
    pub(super) fn finish(self, what: String) -> Result<(), StoreError> {
        match self.differs {
            None => Ok(()),
            Some(at) => Err(StoreError::Differs { what, path: self.path, at }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_byte_that_differs_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let whole: Vec<u8> = (0..200_000_u32).map(|at| (at % 251) as u8).collect();
        std::fs::write(&path, &whole).unwrap();
        let differs = |bytes: &[u8], portions: usize| {
            let mut comparing = Comparing::with(&path).unwrap();
            // What came before it started over does not count.
            comparing.put(b"something else").unwrap();
            comparing.start_over().unwrap();
            bytes.chunks(portions).for_each(|portion| comparing.put(portion).unwrap());
            match comparing.finish("it".to_owned()) {
                Ok(()) => None,
                Err(StoreError::Differs { at, .. }) => Some(at),
                Err(error) => panic!("{error}"),
            }
        };
        for portions in [1013, PORTION, 200_000] {
            assert_eq!(differs(&whole, portions), None);
            assert_eq!(differs(&whole[..5000], portions), None);
            for at in [0, 1, 1012, 1013, PORTION - 1, PORTION, 199_999] {
                let mut other = whole.clone();
                other[at] ^= 0x10;
                assert_eq!(differs(&other, portions), Some(at as u64));
            }
            assert_eq!(differs(&[&whole[..], b"more"].concat(), portions), Some(200_000));
        }
        assert!(matches!(Comparing::with(&folder.path().join("none")), Err(StoreError::File { .. })));
        let mut folder = Comparing::with(folder.path()).unwrap();
        assert!(matches!(folder.put(b"x"), Err(StoreError::File { .. })));
    }
}
