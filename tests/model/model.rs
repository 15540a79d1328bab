//! The contract as a sequential model: takes one event after the other, and says
//! how each task ends.

use std::collections::{BTreeMap, VecDeque};

use crate::program::{
    CLOSES, End, Ended, Hand, Outside, Plan, Role, Use, Verb, WhenTold, Wrap, room,
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Task,
    Scope,
    Shield,
    Branch,
    /// The scope that the body of a started service runs in.
    Start,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Why {
    Asked,
    /// Its handle or its scope is gone, or it is a service that is stopped.
    Dropped,
    Deadline,
    Failure,
    Interrupted,
    RaceLost,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Body {
    Running,
    Value,
    Cancelled,
    /// It returned an interrupt.
    Interrupted,
    Failed,
}

/// What a scope's call returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answer {
    Value,
    Cancelled,
    Interrupted,
    Failed(usize),
    /// A branch that has lost, and has nothing else to say.
    Lost,
}

#[derive(Clone, Debug)]
struct Job {
    kind: Kind,
    parent: Option<usize>,
    /// The plan whose task it is, or is part of.
    task: usize,
    service: bool,
    supervisor: bool,
    guarded: bool,
    /// Its future was dropped half-way: nobody hears its verdict.
    dropped: bool,
    /// The job where the mark entered, and why.
    mark: Option<(usize, Why)>,
    body: Body,
    /// What its body returned, if that was an interrupt.
    told: Vec<Ask>,
    kids: usize,
    services: usize,
    services_stopped: bool,
    failures: Vec<usize>,
    after_deadline: Vec<usize>,
    cut_above: bool,
    cut_own: bool,
    ended: Option<Ended>,
}

impl Job {
    fn is_effective(&self) -> bool {
        self.mark.is_some() && !self.guarded
    }
}

/// What the work of a plan does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Waits until this service is ready.
    Starting(usize),
    /// It is ready, and the work has not gone on yet.
    Started(usize),
    /// Is a service, and gets ready.
    Preparing,
    Sleeping,
    Awaiting(usize),
    /// On its way to the lock or the channel.
    Coming,
    /// Stands in a line there.
    InLine,
    /// Has the lock, or is done with the channel.
    Staying,
    Cleaning,
    Over,
}

/// The lock and the channel of the program. Lines are of plans, the first to come in front.
#[derive(Default)]
struct Things {
    holder: Option<usize>,
    lockers: VecDeque<usize>,
    buffer: VecDeque<usize>,
    senders: VecDeque<usize>,
    receivers: VecDeque<usize>,
    closed: bool,
    /// By plan: what came of its use.
    hands: Vec<Option<Hand>>,
}

/// A request, by a number that no other one has.
type Ask = u32;

/// What an await has passed on.
#[derive(Clone, Debug)]
struct Away {
    there: Ask,
    /// What that is here; none once all was taken back.
    here: Option<Vec<Ask>>,
}

#[derive(Clone, Debug)]
struct Work {
    /// The job it runs in.
    inner: usize,
    phase: Phase,
    /// What it was told is an interrupt, and which requests that was.
    heard: bool,
    told: Vec<Ask>,
    away: Option<Away>,
    /// Of a started service.
    ready: bool,
}

/// What a task was asked.
#[derive(Clone, Default, Debug)]
struct Requests {
    count: usize,
    pending: Vec<Ask>,
    /// What a point took last.
    delivered: Vec<Ask>,
    /// Up to here all were taken back.
    forgotten: Ask,
}

/// How a combinator stands.
#[derive(Clone, Default, Debug)]
struct Stand {
    left: usize,
    won: bool,
    failures: Vec<usize>,
    cancelled: Option<Answer>,
    /// The requests, if that is an interrupt.
    told: Vec<Ask>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    WorkDone(usize),
    Ready(usize),
    CleanDone(usize),
    Deadline(usize),
    ScopeDrop(usize),
    LeaseDrop(usize),
    Outside(usize),
    Revoked(usize),
    Comes(usize),
    Goes(usize),
    Closes,
}

pub struct Model<'a> {
    plans: &'a [Plan],
    jobs: Vec<Job>,
    works: Vec<Work>,
    /// By plan: its outermost job.
    outer: Vec<usize>,
    requests: Vec<Requests>,
    stands: Vec<Stand>,
    asks: Ask,
    /// The requests of the interrupt that is being answered with.
    carried: Vec<Ask>,
    things: Things,
    events: BTreeMap<u64, Event>,
    now: u64,
}

