//! handle-10: the span of `tracing` that a child inherits, on every host. The
//! subscriber here only keeps count: which spans live, which one each thread is in.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use kinfolk::testkit::Sim;
use kinfolk::{
    Error, Local, Main, Outcome, Patience, Result, Runtime, Scope, TaskSet, all, cleanup,
    current_job, detach, launch, local_scope, on, park, scope, shield, sleep, spawn, timeout,
    yield_now,
};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Instrument, Metadata, Span, Subscriber, info_span};
use tracing_core::span::Current;

const MS: Duration = Duration::from_millis(1);

/// The living spans, each with how often it is held.
static LIVING: Mutex<Option<HashMap<u64, (&'static Metadata<'static>, u32)>>> = Mutex::new(None);

thread_local! {
    /// The spans this thread is in, the innermost last.
    static INSIDE: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

fn living<R>(f: impl FnOnce(&mut HashMap<u64, (&'static Metadata<'static>, u32)>) -> R) -> R {
    f(LIVING
        .lock()
        .expect("not poisoned")
        .get_or_insert_with(HashMap::new))
}

struct Counting(AtomicU64);

impl Subscriber for Counting {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let id = self.0.fetch_add(1, SeqCst);
        living(|living| living.insert(id, (span.metadata(), 1)));
        Id::from_u64(id)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, span: &Id) {
        INSIDE.with_borrow_mut(|inside| inside.push(span.into_u64()));
    }

    fn exit(&self, span: &Id) {
        INSIDE.with_borrow_mut(|inside| assert_eq!(inside.pop(), Some(span.into_u64())));
    }

    fn clone_span(&self, span: &Id) -> Id {
        living(|living| living.get_mut(&span.into_u64()).expect("it lives").1 += 1);
        span.clone()
    }

    fn try_close(&self, span: Id) -> bool {
        living(|living| {
            let held = living.get_mut(&span.into_u64()).expect("it lives");
            held.1 -= 1;
            held.1 == 0 && living.remove(&span.into_u64()).is_some()
        })
    }

    fn current_span(&self) -> Current {
        let Some(id) = INSIDE.with_borrow(|inside| inside.last().copied()) else {
            return Current::none();
        };
        Current::new(Id::from_u64(id), living(|living| living[&id].0))
    }
}

/// The name of the span that this code runs in.
fn here() -> &'static str {
    Span::current().metadata().map_or("none", Metadata::name)
}

async fn ask() -> &'static str {
    here()
}

/// Asked at every one of its polls.
async fn ask_often() -> Result<&'static str> {
    let first = here();
    for _ in 0..20 {
        yield_now().await?;
        assert_eq!(here(), first);
    }
    Ok(first)
}

/// True if the span is no longer held.
fn is_closed(span: &Id) -> bool {
    !living(|living| living.contains_key(&span.into_u64()))
}

/// Says in its drop in which span that happens.
struct SaysWhere(Arc<Mutex<&'static str>>);

impl Drop for SaysWhere {
    fn drop(&mut self) {
        *self.0.lock().expect("not poisoned") = here();
    }
}

fn says_where() -> (SaysWhere, Arc<Mutex<&'static str>>) {
    let said = Arc::new(Mutex::new("not dropped"));
    (SaysWhere(said.clone()), said)
}

fn subscribe() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing::subscriber::set_global_default(Counting(AtomicU64::new(1))).expect("the first");
    });
}

/// Runs a case on every host, from outside every span.
fn on_every_host<B>(case: fn() -> B)
where
    B: Future<Output = Result<()>> + Send + 'static,
{
    subscribe();
    for seed in 0..20 {
        Sim::seeded(seed).run(case()).unwrap();
    }
    for workers in [0, 2] {
        let rt = Runtime::builder().workers(workers).build().unwrap();
        rt.block_on(case()).unwrap();
        drop(rt);
    }
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap();
    tokio.block_on(async {
        kinfolk::tokio::run(case()).await.unwrap();
        kinfolk::tokio::Root::current().shutdown().await.unwrap();
    });
    assert_eq!(here(), "none");
}

/// handle-10: a child runs in the span it was spawned in, whatever the verb, at
/// each of its polls; and so does what it spawns itself.
#[test]
fn handle_10_a_child_runs_in_the_span_of_its_spawn() {
    async fn case() -> Result<()> {
        assert_eq!((here(), spawn(ask()).await?), ("none", "none"));
        let request = info_span!("request");
        let inside = async {
            assert_eq!(spawn(ask_often()).await?, "request");
            assert_eq!(spawn(async { spawn(ask()).await }).await?, "request");
            let _ = launch(async { assert_eq!(here(), "request") })
                .join()
                .await?;
            scope(async |s| {
                assert_eq!(s.spawn_now(ask_often()).await?, "request");
                assert_eq!(s.spawn_atomic(ask()).await?, "request");
                assert_eq!(s.spawn_service(ask()).await?, "request");
                assert_eq!(s.try_spawn(ask()).unwrap().await?, "request");
                assert_eq!(s.task("named").spawn(ask()).await?, "request");
                Ok(())
            })
            .await?;
            let mut set = TaskSet::new().limit(1)?;
            set.spawn(ask_often()).await?;
            set.spawn(ask_often()).await?;
            while let Some(got) = set.next().await? {
                assert_eq!(got?, "request");
            }
            Ok::<_, Error>(())
        };
        inside.instrument(request.clone()).await?;
        // It is where it was spawned that counts, not where it is started.
        scope(async |s| {
            let lazy = request.in_scope(|| s.spawn_lazy(ask()));
            assert_eq!((here(), lazy.await?), ("none", "request"));
            Ok(())
        })
        .await?;
        assert_eq!(spawn(ask()).await?, "none");
        Ok(())
    }
    on_every_host(case);
}

