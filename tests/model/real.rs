//! A program, run for real on the simulation.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kinfolk_core::{
    Error, ErrorKind, Job, JobState, NeverReady, Outcome, Ready, Result, Scope, Task, all, any,
    cleanup, current_job, now, race, scope, shield, sleep, sleep_until, timeout, try_shield,
};
use kinfolk_sync::{Mutex as Lock, mpmc};
use kinfolk_testkit::Sim;

use crate::program::{
    CLOSES, End, Ended, Hand, Outside, Plan, Role, Use, Verb, WhenTold, Wrap, room,
};

type Boxed = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// The job of a plan, and its handle unless another job has it.
type Seen = (Job, Option<Task<()>>);

/// What a program shares.
#[derive(Clone)]
struct World {
    plans: Arc<Vec<Plan>>,
    start: Instant,
    board: Arc<Mutex<Vec<Option<Seen>>>>,
    /// Handles of services that are ready, and of tasks that were not awaited
    /// to the end.
    kept: Arc<Mutex<Vec<Task<()>>>>,
    /// How often the lock was held to the end.
    lock: Arc<Lock<usize>>,
    channel: (mpmc::Sender<usize>, mpmc::Receiver<usize>),
    hands: Arc<Mutex<Vec<Option<Hand>>>>,
}

/// True if the body that awaits or starts the task has its handle.
pub fn has_no_handle(plans: &[Plan], n: usize) -> bool {
    matches!(plans[n].role, Role::Started(_)) || plans.iter().any(|plan| plan.awaits == Some(n))
}

impl World {
    fn at(&self, nanos: u64) -> Instant {
        self.start + Duration::from_nanos(nanos)
    }

    fn now(&self) -> u64 {
        (now() - self.start).as_nanos() as u64
    }

    /// Puts the task of `n` on the board; gives the handle to the job that awaits it.
    fn announce(&self, n: usize, task: Task<()>) -> Option<Task<()>> {
        let job = task.job();
        let (ours, theirs) = match has_no_handle(&self.plans, n) {
            true => (None, Some(task)),
            false => (Some(task), None),
        };
        self.board.lock().unwrap()[n] = Some((job, ours));
        theirs
    }

    /// Everything that a plan's work does, in the scope it runs in.
    fn work(self, n: usize, ready: Option<Ready<()>>) -> Boxed {
        Box::pin(async move {
            let here = Scope::current().expect("inside a job");
            let plan = &self.plans[n];
            let mut awaited = self.children(n, &here);
            let done = self.clone().does(n, &here, ready, &mut awaited).await;
            // Not dropped: if it has not been awaited, it goes on.
            self.kept.lock().unwrap().extend(awaited);
            match done {
                Err(told) if told.is_cancelled() => {
                    cleanup(sleep(Duration::from_nanos(plan.clean_for))).await?;
                    match plan.when_told {
                        WhenTold::Cancelled => Err(told),
                        WhenTold::Late => Ok(()),
                        WhenTold::Fail => Err(failure(n)),
                    }
                }
                // What it waited for was stopped, or never got ready.
                Err(error)
                    if error.kind() == ErrorKind::Stopped
                        || error.downcast_ref::<NeverReady>().is_some() =>
                {
                    Err(failure(n))
                }
                Err(error) => Err(error),
                Ok(()) => match plan.end {
                    End::Value => Ok(()),
                    End::Fail => Err(failure(n)),
                    End::Panic => panic!("failure {n}"),
                },
            }
        })
    }

    /// What comes before the end of the work.
    async fn does(
        self,
        n: usize,
        here: &Scope,
        ready: Option<Ready<()>>,
        awaited: &mut Option<Task<()>>,
    ) -> Result<()> {
        let plan = &self.plans[n];
        for child in 0..self.plans.len() {
            if self.plans[child].parent == Some(n)
                && matches!(self.plans[child].role, Role::Started(_))
            {
                let world = self.clone();
                let start = here.task(format!("t{child}")).start_service(move |ready| {
                    Box::pin(async move {
                        let job = current_job().and_then(|scope| scope.parent());
                        let job = job.expect("its scope stands in its task");
                        world.board.lock().unwrap()[child] = Some((job, None));
                        world.work(child, Some(ready)).await
                    }) as Boxed
                });
                let ((), task) = start.await?;
                self.kept.lock().unwrap().push(task);
            }
        }
        if let Role::Started(at) = plan.role
            && plan.gets_ready()
        {
            sleep_until(self.at(at)).await?;
            ready.expect("a service that is started").ready(());
        }
        match awaited {
            Some(task) => task.await?,
            None => sleep_until(self.at(plan.work_until)).await?,
        }
        self.uses(n).await
    }

