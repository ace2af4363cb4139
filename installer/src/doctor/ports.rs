//! The ports that bus and store shall listen at.
//!
//! In: two numbers, who holds them. Out: findings. Not here: the other family of addresses (`network`).

use mesh_engine::Container;

use super::check::{Finding, expect, wrong};
use super::meshes::Meshes;
use crate::machine::ports::{Holder, Port, holder_text};
use crate::output::Code;

/// Whose port it is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    Bus,
    /// The store's; and what the bus has.
    Store {
        bus: u16,
    },
}

impl Whose {
    const fn what(self) -> &'static str {
        match self {
            Self::Bus => "bus",
            Self::Store { .. } => "store",
        }
    }
}

/// What is known of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) number: u16,
    pub(super) port: Port,
    /// In which container its holder runs, for people; empty where it runs in none of a mesh.
    pub(super) within: String,
}

/// Whether this mesh's own host runs what is to hold the ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Own {
    Runs,
    DoesNot,
}

/// It must be free, unless our own host runs what holds it.
pub(super) fn port(whose: Whose, seen: &Seen, own: Own) -> Finding {
    let (what, number) = (whose.what(), seen.number);
    let check = expect(format!("127.0.0.1:{number} to be free"));
    if own == Own::Runs {
        return check.met(format!("{number} is for this mesh's host to give"));
    }
    if number == 0 {
        return expect("a port that is free").met("whichever is free then");
    }
    if let Whose::Store { bus } = whose
        && bus == number
    {
        let what = format!("bus and store cannot both have port {number}");
        let remedy = "choose others with --bus-port and --store-port";
        return check.failed(wrong(Code::PortTaken, what, format!("{number} for both"), remedy));
    }
    let remedy = format!("end what holds it, or choose another: --{what}-port PORT, 0 for a free one");
    let found = match &seen.port {
        Port::Free => return check.met(number.to_string()),
        Port::Held(holder) => format!("held by {}{}", holder_text(holder.as_ref()), seen.within),
        Port::NotGiven(why) => why.clone(),
    };
    let title = format!("port {number} cannot be had for the {what}: {found}");
    check.failed(wrong(Code::PortTaken, title, found, remedy))
}

/// In which of these containers a program runs: its control group names the engine's id of it.
pub(super) fn within(holder: &Holder, containers: &[Container], meshes: &Meshes) -> String {
    let groups = std::fs::read_to_string(format!("/proc/{}/cgroup", holder.pid)).unwrap_or_default();
    let container = containers.iter().find(|container| groups.contains(container.id.as_str()));
    let text = |container: &Container| format!(" in container {}{}", container.name, meshes.whose(container));
    container.map(text).unwrap_or_default()
}