/// handle-10: scopes and branches are polled inside their task, and so in its
/// span. A local child is spawned, and inherits as a task does.
#[test]
fn handle_10_scopes_inside_the_task_keep_its_span() {
    async fn case() -> Result<()> {
        static USER: Local<u32> = Local::new();
        let inside = async {
            assert_eq!(scope(async |_| Ok(ask().await)).await?, "task");
            assert_eq!(timeout(MS, ask_often()).await?, "task");
            assert_eq!(shield(ask_often()).await?, "task");
            assert_eq!(cleanup(ask()).await?, "task");
            assert_eq!(USER.scope(1, ask()).await?, "task");
            assert_eq!(all((ask_often(), ask())).await?, ("task", "task"));
            let own = ask_often().instrument(info_span!("own"));
            assert_eq!(all((own, ask_often())).await?, ("own", "task"));
            let text = String::from("borrowed");
            local_scope(async |s| {
                let child = async || Ok::<_, Error>((ask_often().await?, text.len()));
                let own = info_span!("own").in_scope(|| s.spawn(child()));
                assert_eq!(s.spawn(child()).await?, ("task", 8));
                assert_eq!(own.await?, ("own", 8));
                Ok(())
            })
            .await?;
            Ok::<_, Error>(here())
        };
        let task = info_span!("task").in_scope(|| spawn(inside));
        assert_eq!(task.await?, "task");
        Ok(())
    }
    on_every_host(case);
}

/// handle-10: a timer's runs are in the span in which it was set.
#[test]
fn handle_10_runs_of_a_timer_are_in_its_span() {
    async fn case() -> Result<()> {
        let said = Arc::new(Mutex::new(Vec::new()));
        let words = said.clone();
        scope(async |s| {
            let token = info_span!("timer").in_scope(|| {
                s.interval(MS, move || {
                    let words = words.clone();
                    async move { words.lock().expect("not poisoned").push(here()) }
                })
            })?;
            while said.lock().expect("not poisoned").len() < 2 {
                sleep(MS).await?;
            }
            token.keep();
            Ok(())
        })
        .await?;
        assert!(said.lock().unwrap().iter().all(|name| *name == "timer"));
        Ok(())
    }
    on_every_host(case);
}

/// handle-10, tree-6: a detached job inherits no span, and is none the worse for
/// it: its own children have its own.
#[test]
fn handle_10_detached_jobs_inherit_no_span() {
    async fn case() -> Result<()> {
        let (guard, dropped) = says_where();
        let inside = async {
            let free = detach(async move {
                let _guard = guard;
                assert_eq!(ask_often().await?, "none");
                assert_eq!(spawn(ask()).await?, "none");
                let own = spawn(ask()).instrument(info_span!("own"));
                assert_eq!(own.await?, "none", "it is the spawn that counts");
                let own = info_span!("own").in_scope(|| spawn(ask()));
                assert_eq!(own.await?, "own");
                Ok::<_, Error>(())
            });
            assert!(matches!(free.join().await?, Outcome::Completed(())));
            Ok::<_, Error>(())
        };
        inside.instrument(info_span!("request")).await?;
        assert_eq!(*dropped.lock().unwrap(), "none");
        Ok(())
    }
    on_every_host(case);
}

/// handle-10: a thread of its own that spawns brings its span along; one
/// in no span brings none.
#[test]
fn handle_10_a_spawn_from_a_foreign_thread_brings_its_span() {
    async fn case() -> Result<()> {
        let inside = scope(async |s| {
            let away = s.clone();
            let (with, without) = std::thread::spawn(move || {
                let with = info_span!("foreign").in_scope(|| away.spawn(ask_often()));
                (with, away.spawn(ask_often()))
            })
            .join()
            .unwrap();
            assert_eq!((with.await?, without.await?), ("foreign", "none"));
            Ok(())
        });
        inside.instrument(info_span!("request")).await
    }
    on_every_host(case);
}

