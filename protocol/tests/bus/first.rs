//! A bus that never ran before, and all of its users at its door.

use std::time::Duration;

use mesh_protocol::bus::identity::User;
use mesh_protocol::bus::{Connection, HostBus, State};

use crate::support::{Bus, host, mesh, operator, until};

const LEASE: Duration = Duration::from_secs(5);

/// Of many first moments one went wrong, for as long as the server then ran.
const ROUNDS: u32 = 40;

#[tokio::test(flavor = "multi_thread")]
async fn whoever_comes_first_hosts_are_heard() {
    for round in 0..ROUNDS {
        let bus = Bus::start().await;
        let state = bus.settings(&User::ControllerState);
        let state = tokio::spawn(async move {
            let connection = Connection::open_when_there(&state).await;
            State::open(connection, mesh(), LEASE).await.unwrap()
        });
        let others = [User::ControllerSeat, host("n1"), host("n2"), operator(), User::Prober];
        let others = others.map(|user| {
            let settings = bus.settings(&user);
            tokio::spawn(async move { Connection::open_when_there(&settings).await })
        });
        let mut connections = Vec::new();
        for other in others {
            connections.push(other.await.unwrap());
        }
        let _state = state.await.unwrap();
        let n1 = HostBus::new(connections.swap_remove(1), mesh(), "n1".parse().unwrap());
        let heard = until("the host is heard", async || n1.declaration().await.is_ok()).await;
        let log = std::fs::read_to_string(bus.path().join("log")).unwrap();
        heard.unwrap_or_else(|error| panic!("round {round}: {error}\n{log}"));
        assert!(!log.contains("[ERR]"), "round {round}:\n{log}");
    }
}
