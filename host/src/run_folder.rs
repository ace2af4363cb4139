//! The run folder of an instance: what its host tells it, and what it answers, as files.
//!
//! In: an instance, its role. Out: `instance`, `role`, and what `role.ack` says. Not here: which role is given,
//! and when.
//!
//! The folder belongs to root and everyone may look in; only `role.ack` belongs to the instance, which writes
//! it in place. So what is read of it may be half written, anything at all, and never a link.

use std::io::Read as _;

use camino::Utf8PathBuf;
use mesh_protocol::handover::{Role, RoleAck, RoleOrder};
use mesh_protocol::id::InstanceId;
use mesh_protocol::layout::Layout;

use mesh_durable::{self as durable, DurableError, Ownership};

/// More than any acknowledgement: what lies beyond is not read.
const ACK_BYTES: u64 = 16 * 1024;

/// The run folder of a process's run or of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFolder {
    path: Utf8PathBuf,
}

impl RunFolder {
    /// The folder that belongs to `key`, whether it was made or not.
    #[must_use]
    pub fn of(layout: &Layout, key: &InstanceId) -> Self {
        Self { path: layout.run(key) }
    }

    /// Makes it, for an instance that runs as this user and group; what was acknowledged before is kept.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn make(layout: &Layout, key: &InstanceId, uid: u32, gid: u32) -> Result<Self, DurableError> {
        durable::ensure_folder(&layout.runs(), 0o711)?;
        let folder = Self::of(layout, key);
        durable::ensure_folder(&folder.path, 0o755)?;
        let ack = folder.ack();
        if !ack.exists() {
            durable::write_owned(&ack, b"", 0o644, Ownership::Ids { uid, gid })?;
        }
        Ok(folder)
    }

    /// `${run.dir}`
    #[must_use]
    pub fn path(&self) -> &camino::Utf8Path {
        &self.path
    }

    /// Tells whoever starts next which instance it is.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_instance(&self, instance: &InstanceId) -> Result<(), DurableError> {
        durable::write(&self.path.join("instance"), format!("{instance}\n").as_bytes(), 0o644)
    }

    /// Gives the instance its role; `number` is higher than that of the order before.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn order(&self, instance: &InstanceId, role: Role, number: u64) -> Result<(), DurableError> {
        let order = RoleOrder { instance: instance.clone(), role, number };
        durable::write_json(&self.path.join("role"), &order, 0o644)
    }

    /// The role that was given last; none before the first.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn ordered(&self) -> Result<Option<RoleOrder>, DurableError> {
        durable::read_json(&self.path.join("role"))
    }

    /// What the instance says it does; nothing before it has said so, or while it is writing.
    #[must_use]
    pub fn acknowledged(&self) -> Option<RoleAck> {
        let file = durable::open_plain(&self.ack()).ok()?;
        if !file.metadata().ok()?.is_file() {
            return None;
        }
        let mut bytes = Vec::new();
        file.take(ACK_BYTES).read_to_end(&mut bytes).ok()?;
        parse(&bytes)
    }

    /// Removes it with what was put there for the run; done twice, it is done. What else somebody put there stays.
    ///
    /// # Errors
    /// When something of it is still there.
    pub fn remove(&self) -> Result<(), DurableError> {
        durable::remove_folder_of(&self.path, &["instance", "role", "role.ack"])
    }

    fn ack(&self) -> Utf8PathBuf {
        self.path.join("role.ack")
    }
}

/// The first line counts, and only if it is whole: behind it may stand what is left of a longer one.
fn parse(bytes: &[u8]) -> Option<RoleAck> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    serde_json::from_slice(&bytes[..end]).ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use proptest::prelude::*;

    use super::*;

    fn layout() -> (tempfile::TempDir, Layout) {
        let folder = tempfile::tempdir().unwrap();
        let root = Utf8PathBuf::from_path_buf(folder.path().to_owned()).unwrap();
        (folder, Layout::new(root))
    }

    fn instance() -> InstanceId {
        "p-0123456789".parse().unwrap()
    }

    #[test]
    fn orders_and_acknowledgements_pass() {
        let (_kept, layout) = layout();
        let folder = RunFolder::make(&layout, &instance(), 65534, 65534).unwrap();
        assert_eq!(folder.acknowledged(), None);
        assert_eq!(folder.ordered().unwrap(), None);
        folder.write_instance(&instance()).unwrap();
        folder.order(&instance(), Role::Serving, 4).unwrap();
        let order = folder.ordered().unwrap().unwrap();
        assert_eq!((order.role, order.number), (Role::Serving, 4));
        let ack = RoleAck { instance: instance(), role: Role::Serving, number: 4, trouble: None };
        let mut line = serde_json::to_vec(&ack).unwrap();
        line.extend(b"\n   }rest of a longer one");
        std::fs::write(folder.path().join("role.ack"), line).unwrap();
        assert_eq!(folder.acknowledged(), Some(ack.clone()));
        RunFolder::make(&layout, &instance(), 65534, 65534).unwrap();
        assert_eq!(folder.acknowledged(), Some(ack), "made again, nothing is lost");
        let text = std::fs::read_to_string(folder.path().join("instance")).unwrap();
        assert_eq!(text, "p-0123456789\n");
        folder.remove().unwrap();
        folder.remove().unwrap();
    }

    #[test]
    fn only_the_acknowledgement_belongs_to_the_instance() {
        let (_kept, layout) = layout();
        let folder = RunFolder::make(&layout, &instance(), 65534, 65534).unwrap();
        let found = |name: &str| {
            let found = std::fs::metadata(folder.path().join(name)).unwrap();
            (found.uid(), found.mode() & 0o7777)
        };
        assert_eq!(found("role.ack"), (65534, 0o644));
        assert_eq!(found("."), (0, 0o755));
    }

    #[test]
    fn what_is_no_file_says_nothing() {
        let (_kept, layout) = layout();
        let folder = RunFolder::of(&layout, &instance());
        assert_eq!(folder.acknowledged(), None);
        std::fs::create_dir_all(folder.path()).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("role.ack")).unwrap();
        assert_eq!(folder.acknowledged(), None);
    }

    proptest! {
        #[test]
        fn half_of_a_line_is_nothing(cut in 0usize..200, number: u64) {
            let ack = RoleAck { instance: instance(), role: Role::StandingBy, number, trouble: None };
            let mut line = serde_json::to_vec(&ack).unwrap();
            line.push(b'\n');
            let cut = cut.min(line.len());
            let expected = (cut == line.len()).then_some(ack);
            prop_assert_eq!(parse(&line[..cut]), expected);
        }
    }
}