impl<'a> Model<'a> {
    /// How the task of each plan ends, none for a branch; and what came of each plan's use of
    /// the lock or the channel.
    pub fn run(plans: &'a [Plan]) -> (Vec<Option<Ended>>, Vec<Option<Hand>>) {
        let mut model = Model {
            plans,
            jobs: Vec::new(),
            works: Vec::new(),
            outer: Vec::new(),
            requests: vec![Requests::default(); plans.len()],
            stands: vec![Stand::default(); plans.len()],
            asks: 0,
            carried: Vec::new(),
            things: Things {
                hands: vec![None; plans.len()],
                ..Things::default()
            },
            events: BTreeMap::new(),
            now: 0,
        };
        model.at(CLOSES, Event::Closes);
        for n in 0..plans.len() {
            model.open(n);
        }
        for n in 0..plans.len() {
            model.begin(n);
        }
        while let Some((at, event)) = model.events.pop_first() {
            model.now = at;
            model.step(event);
        }
        let ended = (0..plans.len()).map(|n| match plans[n].role {
            Role::Branch => None,
            _ => Some(model.jobs[model.outer[n]].ended.clone().expect("it ends")),
        });
        (ended.collect(), model.things.hands)
    }

    // ------------------------------------------------------- the beginning

    /// The jobs of a plan.
    fn open(&mut self, n: usize) {
        let plan = &self.plans[n];
        let outer = match (plan.role, plan.parent) {
            (Role::Branch, Some(owner)) => {
                self.stands[owner].left += 1;
                self.add(Kind::Branch, Some(self.outer[owner]), owner)
            }
            (_, parent) => {
                let parent = parent.map(|parent| self.works[parent].inner);
                self.add(Kind::Task, parent, n)
            }
        };
        let task = self.jobs[outer].task;
        let inner = match (plan.role, plan.wrap) {
            (Role::Started(_), _) => self.add(Kind::Start, Some(outer), task),
            (_, Wrap::Nothing | Wrap::Guard) => outer,
            (_, Wrap::Shield) => self.add(Kind::Shield, Some(outer), task),
            (_, Wrap::Together(_)) => {
                self.stands[n].left += 1;
                self.add(Kind::Branch, Some(outer), task)
            }
            _ => self.add(Kind::Scope, Some(outer), task),
        };
        self.jobs[inner].supervisor = plan.wrap == Wrap::Supervisor;
        self.jobs[outer].guarded = plan.wrap == Wrap::Guard;
        self.outer.push(outer);
        self.works.push(Work {
            inner,
            phase: Phase::Sleeping,
            heard: false,
            told: Vec::new(),
            away: None,
            ready: false,
        });
        match plan.wrap {
            Wrap::Timeout(at) => self.at(at, Event::Deadline(n)),
            Wrap::Dropped(at) => self.at(at, Event::ScopeDrop(n)),
            Wrap::Leased(at) => {
                self.jobs[inner].kids += 1;
                self.at(at, Event::LeaseDrop(n));
            }
            _ => {}
        }
        self.at(plan.work_until, Event::WorkDone(n));
        if let Role::Started(at) = plan.role {
            self.at(at, Event::Ready(n));
        }
        match plan.outside {
            Outside::Nothing => {}
            Outside::Cancel(at) | Outside::DropHandle(at) | Outside::Interrupt(at) => {
                self.at(at, Event::Outside(n));
            }
            Outside::Revoke(at, back) => {
                self.at(at, Event::Outside(n));
                self.at(back, Event::Revoked(n));
            }
        }
    }

    /// The work begins: all children are there.
    fn begin(&mut self, n: usize) {
        let starts = (n + 1..self.plans.len()).find(|&child| {
            let child = &self.plans[child];
            child.parent == Some(n) && matches!(child.role, Role::Started(_))
        });
        match starts {
            Some(service) => self.works[n].phase = Phase::Starting(service),
            None => self.prepare(n),
        }
    }

    /// A service gets ready; everybody then works.
    fn prepare(&mut self, n: usize) {
        match self.plans[n].role {
            Role::Started(_) if self.plans[n].gets_ready() && self.is_told(n) => self.clean(n),
            Role::Started(at) if self.plans[n].gets_ready() && self.now < at => {
                self.works[n].phase = Phase::Preparing;
            }
            _ => self.work(n),
        }
    }

    /// A point in the work of `n` fails at entry.
    fn is_told(&self, n: usize) -> bool {
        self.jobs[self.works[n].inner].is_effective()
    }

    fn work(&mut self, n: usize) {
        let ready = self.plans[n].gets_ready();
        if ready {
            // Whoever waits for it has its word, and goes on after this turn.
            self.works[n].ready = true;
            let parent = self.plans[n].parent.expect("somebody starts it");
            let starter = &mut self.works[parent].phase;
            if *starter == Phase::Starting(n) {
                *starter = Phase::Started(n);
            }
        }
        if let Some(child) = self.plans[n].awaits {
            self.works[n].phase = Phase::Awaiting(child);
            if self.jobs[self.outer[child]].ended.is_some() {
                self.await_over(n, child);
            }
        } else if self.is_told(n) {
            self.clean(n);
        } else {
            self.works[n].phase = Phase::Sleeping;
            if self.now >= self.plans[n].work_until {
                self.work_done(n);
            }
        }
        let parent = self.plans[n].parent;
        if let Some(parent) = parent.filter(|&p| ready && self.works[p].phase == Phase::Started(n))
        {
            self.prepare(parent);
        }
    }