    /// What it does with the lock or the channel.
    async fn uses(&self, n: usize) -> Result<()> {
        let shared = self.plans[n].shared;
        if shared.what == Use::Nothing {
            return Ok(());
        }
        sleep(Duration::from_nanos(shared.comes_after)).await?;
        let stays = || sleep(Duration::from_nanos(shared.stays_for));
        let (tx, rx) = &self.channel;
        let note = |hand| self.hands.lock().unwrap()[n] = Some(hand);
        match shared.what {
            Use::Nothing => {}
            Use::Lock => {
                let mut guard = self.lock.lock().await?;
                stays().await?;
                *guard += 1;
                note(Hand::Held(self.now()));
                return Ok(());
            }
            Use::Send => match tx.send(n).await {
                Ok(()) => note(Hand::Sent(self.now())),
                Err(error) => {
                    assert_eq!(*error.get_ref(), n, "it is the value that was sent");
                    note(Hand::Back(self.now()));
                    if error.is_cancelled() {
                        return Err(error.into());
                    }
                }
            },
            Use::Recv => note(match rx.recv().await? {
                Some(value) => Hand::Received(value, self.now()),
                None => Hand::Closed(self.now()),
            }),
        }
        Ok(stays().await?)
    }

    /// Spawns the children of `n`; gives the one that it awaits.
    fn children(&self, n: usize, here: &Scope) -> Option<Task<()>> {
        let mut awaited = None;
        for child in 0..self.plans.len() {
            if self.plans[child].parent == Some(n) {
                let spawner = here.task(format!("t{child}"));
                let body = self.clone().body(child);
                let task = match self.plans[child].role {
                    Role::Task => spawner.spawn(body),
                    Role::Service => spawner.spawn_service(body),
                    Role::Started(_) | Role::Branch => continue,
                };
                awaited = awaited.or(self.announce(child, task));
            }
        }
        awaited
    }

    /// The body of a task or of a branch.
    fn body(self, n: usize) -> Boxed {
        Box::pin(async move {
            let work = self.clone().work(n, None);
            match self.plans[n].wrap {
                Wrap::Nothing => work.await,
                Wrap::Guard => try_shield(work).await?,
                Wrap::Scope => scope(async |_| work.await).await,
                Wrap::Supervisor => Scope::build().supervisor().run(async |_| work.await).await,
                Wrap::Shield => shield(work).await,
                Wrap::Timeout(at) => timeout(self.at(at) - now(), work).await,
                Wrap::Dropped(at) => {
                    let inner = Box::pin(scope(async |_| work.await));
                    // A wait that no cancel ends, so that only `at` decides.
                    let timer = Box::pin(shield(sleep_until(self.at(at))));
                    match futures_util::future::select(inner, timer).await {
                        futures_util::future::Either::Left((result, _)) => result,
                        futures_util::future::Either::Right(_) => Ok(()),
                    }
                }
                Wrap::Leased(at) => {
                    scope(async |s| {
                        let lease = s.lease().expect("the scope is open");
                        let until = self.at(at);
                        kinfolk_core::detach(async move {
                            shield(sleep_until(until)).await?;
                            drop(lease);
                            Ok::<_, Error>(())
                        });
                        work.await
                    })
                    .await
                }
                Wrap::Together(verb) => {
                    let others = (0..self.plans.len()).filter(|&other| {
                        self.plans[other].parent == Some(n)
                            && self.plans[other].role == Role::Branch
                    });
                    let others = others.map(|other| self.clone().body(other));
                    together(verb, std::iter::once(work).chain(others).collect()).await
                }
            }
        })
    }
}

fn failure(n: usize) -> Error {
    Error::msg(format!("failure {n}"))
}

/// Of tuples, whose branches are polled in their order: so it is known which one
/// hears an interrupt.
async fn together(verb: Verb, branches: Vec<Boxed>) -> Result<()> {
    let mut branches = branches.into_iter();
    let mut next = || branches.next();
    match (verb, next(), next(), next()) {
        (Verb::Race, Some(a), Some(b), Some(c)) => race((a, b, c)).await,
        (Verb::Race, Some(a), Some(b), None) => race((a, b)).await,
        (Verb::Race, Some(a), ..) => race([a]).await,
        (Verb::All, Some(a), Some(b), Some(c)) => all((a, b, c)).await.map(drop),
        (Verb::All, Some(a), Some(b), None) => all((a, b)).await.map(drop),
        (Verb::All, Some(a), ..) => all([a]).await.map(drop),
        (Verb::Any, Some(a), Some(b), Some(c)) => any((a, b, c)).await,
        (Verb::Any, Some(a), Some(b), None) => any((a, b)).await,
        (Verb::Any, Some(a), ..) => any([a]).await,
        (_, None, ..) => unreachable!("the work is a branch"),
    }
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
                + task.unwrap_or_else(|| panic!("a timeout in a task: {error:?}"))[1..]
                    .parse::<usize>()
                    .expect("its number")
        }
    }
}

