//! What may follow a state: a step of whoever has one, an hour's tick when nobody has, and what goes wrong.

use std::fmt;
use std::rc::Rc;

use mesh_host::accept::Verdict;
use mesh_protocol::handover::State;
use mesh_protocol::id::Token;

use super::docs::{Doc, Docs};
use super::explore::Next;
use super::host::HostStep;
use super::make::{self, Spec};
use super::run::{Fate, RunStep};
use super::seen::named;
use super::world::{LEASE, Life, Lock, Misfortunes, NEVER, Newer, Order, Run, Start, Who, World};

/// For how many ticks nobody may answer, with a host that hears: the silence of one that was never heard (5), a
/// pause and a start, a lease that runs out, and twice that for a second misfortune.
const DARK: u8 = 12;
/// For how many ticks the bus is away at most.
const AWAY: u8 = LEASE + 1;
/// For how many ticks after a misfortune the queue group may be left empty by a step that was right before it.
const RECENT: u8 = 6;

/// What happened.
#[derive(Debug, Clone)]
pub(crate) enum Label {
    Host(HostStep, Option<usize>),
    Run(u8, RunStep, Fate),
    Tick,
    OperatorPushes,
    Thaws(u8),
    BusComes,
    LateWriteArrives,
    HostKilled,
    HostStopped,
    TheHostGoesOn,
    Killed(u8),
    KilledAsItWrites(u8),
    Frozen(u8),
    BusGoes,
    PowerCut { back: bool },
    IsSlow(Who),
    SomethingNewerIsAsked,
    TheContainerIsPruned,
    AnEarlierDeclarationIsReadAgain,
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(step, cut) => {
                match step {
                    HostStep::Acts(actions) if actions.is_empty() => {
                        write!(f, "the host notes what it sees")?;
                    }
                    HostStep::Acts(actions) => {
                        let all: Vec<String> = actions.iter().map(named).collect();
                        write!(f, "the host: {}", all.join(", "))?;
                    }
                    HostStep::IsOffered(Verdict::Refuse(_)) => write!(f, "the host refuses a declaration")?,
                    HostStep::IsOffered(verdict) => {
                        write!(f, "the host is offered a declaration: {verdict:?}")?;
                    }
                    other => write!(f, "the host {}", words(&format!("{other:?}")))?,
                }
                cut.map_or(Ok(()), |after| write!(f, "; KILLED after {after} of them"))
            }
            Self::Run(number, step, fate) => {
                match step {
                    RunStep::Puts(Doc::Declaration(_)) => write!(f, "i-{number} puts the declaration")?,
                    RunStep::Puts(Doc::Module(_)) => write!(f, "i-{number} puts the module")?,
                    RunStep::Puts(Doc::Plan(_)) => write!(f, "i-{number} puts the plan")?,
                    other => write!(f, "i-{number} {}", words(&format!("{other:?}")))?,
                }
                match fate {
                    Fate::Answered => Ok(()),
                    Fate::Lost => write!(f, ": LOST on its way"),
                    Fate::Unanswered => write!(f, ": THE ANSWER IS LOST"),
                    Fate::Late => write!(f, ": LATE"),
                }
            }
            Self::Tick => write!(f, "a second passes"),
            Self::Thaws(number) => write!(f, "i-{number} goes on"),
            Self::IsSlow(Who::Run(number)) => write!(f, "i-{number} IS SLOW"),
            Self::KilledAsItWrites(number) => write!(f, "i-{number} IS KILLED, its write under way"),
            Self::Killed(number) => write!(f, "i-{number} IS KILLED"),
            Self::Frozen(number) => write!(f, "i-{number} IS FROZEN"),
            Self::PowerCut { back: true } => write!(f, "A POWER CUT, the bus's folder goes back"),
            Self::PowerCut { back: false } => write!(f, "A POWER CUT"),
            Self::AnEarlierDeclarationIsReadAgain => write!(f, "AN EARLIER DECLARATION IS READ AGAIN"),
            Self::OperatorPushes | Self::TheHostGoesOn | Self::BusComes | Self::LateWriteArrives => {
                write!(f, "{}", words(&format!("{self:?}")))
            }
            other => write!(f, "{}", words(&format!("{other:?}")).to_uppercase()),
        }
    }
}

/// `TakesTheLock` as `takes the lock`.
fn words(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !text.is_empty() && !text.ends_with(['(', ' ']) {
            text.push(' ');
        }
        text.push(letter.to_ascii_lowercase());
    }
    text
}