    fn add(&mut self, kind: Kind, parent: Option<usize>, task: usize) -> usize {
        let role = self.plans[task].role;
        let service = kind == Kind::Task && matches!(role, Role::Service | Role::Started(_));
        if let Some(parent) = parent {
            let parent = &mut self.jobs[parent];
            *(if service {
                &mut parent.services
            } else {
                &mut parent.kids
            }) += 1;
        }
        self.jobs.push(Job {
            kind,
            parent,
            task,
            service,
            supervisor: false,
            guarded: false,
            dropped: false,
            mark: None,
            body: Body::Running,
            told: Vec::new(),
            kids: 0,
            services: 0,
            services_stopped: false,
            failures: Vec::new(),
            after_deadline: Vec::new(),
            cut_above: false,
            cut_own: false,
            ended: None,
        });
        self.jobs.len() - 1
    }

    fn at(&mut self, at: u64, event: Event) {
        let clash = self.events.insert(at, event);
        assert!(
            clash.is_none(),
            "two events at {at}: {clash:?} and {event:?}"
        );
    }

    // ------------------------------------------------------------ the works

    fn step(&mut self, event: Event) {
        match event {
            Event::Outside(n) => match self.plans[n].outside {
                Outside::Interrupt(_) | Outside::Revoke(..) => {
                    self.ask(n);
                }
                Outside::DropHandle(_) => self.cancel(self.outer[n], Why::Dropped),
                _ => self.cancel(self.outer[n], Why::Asked),
            },
            Event::Revoked(n) => self.take_back(n),
            Event::Deadline(n) => {
                let inner = self.works[n].inner;
                if self.jobs[inner].ended.is_none() {
                    self.cancel(inner, Why::Deadline);
                }
            }
            Event::ScopeDrop(n) => self.drop_scope(n),
            Event::LeaseDrop(n) => {
                let inner = self.works[n].inner;
                self.jobs[inner].kids -= 1;
                self.maybe_end(inner);
            }
            Event::WorkDone(n) => {
                if self.works[n].phase == Phase::Sleeping {
                    self.work_done(n);
                }
            }
            Event::Ready(n) => {
                if self.works[n].phase == Phase::Preparing {
                    self.work(n);
                }
            }
            Event::Comes(n) => {
                if self.works[n].phase == Phase::Coming {
                    self.comes(n);
                }
            }
            Event::Goes(n) => {
                if self.works[n].phase == Phase::Staying {
                    if self.plans[n].shared.what == Use::Lock {
                        self.things.hands[n] = Some(Hand::Held(self.now));
                    }
                    self.leaves(n);
                    self.ends(n);
                }
            }
            Event::Closes => self.closes(),
            Event::CleanDone(n) => {
                let work = &mut self.works[n];
                if work.phase != Phase::Cleaning {
                    return;
                }
                work.phase = Phase::Over;
                let (inner, heard) = (work.inner, work.heard);
                let told = work.told.clone();
                match self.plans[n].when_told {
                    WhenTold::Cancelled if heard => self.interrupted(inner, told),
                    WhenTold::Cancelled => self.body_over(inner, Body::Cancelled),
                    WhenTold::Late => self.body_over(inner, Body::Value),
                    WhenTold::Fail => self.work_failed(n, n),
                }
            }
        }
    }

    fn work_done(&mut self, n: usize) {
        let shared = self.plans[n].shared;
        if shared.what == Use::Nothing {
            return self.ends(n);
        }
        if self.is_told(n) {
            return self.clean(n);
        }
        self.works[n].phase = Phase::Coming;
        self.at(self.now + shared.comes_after, Event::Comes(n));
    }

    fn ends(&mut self, n: usize) {
        self.works[n].phase = Phase::Over;
        match self.plans[n].end {
            End::Value => self.body_over(self.works[n].inner, Body::Value),
            End::Fail | End::Panic => self.work_failed(n, n),
        }
    }

    /// The work of `n` returns the failure `which`, its own or one it was given.
    fn work_failed(&mut self, n: usize, which: usize) {
        self.works[n].phase = Phase::Over;
        self.body_failed(self.works[n].inner, which);
    }

    /// The work of `n` is told of a mark.
    fn tell(&mut self, n: usize) {
        match self.works[n].phase {
            Phase::Starting(_)
            | Phase::Preparing
            | Phase::Sleeping
            | Phase::Coming
            | Phase::InLine
            | Phase::Staying => self.clean(n),
            // It stays until its target has ended; or its next point says so.
            Phase::Awaiting(_) | Phase::Started(_) | Phase::Cleaning | Phase::Over => {}
        }
    }

