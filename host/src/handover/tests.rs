//! The handover in simulated time: each rule by itself, and all of them together whatever happens.

mod crash;
mod explore;
mod lifetimes;
mod planted;
mod run;
mod serving;
mod traced;
mod trial;
mod watch;
mod world;
