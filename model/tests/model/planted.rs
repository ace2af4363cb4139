//! Each planted fault is found, by a way that is the shortest there is.

use super::explore::Found;
use super::faults::Fault;
use super::look;
use super::world::{Misfortunes, Order, Setting, Start};

fn found(fault: Fault, start: Start, bus_is_far: bool, left: u8) -> (String, Vec<String>) {
    let setting = Setting { start, order: Order::One, misfortunes: Misfortunes::All, left, bus_is_far };
    match look(setting, Some(fault), 2_000_000) {
        Found::Wrong { what, trace, states } => {
            eprintln!("{fault:?}: {what}: {} steps, {states} states", trace.len());
            (what, trace)
        }
        other => panic!("{fault:?} is not found: {other:?}"),
    }
}

/// Where each is found: who is the old one, whether the bus is on another machine, and how many misfortunes it takes.
const PLANTED: [(Fault, Start, bool, u8); 21] = [
    (Fault::OneCheckIsEnough, Start::Container, false, 0),
    (Fault::TheRunIsStartedBeforeItIsRecorded, Start::Container, false, 1),
    (Fault::TheTombstoneComesBeforeTheRecord, Start::Container, false, 0),
    (Fault::ARestartVoidsNoCheck, Start::Container, false, 1),
    (Fault::BothLeaveAtOnce, Start::Container, false, 0),
    (Fault::AloneIsNotWaitedFor, Start::Container, false, 0),
    (Fault::AnAbortEndsTheOnlyOneThatAnswers, Start::Container, false, 1),
    (Fault::TheCommitmentIsMadeWithoutTheBusOnDisk, Start::Container, false, 0),
    (Fault::GoingBackForgetsTheOldOnesRole, Start::Container, false, 1),
    (Fault::WhatIsNotDeclaredIsRemoved, Start::Container, false, 1),
    (Fault::WhatIsAdoptedIsMadeAgain, Start::Container, false, 1),
    (Fault::TheLockIsGivenBackBeforeTheHandlersEnded, Start::Container, false, 1),
    (Fault::LeavingIsSaidBeforeItIsDone, Start::Container, false, 0),
    (Fault::AStaleHolderWritesOverWhatItDidNotRead, Start::Container, false, 1),
    (Fault::NobodyLooksAtTheLease, Start::Container, false, 1),
    (Fault::TheLockIsTakenWithoutLooking, Start::Container, false, 0),
    (Fault::WhatIsNotOnesOwnIsGivenBack, Start::Process, false, 1),
    (Fault::WhoGoesOnDoesNotPutAgain, Start::Process, false, 2),
    (Fault::TheHostForgetsTheHighestToken, Start::Container, false, 1),
    (Fault::TheEpochForgetsWhatHostsSaw, Start::Process, true, 1),
    (Fault::NobodyTakesOverWhatAHostHolds, Start::Process, true, 1),
];

#[test]
fn each_planted_fault_is_found_by_a_shortest_way() {
    let mut lines = Vec::new();
    for (fault, start, bus_is_far, left) in PLANTED {
        let (what, trace) = found(fault, start, bus_is_far, left);
        lines.push(format!("{fault:?}: {what} ({} steps)", trace.len()));
        let shown = matches!(
            fault,
            Fault::TheLockIsGivenBackBeforeTheHandlersEnded
                | Fault::AStaleHolderWritesOverWhatItDidNotRead
                | Fault::TheHostForgetsTheHighestToken
                | Fault::AnAbortEndsTheOnlyOneThatAnswers
                | Fault::WhatIsNotDeclaredIsRemoved
                | Fault::WhoGoesOnDoesNotPutAgain
        );
        if shown {
            insta::assert_snapshot!(format!("{fault:?}"), format!("{}\n=> {what}", trace.join("\n")));
        }
    }
    insta::assert_snapshot!("all", lines.join("\n"));
}