    fn clean(&mut self, n: usize) {
        self.leaves(n);
        let before = std::mem::replace(&mut self.works[n].phase, Phase::Cleaning);
        if let Phase::Starting(service) = before {
            // Giving up the start cancels the service.
            self.cancel(self.outer[service], Why::Dropped);
        }
        self.at(self.now + self.plans[n].clean_for, Event::CleanDone(n));
    }

    fn drop_scope(&mut self, n: usize) {
        let inner = self.works[n].inner;
        if self.jobs[inner].ended.is_some() {
            return;
        }
        if self.things.senders.contains(&n) {
            // The value goes with the future.
            self.things.senders.retain(|&sender| sender != n);
        }
        self.leaves(n);
        let before = std::mem::replace(&mut self.works[n].phase, Phase::Over);
        if let (Phase::Awaiting(target), Some(away)) = (before, self.works[n].away.take())
            && self.has_come_back(target, away.there)
        {
            self.put_back(self.jobs[inner].task, away);
        }
        if self.jobs[inner].body == Body::Interrupted {
            let told = self.jobs[inner].told.clone();
            self.give_up(self.outer[n], &told);
        }
        self.jobs[inner].dropped = true;
        self.cancel(inner, Why::Dropped);
        if let Phase::Starting(service) = before {
            self.cancel(self.outer[service], Why::Dropped);
        }
        self.jobs[inner].body = Body::Value;
        self.maybe_end(inner);
        self.body_over(self.outer[n], Body::Value);
        // A point beside it may hear what has come back.
        self.hear(self.jobs[inner].task);
    }

    /// Service `n` never gets ready: it failed, or ended without a word.
    fn start_failed(&mut self, n: usize, failure: Option<usize>) {
        let parent = self.plans[n].parent.expect("somebody starts it");
        if self.works[parent].phase == Phase::Starting(n) {
            self.work_failed(parent, failure.unwrap_or(parent));
        }
    }

    /// The task of `target` has ended, and the work of `n` awaits it.
    fn await_over(&mut self, n: usize, target: usize) {
        let task = self.jobs[self.works[n].inner].task;
        let cancelled = self.jobs[self.works[n].inner].is_effective();
        let away = self.works[n].away.take();
        let mut back = away.filter(|away| self.has_come_back(target, away.there));
        let ended = self.jobs[self.outer[target]].ended.clone().expect("ended");
        let came_back = back.is_some();
        if came_back && (ended.state != "Cancelled" || cancelled) {
            // For the next point: there is something else to return.
            self.put_back(task, back.take().expect("it came back"));
        }
        match ended.state {
            "Completed" => self.work_done(n),
            "Failed" => self.work_failed(n, ended.failures[0]),
            "Late" if cancelled || came_back => self.work_done(n),
            _ if cancelled => self.clean(n),
            _ => match back {
                Some(away) if self.requests[task].count > 0 => {
                    let requests = &mut self.requests[task];
                    requests.delivered = away.here.unwrap_or_default();
                    // One that is pending is newer, and is what is told.
                    self.works[n].told = match requests.pending.is_empty() {
                        true => requests.delivered.clone(),
                        false => requests.pending.clone(),
                    };
                    requests.delivered.append(&mut requests.pending);
                    self.works[n].heard = true;
                    self.clean(n);
                }
                // Its target was stopped, and not it: a failure of its own.
                _ => self.work_failed(n, n),
            },
        }
        // Its own next point may hear what has come back, or one beside it.
        match self.works[n].phase {
            Phase::Coming => self.hear_from(task, n),
            _ => self.hear(task),
        }
    }

    // ------------------------------------------------ the lock and the channel

    /// The work of `n` comes to what it uses.
    fn comes(&mut self, n: usize) {
        self.works[n].phase = Phase::InLine;
        match self.plans[n].shared.what {
            Use::Lock => {
                self.things.lockers.push_back(n);
                self.grant();
            }
            Use::Send if self.things.closed => self.done(n, Hand::Back(self.now)),
            Use::Send => {
                self.things.senders.push_back(n);
                self.flow();
            }
            Use::Recv => {
                self.things.receivers.push_back(n);
                self.flow();
            }
            Use::Nothing => unreachable!("it uses nothing"),
        }
    }

    /// The work of `n` has the lock, or is done with the channel, and stays for a while.
    fn stays(&mut self, n: usize) {
        self.works[n].phase = Phase::Staying;
        let until = self.now + self.plans[n].shared.stays_for;
        self.at(until, Event::Goes(n));
    }

    fn done(&mut self, n: usize, hand: Hand) {
        self.things.hands[n] = Some(hand);
        self.stays(n);
    }

