//! The command line as it is typed.
//!
//! In: arguments. Out: [`Cli`], checked for form only. Not here: defaults that depend on the surroundings or on the
//! mesh's own folder; `config` resolves those.

mod bundle;
mod image;

use std::time::Duration;

use camino::Utf8PathBuf;
use clap::{Args, Parser, Subcommand};
use mesh_protocol::id::{MeshName, ModuleName, NodeName, PlanId, ResourceId, ResourceName, SeatName};

use crate::doctor::Name;
use crate::genesis::step::Step;
pub use bundle::{Bundle, Inspect, List, Pack, Prune, Publish, Pull, StoreOptions};
pub use image::{Export, Image, ImageBuild, Load};

/// A mesh of machines, run by one controller.
#[derive(Debug, Parser)]
#[command(
    name = "mesh",
    version,
    about = "A mesh of machines, run by one controller",
    long_about = None,
    after_help = "Exit status: 0 done, 1 failed with a hint, 2 usage, 3 stopped part-way and safe to run again, \
                  4 handed back (the old one still serves), 130 interrupted.",
    disable_help_subcommand = true,
    max_term_width = 110,
    arg_required_else_help = true
)]
pub struct Cli {
    /// What all commands take.
    #[command(flatten)]
    pub common: Common,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Over what all commands take, in each help.
const EVERYWHERE: &str = "Options of every command";

/// What all commands take.
#[derive(Debug, Clone, Args)]
pub struct Common {
    /// The mesh's folder on this machine [default: the variable MESH_ROOT, else /var/lib/mesh]
    #[arg(long, global = true, value_name = "FOLDER", help_heading = EVERYWHERE)]
    pub root: Option<Utf8PathBuf>,
    /// Print JSON: a document, or one line an event where it takes time
    #[arg(long, global = true, help_heading = EVERYWHERE)]
    pub json: bool,
    /// Say nothing but failures
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = EVERYWHERE)]
    pub quiet: bool,
    /// Say more
    #[arg(short, long, global = true, help_heading = EVERYWHERE)]
    pub verbose: bool,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a mesh on this machine, or go on creating it
    Genesis(Genesis),
    /// Look whether a mesh can be raised on this machine, or can go on running, and what stands in its way
    Doctor(Wanted),
    /// Start this machine's host, where no init does
    Up,
    /// Show how the mesh stands
    Status,
    /// Show the nodes and their resources
    Nodes,
    /// Show the modules
    Modules,
    /// Show what a node was declared
    Declaration(Declaration),
    /// Make a module as its manifest says
    Push(Push),
    /// Have a module on one node more
    Assign(Assign),
    /// Have a module on one node less
    Unassign(Assign),
    /// Show the plans, or one of them
    Plans(Plans),
    /// Show what happened
    Events(Events),
    /// Show the log of a process or container of this machine, or of the host (`host`)
    Logs(Logs),
    /// Show the revisions of a module
    History(History),
    /// Make a module as an earlier revision of it was
    Rollback(Rollback),
    /// Try once more what is held or failed on this machine
    Retry(Retry),
    /// Bring a seat of this machine back to a version that serves, where its holder fails
    Recover(Recover),
    /// Pack, look into, publish, fetch, list and prune bundles
    Bundle {
        /// Which.
        #[command(subcommand)]
        command: Bundle,
    },
    /// Build, export, load and list images: those that a genesis needs, and of third-party programs
    Image {
        /// Which.
        #[command(subcommand)]
        command: Image,
    },
    /// Draw who answered the seat while it changed hands
    Report(Report),
    /// Write all that the mesh is on this machine into one file, while it runs
    Backup(Backup),
    /// Bring a mesh back from a backup, on a machine that has lost it
    Restore(Restore),
    /// Remove what the mesh made on this machine, and nothing else
    Down(Down),
    /// Print a shell's completions
    Completions {
        /// For which shell
        shell: clap_complete::Shell,
    },
    /// Print a manual page of every command
    Man(Man),
    /// Start the host's program in a session of its own (used by this program itself)
    #[command(hide = true)]
    Launch {
        /// The host's program
        program: Utf8PathBuf,
        /// The mesh's folder, as the host is given it
        folder: Utf8PathBuf,
    },
}