/// Waits for the end of a job, until `at`.
async fn ends_before(job: &Job, world: &World, at: u64) -> bool {
    let until = world.at(at).saturating_duration_since(now());
    timeout(until, async { Ok::<_, Error>(job.join().await?) })
        .await
        .is_ok()
}

/// Does to a task what its plan says, and waits for its end.
async fn watch(world: &World, n: usize, job: Job, mut kept: Option<Task<()>>) -> Result<Ended> {
    match world.plans[n].outside {
        Outside::Nothing => {}
        Outside::Cancel(at) => {
            if !ends_before(&job, world, at).await {
                job.cancel("outside");
            }
        }
        Outside::DropHandle(at) => {
            if !ends_before(&job, world, at).await {
                kept = None;
            }
        }
        Outside::Interrupt(at) => {
            if !ends_before(&job, world, at).await {
                job.interrupt("outside");
            }
        }
        Outside::Revoke(at, back) => {
            if !ends_before(&job, world, at).await {
                job.interrupt("outside");
                if !ends_before(&job, world, back).await {
                    job.uninterrupt();
                }
            }
        }
    }
    let joined = job.join().await?;
    let at = world.now();
    let outcome = match kept {
        Some(task) => task.outcome().await?,
        // The handle is elsewhere, and with it a late value.
        None => joined,
    };
    let count = world.plans.len();
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
    Ok(Ended {
        state,
        at,
        failures,
    })
}

/// How the task of each plan ended, none for a branch; and what came of each plan's use of the
/// lock or the channel.
pub fn run(plans: &[Plan], seed: u64) -> (Vec<Option<Ended>>, Vec<Option<Hand>>, Sim) {
    let mut sim = Sim::builder(seed)
        .on_failure(|_| {})
        .on_forced(|_| {})
        .build();
    let plans = Arc::new(plans.to_vec());
    let ended: Arc<Mutex<Vec<Option<Ended>>>> = Arc::new(Mutex::new(vec![None; plans.len()]));
    let out = ended.clone();
    let hands = Arc::new(Mutex::new(vec![None; plans.len()]));
    let lock = Arc::new(Lock::new(0));
    let channel = mpmc::channel(room(&plans));
    let (noted, locked, left) = (hands.clone(), lock.clone(), channel.1.clone());
    sim.outcome(async move {
        let main = Scope::current().expect("inside a job");
        let world = World {
            start: now(),
            board: Arc::new(Mutex::new(plans.iter().map(|_| None).collect())),
            kept: Arc::default(),
            lock,
            channel,
            hands: noted,
            plans,
        };
        let (closes, rx) = (world.at(CLOSES), world.channel.1.clone());
        main.launch(async move {
            sleep_until(closes).await?;
            rx.close();
            Ok::<_, Error>(())
        });
        let root = Scope::build().supervisor().run(async |s| {
            world.announce(0, s.task("t0").spawn(world.clone().body(0)));
            // Watchers are children of main, so that no cancel of the program
            // reaches them.
            kinfolk_core::yield_now().await?;
            sleep(Duration::from_nanos(1)).await?;
            for n in 0..world.plans.len() {
                if world.plans[n].role == Role::Branch {
                    continue;
                }
                let seen = world.board.lock().unwrap()[n].take();
                let (job, task) = seen.expect("spawned at the start");
                let (world, out) = (world.clone(), out.clone());
                main.launch(async move {
                    let ended = watch(&world, n, job, task).await?;
                    out.lock().unwrap()[n] = Some(ended);
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
    let ended = ended.lock().unwrap().clone();
    let hands = hands.lock().unwrap().clone();
    // Nothing is lost: what was sent was received, or is still there.
    let count = |like: fn(&Hand) -> bool| hands.iter().flatten().filter(|hand| like(hand)).count();
    let sent = count(|hand| matches!(hand, Hand::Sent(_)));
    let received = count(|hand| matches!(hand, Hand::Received(..)));
    assert_eq!(sent, received + left.len(), "{hands:?}");
    let held = count(|hand| matches!(hand, Hand::Held(_)));
    assert_eq!(*locked.try_lock().expect("the lock is lost"), held);
    (ended, hands, sim)
}