    /// A lock that is free goes to the first in line.
    fn grant(&mut self) {
        if self.things.holder.is_none()
            && let Some(next) = self.things.lockers.pop_front()
        {
            self.things.holder = Some(next);
            self.stays(next);
        }
    }

    /// Values go on as far as they can: into the buffer, and to receivers.
    fn flow(&mut self) {
        let room = room(self.plans);
        loop {
            if self.things.buffer.len() < room
                && let Some(sender) = self.things.senders.pop_front()
            {
                self.things.buffer.push_back(sender);
                self.done(sender, Hand::Sent(self.now));
                continue;
            }
            let Some(&receiver) = self.things.receivers.front() else {
                return;
            };
            if let Some(value) = self.things.buffer.pop_front() {
                self.things.receivers.pop_front();
                self.done(receiver, Hand::Received(value, self.now));
            } else if let Some(sender) = self.things.senders.pop_front() {
                self.things.receivers.pop_front();
                self.done(sender, Hand::Sent(self.now));
                self.done(receiver, Hand::Received(sender, self.now));
            } else if self.things.closed {
                self.things.receivers.pop_front();
                self.done(receiver, Hand::Closed(self.now));
            } else {
                return;
            }
        }
    }

    fn closes(&mut self) {
        self.things.closed = true;
        while let Some(sender) = self.things.senders.pop_front() {
            self.done(sender, Hand::Back(self.now));
        }
        self.flow();
    }

    /// The work of `n` is told, or goes: it stands in no line and holds nothing any more.
    fn leaves(&mut self, n: usize) {
        if self.things.senders.contains(&n) {
            self.things.hands[n] = Some(Hand::Back(self.now));
        }
        let Things {
            lockers,
            senders,
            receivers,
            ..
        } = &mut self.things;
        for line in [lockers, senders, receivers] {
            line.retain(|&other| other != n);
        }
        if self.things.holder == Some(n) {
            self.things.holder = None;
            self.grant();
        }
    }

    // ------------------------------------------------------------- requests

    /// Asks the task of `n`; none if its body is over.
    fn ask(&mut self, n: usize) -> Option<Ask> {
        if self.jobs[self.outer[n]].body != Body::Running {
            return None;
        }
        self.asks += 1;
        let ask = self.asks;
        self.requests[n].count += 1;
        self.requests[n].pending.push(ask);
        self.hear(n);
        Some(ask)
    }

    /// The first work of the task that waits where it can hear takes what is
    /// pending; an await passes it on.
    fn hear(&mut self, task: usize) {
        self.hear_from(task, 0);
    }

    /// The same; the first to be asked is the work `first`, then those behind it.
    fn hear_from(&mut self, task: usize, first: usize) {
        for n in (first..self.plans.len()).chain(0..first) {
            let work = &self.works[n];
            let inner = work.inner;
            if self.requests[task].pending.is_empty() {
                return;
            }
            if self.jobs[inner].task != task
                || self.jobs[inner].is_effective()
                || self.is_held(inner)
            {
                continue;
            }
            match work.phase {
                Phase::Starting(_)
                | Phase::Preparing
                | Phase::Sleeping
                | Phase::Coming
                | Phase::InLine
                | Phase::Staying => {
                    self.deliver(task);
                    self.works[n].told = self.requests[task].delivered.clone();
                    self.works[n].heard = true;
                    self.clean(n);
                }
                Phase::Awaiting(target) => self.pass_on(task, n, target),
                Phase::Started(_) | Phase::Cleaning | Phase::Over => {}
            }
        }
    }

    /// A shield or a guard stands between the job and its task.
    fn is_held(&self, job: usize) -> bool {
        let mut at = job;
        loop {
            let j = &self.jobs[at];
            if j.guarded || j.kind == Kind::Shield {
                return true;
            }
            match j.parent {
                Some(parent) if j.kind != Kind::Task => at = parent,
                _ => return false,
            }
        }
    }

    fn deliver(&mut self, task: usize) {
        let requests = &mut self.requests[task];
        requests.delivered = std::mem::take(&mut requests.pending);
    }

    fn pass_on(&mut self, task: usize, n: usize, target: usize) {
        if self.jobs[self.outer[target]].body != Body::Running {
            return;
        }
        let earlier = self.works[n].away.take();
        let earlier = earlier.filter(|away| self.is_unheard(target, away.there));
        let mut here = earlier.and_then(|away| away.here).unwrap_or_default();
        here.append(&mut self.requests[task].pending);
        let there = self.ask(target).expect("its body is not over");
        self.works[n].away = Some(Away {
            there,
            here: Some(here),
        });
    }

    fn put_back(&mut self, task: usize, away: Away) {
        if self.requests[task].count > 0 {
            let here = away.here.unwrap_or_default();
            self.requests[task].pending.extend(here);
        }
    }

