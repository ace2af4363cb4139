//! A mesh that is spoken to over its bus, as its operator.
//!
//! In: the mesh's folder. Out: answers of the controller's seat. Not here: what the verbs mean, and the door.

use std::time::Duration;

use mesh_durable::checkpoint;
use mesh_protocol::bus::identity::User;
use mesh_protocol::bus::{AskError, ConnectError, Connection, Policy, SeatClient, Settings};
use mesh_protocol::id::{MeshId, SeatName};
use mesh_protocol::layout::Layout;
use mesh_protocol::subject::CONTROLLER_SEAT;
use mesh_protocol::verb::{Answer, By, Outcome, RefusalCode, Verb, VerbRefusal};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::mesh_file::MeshFile;
use crate::output::{Code, Failure, Result};

/// The operator's name: one on a control machine.
pub const OPERATOR: &str = "operator";

/// The body of a verb that is asked for nothing in particular.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Nothing {}

/// A mesh that is spoken to.
#[derive(Debug, Clone)]
pub struct Session {
    connection: Connection,
    seat: SeatClient,
}

impl Session {
    /// Connects as the operator.
    ///
    /// # Errors
    /// When the bus is not there or does not know the credential.
    pub async fn open(layout: &Layout, mesh: &MeshFile) -> Result<Self> {
        let operator = OPERATOR.parse().map_err(|error| Failure::of(Code::Internal, &error))?;
        let settings = settings(layout, mesh, OPERATOR, &User::Operator(operator));
        let connection = Connection::open(&settings).await.map_err(|error| unreachable(&error))?;
        Ok(Self { seat: seat(&connection, &mesh.mesh)?, connection })
    }

    /// The connection itself, for events.
    #[must_use]
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Asks the seat: a read freely, a change so that it is done once.
    ///
    /// # Errors
    /// When nobody answers, or the answer is a refusal.
    pub async fn ask<Q: Serialize + Sync, A: DeserializeOwned>(&self, verb: Verb, body: &Q) -> Result<A> {
        self.ask_and_tell(verb, body).await.map(|(answer, _)| answer)
    }

    /// As [`Self::ask`], and who answered.
    ///
    /// # Errors
    /// When nobody answers, or the answer is a refusal.
    pub async fn ask_and_tell<Q: Serialize + Sync, A: DeserializeOwned>(
        &self,
        verb: Verb,
        body: &Q,
    ) -> Result<(A, By)> {
        let asking = async {
            if verb.changes() {
                let asking = self.seat.ask(verb, body, Policy::Change);
                checkpoint::around_async(|| format!("ask the seat to {}", verb.as_str()), asking).await
            } else {
                self.seat.ask(verb, body, Policy::Read).await
            }
        };
        let answer = asking.await.map_err(|error| silent(verb, &error))?;
        unpack(answer)
    }

    /// Asks once, with a limit: for those who look whether anybody answers.
    ///
    /// # Errors
    /// When nobody answers, or the answer is a refusal.
    pub async fn ask_once<Q: Serialize + Sync, A: DeserializeOwned>(
        &self,
        verb: Verb,
        body: &Q,
        limit: Duration,
    ) -> Result<(A, By)> {
        let answer =
            self.seat.ask(verb, body, Policy::Once(limit)).await.map_err(|error| silent(verb, &error))?;
        unpack(answer)
    }
}

/// How a user of this machine connects.
#[must_use]
pub fn settings(layout: &Layout, mesh: &MeshFile, credential: &str, user: &User) -> Settings {
    Settings {
        address: mesh.bus(),
        credential: layout.credential(credential),
        name: format!("mesh {}", user.name()),
        inbox: user.inbox(),
    }
}

/// The controller's seat over a connection.
///
/// # Errors
/// Never, unless the seat's own name is not valid.
pub fn seat(connection: &Connection, mesh: &MeshId) -> Result<SeatClient> {
    let name: SeatName = CONTROLLER_SEAT.parse().map_err(|error| Failure::of(Code::Internal, &error))?;
    Ok(SeatClient::new(connection.clone(), mesh.clone(), name))
}

