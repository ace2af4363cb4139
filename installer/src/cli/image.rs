//! `mesh image` as it is typed.
//!
//! In: arguments. Out: values, checked for form only. Not here: what they do.

use camino::Utf8PathBuf;
use clap::{Args, Subcommand};
use mesh_protocol::id::{ResourceName, System};

/// Build, export, load and list images.
#[derive(Debug, Subcommand)]
pub enum Image {
    /// Build a module's bundle as an image, or a program of this machine with the libraries that it needs
    Build(ImageBuild),
    /// Write one archive with all images that a genesis without network needs
    Export(Export),
    /// Put the images of an archive into the engine
    Load(Load),
    /// Show the images in the engine that were made by this command or by genesis
    List,
}

/// Build an image.
#[derive(Debug, Args)]
pub struct ImageBuild {
    /// The folder of the module's module.toml, e.g. the controller's
    #[arg(required_unless_present = "from_binary", conflicts_with = "from_binary")]
    pub dir: Option<Utf8PathBuf>,
    /// For which system, of a module
    #[arg(long, default_value_t = System::of_this_program())]
    pub system: System,
    /// Which bundle, where the module has more than one
    #[arg(long, value_name = "NAME")]
    pub bundle: Option<ResourceName>,
    /// A third-party program to make an image of, e.g. /usr/sbin/nats-server
    #[arg(long, value_name = "PROGRAM", requires = "name")]
    pub from_binary: Option<Utf8PathBuf>,
    /// The name of the program in its image, and of the image
    #[arg(long, requires = "from_binary")]
    pub name: Option<ResourceName>,
    /// What the program is given before whatever a container is made with; may be said again [default: what genesis gives to a program of this name, if any]
    #[arg(long, value_name = "WORD", requires = "from_binary", allow_hyphen_values = true)]
    pub argument: Vec<String>,
    /// The image's reference [default: mesh.local/NAME:DIGEST]
    #[arg(long, value_name = "REFERENCE")]
    pub tag: Option<String>,
}

/// Write one archive with all images that a genesis without network needs.
#[derive(Debug, Args)]
pub struct Export {
    /// Where to, e.g. DIR/mesh-images.tar for mesh genesis --offline --images DIR
    pub file: Utf8PathBuf,
    /// The folder of the controller's module.toml [default: `controller` in the current folder, beside or above this program]
    #[arg(long, value_name = "DIR")]
    pub controller: Option<Utf8PathBuf>,
}

/// Put the images of an archive into the engine.
#[derive(Debug, Args)]
pub struct Load {
    /// The archive
    pub file: Utf8PathBuf,
}
