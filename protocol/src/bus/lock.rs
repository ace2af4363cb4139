//! The plan lock: one key in a bucket that forgets after the lease.
//!
//! In: the state, who wants it. Out: a lock that renews itself, says when it is lost, and is given back. Not
//! here: what is done under it.
//!
//! Taken by create, renewed by update, given back by delete, each under the key's revision. The token raises
//! the epoch with each holder. Nothing that is done under the lock relies on the lock alone: every write
//! names the revision it was read with, so a holder that wakes up late finds each of them gone.

pub mod decide;

use std::sync::Arc;

use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;

use self::decide::{Answer, Ask, Holding, Renewed, Renewing, Returning, Taken, Taking};
use crate::id::{InstanceId, PlanId, Token};
use crate::subject::bucket;

use super::clock::since_boot;
use super::state::State;
use super::store::StateError;

pub use self::decide::LockRecord;

const KEY: &str = "plan";
const EPOCH: &str = "epoch";
/// Renewed this often within a lease.
const RENEWALS: u32 = 3;

/// Takes the lock for one instance.
#[derive(Debug, Clone)]
pub struct PlanLock {
    state: State,
    instance: InstanceId,
}

impl PlanLock {
    /// For `instance`.
    #[must_use]
    pub const fn new(state: State, instance: InstanceId) -> Self {
        Self { state, instance }
    }

    /// Takes it; none when somebody else has it. The epoch of the token is above any before it and above
    /// `at_least`: hosts may have seen a higher one than a store that lost its last minute knows.
    ///
    /// # Errors
    /// See [`StateError`].
    pub async fn take(&self, at_least: u64) -> Result<Option<Held>, StateError> {
        let nonce = self.state.connection().unique();
        let mut taking = Taking::new(self.instance.clone(), nonce, at_least);
        let mut fault = None;
        loop {
            let sent = since_boot();
            let answer = ask(&self.state, &taking.ask()).await.unwrap_or_else(|error| {
                // What fails while it is taken back says nothing about why it was.
                fault.get_or_insert(error);
                Answer::Failed
            });
            taking = match taking.answered(answer, sent) {
                Taken::GoesOn(next) => next,
                Taken::Holds(holding) => return Ok(Some(Held::new(self.state.clone(), holding))),
                Taken::NotOurs => return Ok(None),
                Taken::Failed => return fault.map_or(Ok(None), Err),
            };
        }
    }

    /// Who has it.
    ///
    /// # Errors
    /// See [`StateError`].
    pub async fn holder(&self) -> Result<Option<LockRecord>, StateError> {
        let record = self.state.read(bucket::LOCK, KEY).await?;
        Ok(record.map(|versioned| versioned.value))
    }
}

/// Puts a question to the buckets. That somebody else was first is an answer.
async fn ask(state: &State, ask: &Ask) -> Result<Answer, StateError> {
    let (lock, numbers) = (bucket::LOCK, bucket::NUMBERS);
    let answer = match ask {
        Ask::ReadLock => state.read(lock, KEY).await.map(Answer::Lock),
        Ask::CreateLock(record) => state.create(lock, KEY, record).await.map(Answer::Written),
        Ask::UpdateLock { record, over } => state.update(lock, KEY, record, *over).await.map(Answer::Written),
        Ask::DeleteLock { over } => state.delete(lock, KEY, *over).await.map(|()| Answer::Deleted),
        Ask::ReadEpoch => state.read(numbers, EPOCH).await.map(Answer::Epoch),
        Ask::CreateEpoch(epoch) => state.create(numbers, EPOCH, epoch).await.map(Answer::Written),
        Ask::UpdateEpoch { epoch, over } => {
            state.update(numbers, EPOCH, epoch, *over).await.map(Answer::Written)
        }
    };
    match answer {
        Err(StateError::Stale { .. } | StateError::AlreadyExists { .. }) => Ok(Answer::Refused),
        answer => answer,
    }
}

/// The lock, held: renewed three times within each lease until it is given back or dropped.
#[derive(Debug)]
pub struct Held {
    token: Token,
    shared: Arc<Shared>,
    lost: watch::Receiver<bool>,
    renewing: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    state: State,
    holding: Mutex<Holding>,
    lost: watch::Sender<bool>,
}

impl Held {
    fn new(state: State, holding: Holding) -> Self {
        let (lost_sender, lost) = watch::channel(false);
        let token = holding.token;
        let shared = Arc::new(Shared { state, holding: Mutex::new(holding), lost: lost_sender });
        let renewing = tokio::spawn(renew_until_lost(shared.clone()));
        Self { token, shared, lost, renewing }
    }

    /// What is written under it.
    #[must_use]
    pub const fn token(&self) -> Token {
        self.token
    }

    /// Turns true, for good, when it is lost: somebody else has it, or it could not be renewed for a lease.
    #[must_use]
    pub fn lost(&self) -> watch::Receiver<bool> {
        self.lost.clone()
    }

    /// Whether it is lost.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        *self.lost.borrow()
    }

    /// Somebody wrote under `token`. A higher one than its own means that it is lost.
    pub fn heard_of(&self, token: Token) {
        if decide::is_lost_to(self.token, token) {
            self.shared.lose();
        }
    }

    /// Says in the lock what is being carried out; where that fails, the next renewal says it.
    pub async fn note_plan(&self, plan: Option<PlanId>) {
        let mut holding = self.shared.holding.lock().await;
        holding.record.plan = plan;
        self.shared.renew(&mut holding).await;
    }

    /// Gives it back. Call it when the work under it has ended, and not before.
    pub async fn give_back(self) {
        // Under the mutex, so that no renewal is under way, and none comes after.
        let holding = self.shared.holding.lock().await;
        self.renewing.abort();
        self.shared.lose();
        let mut next = Some(Returning::Delete);
        while let Some(returning) = next {
            let asked = ask(&self.shared.state, &holding.give_back(&returning)).await;
            next = holding.given_back(&returning, &asked.unwrap_or(Answer::Failed));
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.renewing.abort();
        self.shared.lose();
    }
}

impl Shared {
    fn lose(&self) {
        self.lost.send_if_modified(|lost| !std::mem::replace(lost, true));
    }

    /// One renewal.
    async fn renew(&self, holding: &mut Holding) {
        let sent = since_boot();
        let mut renewing = Renewing::Update;
        while !*self.lost.borrow() {
            let asked = ask(&self.state, &holding.renew(&renewing)).await;
            renewing = match holding.renewed(renewing, asked.unwrap_or(Answer::Failed), sent) {
                Renewed::GoesOn(next) => next,
                Renewed::Ends => return,
                Renewed::Lost => return self.lose(),
            };
        }
    }
}

async fn renew_until_lost(shared: Arc<Shared>) {
    let lease = shared.state.lease();
    let between = lease / RENEWALS;
    while !*shared.lost.borrow() {
        tokio::time::sleep(between).await;
        let mut holding = shared.holding.lock().await;
        let left = holding.left(lease, since_boot());
        // A renewal that hangs must not hide that the lease is over.
        let _ = tokio::time::timeout(left, shared.renew(&mut holding)).await;
        if holding.left(lease, since_boot()).is_zero() {
            shared.lose();
        }
    }
}
