//! Seats that are brought back by hand, and the versions that they can be brought back to.
//!
//! In: a request at the local door; how each seat's holder does. Out: what is written down of both, before anything
//! follows from it. Not here: the judgement ([`crate::recovery`], [`crate::steady`]), and the handover.

use std::time::Duration;

use camino::Utf8PathBuf;
use mesh_protocol::chain::chain;
use mesh_protocol::declaration::{Declaration, ModuleSection};
use mesh_protocol::door::{DoorAnswer, LedgerEntry, RecoverTo};
use mesh_protocol::handover::{Role, State};
use mesh_protocol::id::{Digest, ResourceId, ResourceKind, SeatName};
use mesh_protocol::verb::Check;
use serde::Serialize;

use super::Task;
use crate::fault::Fault;
use crate::handover::seen::Life;
use crate::recovery::{self, Recovery, Target};
use crate::steady::{self, Steady};
use crate::{bundles, log};
use mesh_durable::{self as durable, DurableError};

/// How old an answer may be on whose strength a holder counts as serving. As for silence in a handover.
const FRESH: Duration = Duration::from_millis(2000);

impl Task {
    /// What is wanted of this node: what is declared, but for what was recovered by hand.
    pub(super) fn wanted_declaration(&self) -> Option<Declaration> {
        let declaration = self.accepted.declaration.as_ref()?;
        Some(recovery::wanted(declaration, &self.recoveries))
    }

    /// The recovery that takes the place of what is declared for a resource.
    pub(super) fn recovery_of(&self, id: &ResourceId) -> Option<&Recovery> {
        self.recoveries.values().find(|recovery| &recovery.overridden.id == id)
    }

    /// `mesh recover`: what is wanted of the seat is written down; the next pass begins the handover to it.
    pub(super) async fn recover(&mut self, seat: &SeatName, to: RecoverTo) -> DoorAnswer {
        match self.begin_recovery(seat, to).await {
            Ok(answer) => answer,
            Err(why) => DoorAnswer::Refused { why },
        }
    }

    async fn begin_recovery(&mut self, seat: &SeatName, to: RecoverTo) -> Result<DoorAnswer, String> {
        let (target, archive) = match to {
            RecoverTo::Steady => (Target::Steady, None),
            RecoverTo::Bundle { archive, digest, size, version } => {
                (Target::Bundle { digest: digest.clone(), size, version }, Some((archive, digest)))
            }
        };
        let holder = self.ledger.holder(seat).cloned();
        let now = self.clock.now().wall;
        let recovery = recovery::recover(
            seat,
            &target,
            holder.as_ref(),
            self.declared_for(seat),
            self.steady.get(seat),
            now,
        );
        let recovery = recovery.map_err(|unfit| chain(&unfit))?;
        let (Some(holder), Some(digest)) = (holder, recovery.digest()) else {
            return Err(format!("nobody holds the seat {seat}"));
        };
        if let Some((archive, digest)) = archive {
            self.take_bundle(archive, digest).await?;
        }
        let path = self.layout.recovery(seat.as_str());
        write_document(&self.layout.recoveries(), &path, &recovery).map_err(|error| chain(&error))?;
        log::line(&format!(
            "{seat} is recovered by hand: from version {} ({}) to version {} ({})",
            holder.section.version,
            holder.digest.short(),
            recovery.section.version,
            digest.short()
        ));
        let version = recovery.section.version.clone();
        self.recoveries.insert(seat.clone(), recovery);
        if let Some(tried) = self.seats.get_mut(seat)
            && tried.record.state == State::Held
            && tried.record.new.digest == digest
        {
            tried.retry = true;
        }
        self.pauses.clear(&holder.id);
        self.needs.clear_faults();
        self.wake.notify_one();
        Ok(DoorAnswer::Recovering { resource: holder.id, from: holder.digest, to: digest, version })
    }

    fn declared_for(&self, seat: &SeatName) -> Option<&ModuleSection> {
        let declaration = self.accepted.declaration.as_ref()?;
        declaration.modules.iter().find(|section| section.seat.as_ref() == Some(seat))
    }