    fn take_back(&mut self, n: usize) {
        let requests = &mut self.requests[n];
        if self.jobs[self.outer[n]].ended.is_some() || requests.count == 0 {
            return;
        }
        requests.count -= 1;
        if requests.count == 0 {
            requests.pending.clear();
            requests.forgotten = self.asks;
            for work in 0..self.works.len() {
                if self.jobs[self.works[work].inner].task == n
                    && let Some(away) = &mut self.works[work].away
                {
                    away.here = None;
                }
            }
        }
    }

    /// An interrupt that has left a body in `around` is not what the call answers
    /// with: it is put back, unless an explicit cancel has taken its place.
    fn give_up(&mut self, around: usize, told: &[Ask]) {
        let mut at = around;
        let replaced = loop {
            let j = &self.jobs[at];
            match (j.mark, j.parent) {
                (Some((_, why)), _) => break why == Why::Asked,
                (None, Some(parent)) if j.kind != Kind::Task => at = parent,
                _ => break false,
            }
        };
        let task = self.jobs[around].task;
        if !replaced && self.jobs[self.outer[task]].body == Body::Running {
            let requests = &mut self.requests[task];
            let back = told.iter().filter(|ask| **ask > requests.forgotten);
            requests.pending.extend(back);
        }
    }

    /// A body of the task of `n` has returned it, and the call around it has not.
    fn is_on_its_way(&self, n: usize, ask: Ask) -> bool {
        let in_scope = self.jobs.iter().any(|j| {
            let waits = j.body == Body::Interrupted && j.ended.is_none() && !j.dropped;
            j.task == n && j.kind != Kind::Task && waits && j.told.contains(&ask)
        });
        let stand = &self.stands[n];
        let kept = stand.left > 0 && stand.told.contains(&ask);
        (in_scope || kept) && ask > self.requests[n].forgotten
    }

    /// Pending at the task of `n`, on its way there, or wherever that has passed it
    /// on to.
    fn is_unheard(&self, n: usize, ask: Ask) -> bool {
        self.requests[n].pending.contains(&ask)
            || self.is_on_its_way(n, ask)
            || self.works.iter().any(|work| {
                let Phase::Awaiting(target) = work.phase else {
                    return false;
                };
                self.jobs[work.inner].task == n
                    && work.away.as_ref().is_some_and(|away| {
                        let ours = away.here.as_ref().is_some_and(|here| here.contains(&ask));
                        ours && self.is_unheard(target, away.there)
                    })
            })
    }

    fn has_come_back(&self, n: usize, ask: Ask) -> bool {
        let job = self.outer[n];
        let interrupted = self.jobs[job].mark == Some((job, Why::Interrupted));
        self.is_unheard(n, ask) || (interrupted && self.requests[n].delivered.contains(&ask))
    }

    // -------------------------------------------------------------- cancels

    /// The body of `job` returns an interrupt.
    fn interrupted(&mut self, job: usize, told: Vec<Ask>) {
        if self.jobs[job].kind == Kind::Task && self.jobs[job].mark.is_some() {
            // Another cancel ends it: whoever passed the interrupt on has it again.
            self.give_up(job, &told);
        }
        self.jobs[job].told = told;
        self.cancel(job, Why::Interrupted);
        self.body_over(job, Body::Interrupted);
    }

    fn cancel(&mut self, job: usize, why: Why) {
        if self.jobs[job].ended.is_none() && self.jobs[job].mark.is_none() {
            self.mark(job, job, why);
        } else if let Some((origin, Why::Deadline)) = self.jobs[job].mark
            && origin == job
            && why == Why::Asked
        {
            self.jobs[job].mark = Some((job, Why::Asked));
        }
    }

    fn mark(&mut self, job: usize, origin: usize, why: Why) {
        self.jobs[job].mark = Some((origin, why));
        if !self.jobs[job].guarded {
            self.effect(job);
        }
    }

    /// A mark takes effect: it goes on to the children, past services, and tells
    /// the body.
    fn effect(&mut self, job: usize) {
        let (origin, why) = self.jobs[job].mark.expect("marked");
        for child in 0..self.jobs.len() {
            let c = &self.jobs[child];
            if c.parent == Some(job)
                && c.ended.is_none()
                && c.mark.is_none()
                && !c.service
                && c.kind != Kind::Shield
            {
                self.mark(child, origin, why);
            }
        }
        if let Some(n) = self.works.iter().position(|work| work.inner == job) {
            self.tell(n);
        }
    }

    // ----------------------------------------------------------------- ends

    fn body_failed(&mut self, job: usize, which: usize) {
        if !self.jobs[job].failures.contains(&which) {
            self.jobs[job].failures.push(which);
        }
        if self.jobs[job].kids > 0 {
            self.cancel(job, Why::Failure);
        }
        self.body_over(job, Body::Failed);
    }