/// Whether everything has come to its end: someone answers, the plan has ended, nothing is held or under way.
pub(crate) fn is_end(world: &World, docs: &Docs) -> bool {
    let rests = world.disk.record.is_none_or(|id| {
        let record = docs.records.of(id);
        matches!(record.state, State::Done) || record.state == State::Held && record.next_try.is_none()
    });
    rests
        && world.host.as_ref().is_some_and(|host| host.frozen.is_none())
        && world.bus()
        && world.served()
        && world.late.is_none()
        && world.newer != Newer::Asked
        && !docs.plan_is_open(world.kept.plan.map(|(id, _)| id))
        && world.kept.lock.is_none()
        && world.kept.report == Some(docs.report(world.report_key(docs)))
        && docs.recovery(world.kept.stored(), Token::default()).is_none()
        && world
            .runs
            .values()
            .all(|run| run.life != Life::Frozen && run.pending.is_empty() && run.lock == Lock::Free)
}

struct Following<'a> {
    docs: &'a Docs,
    from: &'a World,
    all: Vec<Next<World, Label>>,
}

impl Following<'_> {
    fn add(&mut self, label: Label, mut state: World, disturbs: bool) {
        let held = self.from.served() && !state.served() && self.from.ghost.hurt >= RECENT;
        state.expect(disturbs || !held, "nobody is left in the queue group");
        state.look(self.docs);
        let state = match state.wrong.take() {
            Some(wrong) => Err(wrong),
            None => Ok(state),
        };
        self.all.push(Next { label, state, disturbs });
    }

    /// Something goes wrong.
    fn disturb(&mut self, label: Label, change: impl FnOnce(&mut World)) {
        let death = matches!(
            label,
            Label::HostKilled | Label::Killed(_) | Label::KilledAsItWrites(_) | Label::PowerCut { .. }
        );
        if self.from.left == 0 || !death && self.docs.setting.misfortunes == Misfortunes::Deaths {
            return;
        }
        let mut state = self.from.clone();
        state.left -= 1;
        state.ghost.dark = 0;
        change(&mut state);
        self.add(label, state, true);
    }

    fn free(&mut self, label: Label, change: impl FnOnce(&mut World)) {
        let mut state = self.from.clone();
        change(&mut state);
        self.add(label, state, false);
    }
}

/// All that may follow.
pub(crate) fn next(world: &World, docs: &Docs) -> Vec<Next<World, Label>> {
    let mut following = Following { docs, from: world, all: Vec::new() };
    let numbers: Vec<u8> = world.runs.keys().copied().collect();
    let all = [Who::Host].into_iter().chain(numbers.iter().map(|n| Who::Run(*n))).chain([Who::Operator]);
    let (mut all, slow): (Vec<Who>, Vec<Who>) = all.partition(|who| world.slow != Some(*who));
    all.extend(slow);
    for who in all {
        let before = following.all.len();
        match who {
            Who::Host => host(&mut following),
            Who::Run(number) => run(&mut following, number),
            Who::Operator => operator(&mut following),
        }
        let steps = following.all[before..].iter().any(|next| !next.disturbs);
        if docs.setting.order == Order::One && steps {
            if world.slow.is_none() {
                following.disturb(Label::IsSlow(who), |world| world.slow = Some(who));
            }
            break;
        }
    }
    // What goes wrong with a step is no step.
    let at_rest = following.all.iter().all(|next| next.disturbs) && !is_end(world, docs);
    let stopped = world.host.as_ref().and_then(|host| host.frozen);
    if at_rest && world.away.is_none_or(|away| away < AWAY) && stopped.is_none_or(|ticks| ticks < AWAY) {
        following.free(Label::Tick, |world| tick(world, docs));
    }
    for (number, _) in world.runs.iter().filter(|(_, run)| run.life == Life::Frozen) {
        following.free(Label::Thaws(*number), |world| {
            if let Some(run) = world.run_mut(*number) {
                run.life = Life::Running;
            }
        });
    }
    if stopped.is_some() {
        following.free(Label::TheHostGoesOn, |world| {
            if let Some(host) = &mut world.host {
                host.frozen = None;
            }
        });
    }
    if !world.bus() {
        following.free(Label::BusComes, |world| world.away = None);
    }
    if let Some((_, put)) = world.late.filter(|_| world.bus()) {
        following.free(Label::LateWriteArrives, |world| {
            world.late = None;
            world.write(docs, &put);
        });
    }
    misfortunes(&mut following, &numbers);
    following.all
}

