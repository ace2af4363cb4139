//! The controller: what the mesh shall be, node by node, and how far it has come.
//!
//! In: manifests pushed by operators, reports of hosts, the role that its own host gives it. Out: declarations,
//! plans, answers, events. Not here: anything that changes a machine; that is the host's alone.
//!
//! Data goes one way: a request is answered by [`serve`], which composes ([`compose`]), checks ([`check`]) and
//! stores a plan ([`plan`]); the [`executor`] of a serving instance carries it out under the plan lock, and folds
//! what hosts report into how the plan stands. All decisions are pure functions of what is [`known`].

pub mod check;
pub mod compose;
pub mod config;
pub mod draft;
pub mod executor;
pub mod known;
pub mod log;
pub mod myself;
pub mod notice;
pub mod plan;
pub mod recover;
pub mod roles;
pub mod rollback;
pub mod run_folder;
pub mod serve;
pub mod start;
pub mod status;
pub mod store;

#[cfg(test)]
mod testing;