    fn body_over(&mut self, job: usize, body: Body) {
        let Job { kind, task, .. } = self.jobs[job];
        let undelivered = kind == Kind::Task && !self.requests[task].pending.is_empty();
        if undelivered && body == Body::Value {
            // Undelivered when the body returns: that ends it, whatever is taken
            // back after this.
            let requests = &mut self.requests[task];
            requests.delivered.clone_from(&requests.pending);
            self.cancel(job, Why::Interrupted);
        }
        self.jobs[job].body = body;
        if std::mem::take(&mut self.jobs[job].guarded) && self.jobs[job].mark.is_some() {
            self.effect(job);
        }
        self.maybe_end(job);
    }

    fn maybe_end(&mut self, job: usize) {
        let j = &self.jobs[job];
        if j.body == Body::Running || j.kids > 0 || j.ended.is_some() {
            return;
        }
        if j.services > 0 {
            // All of them at once, when nobody else is left.
            if !std::mem::replace(&mut self.jobs[job].services_stopped, true) {
                for child in 0..self.jobs.len() {
                    if self.jobs[child].parent == Some(job) && self.jobs[child].service {
                        self.cancel(child, Why::Dropped);
                    }
                }
            }
            return;
        }
        match j.kind {
            Kind::Task => self.end_task(job),
            _ => self.end_scope(job),
        }
    }

    fn finish(&mut self, job: usize, state: &'static str, failures: Vec<usize>) {
        self.jobs[job].ended = Some(Ended {
            state,
            at: self.now,
            failures,
        });
        let service = self.jobs[job].service;
        if let Some(parent) = self.jobs[job].parent {
            let parent = &mut self.jobs[parent];
            *(if service {
                &mut parent.services
            } else {
                &mut parent.kids
            }) -= 1;
        }
    }

    fn end_task(&mut self, job: usize) {
        let mut failures = self.jobs[job].failures.clone();
        failures.extend(&self.jobs[job].after_deadline);
        let (parent, n) = (self.jobs[job].parent, self.jobs[job].task);
        if !failures.is_empty() {
            if let Some(parent) = parent
                && !self.jobs[parent].supervisor
            {
                let p = &mut self.jobs[parent];
                let late = p.mark == Some((parent, Why::Deadline));
                let list = if late {
                    &mut p.after_deadline
                } else {
                    &mut p.failures
                };
                list.push(failures[0]);
                self.cancel(parent, Why::Failure);
            }
            self.finish(job, "Failed", failures);
        } else if let Some((origin, why)) = self.jobs[job].mark {
            let late = self.jobs[job].body == Body::Value;
            if let Some(parent) = parent
                && !late
                && origin != job
            {
                let p = &mut self.jobs[parent];
                if origin != parent {
                    p.cut_above = true;
                } else if why == Why::Deadline && p.mark == Some((parent, Why::Deadline)) {
                    p.cut_own = true;
                }
            }
            self.finish(job, if late { "Late" } else { "Cancelled" }, Vec::new());
        } else {
            self.finish(job, "Completed", Vec::new());
        }
        if let Role::Started(_) = self.plans[n].role
            && !self.works[n].ready
        {
            self.start_failed(n, None);
        }
        if let Some(waiter) = self
            .works
            .iter()
            .position(|work| work.phase == Phase::Awaiting(n))
        {
            self.await_over(waiter, n);
        }
        if let Some(parent) = parent {
            self.maybe_end(parent);
        }
    }

    /// A scope's answer goes to its caller.
    fn end_scope(&mut self, job: usize) {
        let caller = self.jobs[job].parent.expect("a scope stands in a job");
        if self.jobs[job].dropped {
            self.finish(job, "Scope", Vec::new());
            return self.maybe_end(caller);
        }
        let answer = self.verdict(job, caller);
        self.finish(job, "Scope", Vec::new());
        let n = self.jobs[job].task;
        match (self.jobs[job].kind, answer) {
            (Kind::Branch, _) => {
                self.branch_over(n, answer);
                // Those behind it are polled in the same turn, and may hear what
                // was put back.
                let ended = (0..self.plans.len())
                    .find(|&w| self.outer[w] == job || self.works[w].inner == job)
                    .expect("a branch is some plan's");
                self.hear_from(n, ended + 1);
            }
            (Kind::Start, Answer::Failed(which)) if !self.works[n].ready => {
                // The failure is that of the start, and not of the service.
                self.cancel(caller, Why::Failure);
                self.start_failed(n, Some(which));
                self.body_over(caller, Body::Cancelled);
            }
            _ => self.answered(caller, answer),
        }
    }

    /// The body of `job` ends with what it was answered.
    fn answered(&mut self, job: usize, answer: Answer) {
        match answer {
            Answer::Value => self.body_over(job, Body::Value),
            Answer::Cancelled => self.body_over(job, Body::Cancelled),
            Answer::Interrupted => {
                let told = std::mem::take(&mut self.carried);
                self.interrupted(job, told);
            }
            Answer::Failed(which) => self.body_failed(job, which),
            Answer::Lost => unreachable!("only a branch loses"),
        }
    }

