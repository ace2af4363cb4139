//! Whether a declaration is taken: old orders never win, and a seat has one holder.
//!
//! In: what the host has, what is offered. Out: a verdict with both numbers in words. Not here: carrying it
//! out.

use mesh_protocol::declaration::{Declaration, FORMAT};
use mesh_protocol::door::LedgerEntry;
use mesh_protocol::id::{Generation, MeshId, NodeName, Token};

/// What becomes of an offered declaration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is the new one.
    Take,
    /// It is what the host has, under a higher token: only the token is new.
    TakeToken,
    /// It is what the host has.
    Already,
    /// It does not know of what the host has, which is kept and reported.
    Diverged,
    /// It is not taken: expected and found, in words.
    Refuse(String),
}

/// Where an offered declaration comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The bus: the controller composed it.
    Bus,
    /// The local door: genesis's own, which only a host that never had another accepts.
    Door,
}

/// Whether `offered` is taken by the host of `node` in `mesh` that has `current` and saw `token` as the
/// highest. `holders` are the ledger's entries that hold a seat.
#[must_use]
pub fn accept(
    (mesh, node): (&MeshId, &NodeName),
    current: Option<&Declaration>,
    token: Token,
    holders: &[&LedgerEntry],
    (source, offered): (Source, &Declaration),
) -> Verdict {
    if offered.format != FORMAT {
        return refuse(format!("its form is {}, this host reads form {FORMAT}", offered.format));
    }
    if &offered.mesh != mesh || &offered.node != node {
        return refuse(format!("it is for {}/{}, this host is {mesh}/{node}", offered.mesh, offered.node));
    }
    if source == Source::Door {
        return from_door(current, offered);
    }
    if offered.token < token {
        return refuse(format!(
            "its token {} is older than {token}, which this host has seen",
            offered.token
        ));
    }
    if let Some(current) = current {
        if offered.generation < current.generation {
            return refuse(format!(
                "its generation {} is older than {}, which this host has",
                offered.generation, current.generation
            ));
        }
        let (held, new) = (current.issued(), offered.issued());
        if offered.generation == current.generation {
            return match (held == new, offered.token > token) {
                (true, true) => Verdict::TakeToken,
                (true, false) => Verdict::Already,
                (false, _) => refuse(format!(
                    "generation {} has the digest {} here and {} there",
                    held.generation, held.digest, new.digest
                )),
            };
        }
        if !offered.issued.contains(&held) {
            return Verdict::Diverged;
        }
    }
    seats(holders, offered).map_or(Verdict::Take, Verdict::Refuse)
}

fn refuse(why: String) -> Verdict {
    Verdict::Refuse(why)
}

fn from_door(current: Option<&Declaration>, offered: &Declaration) -> Verdict {
    if offered.generation != Generation::FIRST {
        return refuse(format!(
            "the local door takes generation {} only, this is {}",
            Generation::FIRST,
            offered.generation
        ));
    }
    match current {
        None => Verdict::Take,
        Some(current) if current.issued() == offered.issued() => Verdict::Already,
        Some(current) => refuse(format!(
            "this host has generation {} already ({}), genesis's own is for a host that never had another",
            current.generation,
            current.digest().short()
        )),
    }
}

