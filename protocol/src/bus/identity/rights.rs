//! The table of who may do what on the bus. Pure.
//!
//! In: a user. Out: its account, its inbox, the subjects it may publish and subscribe to; and what the one
//! account shares with the other. Not here: how that is written for the server (`jwt`).
//!
//! The server does not check the reply subject of what a user publishes. Whatever answers could therefore be
//! made to write anywhere in its own account: so nothing that can be written to is in the account NODES, and
//! each user may publish only what it needs.

use crate::id::{MeshId, NodeName, ResourceName, SeatName};
use crate::subject::{self, CONTROLLER_SEAT, EVENTS, bucket};

use super::inbox;

/// One of the mesh's two accounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Account {
    /// CTRL: JetStream and all state. Only the controller is in it.
    Control,
    /// NODES: the seat, hosts and operators, and no JetStream.
    Nodes,
}

/// Whoever connects to the bus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum User {
    /// The controller, where the state is.
    ControllerState,
    /// The controller, where it is asked.
    ControllerSeat,
    /// A node's host.
    Host(NodeName),
    /// A person, or a program for one.
    Operator(ResourceName),
    /// Whoever watches whether the seat answers, and nothing else.
    Prober,
}

/// What a user may do; everything else is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rights {
    /// Subjects it may publish to.
    pub publish: Vec<String>,
    /// Subjects it may subscribe to. `subject queue` allows the subject only within that queue group.
    pub subscribe: Vec<String>,
}

impl User {
    /// The account it is in.
    #[must_use]
    pub const fn account(&self) -> Account {
        match self {
            Self::ControllerState => Account::Control,
            Self::ControllerSeat | Self::Host(_) | Self::Operator(_) | Self::Prober => Account::Nodes,
        }
    }

    /// The prefix of its inbox: [`super::super::Settings::inbox`].
    #[must_use]
    pub fn inbox(&self) -> String {
        match self {
            Self::ControllerState | Self::ControllerSeat => inbox::CONTROLLER.to_owned(),
            Self::Host(node) => inbox::host(node),
            Self::Operator(name) => inbox::operator(name),
            Self::Prober => inbox::PROBER.to_owned(),
        }
    }

    /// Its name on the server, for people.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::ControllerState => "controller-state".to_owned(),
            Self::ControllerSeat => "controller-seat".to_owned(),
            Self::Host(node) => format!("host-{node}"),
            Self::Operator(name) => format!("operator-{name}"),
            Self::Prober => "prober".to_owned(),
        }
    }

    /// What it may do. Everyone may publish to its own inbox: that is the fence.
    #[must_use]
    pub fn rights(&self, mesh: &MeshId) -> Rights {
        let own = format!("{}.>", self.inbox());
        let controller = seat();
        let (publish, subscribe) = match self {
            Self::ControllerState => (
                vec![
                    own.clone(),
                    "$JS.API.INFO".to_owned(),
                    "$JS.API.STREAM.CREATE.*".to_owned(),
                    "$JS.API.STREAM.UPDATE.*".to_owned(),
                    "$JS.API.STREAM.INFO.*".to_owned(),
                    "$JS.API.CONSUMER.CREATE.>".to_owned(),
                    "$JS.API.CONSUMER.DELETE.>".to_owned(),
                    "$JS.API.DIRECT.GET.>".to_owned(),
                    "$JS.FC.>".to_owned(),
                    "$KV.>".to_owned(),
                    subject::events(mesh),
                ],
                vec![own],
            ),
            Self::ControllerSeat => (
                vec![format!("{}>", inbox::ANY), subject::verb(mesh, &controller, "noop")],
                vec![
                    own,
                    format!("{} {controller}", subject::verbs(mesh, &controller)),
                    format!("mesh.{mesh}.seat.{controller}.at.*.*"),
                    subject::fallback(mesh, &controller, "*"),
                ],
            ),
            Self::Host(node) => (
                vec![
                    own.clone(),
                    declaration_of(node.as_str()),
                    format!("$KV.{}.{node}", bucket::REPORTS),
                    format!("mesh.{mesh}.seat.*.at.*.ready"),
                    subject::verb(mesh, &controller, "status"),
                ],
                vec![own, subject::declared(mesh, node)],
            ),
            Self::Operator(_) => (
                vec![
                    own.clone(),
                    subject::verbs(mesh, &controller),
                    subject::fallback(mesh, &controller, "*"),
                    format!("$JS.API.DIRECT.GET.{EVENTS}"),
                ],
                vec![own, subject::events(mesh)],
            ),
            Self::Prober => (vec![own.clone(), subject::verb(mesh, &controller, "status")], vec![own]),
        };
        Rights { publish, subscribe }
    }
}