/// The mesh that is to be raised, for what raises it and for what looks whether that can be done.
#[derive(Debug, Clone, Default, Args)]
pub struct Wanted {
    /// The mesh's name [default: mesh]
    #[arg(long)]
    pub name: Option<MeshName>,
    /// Put before the names of containers and accounts [default: none]
    #[arg(long)]
    pub prefix: Option<ResourceName>,
    /// This machine's name in the mesh [default: its host name]
    #[arg(long)]
    pub node: Option<NodeName>,
    /// The bus's port on the loopback; 0 for a free one [default: 4222]
    #[arg(long, value_name = "PORT")]
    pub bus_port: Option<u16>,
    /// The artifact store's port on the loopback; 0 for a free one [default: 5000]
    #[arg(long, value_name = "PORT")]
    pub store_port: Option<u16>,
    /// The folder of the controller's module.toml [default: `controller` in the current folder, beside or above this program]
    #[arg(long, value_name = "DIR")]
    pub controller: Option<Utf8PathBuf>,
    /// Pull no images
    #[arg(long)]
    pub offline: bool,
    /// Take the bus's and the store's images from archives in this folder
    #[arg(long, value_name = "DIR")]
    pub images: Option<Utf8PathBuf>,
    /// Leave out these checks of `mesh doctor`
    #[arg(long, value_name = "CHECK[,CHECK]", value_delimiter = ',')]
    pub skip: Vec<Name>,
}

/// Create a mesh on this machine, or go on creating it.
#[derive(Debug, Clone, Default, Args)]
pub struct Genesis {
    /// The mesh.
    #[command(flatten)]
    pub wanted: Wanted,
    /// The time between two checks of a handover, at least 100ms [default: 2s]
    #[arg(long, value_name = "TIME", value_parser = check_interval)]
    pub check_interval: Option<Duration>,
    /// Stop after this step
    #[arg(long, value_name = "STEP")]
    pub until: Option<Step>,
    /// Show what would be done, and touch nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Show what a node was declared.
#[derive(Debug, Args)]
pub struct Declaration {
    /// Which node [default: this machine]
    pub node: Option<NodeName>,
}

/// Make a module as its manifest says.
#[derive(Debug, Args)]
pub struct Push {
    /// The folder of the module's module.toml, or that file
    pub dir: Utf8PathBuf,
    /// Show the plan, and what it needs and would build, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Return when the plan is stored
    #[arg(long)]
    pub detach: bool,
    /// How long to wait for the plan's end
    #[arg(long, value_name = "TIME", default_value = "15m", value_parser = duration)]
    pub timeout: Duration,
    /// Assign it to these nodes, beside those it is on [default for one that is on none: this machine]
    #[arg(long, value_name = "NODE")]
    pub node: Vec<NodeName>,
    /// Where something has to be built, say what, and push nothing
    #[arg(long)]
    pub no_build: bool,
}

/// Have a module on one node more, or less.
#[derive(Debug, Args)]
pub struct Assign {
    /// Which module
    pub module: ModuleName,
    /// Where
    pub node: NodeName,
    /// Show the plan, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Return when the plan is stored
    #[arg(long)]
    pub detach: bool,
    /// How long to wait for the plan's end
    #[arg(long, value_name = "TIME", default_value = "15m", value_parser = duration)]
    pub timeout: Duration,
}

/// Show the plans, or one of them.
#[derive(Debug, Args)]
pub struct Plans {
    /// Which; all of them otherwise
    pub plan: Option<PlanId>,
    /// Have this plan given up
    #[arg(long, requires = "plan")]
    pub abort: bool,
}

/// Show what happened.
#[derive(Debug, Args)]
pub struct Events {
    /// Go on showing what happens
    #[arg(short, long)]
    pub follow: bool,
}

/// Show a log of this machine.
#[derive(Debug, Args)]
pub struct Logs {
    /// Which resource (e.g. process:mesh-controller), or `host`
    pub resource: String,
    /// Go on showing what is written
    #[arg(short, long)]
    pub follow: bool,
    /// How many of the last lines to begin with
    #[arg(short = 'n', long, default_value_t = 100)]
    pub lines: usize,
}

/// Show the revisions of a module.
#[derive(Debug, Args)]
pub struct History {
    /// Which module
    pub module: ModuleName,
}

/// Make a module as an earlier revision of it was, through the same plan and handover as a push.
#[derive(Debug, Args)]
pub struct Rollback {
    /// Which module
    pub module: ModuleName,
    /// Which revision, see mesh history [default: the last one before what is there now]
    #[arg(long, value_name = "REVISION")]
    pub to: Option<u64>,
    /// Show the plan, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Return when the plan is stored
    #[arg(long)]
    pub detach: bool,
    /// How long to wait for the plan's end
    #[arg(long, value_name = "TIME", default_value = "15m", value_parser = duration)]
    pub timeout: Duration,
}

/// Try once more what is held or failed.
#[derive(Debug, Args)]
pub struct Retry {
    /// Which resource, e.g. process:mesh-controller
    pub resource: ResourceId,
}

/// Bring a seat of this machine back to a version that serves, through the host's local door, where its holder fails.
/// What is declared then waits until another version is pushed, or mesh retry asks for it.
#[derive(Debug, Args)]
pub struct Recover {
    /// The bundle to run [default: that of the last version that served for ten minutes]
    #[arg(long, value_name = "FILE")]
    pub bundle: Option<Utf8PathBuf>,
    /// The version that the bundle's program says it is [default: the declared one]
    #[arg(long, value_name = "VERSION", requires = "bundle")]
    pub bundle_version: Option<String>,
    /// Which seat
    #[arg(long, value_name = "SEAT", default_value = "mesh-controller")]
    pub seat: SeatName,
    /// How long to wait for the handover's end
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = duration)]
    pub timeout: Duration,
}

