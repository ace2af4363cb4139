//! The mesh's keys: whoever has them can make any credential. They never leave the control machine.
//!
//! In and out: one file in a folder that only root can enter. Not here: what is signed with them.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};

use camino::{Utf8Path, Utf8PathBuf};
use jiff::Timestamp;
use nkeys::{KeyPair, KeyPairType};
use serde::{Deserialize, Serialize};

/// The version of the file's form.
const FORMAT: u32 = 1;
const FILE: &str = "bus-keys.json";

/// Why there are no keys, or no credential.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// The file cannot be read.
    #[error("the keys in {path} cannot be read")]
    Unreadable {
        /// Which.
        path: Utf8PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file cannot be written.
    #[error("the keys in {path} cannot be written")]
    Unwritable {
        /// Which.
        path: Utf8PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file is not as it was written.
    #[error("the keys in {path} are not right: expected format {FORMAT} and four seeds")]
    Invalid {
        /// Which.
        path: Utf8PathBuf,
        /// What is wrong.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A key could not be used.
    #[error("a key of the mesh cannot be used to sign")]
    Key(
        #[from]
        /// Why.
        nkeys::error::Error,
    ),
}

/// The keys of the operator and of its accounts.
pub struct MeshKeys {
    pub(super) created: Timestamp,
    pub(super) operator: KeyPair,
    pub(super) control: KeyPair,
    pub(super) nodes: KeyPair,
    pub(super) system: KeyPair,
}

impl std::fmt::Debug for MeshKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MeshKeys")
            .field("operator", &self.operator.public_key())
            .field("control", &self.control.public_key())
            .field("nodes", &self.nodes.public_key())
            .finish_non_exhaustive()
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    format: u32,
    created: Timestamp,
    operator: String,
    control: String,
    nodes: String,
    system: String,
}

impl MeshKeys {
    /// New keys. `now` goes into what they sign, so that the same keys always make the same server
    /// configuration.
    #[must_use]
    pub fn generate(now: Timestamp) -> Self {
        Self {
            created: now,
            operator: KeyPair::new_operator(),
            control: KeyPair::new_account(),
            nodes: KeyPair::new_account(),
            system: KeyPair::new_account(),
        }
    }

    /// Keeps them in `folder`, which is made if it is not there; both are for their owner only.
    ///
    /// # Errors
    /// When the disk does not want to.
    pub fn save(&self, folder: &Utf8Path) -> Result<(), IdentityError> {
        let path = folder.join(FILE);
        let file = File {
            format: FORMAT,
            created: self.created,
            operator: self.operator.seed()?,
            control: self.control.seed()?,
            nodes: self.nodes.seed()?,
            system: self.system.seed()?,
        };
        write(folder, &path, &file).map_err(|source| IdentityError::Unwritable { path, source })
    }

    /// The keys that were kept in `folder`; none when there are none.
    ///
    /// # Errors
    /// When there is a file and it is not right.
    pub fn load(folder: &Utf8Path) -> Result<Option<Self>, IdentityError> {
        let path = folder.join(FILE);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(IdentityError::Unreadable { path, source }),
        };
        match parse(&bytes) {
            Ok(keys) => Ok(Some(keys)),
            Err(source) => Err(IdentityError::Invalid { path, source }),
        }
    }
}

fn parse(bytes: &[u8]) -> Result<MeshKeys, Box<dyn std::error::Error + Send + Sync>> {
    let file: File = serde_json::from_slice(bytes)?;
    if file.format != FORMAT {
        return Err(format!("found format {}", file.format).into());
    }
    Ok(MeshKeys {
        created: file.created,
        operator: seed(&file.operator, &KeyPairType::Operator)?,
        control: seed(&file.control, &KeyPairType::Account)?,
        nodes: seed(&file.nodes, &KeyPairType::Account)?,
        system: seed(&file.system, &KeyPairType::Account)?,
    })
}

fn seed(text: &str, kind: &KeyPairType) -> Result<KeyPair, Box<dyn std::error::Error + Send + Sync>> {
    let key = KeyPair::from_seed(text)?;
    if key.key_pair_type() == *kind {
        Ok(key)
    } else {
        Err(format!("found a seed of kind {:?}, expected {kind:?}", key.key_pair_type()).into())
    }
}

/// Beside, sync, rename, sync the folder.
fn write(folder: &Utf8Path, path: &Utf8Path, file: &File) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let beside = folder.join(format!("{FILE}.new"));
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut written = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    written.write_all(&serde_json::to_vec_pretty(file)?)?;
    written.sync_all()?;
    fs::rename(&beside, path)?;
    fs::File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn folder() -> (tempfile::TempDir, Utf8PathBuf) {
        let temp = tempfile::tempdir().unwrap();
        let path = Utf8PathBuf::from_path_buf(temp.path().join("identity")).unwrap();
        (temp, path)
    }

    #[test]
    fn keys_come_back_as_they_were_kept() {
        let (_temp, folder) = folder();
        assert!(MeshKeys::load(&folder).unwrap().is_none());
        let keys = MeshKeys::generate(Timestamp::UNIX_EPOCH);
        keys.save(&folder).unwrap();
        keys.save(&folder).unwrap();
        let again = MeshKeys::load(&folder).unwrap().unwrap();
        assert_eq!(again.control.seed().unwrap(), keys.control.seed().unwrap());
        assert_eq!(again.created, keys.created);
        let mode = |path: &Utf8Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder), 0o700);
        assert_eq!(mode(&folder.join(FILE)), 0o600);
    }

    #[test]
    fn a_file_with_another_kind_of_seed_is_refused() {
        let (_temp, folder) = folder();
        let keys = MeshKeys::generate(Timestamp::UNIX_EPOCH);
        keys.save(&folder).unwrap();
        let path = folder.join(FILE);
        let text = fs::read_to_string(&path).unwrap();
        let wrong = text.replace(&keys.operator.seed().unwrap(), &keys.control.seed().unwrap());
        fs::write(&path, wrong).unwrap();
        let error = MeshKeys::load(&folder).unwrap_err();
        assert!(matches!(error, IdentityError::Invalid { .. }), "{error:?}");
    }

    #[test]
    fn keys_do_not_show_themselves() {
        let keys = MeshKeys::generate(Timestamp::UNIX_EPOCH);
        let shown = format!("{keys:?}");
        assert!(!shown.contains(&keys.operator.seed().unwrap()));
    }
}