fn unpack<A>(answer: Answer<A>) -> Result<(A, By)> {
    match answer.outcome {
        Outcome::Answer(value) => Ok((value, answer.by)),
        Outcome::Refused(refusal) => Err(refused(&refusal)),
    }
}

/// No connection, as a failure.
#[must_use]
pub fn unreachable(error: &ConnectError) -> Failure {
    match error {
        ConnectError::CredentialRefused { .. } => {
            Failure::of(Code::NotPermitted, error).hint("is another mesh's bus on this port? see mesh status")
        }
        ConnectError::CredentialUnreadable { source, .. }
            if source.kind() == std::io::ErrorKind::PermissionDenied =>
        {
            Failure::of(Code::NotRoot, error).hint("run this as root")
        }
        _ => Failure::of(Code::BusUnreachable, error)
            .hint("see what the host says: mesh status; start it where it does not run: mesh up"),
    }
}

fn silent(verb: Verb, error: &AskError) -> Failure {
    let what = format!("the controller's seat does not answer {}", verb.as_str());
    let code = match error {
        AskError::NotPermitted(_) => Code::NotPermitted,
        AskError::Unreadable { .. } => Code::HostAnswer,
        _ => Code::SeatUnreachable,
    };
    Failure::because(code, &what, error).hint("see who should hold the seat: mesh status")
}

/// A verb that was not done, as a failure.
#[must_use]
pub fn refused(refusal: &VerbRefusal) -> Failure {
    let code = match refusal.code {
        RefusalCode::StandingBy => Code::StandingBy,
        RefusalCode::UnknownVerb => Code::SeatRefused,
        RefusalCode::InvalidRequest => Code::InvalidRequest,
        RefusalCode::InvalidManifest => Code::ManifestInvalid,
        RefusalCode::NotFound => Code::NotFound,
        RefusalCode::Conflict => Code::Conflict,
        RefusalCode::Missing => Code::Missing,
        RefusalCode::PlanOpen => Code::PlanOpen,
        RefusalCode::Unavailable => Code::Unavailable,
    };
    Failure::new(code, refusal.message.clone()).maybe_hint(refusal.hint.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_seat_refuses_has_the_code_of_its_reason() {
        let code = |code: RefusalCode| {
            let message = "no".to_owned();
            refused(&VerbRefusal { code, message, hint: Some("do this".to_owned()) }).code
        };
        assert_eq!(code(RefusalCode::StandingBy), Code::StandingBy);
        assert_eq!(code(RefusalCode::UnknownVerb), Code::SeatRefused);
        assert_eq!(code(RefusalCode::InvalidRequest), Code::InvalidRequest);
        assert_eq!(code(RefusalCode::InvalidManifest), Code::ManifestInvalid);
        assert_eq!(code(RefusalCode::NotFound), Code::NotFound);
        assert_eq!(code(RefusalCode::Conflict), Code::Conflict);
        assert_eq!(code(RefusalCode::Missing), Code::Missing);
        assert_eq!(code(RefusalCode::PlanOpen), Code::PlanOpen);
        assert_eq!(code(RefusalCode::Unavailable), Code::Unavailable);
    }

    #[test]
    fn a_seat_that_does_not_answer_says_whether_nobody_does_or_nobody_may_ask() {
        let none = AskError::NoResponders { subject: "mesh.m1.seat.s.status".to_owned() };
        assert_eq!(silent(Verb::Status, &none).code, Code::SeatUnreachable);
        let refused = AskError::NotPermitted("permissions violation".to_owned());
        assert_eq!(silent(Verb::Status, &refused).code, Code::NotPermitted);
    }

    #[tokio::test]
    async fn a_bus_that_is_not_there_is_told_from_a_credential_that_may_not_be_read() {
        let temp = tempfile::tempdir().unwrap();
        let layout = Layout::new(camino::Utf8Path::from_path(temp.path()).unwrap());
        let mesh = MeshFile::new(
            "m1".parse().unwrap(),
            jiff::Timestamp::UNIX_EPOCH,
            crate::mesh_file::tests::inputs(),
        );
        let failure = Session::open(&layout, &mesh).await.unwrap_err();
        assert_eq!(failure.code, Code::BusUnreachable);
        assert!(failure.hint.as_deref().unwrap().contains("mesh up"));
    }
}
