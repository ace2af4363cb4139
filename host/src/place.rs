//! Where one run of a process or container has its things: what its `${variables}` stand for.
//!
//! In: the layout, the host's file, a section. Out: paths and numbers. Not here: making any of it.

use std::collections::BTreeMap;

use camino::Utf8PathBuf;
use mesh_protocol::declaration::ModuleSection;
use mesh_protocol::id::InstanceId;
use mesh_protocol::layout::{HostFile, Layout};

/// Where one run has its things.
#[derive(Debug, Clone)]
pub struct Place {
    /// Whom it runs as.
    pub uid: u32,
    /// That account's group.
    pub gid: u32,
    /// `${module.dir}`
    pub module: Utf8PathBuf,
    /// `${data.dir}`
    pub data: Utf8PathBuf,
    /// `${run.dir}`
    pub run: Utf8PathBuf,
    file: HostFile,
}

impl Place {
    /// The place of run `run` of something in `section`.
    #[must_use]
    pub fn new(
        layout: &Layout,
        file: &HostFile,
        section: &ModuleSection,
        run: &InstanceId,
        ids: (u32, u32),
    ) -> Self {
        Self {
            uid: ids.0,
            gid: ids.1,
            module: layout.module(&section.name, &section.files_digest()),
            data: layout.data(&section.name),
            run: layout.run(run),
            file: file.clone(),
        }
    }

    /// What each variable stands for.
    #[must_use]
    pub fn values(&self) -> BTreeMap<&'static str, String> {
        BTreeMap::from([
            ("module.dir", self.module.to_string()),
            ("data.dir", self.data.to_string()),
            ("run.dir", self.run.to_string()),
            ("mesh.id", self.file.mesh.to_string()),
            ("mesh.name", self.file.name.to_string()),
            ("mesh.bus", self.file.bus.clone()),
            ("mesh.store", self.file.store.clone()),
            ("node.name", self.file.node.to_string()),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mesh_protocol::variable::KNOWN;

    #[test]
    fn every_known_variable_has_a_value() {
        let file = HostFile {
            format: 1,
            mesh: "m1".parse().unwrap(),
            name: "lab".parse().unwrap(),
            prefix: String::new(),
            node: "n1".parse().unwrap(),
            bus: "nats://127.0.0.1:4222".to_owned(),
            store: "http://127.0.0.1:5000".to_owned(),
            check_interval_ms: 2000,
            engine: "unix:///run/docker.sock".to_owned(),
            steady_after_ms: 600_000,
        };
        let section = ModuleSection {
            name: "m".parse().unwrap(),
            version: "1".to_owned(),
            revision: 1,
            seat: None,
            manifest: String::new(),
            accounts: vec![],
            bundles: vec![],
            files: vec![],
            processes: vec![],
            containers: vec![],
        };
        let run = "p-1".parse().unwrap();
        let values = Place::new(&Layout::new("/r"), &file, &section, &run, (1, 1)).values();
        let names: Vec<&str> = values.keys().copied().collect();
        let mut known = KNOWN.map(|(name, _)| name);
        known.sort_unstable();
        assert_eq!(names, known);
    }
}
