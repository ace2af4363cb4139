//! What the host does about what runs and is in no handover: the real `supervise::decide` and `is_silent`.

use mesh_host::handover::open::Opening;
use mesh_host::handover::seen::{Life as Lives, Needs};
use mesh_host::supervise::{Buried, Facts, Hearing, Step, Want, decide as supervise, is_silent};
use mesh_protocol::door::Standing;

use super::docs::Docs;
use super::faults::Fault;
use super::host::HostStep;
use super::make::Spec;
use super::seen::ago;
use super::world::{Entry, Life, NOW, World};

impl World {
    fn in_handover(&self, docs: &Docs, entry: Entry) -> bool {
        let id = docs.ledger_entry(entry).id;
        self.record(docs).filter(|record| record.is_open()).is_some_and(|record| {
            if record.old_ended {
                record.old.id == id && record.new.id != id
            } else {
                record.old.id == id || record.new.id == id
            }
        })
    }

    /// What runs and is in no handover.
    pub(crate) fn supervises(&mut self, docs: &Docs) -> Option<HostStep> {
        [self.disk.process, self.disk.container]
            .into_iter()
            .flatten()
            .find_map(|entry| self.keep(docs, entry))
    }

    fn keep(&mut self, docs: &Docs, entry: Entry) -> Option<HostStep> {
        if self.in_handover(docs, entry) {
            return None;
        }
        let held = docs.ledger_entry(entry);
        let declaration = docs.declarations.of(self.disk.accepted?);
        let declared = declaration.section_of(&held.id).and_then(|section| section.spec_digest(&held.id));
        let stays = match (&declared, self.opening(docs)) {
            // It is adopted, or it holds the seat: absence removes neither.
            (None, _) => !docs.has(Fault::WhatIsNotDeclaredIsRemoved),
            (Some(digest), Some(Opening::GoOn | Opening::Begin(_))) => &held.digest != digest,
            (Some(_), Some(Opening::Impossible(_))) => true,
            (Some(_), _) => false,
        };
        // What comes through the local door is genesis's own.
        let first = declaration.generation <= mesh_protocol::id::Generation::FIRST;
        let standing = if first && entry.adopted { Standing::Adopted } else { Standing::Declared };
        let want = match &declared {
            _ if stays => Want::Stay,
            Some(digest) => Want::Run { digest, standing, buried: Buried::No },
            None => Want::Go,
        };
        let life = self.runs.get(&entry.run).map(|run| run.life);
        let silent = self.host.as_ref().is_some_and(|host| {
            let heard = [host.old, host.new].into_iter().find(|heard| heard.of == Some(entry.run));
            let hearing = Hearing {
                asked: heard.and_then(|heard| heard.ready).map(|(.., age)| ago(age)),
                started: host.began.get(&entry.run).copied().map(ago),
                connected: host.connected.map_or(NOW, ago),
                looking: ago(host.looking),
            };
            host.connected.is_some() && is_silent(&hearing, NOW)
        });
        let life = match life {
            Some(Life::Running | Life::Frozen) => Lives::Running,
            Some(Life::Ended | Life::Killed) => {
                Lives::Ended(mesh_protocol::handover::Reason::Signalled { signal: 9 })
            }
            Some(Life::Gone) | None => Lives::Gone("it is not there".to_owned()),
        };
        let facts = Facts { entry: Some(&held), life, busy: false, silent, due: true, needs: Needs::Met };
        let mut step = supervise(&want, &facts);
        if docs.has(Fault::WhatIsAdoptedIsMadeAgain) && matches!(step, Step::Hold(_)) && self.ghost.pruned {
            step = Step::Create;
        }
        match &step {
            Step::Nothing | Step::Wait(_) | Step::Hold(_) => return None,
            Step::TakeOver => {
                let place = self.entry(entry.spec);
                *place = place.map(|entry| Entry { adopted: false, ..entry });
            }
            Step::Create | Step::StartAgain => {
                let again = entry.spec == Spec::Container && self.ghost.pruned;
                self.expect(!again, "what is adopted is made again, after somebody removed it");
                let run = self.new_run(entry.spec, true);
                *self.entry(entry.spec) = Some(Entry { run, ..entry });
            }
            Step::Kill | Step::End => {
                let only = self.runs.values().filter(|run| run.subscribed && run.answers()).count() == 1;
                let ends = self.runs.get(&entry.run).is_some_and(|run| run.subscribed && run.answers());
                let wanted = step == Step::End;
                self.expect(
                    !(only && ends && wanted),
                    "the holder of the seat is ended, and nobody follows it",
                );
                self.end(Some(entry.run));
            }
            Step::Remove => {
                self.disk.buried.insert((entry.spec, entry.run));
                *self.entry(entry.spec) = None;
            }
        }
        Some(HostStep::Supervises(step))
    }
}