fn host(following: &mut Following<'_>) {
    let docs = following.docs;
    let mut state = following.from.clone();
    let Some(step) = state.host_step(docs, None) else { return };
    if let HostStep::Acts(actions) = &step
        && following.from.left > 0
    {
        for after in 1..actions.len() {
            let mut state = following.from.clone();
            (state.left, state.ghost.dark) = (state.left - 1, 0);
            let step = state.host_step(docs, Some(after));
            following.add(Label::Host(step.unwrap_or(HostStep::Starts), Some(after)), state, true);
        }
    }
    following.add(Label::Host(step, None), state, false);
}

fn run(following: &mut Following<'_>, number: u8) {
    let docs = following.docs;
    let mut state = following.from.clone();
    let Some((step, asked)) = state.run_step(docs, number, Fate::Answered) else { return };
    if state != *following.from {
        following.add(Label::Run(number, step, Fate::Answered), state, false);
    }
    if !asked || !following.from.bus() {
        return;
    }
    let writes = matches!(step, RunStep::Puts(_) | RunStep::Stops);
    let fates: &[Fate] = match step {
        RunStep::Stops => &[Fate::Late],
        _ if writes => &[Fate::Lost, Fate::Unanswered, Fate::Late],
        _ => &[Fate::Lost, Fate::Unanswered],
    };
    for fate in fates {
        following.disturb(Label::Run(number, step, *fate), |world| {
            world.run_step(docs, number, *fate);
        });
    }
}

fn operator(following: &mut Following<'_>) {
    let (docs, world) = (following.docs, following.from);
    if world.newer == Newer::Asked
        && world.bus()
        && world.served()
        && !docs.plan_is_open(world.kept.plan.map(|(id, _)| id))
    {
        following.free(Label::OperatorPushes, |world| push(world, docs));
    }
}

fn misfortunes(following: &mut Following<'_>, numbers: &[u8]) {
    let (docs, world) = (following.docs, following.from);
    if world.host.is_some() {
        following.disturb(Label::HostKilled, |world| world.host_dies(docs));
        following.disturb(Label::HostStopped, |world| {
            if let Some(host) = &mut world.host {
                host.frozen = host.frozen.or(Some(0));
            }
        });
    }
    for number in numbers {
        let life = world.runs[number].life;
        if matches!(life, Life::Running | Life::Frozen) {
            following.disturb(Label::Killed(*number), |world| {
                world.ghost.hurt = 0;
                if let Some(run) = world.run_mut(*number) {
                    run.ends(Life::Killed);
                }
            });
        }
        if world.runs[number].pending.len() == 1 && life == Life::Running && world.late.is_none() {
            following.disturb(Label::KilledAsItWrites(*number), |world| {
                world.ghost.hurt = 0;
                let put = world.runs[number].pending[0];
                world.late = Some((*number, put));
                if let Some(run) = world.run_mut(*number) {
                    run.ends(Life::Killed);
                }
            });
        }
        if life == Life::Running {
            following.disturb(Label::Frozen(*number), |world| {
                world.ghost.hurt = 0;
                if let Some(run) = world.run_mut(*number) {
                    run.life = Life::Frozen;
                }
            });
        }
    }
    if world.bus() {
        following.disturb(Label::BusGoes, |world| world.away = Some(0));
    }
    for back in [false, true] {
        if !back || world.kept != world.on_disk {
            following.disturb(Label::PowerCut { back }, |world| power_cut(world, docs, back));
        }
    }
    if world.newer == Newer::NotYet && world.bus() && world.served() {
        following.disturb(Label::SomethingNewerIsAsked, |world| {
            world.newer = Newer::Asked;
            if let Some((id, _)) = world.kept.plan.filter(|(id, _)| docs.plan_is_open(Some(*id))) {
                let mut plan = (*docs.plans.of(id)).clone();
                plan.abort_asked = true;
                world.put_plan(docs.plans.id(plan));
            }
        });
    }
    let open = world.disk.record.is_some_and(|id| docs.records.of(id).is_open());
    let container = world.disk.container.filter(|_| open && !world.ghost.pruned);
    if let Some(entry) = container {
        following.disturb(Label::TheContainerIsPruned, |world| {
            (world.ghost.hurt, world.ghost.pruned) = (0, true);
            if let Some(run) = world.run_mut(entry.run) {
                run.ends(Life::Gone);
            }
        });
    }
    if let Some(earlier) = world.earlier.filter(|_| stopped(world) == Some(false) && world.bus()) {
        let mut state = world.clone();
        if state.left > 0 && docs.setting.misfortunes == Misfortunes::All {
            state.left -= 1;
            state.offer(docs, earlier);
            following.add(Label::AnEarlierDeclarationIsReadAgain, state, true);
        }
    }
}