    async fn take_bundle(&self, archive: Utf8PathBuf, digest: Digest) -> Result<(), String> {
        let layout = self.layout.clone();
        let taken = tokio::task::spawn_blocking(move || bundles::take(&layout, &archive, &digest)).await;
        match taken {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(chain(&error)),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Somebody wants what is declared after all.
    pub(super) fn end_recovery(&mut self, id: &ResourceId) -> Result<(), Fault> {
        let seat = self.recovery_of(id).map(|recovery| recovery.seat.clone());
        seat.map_or(Ok(()), |seat| self.drop_recovery(&seat, "somebody asked for one more try"))
    }

    /// What another declaration overtook is history.
    pub(super) fn end_void_recoveries(&mut self) {
        let void = |recovery: &&Recovery| !recovery.stands(self.declared_for(&recovery.seat));
        let seats: Vec<SeatName> =
            self.recoveries.values().filter(void).map(|recovery| recovery.seat.clone()).collect();
        for seat in seats {
            if let Err(fault) = self.drop_recovery(&seat, "something else is declared since") {
                log::line(&format!("the recovery of {seat}: {fault}"));
            }
        }
    }

    fn drop_recovery(&mut self, seat: &SeatName, why: &str) -> Result<(), Fault> {
        durable::remove(&self.layout.recovery(seat.as_str()))
            .map_err(|error| Fault::surroundings(chain(&error)))?;
        self.recoveries.remove(seat);
        log::line(&format!("the recovery of {seat} ends: {why}"));
        Ok(())
    }

    /// Writes down which version of each seat's holder has served for long.
    pub(super) fn keep_steady(&mut self) {
        let now = self.clock.running();
        let long = Duration::from_millis(self.file.steady_after_ms);
        let holders: Vec<(SeatName, LedgerEntry)> = self
            .ledger
            .entries()
            .filter_map(|entry| Some((entry.section.seat.clone()?, entry.clone())))
            .collect();
        self.watched.retain(|seat, _| holders.iter().any(|(held, _)| held == seat));
        for (seat, holder) in holders {
            let serving = holder.instance.as_ref().filter(|_| self.is_serving(&holder));
            let Some(watched) = steady::watch(self.watched.remove(&seat), serving, now) else { continue };
            let next = if watched.has_served(now, long) {
                Steady::with(self.steady.get(&seat), &seat, &holder, self.clock.now().wall)
            } else {
                None
            };
            self.watched.insert(seat.clone(), watched);
            let Some(next) = next else { continue };
            let path = self.layout.steady(seat.as_str());
            match write_document(&self.layout.steadies(), &path, &next) {
                Ok(()) => {
                    let (version, digest) = (&holder.section.version, holder.digest.short());
                    log::line(&format!(
                        "{seat}: version {version} ({digest}) has served for {} s",
                        long.as_secs()
                    ));
                    self.steady.insert(seat, next);
                }
                Err(error) => {
                    log::line(&format!("{seat}: that it serves cannot be written down: {}", chain(&error)));
                }
            }
        }
    }

    /// Whether a seat's holder serves, by its own word of a moment ago.
    fn is_serving(&self, holder: &LedgerEntry) -> bool {
        let Some(instance) = &holder.instance else { return false };
        if holder.id.kind() != ResourceKind::Process || self.in_handover(&holder.id) {
            return false;
        }
        let answered = self.probes.heard(instance).ready.is_some_and(|answered| {
            answered.ready.role == Role::Serving
                && answered.ready.state == Check::Passed
                && answered.asked + FRESH >= self.clock.running()
        });
        answered && self.life(holder.into(), holder.run.as_ref(), holder.runtime.as_ref()) == Life::Running
    }
}

fn write_document<T: Serialize>(
    folder: &camino::Utf8Path,
    path: &camino::Utf8Path,
    document: &T,
) -> Result<(), DurableError> {
    durable::ensure_folder(folder, 0o700)?;
    durable::write_json(path, document, 0o600)
}
