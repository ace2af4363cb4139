//! What runs need before they can be begun: accounts, files, bundles; each made by a job, tried again after a
//! pause, looked at again every 30 s.

use std::collections::BTreeMap;
use std::time::Duration;

use mesh_protocol::chain::chain;
use mesh_protocol::declaration::{BundleSpec, ModuleSection};
use mesh_protocol::handover::Reason;
use mesh_protocol::id::{AccountName, Digest, ModuleName, ResourceId, ResourceKind};
use mesh_protocol::report::ResourceState;

use super::{Job, JobEnd, Task};
use crate::accounts::{self, Ids};
use crate::fault::{Blame, Fault};
use crate::handover::seen::Needs;
use crate::{bundles, files, log};

/// How long what is declared and cannot be made true here waits for somebody to mend it.
const DECLARED_AGAIN: Duration = Duration::from_secs(30);
/// The longest pause between two attempts that the surroundings failed.
const SURROUNDINGS_AGAIN: u64 = 30;

/// One thing that runs need.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Need {
    /// An account.
    Account(AccountName),
    /// A module's files, by their digest.
    Files(ModuleName, Digest),
    /// A bundle.
    Bundle(Digest),
}

#[derive(Debug, Clone)]
struct Outcome {
    result: Result<Option<(u32, u32)>, Fault>,
    at: Duration,
    faults: u32,
    recheck: bool,
}

/// What became of each need.
#[derive(Debug, Default)]
pub(super) struct NeedBook {
    outcomes: BTreeMap<Need, Outcome>,
}

impl NeedBook {
    pub(super) fn settle(&mut self, need: Need, result: Result<Option<(u32, u32)>, Fault>, now: Duration) {
        let before = self.outcomes.get(&need);
        let faults = match &result {
            Ok(_) => 0,
            Err(_) => before.map_or(0, |outcome| outcome.faults) + 1,
        };
        if let Err(fault) = &result
            && before.is_none_or(|outcome| outcome.result.as_ref().err() != Some(fault))
        {
            log::line(&format!("{need:?}: {fault}"));
        }
        self.outcomes.insert(need, Outcome { result, at: now, faults, recheck: false });
    }

    /// The numbers of an account that is there.
    pub(super) fn account(&self, need: &Need) -> Option<(u32, u32)> {
        self.outcomes.get(need).and_then(|outcome| outcome.result.as_ref().ok().copied().flatten())
    }

    pub(super) fn fault(&self, need: &Need) -> Option<&Fault> {
        self.outcomes.get(need).and_then(|outcome| outcome.result.as_ref().err())
    }

    fn is_met(&self, need: &Need) -> bool {
        self.outcomes.get(need).is_some_and(|outcome| outcome.result.is_ok())
    }

    fn is_due(&self, need: &Need, now: Duration) -> bool {
        let Some(outcome) = self.outcomes.get(need) else { return true };
        match &outcome.result {
            Ok(_) => outcome.recheck,
            Err(fault) => {
                let pause = match fault.blame {
                    Blame::Declared => DECLARED_AGAIN,
                    Blame::Surroundings => {
                        let seconds = 1_u64 << outcome.faults.saturating_sub(1).min(5);
                        Duration::from_secs(seconds.min(SURROUNDINGS_AGAIN))
                    }
                    Blame::Pending => Duration::from_millis(200),
                };
                now >= outcome.at + pause
            }
        }
    }

    /// Somebody mended something: what failed is tried at once.
    pub(super) fn clear_faults(&mut self) {
        self.outcomes.retain(|_, outcome| outcome.result.is_ok());
    }

    /// Every account that was made or found.
    pub(super) fn accounts(&self) -> Vec<AccountName> {
        let names = self.outcomes.keys().filter_map(|need| match need {
            Need::Account(name) => Some(name.clone()),
            Need::Files(..) | Need::Bundle(_) => None,
        });
        names.collect()
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&Need) -> bool) {
        self.outcomes.retain(|need, _| keep(need));
    }
}

impl Task {
    /// Everything is looked at again, also what was right.
    pub(super) fn recheck_needs(&mut self) {
        for outcome in self.needs.outcomes.values_mut() {
            outcome.recheck = true;
        }
    }

