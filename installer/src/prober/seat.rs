//! The prober at the controller's seat: its own connection, its own credential, `status` alone.
//!
//! In: the mesh's folder. Out: something to ask. Not here: the schedule.

use std::sync::Arc;

use mesh_protocol::bus::identity::User;
use mesh_protocol::bus::{Connection, Policy, SeatClient};
use mesh_protocol::layout::Layout;
use mesh_protocol::verb::{Answer, Outcome, Verb};
use serde::de::IgnoredAny;

use super::{Answerer, Ask, LIMIT};
use crate::mesh_file::MeshFile;
use crate::output::Result;
use crate::session::{self, Nothing};

/// The name of the prober's credential.
pub const CREDENTIAL: &str = "prober";

/// Connects as the prober.
///
/// # Errors
/// When the bus is not there or does not know the credential.
pub async fn open(layout: &Layout, mesh: &MeshFile) -> Result<Ask> {
    let settings = session::settings(layout, mesh, CREDENTIAL, &User::Prober);
    let connection = Connection::open(&settings).await.map_err(|error| session::unreachable(&error))?;
    Ok(asking(session::seat(&connection, &mesh.mesh)?))
}

/// Asks a seat for its status, once each time.
#[must_use]
pub fn asking(seat: SeatClient) -> Ask {
    Arc::new(move || {
        let seat = seat.clone();
        Box::pin(async move {
            let answer: Result<Answer<IgnoredAny>, _> =
                seat.ask(Verb::Status, &Nothing {}, Policy::Once(LIMIT)).await;
            match answer {
                Ok(Answer { by, outcome: Outcome::Answer(_) }) => {
                    Ok(Answerer { form: by.form, instance: by.instance })
                }
                Ok(Answer { outcome: Outcome::Refused(refusal), .. }) => Err(refusal.to_string()),
                Err(error) => Err(error.to_string()),
            }
        })
    })
}