/// handle-10: many tasks in spans of their own, stolen and moved between workers,
/// are each in their own at each poll, and leave none behind on a thread.
#[test]
fn handle_10_spans_go_where_their_tasks_go() {
    async fn case() -> Result<()> {
        static SPANS: [fn() -> Span; 3] = [
            || info_span!("red"),
            || info_span!("green"),
            || info_span!("blue"),
        ];
        let names = ["red", "green", "blue"];
        let mut tasks = Vec::new();
        for n in 0..90 {
            tasks.push(SPANS[n % 3]().in_scope(|| spawn(ask_often())));
            tasks.push(spawn(ask_often()));
        }
        for (n, task) in tasks.into_iter().enumerate() {
            let name = if n % 2 == 0 { names[n / 2 % 3] } else { "none" };
            assert_eq!(task.await?, name);
        }
        Ok(())
    }
    on_every_host(case);
}

/// handle-10: the main lane and the runtime's own verbs inherit as well: a span
/// around `block_on` is that of its body.
#[test]
fn handle_10_the_span_around_block_on_is_that_of_its_body() {
    subscribe();
    for workers in [0, 2] {
        let rt = Runtime::builder().workers(workers).build().unwrap();
        let program = info_span!("program");
        let id = program.id().unwrap();
        let got = program.in_scope(|| {
            let early = rt.scope().spawn(ask_often());
            rt.block_on(async {
                let main = on(Main, ask_often());
                assert_eq!((here(), spawn(ask_often()).await?), ("program", "program"));
                Ok::<_, Error>((main.await?, early.await?))
            })
        });
        assert_eq!(got.unwrap(), ("program", "program"));
        assert_eq!(here(), "none");
        drop(program);
        assert!(is_closed(&id), "nobody is in it any more");
        drop(rt);
    }
}

/// handle-10: a span is let go when the body is over, whoever still holds the task,
/// its value, or an observer: on success, failure, panic, cancel and forced drop.
/// The body's own things are dropped in it.
#[test]
fn handle_10_no_handle_keeps_a_span_open() {
    async fn case() -> Result<()> {
        let begin = || {
            let span = info_span!("body");
            let id = span.id().unwrap();
            let (guard, dropped) = says_where();
            (span, id, guard, dropped)
        };
        let settled = |id: &Id, dropped: &Mutex<&'static str>| {
            assert!(is_closed(id));
            assert_eq!(*dropped.lock().unwrap(), "body");
        };

        // It ends by itself.
        for how in ["value", "failure", "panic"] {
            let (span, id, guard, dropped) = begin();
            let got = scope(async |s| {
                let task = span.in_scope(|| {
                    s.spawn(async move {
                        let _guard = guard;
                        yield_now().await?;
                        match how {
                            "value" => Ok(1),
                            "failure" => Err(Error::msg("failed")),
                            _ => std::panic::resume_unwind(Box::new("panicked")),
                        }
                    })
                });
                drop(span);
                assert!(!is_closed(&id) || task.is_ended());
                let _ = task.join().await;
                settled(&id, &dropped);
                task.await
            });
            assert_eq!(got.await.is_ok(), how == "value");
        }

        // It is told; it is dropped before its first poll; it cannot hear.
        for how in ["told", "unpolled", "deaf"] {
            let (span, id, guard, dropped) = begin();
            let here = Scope::current().expect("in a job");
            let at_once = Patience {
                unaware: Duration::ZERO,
                ..Patience::default()
            };
            let task = span.in_scope(|| {
                here.task(how).patience(at_once).spawn(async move {
                    let _guard = guard;
                    match how {
                        "told" => park().await,
                        _ => std::future::pending().await,
                    }
                })
            });
            drop(span);
            if how != "unpolled" {
                yield_now().await?;
            }
            task.cancel("enough");
            let job = task.job();
            assert!(task.outcome().await?.is_cancelled());
            settled(&id, &dropped);
            assert!(job.is_ended());
        }

        // A local child, dropped with its scope.
        let (span, id, guard, dropped) = begin();
        let got = timeout(
            MS,
            local_scope(async |s| {
                let child = span.in_scope(|| {
                    s.spawn(async move {
                        let _guard = guard;
                        std::future::pending::<()>().await
                    })
                });
                drop(span);
                child.await
            }),
        );
        assert!(got.await.is_err());
        settled(&id, &dropped);
        Ok(())
    }
    on_every_host(case);
}

/// handle-10: a spawn that is refused gives the future back, and keeps no span.
#[test]
fn handle_10_a_refused_spawn_keeps_no_span() {
    async fn case() -> Result<()> {
        let span = info_span!("late");
        let id = span.id().unwrap();
        let ended = scope(async |s| Ok(s)).await?;
        let current = Scope::of_job(&current_job().expect("in a job"));
        current.close();
        for s in [ended, current] {
            let refused = span.in_scope(|| s.try_spawn(ask())).unwrap_err();
            assert_eq!(refused.future.await, "none");
            let task = span.in_scope(|| s.spawn(ask()));
            assert!(task.await.is_err());
        }
        drop(span);
        assert!(is_closed(&id));
        Ok(())
    }
    on_every_host(case);
}
