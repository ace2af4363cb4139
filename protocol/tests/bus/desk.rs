//! An instance of the controller's seat that says who it is and what it was asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use mesh_protocol::bus::identity::User;
use mesh_protocol::bus::{Call, Connection, Handler, Path, SeatClient, SeatServer};
use mesh_protocol::handover::{Form, Role};
use mesh_protocol::id::SeatName;
use mesh_protocol::subject::CONTROLLER_SEAT;
use mesh_protocol::verb::{Answer, By, Outcome, RefusalCode, VerbRefusal};

use crate::support::{Bus, mesh};

pub fn seat() -> SeatName {
    CONTROLLER_SEAT.parse().unwrap()
}

pub struct Desk {
    instance: String,
    work: Duration,
    pub serving: AtomicBool,
    pub calls: AtomicU64,
}

impl Handler for Desk {
    async fn handle(&self, call: Call) -> Vec<u8> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if !self.work.is_zero() {
            tokio::time::sleep(self.work).await;
        }
        let serving = self.serving.load(Ordering::Relaxed);
        let outcome = if call.verb.changes() && !serving {
            Outcome::Refused(VerbRefusal {
                code: RefusalCode::StandingBy,
                message: "this instance stands by".to_owned(),
                hint: None,
            })
        } else {
            let path = match call.path {
                Path::Public => "public",
                Path::Fallback => "fallback",
                Path::At => "at",
            };
            Outcome::Answer(path.to_owned())
        };
        let role = if serving { Role::Serving } else { Role::StandingBy };
        let by = By {
            instance: self.instance.parse().unwrap(),
            form: Form::Process,
            role,
            version: "test".to_owned(),
        };
        serde_json::to_vec(&Answer { by, outcome }).unwrap()
    }
}

/// One instance, standing by, over a connection of its own.
pub struct Instance {
    pub desk: Arc<Desk>,
    pub server: SeatServer,
    pub connection: Connection,
}

impl Instance {
    pub async fn start(bus: &Bus, id: &str, work: Duration) -> Self {
        Self::over(bus.connect(&User::ControllerSeat).await, id, work).await
    }

    pub async fn over(connection: Connection, id: &str, work: Duration) -> Self {
        let desk = Arc::new(Desk {
            instance: id.to_owned(),
            work,
            serving: AtomicBool::new(false),
            calls: AtomicU64::new(0),
        });
        let server =
            SeatServer::stand_by(connection.clone(), mesh(), seat(), id.parse().unwrap(), desk.clone());
        Self { server: server.await.unwrap(), desk, connection }
    }

    pub async fn serve(&self) {
        self.desk.serving.store(true, Ordering::Relaxed);
        self.server.serve().await.unwrap();
    }
}

pub async fn client(bus: &Bus, user: &User) -> SeatClient {
    SeatClient::new(bus.connect(user).await, mesh(), seat())
}
