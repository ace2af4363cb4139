//! How the words travel: over NATS, in operator mode, with two accounts.
//!
//! In: an address and a credential. Out: a seat that can be asked and answered, state that can be read and
//! written, a lock, hints and events. Not here: what any of it means to a room.
//!
//! The account CTRL has JetStream and all state, and only the controller is in it. The account NODES has the
//! seat, the hosts and the operators, and no JetStream: there is nothing in it that a reply subject could be
//! pointed at. `identity::rights` is the table of who may do what.

mod clock;
pub mod connect;
pub mod events;
pub mod host;
pub mod identity;
pub mod lock;
mod retiring;
pub mod seat;
pub mod state;
mod store;
mod streams;

pub use connect::{ConnectError, Connection, EchoError, Link, Settings};
pub use events::{EventReader, Recorded};
pub use host::HostBus;
pub use lock::{Held, LockRecord, PlanLock};
pub use seat::client::{AskError, Policy, SeatClient};
pub use seat::server::{Call, Handler, Leave, Left, Path, SeatServer, ServeError};
pub use state::{State, Versioned};
pub use store::StateError;