    /// Whether all that `id` of `section` needs is there; what is not is begun.
    pub(super) fn needs_of(&mut self, section: &ModuleSection, id: &ResourceId) -> Needs {
        let mut missing = Vec::new();
        for account in &section.accounts {
            missing.extend(self.need_account(section, &account.name));
        }
        if missing.is_empty() {
            missing.extend(self.need_files(section));
        }
        if id.kind() == ResourceKind::Process {
            let process = section.processes.iter().find(|process| process.name.as_str() == id.name());
            let bundle =
                process.and_then(|process| section.bundles.iter().find(|b| b.name == process.bundle));
            missing.extend(bundle.and_then(|bundle| self.need_bundle(bundle)));
        }
        let Some(need) = missing.into_iter().next() else { return Needs::Met };
        let what = match &need {
            Need::Account(name) => format!("account {name}"),
            Need::Files(module, _) => format!("the files of {module}"),
            Need::Bundle(digest) => format!("bundle {}", digest.short()),
        };
        match self.needs.fault(&need) {
            None => Needs::Waiting(what),
            Some(Fault { blame: Blame::Declared, text }) => {
                Needs::Failed(Reason::CouldNotStart { detail: text.clone() })
            }
            Some(fault) => Needs::Waiting(format!("{what} ({fault})")),
        }
    }

    /// Begins what a need's check or making takes, where it is due; the need, where it is not met.
    fn need_account(&mut self, section: &ModuleSection, name: &AccountName) -> Option<Need> {
        let need = Need::Account(name.clone());
        if self.needs.is_due(&need, self.clock.running())
            && let Some(account) = section.accounts.iter().find(|account| &account.name == name)
        {
            let (mesh, origin) = (self.file.mesh.clone(), account.origin);
            let prefixed = self.file.prefixed(name.as_str());
            self.begin_need(need.clone(), move || match accounts::ensure(&mesh, &prefixed, origin) {
                Ok(ensured) => Ok(Some((ensured.ids.uid, ensured.ids.gid))),
                Err(error @ accounts::AccountError::Foreign { .. }) => Err(Fault::declared(chain(&error))),
                Err(error @ accounts::AccountError::Missing { .. }) => Err(Fault::declared(chain(&error))),
                Err(error) => Err(Fault::surroundings(chain(&error))),
            });
        }
        (!self.needs.is_met(&need)).then_some(need)
    }

    fn need_files(&mut self, section: &ModuleSection) -> Option<Need> {
        let need = Need::Files(section.name.clone(), section.files_digest());
        if self.needs.is_due(&need, self.clock.running()) {
            let (layout, section) = (self.layout.clone(), section.clone());
            let ids: BTreeMap<AccountName, Ids> = section
                .accounts
                .iter()
                .filter_map(|account| {
                    let (uid, gid) = self.needs.account(&Need::Account(account.name.clone()))?;
                    Some((account.name.clone(), Ids { uid, gid }))
                })
                .collect();
            self.begin_need(need.clone(), move || match files::ensure(&layout, &section, &ids) {
                Ok(_) => Ok(None),
                Err(error) if error.is_declared() => Err(Fault::declared(chain(&error))),
                Err(error) => Err(Fault::surroundings(chain(&error))),
            });
        }
        (!self.needs.is_met(&need)).then_some(need)
    }

    fn need_bundle(&mut self, bundle: &BundleSpec) -> Option<Need> {
        let need = Need::Bundle(bundle.digest.clone());
        let job = Job::Need(need.clone());
        if self.needs.is_due(&need, self.clock.running()) && !self.jobs.is_running(&job) {
            let (layout, store, bundle) = (self.layout.clone(), self.file.store.clone(), bundle.clone());
            self.jobs.begin(job, async move {
                let ensured = bundles::ensure(&layout, &store, &bundle).await;
                JobEnd::Need(ensured.map(|_| None).map_err(|error| {
                    if error.is_surroundings() {
                        Fault::surroundings(chain(&error))
                    } else {
                        Fault::declared(chain(&error))
                    }
                }))
            });
        }
        (!self.needs.is_met(&need)).then_some(need)
    }

    fn begin_need(
        &mut self,
        need: Need,
        work: impl FnOnce() -> Result<Option<(u32, u32)>, Fault> + Send + 'static,
    ) {
        let job = Job::Need(need);
        if self.jobs.is_running(&job) {
            return;
        }
        self.jobs.begin(job, async move {
            let done = tokio::task::spawn_blocking(work).await;
            JobEnd::Need(done.unwrap_or_else(|error| Err(Fault::surroundings(error.to_string()))))
        });
    }

    /// How an account, file or bundle stands.
    pub(super) fn need_state(&self, need: &Need) -> ResourceState {
        match self.needs.fault(need) {
            _ if self.needs.is_met(need) => ResourceState::Converged,
            None => ResourceState::Waiting("its turn".to_owned()),
            Some(fault) if fault.blame == Blame::Declared => ResourceState::Failed(fault.text.clone()),
            Some(fault) => ResourceState::Waiting(fault.text.clone()),
        }
    }
}