/// Something that CTRL gives and NODES takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shared {
    pub(super) subject: String,
    pub(super) sharing: Sharing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sharing {
    /// Requests go to CTRL, the answer comes back.
    Service,
    /// Messages come from CTRL.
    Stream,
}

/// All that passes between the accounts; the users' rights narrow it further.
pub(super) fn shared(mesh: &MeshId) -> Vec<Shared> {
    let service = |subject| Shared { subject, sharing: Sharing::Service };
    let stream = |subject| Shared { subject, sharing: Sharing::Stream };
    vec![
        service(declaration_of("*")),
        service(format!("$KV.{}.*", bucket::REPORTS)),
        service(format!("$JS.API.DIRECT.GET.{EVENTS}")),
        stream(format!("mesh.{mesh}.declared.*")),
        stream(subject::events(mesh)),
    ]
}

/// The direct get of one key of the declarations.
fn declaration_of(node: &str) -> String {
    let bucket = bucket::DECLARATIONS;
    format!("$JS.API.DIRECT.GET.KV_{bucket}.$KV.{bucket}.{node}")
}

fn seat() -> SeatName {
    #[allow(clippy::expect_used)] // a constant of this crate, checked by a test
    CONTROLLER_SEAT.parse().expect("the controller's seat is a label")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mesh() -> MeshId {
        "m1".parse().unwrap()
    }

    fn host() -> User {
        User::Host("n1".parse().unwrap())
    }

    #[test]
    fn the_table() {
        let rights = host().rights(&mesh());
        assert_eq!(
            rights.publish,
            [
                "_INBOX.h.n1.>",
                "$JS.API.DIRECT.GET.KV_declarations.$KV.declarations.n1",
                "$KV.reports.n1",
                "mesh.m1.seat.*.at.*.ready",
                "mesh.m1.seat.mesh-controller.status",
            ]
        );
        assert_eq!(rights.subscribe, ["_INBOX.h.n1.>", "mesh.m1.declared.n1"]);

        let rights = User::Operator("op1".parse().unwrap()).rights(&mesh());
        assert_eq!(
            rights.publish,
            [
                "_INBOX.o.op1.>",
                "mesh.m1.seat.mesh-controller.*",
                "mesh.m1.seat.mesh-controller.fallback.*",
                "$JS.API.DIRECT.GET.EVENTS",
            ]
        );
        assert_eq!(rights.subscribe, ["_INBOX.o.op1.>", "mesh.m1.event.>"]);

        let rights = User::Prober.rights(&mesh());
        assert_eq!(rights.publish, ["_INBOX.p.>", "mesh.m1.seat.mesh-controller.status"]);
        assert_eq!(rights.subscribe, ["_INBOX.p.>"]);

        let rights = User::ControllerSeat.rights(&mesh());
        assert_eq!(rights.publish, ["_INBOX.>", "mesh.m1.seat.mesh-controller.noop"]);
        assert_eq!(
            rights.subscribe,
            [
                "_INBOX.c.>",
                "mesh.m1.seat.mesh-controller.* mesh-controller",
                "mesh.m1.seat.mesh-controller.at.*.*",
                "mesh.m1.seat.mesh-controller.fallback.*",
            ]
        );
    }

    #[test]
    fn only_the_controller_is_where_the_state_is() {
        let others = [User::ControllerSeat, host(), User::Prober];
        assert!(others.iter().all(|user| user.account() == Account::Nodes));
        assert_eq!(User::ControllerState.account(), Account::Control);
    }

    #[test]
    fn nobody_in_nodes_may_publish_into_a_bucket_but_a_host_its_report() {
        let users = [User::ControllerSeat, host(), User::Operator("o".parse().unwrap()), User::Prober];
        let written: Vec<String> = users
            .iter()
            .flat_map(|user| user.rights(&mesh()).publish)
            .filter(|subject| subject.starts_with("$KV"))
            .collect();
        assert_eq!(written, ["$KV.reports.n1"]);
    }
}
