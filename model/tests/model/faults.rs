//! Faults planted on purpose: each is found, by the shortest way to it.

use mesh_host::handover::decide::{Action, Decision, Haste, Now, Which};
use mesh_host::handover::record::Record;
use mesh_host::handover::seen::Seen;
use mesh_protocol::handover::{Role, State};

/// One mistake that the code does not make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Fault {
    OneCheckIsEnough,
    TheRunIsStartedBeforeItIsRecorded,
    TheTombstoneComesBeforeTheRecord,
    ARestartVoidsNoCheck,
    BothLeaveAtOnce,
    AloneIsNotWaitedFor,
    AnAbortEndsTheOnlyOneThatAnswers,
    TheCommitmentIsMadeWithoutTheBusOnDisk,
    GoingBackForgetsTheOldOnesRole,
    WhatIsNotDeclaredIsRemoved,
    WhatIsAdoptedIsMadeAgain,
    TheLockIsGivenBackBeforeTheHandlersEnded,
    LeavingIsSaidBeforeItIsDone,
    AStaleHolderWritesOverWhatItDidNotRead,
    NobodyLooksAtTheLease,
    TheLockIsTakenWithoutLooking,
    WhatIsNotOnesOwnIsGivenBack,
    WhoGoesOnDoesNotPutAgain,
    TheHostForgetsTheHighestToken,
    TheEpochForgetsWhatHostsSaw,
    NobodyTakesOverWhatAHostHolds,
}

fn go(record: &Record, state: State, now: &Now) -> Action {
    let mut next = record.clone();
    next.state = state;
    next.boot_id.clone_from(&now.boot_id);
    Action::Write(Box::new(next))
}

fn written(decision: &Decision) -> Option<Record> {
    decision.actions.iter().find_map(|action| match action {
        Action::Write(record) => Some((**record).clone()),
        _ => None,
    })
}

/// What the host would decide with such a mistake.
pub(crate) fn change(fault: Fault, decision: &mut Decision, record: &Record, seen: &Seen, now: &Now) {
    let next = written(decision);
    let next = next.as_ref();
    let actions = &mut decision.actions;
    match fault {
        Fault::OneCheckIsEnough
            if record.state == State::Trial && decision.memory.checks_passed == 1 && next.is_none() =>
        {
            *actions = vec![Action::SyncBus, go(record, State::Joined, now)];
        }
        Fault::TheRunIsStartedBeforeItIsRecorded
            if record.state == State::Planned && next.is_some_and(|next| next.state == State::Trial) =>
        {
            actions.insert(0, Action::StartNew);
        }
        Fault::TheTombstoneComesBeforeTheRecord
            if !record.old_ended && next.is_some_and(|next| next.old_ended) =>
        {
            actions.insert(0, Action::Bury);
        }
        Fault::BothLeaveAtOnce if record.state == State::Joined => {
            actions.retain(|action| !matches!(action, Action::Order(Which::Old, _)));
            if !seen.old.ordered.is_some_and(|(role, _)| role == Role::StandingBy) {
                actions.push(Action::Order(Which::Old, Role::StandingBy));
            }
        }
        Fault::AloneIsNotWaitedFor
            if record.state == State::Alone
                && (seen.old.follows(Role::StandingBy) || !seen.old.life.is_alive()) =>
        {
            *actions = vec![Action::CommitLedger, go(record, State::Removing, now)];
        }
        Fault::AnAbortEndsTheOnlyOneThatAnswers
            if record.state == State::Aborting && seen.new.life.is_alive() =>
        {
            actions.insert(0, Action::End(Which::New, Haste::Grace));
        }
        Fault::TheCommitmentIsMadeWithoutTheBusOnDisk => {
            actions.retain(|action| *action != Action::SyncBus);
        }
        Fault::GoingBackForgetsTheOldOnesRole
            if record.state == State::Aborting || next.is_some_and(|next| next.state == State::Aborting) =>
        {
            actions.retain(|action| !matches!(action, Action::Order(Which::Old, _)));
        }
        _ => {}
    }
}