fn stopped(world: &World) -> Option<bool> {
    world.host.as_ref().map(|host| host.frozen.is_some())
}

fn power_cut(world: &mut World, docs: &Docs, back: bool) {
    world.host_dies(docs);
    world.host = None;
    (world.late, world.away, world.earlier) = (None, None, None);
    world.boot += 1;
    world.ghost.hurt = 0;
    if back {
        world.kept = world.on_disk.clone();
    } else {
        world.on_disk = world.kept.clone();
    }
    for run in world.runs.values_mut().filter(|run| run.lives()).map(Rc::make_mut) {
        run.ends(if run.spec == Spec::Container { Life::Killed } else { Life::Gone });
    }
}

fn push(world: &mut World, docs: &Docs) {
    world.newer = Newer::Pushed;
    let stored = world.kept.stored();
    let last = stored.module.map_or(0, |id| docs.modules.of(id).revision);
    let mut record = match docs.setting.start {
        Start::Container => make::module(Spec::Two, last + 1),
        Start::Process => make::module(Spec::One, last + 1),
    };
    record.plan = Some("plan-2".parse().unwrap());
    record.again = (docs.setting.start == Start::Process).then_some(1);
    if let Some(plan) = docs.push(stored, record, 2) {
        world.put_plan(plan);
    }
}

fn tick(world: &mut World, docs: &Docs) {
    let looks = world.host.as_ref().is_some_and(|host| host.frozen.is_none());
    if looks {
        world.hear(docs);
    }
    let record = world.disk.record.map(|id| docs.records.of(id));
    let state = record.as_ref().map(|record| record.state);
    let older = |age: u8| (age + 1).min(NEVER);
    let new = record.as_ref().and_then(|record| record.new.instance.as_ref()).map(super::docs::number);
    let heard = world.host.as_ref().filter(|host| host.connected.is_some()).map(|host| host.new.ready);
    let alone = new.and_then(|new| world.runs.get(&new)).is_some_and(|run| run.subscribed && run.lock_taken)
        && world.runs.iter().all(|(number, run)| Some(*number) == new || !run.subscribed);
    let ghost = &mut world.ghost;
    // The bus's absence stops these clocks, as it stops the host's.
    let counts = |count: u8, holds: bool| match heard {
        _ if !holds => 0,
        Some(Some(_)) => (count + 1).min(2),
        _ => count,
    };
    ghost.trial = counts(ghost.trial, state == Some(State::Trial));
    ghost.alone = counts(ghost.alone, state == Some(State::Alone) && (alone || heard.is_none()));
    ghost.hurt = older(ghost.hurt);
    let dark = looks && world.bus() && !world.served() && !world.ghost.pruned;
    world.ghost.dark = if dark { world.ghost.dark + 1 } else { 0 };
    world.expect(world.ghost.dark <= DARK, "nobody answers, and nobody comes to");
    world.slow = None;
    world.away = world.away.map(|away| away + 1);
    let holds = |run: &&mut Rc<Run>| matches!(run.lock, Lock::Held(_) | Lock::Returning(..));
    world.runs.values_mut().filter(holds).for_each(|run| World::age(Rc::make_mut(run)));
    if world.kept.lock.is_some() {
        let kept = world.kept_mut();
        kept.lock_age += 1;
        if kept.lock_age >= LEASE {
            (kept.lock, kept.lock_age) = (None, 0);
        }
    }
    if let Some(host) = &mut world.host {
        host.memory = docs.aged(host.memory);
        host.connected = host.connected.map(|since| (since + 1).min(60));
        host.rested |= state == Some(State::Held);
        host.looking = (host.looking + 1).min(60);
        host.looked = (host.looked + 1).min(60);
        host.frozen = host.frozen.map(|ticks| ticks + 1);
        host.began = host.began.iter().map(|(run, ticks)| (*run, (ticks + 1).min(60))).collect();
        for heard in [&mut host.old, &mut host.new] {
            heard.public = heard.public.map(older);
            heard.ready = heard.ready.map(|(serves, taken, age)| (serves, taken, older(age)));
        }
    }
}
