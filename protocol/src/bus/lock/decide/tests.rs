use super::*;

const AT: Duration = Duration::from_secs(7);

fn taking(at_least: u64) -> Taking {
    Taking::new("p-1".parse().unwrap(), "n".to_owned(), at_least)
}

fn goes_on(taken: Taken) -> Taking {
    match taken {
        Taken::GoesOn(next) => next,
        other => panic!("expected more to ask, found {other:?}"),
    }
}

/// The lock's key created at revision 5, the stored epoch found.
fn created(at_least: u64, stored: Option<u64>) -> Taking {
    let taking = goes_on(taking(at_least).answered(Answer::Lock(None), AT));
    let taking = goes_on(taking.answered(Answer::Written(5), AT));
    let stored = stored.map(|value| Versioned { value, revision: 3 });
    goes_on(taking.answered(Answer::Epoch(stored), AT))
}

fn held() -> Holding {
    let signing = goes_on(created(0, Some(1)).answered(Answer::Written(4), AT));
    match signing.answered(Answer::Written(6), AT) {
        Taken::Holds(holding) => holding,
        other => panic!("expected it held, found {other:?}"),
    }
}

fn found(nonce: &str) -> Answer {
    let record = LockRecord { nonce: nonce.to_owned(), ..held().record };
    Answer::Lock(Some(Versioned { value: record, revision: 9 }))
}

#[test]
fn the_token_is_above_what_is_stored_and_above_what_hosts_saw() {
    assert_eq!(created(0, None).ask(), Ask::CreateEpoch(1));
    assert_eq!(created(0, Some(4)).ask(), Ask::UpdateEpoch { epoch: 5, over: 3 });
    assert_eq!(created(8, Some(4)).ask(), Ask::UpdateEpoch { epoch: 9, over: 3 });
    let holding = held();
    assert_eq!((holding.token, holding.revision), (Token { epoch: 2, revision: 5 }, 6));
    assert_eq!(holding.record.token, Some(holding.token));
}

#[test]
fn what_somebody_else_has_is_not_taken() {
    assert_eq!(taking(0).answered(found("other"), AT), Taken::NotOurs);
    let taking = goes_on(taking(0).answered(Answer::Lock(None), AT));
    assert_eq!(taking.answered(Answer::Refused, AT), Taken::NotOurs);
    let signing = goes_on(created(0, None).answered(Answer::Written(4), AT));
    assert_eq!(signing.answered(Answer::Refused, AT), Taken::NotOurs);
}

#[test]
fn an_epoch_that_somebody_raised_meanwhile_is_read_again() {
    assert_eq!(goes_on(created(0, Some(1)).answered(Answer::Refused, AT)).ask(), Ask::ReadEpoch);
}

#[test]
fn what_fails_after_the_key_was_created_takes_it_back() {
    let signing = goes_on(created(0, None).answered(Answer::Written(4), AT));
    for taking in [created(0, None), signing] {
        let back = goes_on(taking.answered(Answer::Failed, AT));
        assert_eq!(back.ask(), Ask::DeleteLock { over: 5 });
        assert_eq!(back.answered(Answer::Deleted, AT), Taken::Failed);
    }
    assert_eq!(taking(0).answered(Answer::Failed, AT), Taken::Failed);
}

#[test]
fn a_renewal_counts_from_when_it_was_sent_and_finds_one_that_was_believed_lost() {
    let lease = Duration::from_secs(2);
    let mut holding = held();
    assert_eq!(holding.left(lease, AT + lease), Duration::ZERO);
    let later = AT + Duration::from_secs(1);
    assert_eq!(holding.renewed(Renewing::Update, Answer::Failed, later), Renewed::Ends);
    assert_eq!(holding.renewed, AT);
    let next = holding.renewed(Renewing::Update, Answer::Refused, later);
    assert_eq!(next, Renewed::GoesOn(Renewing::LookAgain));
    let next = holding.renewed(Renewing::LookAgain, found("n"), later);
    assert_eq!(next, Renewed::GoesOn(Renewing::UpdateAgain { over: 9 }));
    assert_eq!(holding.renewed(Renewing::UpdateAgain { over: 9 }, Answer::Written(11), later), Renewed::Ends);
    assert_eq!((holding.revision, holding.renewed), (11, later));
}

#[test]
fn a_lock_that_somebody_else_has_is_lost() {
    let mut holding = held();
    assert_eq!(holding.renewed(Renewing::LookAgain, found("other"), AT), Renewed::Lost);
    assert_eq!(holding.renewed(Renewing::LookAgain, Answer::Lock(None), AT), Renewed::Lost);
    let higher = Token { epoch: 3, revision: 1 };
    assert!(is_lost_to(holding.token, higher));
    assert!(!is_lost_to(higher, holding.token) && !is_lost_to(higher, higher));
}

#[test]
fn giving_back_deletes_what_is_ours_and_nothing_else() {
    let holding = held();
    assert_eq!(holding.give_back(&Returning::Delete), Ask::DeleteLock { over: 6 });
    assert_eq!(holding.given_back(&Returning::Delete, &Answer::Deleted), None);
    assert_eq!(holding.given_back(&Returning::Delete, &Answer::Refused), Some(Returning::LookAgain));
    let again = Returning::DeleteAgain { over: 9 };
    assert_eq!(holding.given_back(&Returning::LookAgain, &found("n")), Some(again));
    assert_eq!(holding.given_back(&Returning::LookAgain, &found("other")), None);
}