/// A seat's holder may only go to what is it, or replaces it.
fn seats(holders: &[&LedgerEntry], offered: &Declaration) -> Option<String> {
    holders.iter().find_map(|holder| {
        let seat = holder.section.seat.as_ref()?;
        let claimant = offered.modules.iter().find(|module| module.seat.as_ref() == Some(seat))?;
        let id = claimant.seat_holder()?;
        let fits = id == holder.id || claimant.replaces(&id) == Some(&holder.id);
        (!fits).then(|| {
            format!(
                "it gives the seat {seat} to {id}, which neither is nor replaces {}, the present holder",
                holder.id
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{container_section, declaration, held, process_section};
    use mesh_protocol::door::Standing;

    fn judge(current: Option<&Declaration>, token: Token, source: Source, offered: &Declaration) -> Verdict {
        judge_with(current, token, &[], source, offered)
    }

    fn judge_with(
        current: Option<&Declaration>,
        token: Token,
        holders: &[&LedgerEntry],
        source: Source,
        offered: &Declaration,
    ) -> Verdict {
        accept((&"m1".parse().unwrap(), &"n1".parse().unwrap()), current, token, holders, (source, offered))
    }

    fn why(verdict: Verdict) -> String {
        match verdict {
            Verdict::Refuse(why) => why,
            other => panic!("expected a refusal, found {other:?}"),
        }
    }

    const NONE: Token = Token { epoch: 0, revision: 0 };

    #[test]
    fn one_that_knows_of_what_is_held_is_taken() {
        let held = declaration(3, (1, 5), vec![]);
        let mut next = declaration(4, (1, 5), vec![container_section("c")]);
        next.issued.push(held.issued());
        assert_eq!(judge(Some(&held), held.token, Source::Bus, &next), Verdict::Take);
    }

    #[test]
    fn one_that_does_not_know_of_what_is_held_is_diverged() {
        let held = declaration(3, (1, 5), vec![]);
        let next = declaration(4, (1, 5), vec![container_section("c")]);
        assert_eq!(judge(Some(&held), held.token, Source::Bus, &next), Verdict::Diverged);
    }

    #[test]
    fn older_generations_and_tokens_are_refused_with_both_numbers() {
        let held = declaration(3, (2, 5), vec![]);
        let text = why(judge(Some(&held), held.token, Source::Bus, &declaration(2, (2, 5), vec![])));
        assert!(text.contains("generation 2") && text.contains("older than 3"), "{text}");
        let text = why(judge(Some(&held), held.token, Source::Bus, &declaration(4, (1, 9), vec![])));
        assert!(text.contains("1.9") && text.contains("2.5"), "{text}");
    }

    #[test]
    fn the_same_generation_is_the_same_content_or_refused() {
        let held = declaration(3, (1, 5), vec![]);
        let same = declaration(3, (1, 5), vec![]);
        assert_eq!(judge(Some(&held), held.token, Source::Bus, &same), Verdict::Already);
        let later = declaration(3, (2, 1), vec![]);
        assert_eq!(judge(Some(&held), held.token, Source::Bus, &later), Verdict::TakeToken);
        let other = declaration(3, (2, 1), vec![container_section("c")]);
        let text = why(judge(Some(&held), held.token, Source::Bus, &other));
        let (here, there) = (held.digest(), other.digest());
        assert!(text.contains(here.as_str()) && text.contains(there.as_str()), "{text}");
    }

    #[test]
    fn the_door_takes_generation_one_and_only_once() {
        let first = declaration(1, (0, 0), vec![]);
        assert_eq!(judge(None, NONE, Source::Door, &first), Verdict::Take);
        assert_eq!(judge(Some(&first), NONE, Source::Door, &first), Verdict::Already);
        why(judge(None, NONE, Source::Door, &declaration(2, (0, 0), vec![])));
        why(judge(Some(&declaration(2, (1, 1), vec![])), NONE, Source::Door, &first));
        why(judge(Some(&first), NONE, Source::Door, &declaration(1, (0, 0), vec![container_section("c")])));
    }

    #[test]
    fn what_is_for_another_node_mesh_or_form_is_refused() {
        let mut other = declaration(1, (1, 1), vec![]);
        other.node = "n2".parse().unwrap();
        assert!(why(judge(None, NONE, Source::Bus, &other)).contains("m1/n2"));
        let mut other = declaration(1, (1, 1), vec![]);
        other.mesh = "m2".parse().unwrap();
        why(judge(None, NONE, Source::Bus, &other));
        let mut other = declaration(1, (1, 1), vec![]);
        other.format = 2;
        why(judge(None, NONE, Source::Bus, &other));
    }

    #[test]
    fn a_seat_only_goes_to_what_replaces_its_holder() {
        let holder = held(&container_section("mesh-controller"), Standing::Adopted);
        let with = |replaces| {
            let offered = declaration(2, (1, 1), vec![process_section("--a", replaces)]);
            judge_with(None, NONE, &[&holder], Source::Bus, &offered)
        };
        assert_eq!(with(Some("container:mesh-controller")), Verdict::Take);
        let text = why(with(Some("container:another")));
        assert!(
            text.contains("container:mesh-controller") && text.contains("process:mesh-controller"),
            "{text}"
        );
        why(with(None));
        // A later version of the holder itself needs no `replaces`.
        let holder = held(&process_section("--a", None), Standing::Declared);
        let offered = declaration(2, (1, 1), vec![process_section("--b", Some("container:gone"))]);
        assert_eq!(judge_with(None, NONE, &[&holder], Source::Bus, &offered), Verdict::Take);
        // And a declaration without the seat takes it from nobody.
        assert_eq!(
            judge_with(None, NONE, &[&holder], Source::Bus, &declaration(2, (1, 1), vec![])),
            Verdict::Take
        );
    }
}