/// Draw who answered the seat while it changed hands.
#[derive(Debug, Args)]
pub struct Report {
    /// Of which plan [default: the last push or genesis that was followed on this machine]
    #[arg(long, value_name = "PLAN")]
    pub plan: Option<PlanId>,
    /// Where to; an SVG [default: standard output]
    #[arg(long, short, value_name = "FILE.svg")]
    pub output: Option<Utf8PathBuf>,
}

/// Write all that the mesh is on this machine into one file, while it runs: identity and secrets, the bus's state, what the
/// host holds, bundles, images. Whoever has the file has the mesh: it is readable to root alone.
#[derive(Debug, Args)]
pub struct Backup {
    /// Where to; replaced as a whole where it is there
    #[arg(value_name = "FILE")]
    pub file: Utf8PathBuf,
    /// Leave out the artifact store's content, which is backed up otherwise: what runs comes back without it
    #[arg(long)]
    pub without_store: bool,
}

/// Bring a mesh back from a backup, on a machine that has lost it: as after a power cut at the instant of the backup. The
/// machine that it was made on must not run any more.
#[derive(Debug, Args)]
pub struct Restore {
    /// The backup
    #[arg(value_name = "FILE")]
    pub file: Utf8PathBuf,
}

/// Remove what the mesh made on this machine.
#[derive(Debug, Args)]
pub struct Down {
    /// The name of the mesh to destroy; needed where its seat ever answered
    #[arg(long, value_name = "NAME")]
    pub destroy: Option<MeshName>,
    /// Do not ask; does not take the place of --destroy
    #[arg(long)]
    pub yes: bool,
    /// Show what would be removed, and touch nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Print a manual page of every command.
#[derive(Debug, Args)]
pub struct Man {
    /// Where to, a file a page [default: standard output, one after the other]
    #[arg(value_name = "FOLDER")]
    pub folder: Option<Utf8PathBuf>,
}

/// `300ms`, `2s`, `5m`, `1h`.
fn duration(text: &str) -> Result<Duration, String> {
    let expected = || format!("{text:?} is no time: expected a number and ms, s, m or h, e.g. 500ms");
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: u64 = number.parse().map_err(|_| expected())?;
    let milliseconds = match unit {
        "ms" => Some(number),
        "s" => number.checked_mul(1000),
        "m" => number.checked_mul(60_000),
        "h" => number.checked_mul(3_600_000),
        _ => None,
    };
    milliseconds.map(Duration::from_millis).ok_or_else(expected)
}

/// Below this a check measures the machine's scheduler, not the program.
const SHORTEST_CHECK_INTERVAL: Duration = Duration::from_millis(100);

fn check_interval(text: &str) -> Result<Duration, String> {
    let interval = duration(text)?;
    if interval < SHORTEST_CHECK_INTERVAL {
        return Err(format!("{text} is too short: expected at least 100ms"));
    }
    Ok(interval)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_time_has_a_unit() {
        assert_eq!(duration("300ms").unwrap(), Duration::from_millis(300));
        assert_eq!(duration("2s").unwrap(), Duration::from_secs(2));
        assert_eq!(duration("5m").unwrap(), Duration::from_secs(300));
        for bad in ["", "2", "s", "-1s", "1.5s", "99999999999999999999h", "18446744073709551615h"] {
            duration(bad).unwrap_err();
        }
        check_interval("99ms").unwrap_err();
        check_interval("100ms").unwrap();
    }

    #[test]
    fn common_options_go_before_and_behind_the_command() {
        for line in [["mesh", "--json", "status"], ["mesh", "status", "--json"]] {
            assert!(Cli::try_parse_from(line).unwrap().common.json);
        }
        Cli::try_parse_from(["mesh", "status", "-q", "-v"]).unwrap_err();
    }
}
