//! Declarations and requests as they come: taken or refused, written down before anything follows from them.

use mesh_protocol::chain::chain;
use mesh_protocol::declaration::Declaration;
use mesh_protocol::door::{DoorAnswer, DoorRequest, LedgerEntry, Observed};
use mesh_protocol::handover::State;
use mesh_protocol::id::ResourceId;
use mesh_protocol::report::Refusal;
use mesh_protocol::subject::BUS_MODULE;

use super::Task;
use crate::accept::{Source, Verdict, accept};
use crate::log;
use mesh_durable as durable;

impl Task {
    /// A declaration from the bus.
    pub(super) async fn offered(&mut self, declaration: Declaration) {
        match self.verdict(Source::Bus, &declaration) {
            Verdict::Already => self.diverged = false,
            Verdict::Diverged => {
                if !self.diverged {
                    log::line(&format!(
                        "declaration {} does not know of what this host has, which is kept",
                        declaration.generation
                    ));
                }
                self.diverged = true;
            }
            Verdict::Take | Verdict::TakeToken => {
                if let Err(why) = self.take(declaration).await {
                    log::line(&format!("a declaration cannot be taken: {why}"));
                }
            }
            Verdict::Refuse(why) => {
                let repeated = self.refused.as_ref().is_some_and(|refusal| {
                    refusal.offered == declaration.issued() && refusal.token == declaration.token
                });
                if !repeated {
                    log::line(&format!("declaration {} is refused: {why}", declaration.generation));
                    self.refused_count += 1;
                    self.refused = Some(Refusal {
                        offered: declaration.issued(),
                        token: declaration.token,
                        why,
                        time: self.clock.now().wall,
                    });
                }
            }
        }
    }

    /// A request from the local door.
    pub(super) async fn answer(&mut self, request: DoorRequest) -> DoorAnswer {
        match request {
            DoorRequest::Observe => DoorAnswer::Observed(Box::new(self.observed())),
            DoorRequest::Pivot { .. } if self.dissolved => {
                DoorAnswer::Refused { why: "this mesh is being taken down".to_owned() }
            }
            DoorRequest::Pivot { declaration } => match self.verdict(Source::Door, &declaration) {
                Verdict::Already => DoorAnswer::Already,
                Verdict::Refuse(why) => DoorAnswer::Refused { why },
                _ => match self.take(*declaration).await {
                    Ok(()) => DoorAnswer::Accepted,
                    Err(why) => DoorAnswer::Refused { why },
                },
            },
            DoorRequest::Retry { resource } => self.retry(&resource),
            DoorRequest::Recover { seat, to } => self.recover(&seat, to).await,
            DoorRequest::Dissolve { mesh } if mesh == self.file.mesh => self.dissolve().await,
            DoorRequest::Dissolve { mesh } => {
                DoorAnswer::Refused { why: format!("this host is of mesh {}, not of {mesh}", self.file.mesh) }
            }
        }
    }

    fn verdict(&self, source: Source, declaration: &Declaration) -> Verdict {
        let holders: Vec<&LedgerEntry> =
            self.ledger.entries().filter(|entry| entry.section.seat.is_some()).collect();
        accept(
            (&self.file.mesh, &self.file.node),
            self.accepted.declaration.as_ref(),
            self.accepted.token,
            &holders,
            (source, declaration),
        )
    }

    async fn take(&mut self, declaration: Declaration) -> Result<(), String> {
        // State may go backwards: what this host is about to follow must not be forgotten by the bus.
        self.sync_bus().await?;
        let mut accepted = self.accepted.clone();
        accepted.token = declaration.token.max(accepted.token);
        let same = accepted.declaration.as_ref().is_some_and(|held| held.issued() == declaration.issued());
        if !same {
            log::line(&format!(
                "declaration {} ({}) is taken",
                declaration.generation,
                declaration.digest().short()
            ));
        }
        accepted.declaration = Some(declaration);
        durable::write_json(&self.layout.declaration(), &accepted, 0o600).map_err(|error| chain(&error))?;
        self.accepted = accepted;
        self.diverged = false;
        self.refused = None;
        if !same {
            // Whoever changed something may have mended what failed: it is tried at once.
            self.needs.clear_faults();
        }
        Ok(())
    }

    /// The bus's folder goes to the disk, where this machine is the bus's.
    pub(super) async fn sync_bus(&self) -> Result<(), String> {
        let is_here = self.ledger.entries().any(|entry| entry.section.name.as_str() == BUS_MODULE);
        if !is_here {
            return Ok(());
        }
        let Ok(module) = BUS_MODULE.parse() else { return Ok(()) };
        let folder = self.layout.data(&module);
        let synced = tokio::task::spawn_blocking(move || durable::sync_tree(&folder)).await;
        match synced {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(chain(&error)),
            Err(error) => Err(error.to_string()),
        }
    }

    fn retry(&mut self, id: &ResourceId) -> DoorAnswer {
        match self.end_recovery(id) {
            Ok(()) => {}
            Err(fault) => return DoorAnswer::Refused { why: fault.text },
        }
        let seat = self.seats.values_mut().find(|seat| {
            seat.record.state == State::Held && (&seat.record.new.id == id || &seat.record.old.id == id)
        });
        let known = self.states.contains_key(id);
        if let Some(seat) = seat {
            seat.retry = true;
        } else if !known {
            return DoorAnswer::Refused { why: format!("{id} is not on this node") };
        }
        self.pauses.clear(id);
        self.needs.clear_faults();
        self.wake.notify_one();
        DoorAnswer::Accepted
    }

    pub(super) fn observed(&mut self) -> Observed {
        Observed {
            pid: std::process::id(),
            started: self.started,
            report: self.report(),
            declaration: self.accepted.declaration.clone().map(Box::new),
            ledger: self.ledger.entries().cloned().collect(),
            tombstones: self.ledger.tombstones().to_vec(),
            bus: self.bus.link(),
        }
    }
}