    fn verdict(&mut self, job: usize, caller: usize) -> Answer {
        let answer = self.decide(job, caller);
        if self.jobs[job].body == Body::Interrupted {
            let told = self.jobs[job].told.clone();
            match answer {
                Answer::Interrupted => self.carried = told,
                _ => self.give_up(caller, &told),
            }
        }
        answer
    }

    fn decide(&mut self, job: usize, caller: usize) -> Answer {
        let j = self.jobs[job].clone();
        let own = j.mark.is_some_and(|(origin, _)| origin == job);
        let deadline = j.mark == Some((job, Why::Deadline));
        let lost = j.mark == Some((job, Why::RaceLost));
        let enclosing = self.jobs[caller].is_effective() && j.kind != Kind::Shield;
        // A timeout is a failure of the task's own, numbered after all plans.
        let timed_out = Answer::Failed(self.plans.len() + j.task);
        if let Some(&first) = j.failures.first() {
            return Answer::Failed(first);
        }
        let after_deadline = j.after_deadline.first().map(|&which| Answer::Failed(which));
        if let (false, Some(failed)) = (deadline, after_deadline) {
            return failed;
        }
        let own_cut = deadline && (j.cut_own || after_deadline.is_some());
        let cut = matches!(j.body, Body::Cancelled | Body::Interrupted) || j.cut_above || own_cut;
        // Not yet heard, and heard here if the scope's own would be the answer.
        let pending = !self.requests[j.task].pending.is_empty() && !self.is_held(caller);
        let wins = enclosing || pending || j.body == Body::Interrupted;
        if let (true, Some(failed)) = (wins && cut, after_deadline) {
            // Too late for TimedOut to give way to it, but not for Cancelled.
            return failed;
        }
        match j.body {
            Body::Value if enclosing && cut => Answer::Cancelled,
            Body::Value if !own_cut => Answer::Value,
            Body::Cancelled | Body::Interrupted if enclosing => Answer::Cancelled,
            Body::Interrupted => Answer::Interrupted,
            // Nobody hears what a loser returns: it is left for the next point.
            Body::Cancelled if lost => Answer::Lost,
            Body::Value | Body::Cancelled if deadline && pending => {
                self.deliver(j.task);
                self.carried = self.requests[j.task].delivered.clone();
                Answer::Interrupted
            }
            Body::Value | Body::Cancelled if deadline => timed_out,
            _ if own => unreachable!("nobody cancels a scope by hand here"),
            _ => unreachable!("marked from above, and nothing above is marked"),
        }
    }

    /// A branch of the task of `n` has ended.
    fn branch_over(&mut self, n: usize, answer: Answer) {
        let Wrap::Together(verb) = self.plans[n].wrap else {
            unreachable!("a branch without a combinator");
        };
        let stand = &mut self.stands[n];
        stand.left -= 1;
        let stopped = stand.cancelled == Some(Answer::Interrupted);
        let open = !stand.won && !stopped && (stand.failures.is_empty() || verb == Verb::Any);
        let decided = match answer {
            Answer::Lost => false,
            Answer::Value => {
                let first = open && verb != Verb::All;
                stand.won |= first;
                first
            }
            Answer::Cancelled | Answer::Interrupted => {
                let told = match answer {
                    Answer::Interrupted => std::mem::take(&mut self.carried),
                    _ => Vec::new(),
                };
                if open && stand.cancelled.is_none() {
                    stand.cancelled = Some(answer);
                    stand.told = told;
                    answer == Answer::Interrupted
                } else {
                    self.give_up(self.outer[n], &told);
                    false
                }
            }
            Answer::Failed(which) => {
                if !stand.won && (verb != Verb::Any || open) {
                    stand.failures.push(which);
                }
                open && verb != Verb::Any
            }
        };
        if decided {
            for job in 0..self.jobs.len() {
                let j = &self.jobs[job];
                if j.kind == Kind::Branch && j.task == n && j.ended.is_none() {
                    self.cancel(job, Why::RaceLost);
                }
            }
        }
        // The last to end may have been a loser of this very call.
        let stand = &self.stands[n];
        let task = self.outer[n];
        if stand.left > 0 || self.jobs[task].body != Body::Running {
            return;
        }
        let failed = stand.failures.first().map(|&which| Answer::Failed(which));
        let answer = match verb {
            _ if stand.won => Some(Answer::Value),
            Verb::Race | Verb::All => failed.or(stand.cancelled),
            Verb::Any => stand.cancelled.or(failed),
        }
        .unwrap_or(Answer::Value);
        let told = std::mem::take(&mut self.stands[n].told);
        match answer {
            Answer::Interrupted => self.carried = told,
            _ => self.give_up(task, &told),
        }
        self.answered(task, answer);
    }
}
