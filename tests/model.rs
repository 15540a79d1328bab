//! Random families on the simulation, compared with a small sequential model
//! of the contract.
//!
//! Every event of a program has an instant of its own, so what the contract
//! promises does not depend on the schedule: the model predicts, for each
//! task, how it ends, when, with a late value or not, and which failures it
//! carries. The simulation runs each program on several seeds.
//!
//! Interrupts are asked from outside and taken back; no body here awaits
//! another, so that passing them on is left to the conformance cases.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kinfolk_core::{
    Error, JobState, Outcome, Scope, Task, cleanup, now, scope, shield, sleep, sleep_until,
    timeout, try_shield,
};
use kinfolk_testkit::{Sim, guarded};
use proptest::prelude::*;

/// What a task's body runs its work in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrap {
    Nothing,
    Scope,
    Supervisor,
    Timeout(u64),
    Shield,
    Guard,
    /// A scope whose future is dropped at this instant, if it is not over.
    Dropped(u64),
    /// A scope that a lease keeps open until this instant.
    Leased(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Value,
    Fail,
    Panic,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WhenTold {
    /// Returns the Cancelled it was given.
    Cancelled,
    /// Returns a value all the same.
    Late,
    /// Returns an error of its own.
    Fail,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outside {
    Nothing,
    Cancel(u64),
    DropHandle(u64),
    Interrupt(u64),
    /// An interrupt, and later its revocation.
    Revoke(u64, u64),
}

/// One task of a program. Times are instants, distinct by construction.
#[derive(Clone, Debug)]
struct Plan {
    parent: Option<usize>,
    wrap: Wrap,
    work_until: u64,
    end: End,
    clean_for: u64,
    when_told: WhenTold,
    outside: Outside,
}

/// Microseconds: the whole part is chosen, the low digits tell events apart.
const UNIT: u64 = 1_000_000;

fn plans() -> impl Strategy<Value = Vec<Plan>> {
    let one = (
        any::<prop::sample::Index>(),
        0..10u8,
        1..20u64,
        0..8u8,
        0..6u64,
        0..4u8,
        0..8u8,
        1..20u64,
    );
    prop::collection::vec(one, 1..9).prop_map(|raw| {
        raw.into_iter()
            .enumerate()
            .map(
                |(n, (parent, wrap, work, end, clean, told, outside, when))| {
                    let id = n as u64;
                    let at = when * UNIT + 4 * id + 1;
                    Plan {
                        parent: (n > 0).then(|| parent.index(n)),
                        wrap: match wrap {
                            0 | 1 => Wrap::Nothing,
                            2 | 3 => Wrap::Scope,
                            4 => Wrap::Supervisor,
                            5 => Wrap::Timeout((work / 2 + when / 2) * UNIT + 4 * id + 2),
                            6 => Wrap::Shield,
                            7 => Wrap::Guard,
                            8 => Wrap::Dropped((work / 2 + when / 2 + 1) * UNIT + 4 * id + 2),
                            _ => Wrap::Leased((work / 2 + when) * UNIT + 4 * id + 2),
                        },
                        work_until: work * UNIT + 4 * id + 3,
                        end: match end {
                            0 | 1 => End::Fail,
                            2 => End::Panic,
                            _ => End::Value,
                        },
                        clean_for: clean * UNIT + id * 1000 + 500,
                        when_told: match told {
                            0 => WhenTold::Late,
                            1 => WhenTold::Fail,
                            _ => WhenTold::Cancelled,
                        },
                        outside: match outside {
                            0 => Outside::Cancel(at),
                            1 => Outside::DropHandle(at),
                            2 => Outside::Interrupt(at),
                            3 => Outside::Revoke(at, at + (work % 4) * UNIT + 4 * UNIT / 10),
                            _ => Outside::Nothing,
                        },
                    }
                },
            )
            .collect()
    })
}

/// How one task ended.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ended {
    state: &'static str,
    at: u64,
    /// The failures it carries, the first in time in front.
    failures: Vec<usize>,
}

// ---------------------------------------------------------------- the model

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Task,
    Scope,
    Shield,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Why {
    Asked,
    Deadline,
    Failure,
    Interrupted,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Body {
    Working,
    Cleaning,
    Value,
    Cancelled,
    /// It returned an interrupt.
    Interrupted,
    Failed,
}

#[derive(Clone, Debug)]
struct Job {
    kind: Kind,
    parent: Option<usize>,
    task: usize,
    supervisor: bool,
    guarded: bool,
    /// Its future was dropped half-way: nobody hears its verdict.
    dropped: bool,
    /// The job where the mark entered, and why.
    mark: Option<(usize, Why)>,
    /// Of a task: an interrupt has not been heard.
    pending: bool,
    /// What its body was told is an interrupt.
    heard: bool,
    body: Body,
    kids: usize,
    failures: Vec<usize>,
    after_deadline: Vec<usize>,
    cut_above: bool,
    cut_own: bool,
    ended: Option<Ended>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    WorkDone(usize),
    CleanDone(usize),
    Deadline(usize),
    ScopeDrop(usize),
    LeaseDrop(usize),
    Outside(usize),
    Revoked(usize),
}

struct Model<'a> {
    plans: &'a [Plan],
    jobs: Vec<Job>,
    /// The job of each task, and the job its work runs in.
    of_task: Vec<(usize, usize)>,
    events: BTreeMap<u64, Event>,
    now: u64,
}

impl<'a> Model<'a> {
    fn run(plans: &'a [Plan]) -> Vec<Ended> {
        let mut model = Model {
            plans,
            jobs: Vec::new(),
            of_task: Vec::new(),
            events: BTreeMap::new(),
            now: 0,
        };
        for (n, plan) in plans.iter().enumerate() {
            let parent = plan.parent.map(|p| model.of_task[p].1);
            let outer = model.add(Kind::Task, parent, n, false);
            let inner = match plan.wrap {
                Wrap::Nothing | Wrap::Guard => outer,
                Wrap::Scope | Wrap::Timeout(_) | Wrap::Dropped(_) | Wrap::Leased(_) => {
                    model.add(Kind::Scope, Some(outer), n, false)
                }
                Wrap::Supervisor => model.add(Kind::Scope, Some(outer), n, true),
                Wrap::Shield => model.add(Kind::Shield, Some(outer), n, false),
            };
            model.jobs[outer].guarded = plan.wrap == Wrap::Guard;
            model.of_task.push((outer, inner));
            model.at(plan.work_until, Event::WorkDone(n));
            match plan.outside {
                Outside::Nothing => {}
                Outside::Cancel(at) | Outside::DropHandle(at) | Outside::Interrupt(at) => {
                    model.at(at, Event::Outside(n));
                }
                Outside::Revoke(at, back) => {
                    model.at(at, Event::Outside(n));
                    model.at(back, Event::Revoked(n));
                }
            }
            match plan.wrap {
                Wrap::Timeout(at) => model.at(at, Event::Deadline(n)),
                Wrap::Dropped(at) => model.at(at, Event::ScopeDrop(n)),
                Wrap::Leased(at) => {
                    model.jobs[inner].kids += 1;
                    model.at(at, Event::LeaseDrop(n));
                }
                _ => {}
            }
        }
        while let Some((at, event)) = model.events.pop_first() {
            model.now = at;
            model.step(event);
        }
        (0..plans.len())
            .map(|n| {
                model.jobs[model.of_task[n].0]
                    .ended
                    .clone()
                    .expect("every task ends")
            })
            .collect()
    }

    fn add(&mut self, kind: Kind, parent: Option<usize>, task: usize, supervisor: bool) -> usize {
        if let Some(parent) = parent {
            self.jobs[parent].kids += 1;
        }
        self.jobs.push(Job {
            kind,
            parent,
            task,
            supervisor,
            guarded: false,
            dropped: false,
            mark: None,
            pending: false,
            heard: false,
            body: Body::Working,
            kids: 0,
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

    fn step(&mut self, event: Event) {
        match event {
            Event::Outside(n) => match self.plans[n].outside {
                Outside::Interrupt(_) | Outside::Revoke(..) => self.interrupt(n),
                _ => self.cancel(self.of_task[n].0, Why::Asked),
            },
            Event::Revoked(n) => self.jobs[self.of_task[n].0].pending = false,
            Event::Deadline(n) => {
                let inner = self.of_task[n].1;
                if self.jobs[inner].ended.is_none() {
                    self.cancel(inner, Why::Deadline);
                }
            }
            Event::ScopeDrop(n) => {
                let (task, inner) = self.of_task[n];
                if self.jobs[inner].ended.is_none() {
                    self.jobs[inner].dropped = true;
                    self.cancel(inner, Why::Asked);
                    self.jobs[inner].body = Body::Value;
                    self.maybe_end(inner);
                    self.body_over(task, Body::Value);
                }
            }
            Event::LeaseDrop(n) => {
                let inner = self.of_task[n].1;
                self.jobs[inner].kids -= 1;
                self.maybe_end(inner);
            }
            Event::WorkDone(n) => {
                let inner = self.of_task[n].1;
                if self.jobs[inner].body != Body::Working {
                    return;
                }
                match self.plans[n].end {
                    End::Value => self.body_over(inner, Body::Value),
                    End::Fail | End::Panic => self.body_failed(inner),
                }
            }
            Event::CleanDone(n) => {
                let inner = self.of_task[n].1;
                if self.jobs[inner].body != Body::Cleaning {
                    return;
                }
                match self.plans[n].when_told {
                    WhenTold::Cancelled if self.jobs[inner].heard => self.interrupted(inner),
                    WhenTold::Cancelled => self.body_over(inner, Body::Cancelled),
                    WhenTold::Late => self.body_over(inner, Body::Value),
                    WhenTold::Fail => self.body_failed(inner),
                }
            }
        }
    }

    /// Asks task `n`: heard if its body waits in a point that nothing protects,
    /// else kept.
    fn interrupt(&mut self, n: usize) {
        let (task, inner) = self.of_task[n];
        let t = &self.jobs[task];
        if !matches!(t.body, Body::Working | Body::Cleaning) {
            return;
        }
        let told = t.mark.is_some() && !t.guarded;
        let held = t.guarded || self.jobs[inner].kind == Kind::Shield;
        if !told && !held && self.jobs[inner].body == Body::Working {
            self.jobs[inner].heard = true;
            self.jobs[inner].body = Body::Cleaning;
            let at = self.now + self.plans[n].clean_for;
            self.at(at, Event::CleanDone(n));
        } else {
            self.jobs[task].pending = true;
        }
    }

    /// The body of `job` returns an interrupt.
    fn interrupted(&mut self, job: usize) {
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

    /// A mark takes effect: it goes on to the children, and tells the body.
    fn effect(&mut self, job: usize) {
        let (origin, why) = self.jobs[job].mark.expect("marked");
        for child in 0..self.jobs.len() {
            let c = &self.jobs[child];
            if c.parent == Some(job)
                && c.ended.is_none()
                && c.mark.is_none()
                && c.kind != Kind::Shield
            {
                self.mark(child, origin, why);
            }
        }
        let task = self.jobs[job].task;
        if self.of_task[task].1 == job && self.jobs[job].body == Body::Working {
            self.jobs[job].body = Body::Cleaning;
            let at = self.now + self.plans[task].clean_for;
            self.at(at, Event::CleanDone(task));
        }
    }

    fn body_failed(&mut self, job: usize) {
        let task = self.jobs[job].task;
        self.jobs[job].failures.push(task);
        if self.jobs[job].kids > 0 {
            self.cancel(job, Why::Failure);
        }
        self.body_over(job, Body::Failed);
    }

    fn body_over(&mut self, job: usize, body: Body) {
        if self.jobs[job].pending && body == Body::Value {
            // Undelivered when the body returns.
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
        let over = !matches!(j.body, Body::Working | Body::Cleaning);
        if over && j.kids == 0 && j.ended.is_none() {
            match j.kind {
                Kind::Task => self.end_task(job),
                Kind::Scope | Kind::Shield => self.end_scope(job),
            }
        }
    }

    fn finish(&mut self, job: usize, state: &'static str, failures: Vec<usize>) {
        self.jobs[job].ended = Some(Ended {
            state,
            at: self.now,
            failures,
        });
        if let Some(parent) = self.jobs[job].parent {
            self.jobs[parent].kids -= 1;
        }
    }

    fn end_task(&mut self, job: usize) {
        let mut failures = self.jobs[job].failures.clone();
        failures.extend(&self.jobs[job].after_deadline);
        let parent = self.jobs[job].parent;
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
        if let Some(parent) = parent {
            self.maybe_end(parent);
        }
    }

    /// The verdict of a scope becomes the result of its task's body.
    fn end_scope(&mut self, job: usize) {
        let j = self.jobs[job].clone();
        let task = j.parent.expect("a scope stands in a task");
        let own = j.mark.is_some_and(|(origin, _)| origin == job);
        let deadline = j.mark == Some((job, Why::Deadline));
        let t = &self.jobs[task];
        let enclosing = t.mark.is_some() && !t.guarded && j.kind != Kind::Shield;
        self.finish(job, "Scope", Vec::new());
        if j.dropped {
            return self.maybe_end(task);
        }
        // Which failures the call returns with; a timeout is one of the task's
        // own, numbered after all tasks.
        let timed_out = self.plans.len() + j.task;
        if !j.failures.is_empty() || (!deadline && !j.after_deadline.is_empty()) {
            self.jobs[task].failures.push(if j.failures.is_empty() {
                j.after_deadline[0]
            } else {
                j.failures[0]
            });
            return self.scope_failed(task);
        }
        let own_cut = deadline && (j.cut_own || !j.after_deadline.is_empty());
        let cut = matches!(j.body, Body::Cancelled | Body::Interrupted) || j.cut_above || own_cut;
        // Not yet heard, and heard here if the scope's own would be the answer.
        let pending = self.jobs[task].pending;
        let wins = enclosing || pending || j.body == Body::Interrupted;
        if wins && cut && !j.after_deadline.is_empty() {
            // Too late for TimedOut to give way to it, but not for Cancelled.
            self.jobs[task].failures.push(j.after_deadline[0]);
            return self.scope_failed(task);
        }
        match j.body {
            Body::Value if enclosing && cut => self.body_over(task, Body::Cancelled),
            Body::Value if own_cut && pending => self.interrupted(task),
            Body::Value if own_cut => {
                self.jobs[task].failures.push(timed_out);
                self.scope_failed(task);
            }
            Body::Value => self.body_over(task, Body::Value),
            _ if enclosing => self.body_over(task, Body::Cancelled),
            Body::Interrupted => self.interrupted(task),
            _ if deadline && pending => self.interrupted(task),
            _ if deadline => {
                self.jobs[task].failures.push(timed_out);
                self.scope_failed(task);
            }
            _ if own => unreachable!("nobody cancels a scope by hand here"),
            _ => unreachable!("marked from above, and nothing above is marked"),
        }
    }

    fn scope_failed(&mut self, task: usize) {
        if self.jobs[task].kids > 0 {
            self.cancel(task, Why::Failure);
        }
        self.body_over(task, Body::Failed);
    }
}

// ------------------------------------------------------- the same, for real

type Board = Arc<Mutex<Vec<Option<Task<()>>>>>;

/// The work of a task, in whatever it is wrapped in.
async fn work(n: usize, plan: Plan, start: std::time::Instant) -> kinfolk_core::Result<()> {
    match sleep_until(start + Duration::from_micros(plan.work_until)).await {
        Ok(()) => match plan.end {
            End::Value => Ok(()),
            End::Fail => Err(Error::msg(format!("failure {n}"))),
            End::Panic => panic!("failure {n}"),
        },
        Err(told) => {
            cleanup(sleep(Duration::from_micros(plan.clean_for))).await?;
            match plan.when_told {
                WhenTold::Cancelled => Err(told.into()),
                WhenTold::Late => Ok(()),
                WhenTold::Fail => Err(Error::msg(format!("failure {n}"))),
            }
        }
    }
}

fn body(
    n: usize,
    plans: Arc<Vec<Plan>>,
    board: Board,
    start: std::time::Instant,
) -> std::pin::Pin<Box<dyn Future<Output = kinfolk_core::Result<()>> + Send>> {
    Box::pin(async move {
        let plan = plans[n].clone();
        let children = {
            let (plans, board) = (plans.clone(), board.clone());
            move |s: &Scope| {
                for child in 0..plans.len() {
                    if plans[child].parent == Some(n) {
                        let body = body(child, plans.clone(), board.clone(), start);
                        let task = s.task(format!("t{child}")).spawn(body);
                        board.lock().unwrap()[child] = Some(task);
                    }
                }
            }
        };
        let here = || Scope::current().expect("inside a job");
        match plan.wrap {
            Wrap::Nothing => {
                children(&here());
                work(n, plan, start).await
            }
            Wrap::Guard => {
                children(&here());
                try_shield(work(n, plan, start)).await?
            }
            Wrap::Scope => {
                scope(async |s| {
                    children(&s);
                    work(n, plan, start).await
                })
                .await
            }
            Wrap::Dropped(at) => {
                let until = start + Duration::from_micros(at);
                let inner = Box::pin(scope(async |s| {
                    children(&s);
                    work(n, plan, start).await
                }));
                // A wait that no cancel ends, so that only `at` decides.
                let timer = Box::pin(shield(sleep_until(until)));
                match futures_util::future::select(inner, timer).await {
                    futures_util::future::Either::Left((result, _)) => result,
                    futures_util::future::Either::Right(_) => Ok(()),
                }
            }
            Wrap::Leased(at) => {
                scope(async |s| {
                    children(&s);
                    let lease = s.lease().expect("the scope is open");
                    let until = start + Duration::from_micros(at);
                    kinfolk_core::detach(async move {
                        shield(sleep_until(until)).await?;
                        drop(lease);
                        Ok::<_, Error>(())
                    });
                    work(n, plan, start).await
                })
                .await
            }
            Wrap::Supervisor => {
                Scope::build()
                    .supervisor()
                    .run(async |s| {
                        children(&s);
                        work(n, plan, start).await
                    })
                    .await
            }
            Wrap::Timeout(at) => {
                let limit = (start + Duration::from_micros(at)) - now();
                timeout(limit, async {
                    children(&here());
                    work(n, plan, start).await
                })
                .await
            }
            Wrap::Shield => {
                shield(async {
                    children(&here());
                    work(n, plan, start).await
                })
                .await
            }
        }
    })
}

fn number(error: &Error, plans: usize) -> usize {
    let words = error.to_string();
    match words.split("failure ").nth(1) {
        Some(rest) => {
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().expect("a failure's number")
        }
        None => {
            // A timeout: its path names the task.
            let task = error
                .path()
                .iter()
                .rev()
                .find(|name| name.starts_with('t') && !name.contains('@'));
            plans
                + task.expect("a timeout in a task")[1..]
                    .parse::<usize>()
                    .expect("its number")
        }
    }
}

/// Waits for the end of a job, until `at`.
async fn ends_before(job: &kinfolk_core::Job, start: std::time::Instant, at: u64) -> bool {
    let until = (start + Duration::from_micros(at)).saturating_duration_since(now());
    timeout(until, async { Ok::<_, Error>(job.join().await?) })
        .await
        .is_ok()
}

fn for_real(plans: &[Plan], seed: u64) -> (Vec<Ended>, Sim) {
    let mut sim = Sim::builder(seed)
        .on_failure(|_| {})
        .on_forced(|_| {})
        .build();
    let shared = Arc::new(plans.to_vec());
    let board: Board = Arc::new(Mutex::new((0..plans.len()).map(|_| None).collect()));
    let ended: Arc<Mutex<Vec<Option<Ended>>>> = Arc::new(Mutex::new(vec![None; plans.len()]));
    let (out, count) = (ended.clone(), plans.len());
    sim.outcome(async move {
        let start = now();
        let main = Scope::current().expect("inside a job");
        let root = Scope::build().supervisor().run(async |s| {
            let first = s
                .task("t0")
                .spawn(body(0, shared.clone(), board.clone(), start));
            board.lock().unwrap()[0] = Some(first);
            // Watchers are children of main, so that no cancel of the program
            // reaches them.
            kinfolk_core::yield_now().await?;
            sleep(Duration::from_nanos(1)).await?;
            for n in 0..count {
                let task = board.lock().unwrap()[n]
                    .take()
                    .expect("spawned at the start");
                let (plan, out) = (shared[n].clone(), out.clone());
                main.launch(async move {
                    let job = task.job();
                    let mut kept = Some(task);
                    let at = match plan.outside {
                        Outside::Cancel(at)
                        | Outside::DropHandle(at)
                        | Outside::Interrupt(at)
                        | Outside::Revoke(at, _) => Some(at),
                        Outside::Nothing => None,
                    };
                    if let Some(at) = at
                        && !ends_before(&job, start, at).await
                    {
                        match plan.outside {
                            Outside::Cancel(_) => {
                                job.cancel("outside");
                            }
                            Outside::Interrupt(_) => {
                                job.interrupt("outside");
                            }
                            Outside::Revoke(_, back) => {
                                job.interrupt("outside");
                                if !ends_before(&job, start, back).await {
                                    job.uninterrupt();
                                }
                            }
                            _ => kept = None,
                        }
                    }
                    let joined = job.join().await?;
                    let at = (now() - start).as_micros() as u64;
                    let outcome = match kept {
                        Some(task) => task.outcome().await?,
                        // The handle is gone, and with it a late value.
                        None => joined,
                    };
                    let (state, failures) = match outcome {
                        Outcome::Completed(()) => ("Completed", Vec::new()),
                        Outcome::Cancelled { late: Some(()), .. } => ("Late", Vec::new()),
                        Outcome::Cancelled { late: None, .. } => ("Cancelled", Vec::new()),
                        Outcome::Failed(error) => ("Failed", {
                            let mut all = vec![number(&error, count)];
                            all.extend(error.suppressed().iter().map(|e| number(e, count)));
                            all
                        }),
                    };
                    assert!(job.state().is_terminal() && job.state() != JobState::New);
                    out.lock().unwrap()[n] = Some(Ended {
                        state,
                        at,
                        failures,
                    });
                    Ok::<_, Error>(())
                });
            }
            Ok(())
        });
        root.await?;
        Ok::<_, Error>(())
    })
    .completed()
    .unwrap_or_else(|| panic!("main did not complete with seed {seed}"));
    let ended = ended
        .lock()
        .unwrap()
        .iter()
        .map(|e| e.clone().expect("watched to its end"))
        .collect();
    (ended, sim)
}

fn check(plans: &[Plan], seed: u64) {
    let expected = Model::run(plans);
    let (seen, sim) = for_real(plans, seed);
    for (n, (seen, expected)) in seen.iter().zip(&expected).enumerate() {
        let dropped = matches!(plans[n].outside, Outside::DropHandle(_));
        let state = match expected.state {
            // Nobody could take the late value of a dropped handle.
            "Late" if dropped && seen.state == "Cancelled" => "Cancelled",
            state => state,
        };
        let same = seen.state == state
            && seen.at == expected.at
            && seen.failures.first() == expected.failures.first();
        assert!(
            same,
            "seed {seed}, task {n}: expected {expected:?}, saw {seen:?}\n{plans:#?}"
        );
    }
    sim.assert_nothing_left();
    sim.finish();
}

fn cases() -> u32 {
    std::env::var("KINFOLK_CASES")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(20_000)
}

#[test]
fn random_families_end_as_the_model_says() {
    guarded("random_families_end_as_the_model_says", |_| {
        std::panic::set_hook(Box::new(|info| {
            // Planned panics are part of the programs.
            if !info.to_string().contains("failure ") {
                eprintln!("{info}");
            }
        }));
        let config = ProptestConfig {
            cases: cases(),
            failure_persistence: None,
            ..ProptestConfig::default()
        };
        let mut runner = proptest::test_runner::TestRunner::new_with_rng(
            config,
            proptest::test_runner::TestRng::deterministic_rng(
                proptest::test_runner::RngAlgorithm::ChaCha,
            ),
        );
        runner
            .run(&(plans(), 0..1000u64), |(plans, seed)| {
                let checked = std::panic::catch_unwind(|| check(&plans, seed));
                checked.map_err(|payload| {
                    let words = payload
                        .downcast_ref::<String>()
                        .cloned()
                        .unwrap_or_else(|| "a panic".into());
                    TestCaseError::fail(words)
                })
            })
            .unwrap_or_else(|error| panic!("{error}"));
    });
}
