//! From a configuration to an instance that stands by: both connections, the state, the seat.
//!
//! In: the configuration. Out: a seat that is answered. Not here: following orders ([`crate::roles`]).
//!
//! What is wrong with the surroundings is waited out, and said once; what is wrong with the configuration ends
//! the program, for no time would mend it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use camino::Utf8Path;
use mesh_protocol::bus::identity::inbox;
use mesh_protocol::bus::{ConnectError, Connection, PlanLock, SeatServer, Settings, State};
use mesh_protocol::chain::chain;

use crate::config::Config;
use crate::executor::Means;
use crate::log::Log;
use crate::myself::{Myself, program_digest};
use crate::roles::Seat;
use crate::run_folder::RunFolder;
use crate::serve::Desk;
use crate::status::{About, controller_seat};
use crate::store::Store;

/// Between two tries.
const AGAIN: Duration = Duration::from_millis(250);

/// An instance that stands by.
///
/// # Errors
/// When what it was told cannot be right: a credential that cannot be read, a run folder without an instance.
pub async fn stand_by(config: &Config, folder: &RunFolder, log: &Log) -> Result<Seat, anyhow::Error> {
    let instance = folder.instance()?;
    let program = program_digest().context("the own program cannot be read")?;
    let connect = |part: &'static str, credential: &Utf8Path| {
        let settings = Settings {
            address: config.bus.clone(),
            credential: credential.to_owned(),
            name: format!("mesh-controller {instance} {part}"),
            inbox: inbox::CONTROLLER.to_owned(),
        };
        connect(part, settings, log)
    };
    let (state, seat) = tokio::try_join!(
        connect("state connection", &config.state_credential),
        connect("seat connection", &config.seat_credential)
    )?;
    let state = open_state(&state, config, log).await;
    let name = controller_seat()?;
    let myself = Arc::new(Myself::new(instance.clone(), program));
    let store = Store::new(state.clone());
    let lock = PlanLock::new(state, instance.clone());
    let about = About { name: config.name.clone(), bus: config.bus.clone(), seat: name.clone() };
    let desk = Arc::new(Desk::new(myself.clone(), about, store.clone(), lock.clone()));
    let server = loop {
        let standing = SeatServer::stand_by(
            seat.clone(),
            config.mesh.clone(),
            name.clone(),
            instance.clone(),
            desk.clone(),
        );
        match standing.await {
            Ok(server) => break server,
            Err(error) => log.once("stand by", &chain(&error)),
        }
        tokio::time::sleep(AGAIN).await;
    };
    log.line(&format!("{instance} stands by"));
    let means = Means { store, lock, myself, log: log.clone(), lease: config.lease() };
    Ok(Seat { server, means, executor: None })
}

async fn connect(part: &'static str, settings: Settings, log: &Log) -> Result<Connection, anyhow::Error> {
    loop {
        match Connection::open(&settings).await {
            Ok(connection) => {
                log.clear(part);
                return Ok(connection);
            }
            Err(error @ ConnectError::CredentialUnreadable { .. }) => return Err(error.into()),
            Err(error) => log.once(part, &chain(&error)),
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn open_state(connection: &Connection, config: &Config, log: &Log) -> State {
    loop {
        match State::open(connection.clone(), config.mesh.clone(), config.lease()).await {
            Ok(state) => {
                log.clear("state");
                return state;
            }
            Err(error) => log.once("state", &chain(&error)),
        }
        tokio::time::sleep(AGAIN).await;
    }
}
