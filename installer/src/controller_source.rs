//! The controller on its author's disk: its manifest, and beside it the form that genesis raises.
//!
//! In: a folder. Out: both, checked, or all that is wrong with them. Not here: its binary (`module`), raising it.

use mesh_protocol::genesis_form::{self, GenesisForm};
use mesh_protocol::id::ResourceId;

use crate::module::Module;
use crate::output::{Code, Failure, Result};

/// The controller on its author's disk.
#[derive(Debug, Clone)]
pub struct ControllerSource {
    /// Its manifest.
    pub module: Module,
    /// The form beside it.
    pub form: GenesisForm,
}

impl ControllerSource {
    /// Reads manifest and genesis form in a folder.
    ///
    /// # Errors
    /// When one of them cannot be read, or is not valid.
    pub fn load(folder: &camino::Utf8Path) -> Result<Self> {
        let module = Module::load(folder)?;
        let path = module.folder.join(genesis_form::FILE_NAME);
        let text = std::fs::read_to_string(&path).map_err(|error| {
            Failure::because(Code::ManifestInvalid, &format!("{path} cannot be read"), &error)
        })?;
        let form = GenesisForm::parse(path.as_str(), &text).map_err(|errors| {
            Failure::new(Code::ManifestInvalid, format!("{path} is not valid"))
                .details(errors.all().iter().map(ToString::to_string))
        })?;
        Ok(Self { module, form })
    }

    /// What genesis raises: the resource that the manifest's process replaces.
    ///
    /// # Errors
    /// When it replaces nothing, or what cannot be.
    pub fn container(&self) -> Result<ResourceId> {
        let name = genesis_form::container_name(&self.module.manifest).map_err(|error| {
            Failure::of(Code::ReplacesInvalid, &error).hint(format!("mend {}", self.module.path))
        })?;
        Ok(ResourceId::container(&name))
    }
}
