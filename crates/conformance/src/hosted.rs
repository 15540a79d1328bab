//! Hosted futures: jobs below a scope whose bodies are polled by code that knows nothing of
//! it: by another job here, and by a thread outside every job.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use kinfolk_core::{
    Error, ErrorKind, JobKind, JobState, Local, Patience, ReasonKind, Scope, Task, checkpoint,
    cleanup, launch, park, scope, shield, sleep, spawn, timeout, yield_now,
};
use kinfolk_testkit::{Gate, Lab, Log, Tally};

const MS: Duration = Duration::from_millis(1);

/// A body that waits in a point.
async fn parked() -> Result<(), Error> {
    park().await?;
    Ok(())
}

/// Polls once, as a part of the current job.
async fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx))).await
}

/// A scope inside a task of its own, whose body stays until the gate is opened.
async fn server(lab: &Lab) -> (Scope, Task<()>, Gate) {
    let slot = Arc::new(Mutex::new(None));
    let (given, gate) = (slot.clone(), Gate::new());
    let stays = gate.clone();
    let task = Scope::current().expect("inside a job").task("server");
    let task = task.spawn(scope(async move |s: Scope| {
        *given.lock().unwrap() = Some(s);
        shield(async move { stays.wait().await }).await
    }));
    lab.settle().await;
    let scope = slot.lock().unwrap().take().expect("the scope is open");
    (scope, task, gate)
}

/// Counts its wakes.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// handle-15: a hosted future is a child of the scope, wherever it is polled, and may borrow;
/// the scope waits for it though its own body is over.
pub async fn handle_15_a_scope_waits_for_what_it_hosts(lab: Lab) {
    let (s, server, gate) = server(&lab).await;
    let (word, open) = (String::from("borrowed"), Gate::new());
    let mut hosted = Box::pin(s.task("request").host(async {
        open.wait().await;
        word.len()
    }));
    assert!(poll_once(&mut hosted).await.is_pending());
    let look = lab.snapshot();
    let job = look.find("request").unwrap();
    assert_eq!(
        (job.kind, job.parent),
        (JobKind::Hosted, Some(s.job().id()))
    );
    gate.open();
    lab.settle().await;
    assert_eq!(s.job().state(), JobState::Completing);
    assert!(!server.is_ended());
    open.open();
    assert_eq!(hosted.await.unwrap(), 8);
    server.await.unwrap();
    assert_eq!(lab.counters().jobs_force_dropped, 0);
}

/// handle-15: its last poll may be on a thread outside every job; then the scope, and the
/// task around it, end there. Also: handle-9.
pub async fn handle_15_a_thread_outside_every_job_polls_it(lab: Lab) {
    let (s, server, gate) = server(&lab).await;
    let open = Gate::new();
    let opened = open.clone();
    let mut hosted = Box::pin(s.host(async move {
        assert_eq!(Scope::current().unwrap().job().kind(), JobKind::Hosted);
        opened.wait().await;
        Ok::<_, Error>(7)
    }));
    let poll = |mut hosted: Pin<Box<dyn Future<Output = Result<u32, Error>> + Send>>| {
        std::thread::spawn(move || {
            let polled = hosted
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()));
            (polled, hosted)
        })
        .join()
        .unwrap()
    };
    let waker = Waker::noop();
    assert!(
        hosted
            .as_mut()
            .poll(&mut Context::from_waker(waker))
            .is_pending()
    );
    gate.open();
    lab.settle().await;
    open.open();
    let (polled, hosted) = poll(hosted);
    assert!(matches!(polled, Poll::Ready(Ok(7))));
    server.await.unwrap();
    drop(hosted);
}

/// handle-15: a cancel of the scope wakes its executor and tells it at its next point; the
/// caller is not cancelled.
pub async fn handle_15_a_cancel_of_the_scope_tells_it(lab: Lab) {
    let (s, server, gate) = server(&lab).await;
    let log = Log::new();
    let says = log.clone();
    let mut hosted = Box::pin(s.host(async move {
        let told = park().await;
        says.say(
            told.as_ref()
                .unwrap_err()
                .reason()
                .root_cause()
                .text()
                .unwrap(),
        );
        cleanup(sleep(MS)).await?;
        told.map(|_| ()).map_err(Error::from)
    }));
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(wakes.clone());
    // A point may have yielded first.
    let mut seen = usize::MAX;
    while std::mem::replace(&mut seen, wakes.0.load(SeqCst)) != seen {
        let mut cx = Context::from_waker(&waker);
        assert!(hosted.as_mut().poll(&mut cx).is_pending());
    }
    assert!(s.cancel("enough"));
    assert_eq!(wakes.0.load(SeqCst), seen + 1);
    gate.open();
    lab.settle().await;
    assert!(!server.is_ended(), "it waits");
    let error = hosted.await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stopped);
    checkpoint().await.unwrap();
    assert_eq!(log.text(), "enough");
    server.await.unwrap();
}

/// handle-15: a caller that drops it half-way cancels what it started, and the scope waits
/// for that. It is no forced drop.
pub async fn handle_15_what_a_dropped_one_started_is_cancelled_and_waited_for(lab: Lab) {
    let (s, server, gate) = server(&lab).await;
    let (tally, open) = (Tally::new(), Gate::new());
    let cleans = open.clone();
    let body = async move {
        launch(async move {
            let told = park().await;
            cleanup(async move { cleans.wait().await }).await?;
            told.map(|_| ()).map_err(Error::from)
        });
        parked().await
    };
    let mut hosted = Box::pin(s.task("request").host(tally.count(body)));
    assert!(poll_once(&mut hosted).await.is_pending());
    lab.settle().await;
    drop(hosted);
    assert_eq!(tally.drops(), 1);
    let look = lab.snapshot();
    assert_eq!(look.find("request").unwrap().state, JobState::Cancelling);
    gate.open();
    lab.settle().await;
    assert!(!server.is_ended(), "a child of it cleans up");
    open.open();
    server.await.unwrap();
    assert_eq!(lab.counters().jobs_force_dropped, 0);
}

/// handle-15: its failure and its panic are its caller's, and cancel no sibling; so does the
/// failure of what it spawned, which cancels it.
pub async fn handle_15_a_failure_is_its_callers(lab: Lab) {
    let (s, server, gate) = server(&lab).await;
    let sibling = s.spawn(parked());
    let failed = s.host(async { Err::<(), _>(Error::msg("theirs")) }).await;
    assert!(failed.unwrap_err().to_string().contains("theirs"));
    let panics = async { std::panic::resume_unwind(Box::new("theirs")) };
    let panicked = s.host::<Pin<Box<dyn Future<Output = ()> + Send>>>(Box::pin(panics));
    assert_eq!(panicked.await.unwrap_err().kind(), ErrorKind::Panicked);
    let inside = s.host(async {
        launch(async { Err::<(), _>(Error::msg("a child's")) });
        parked().await
    });
    assert!(inside.await.unwrap_err().to_string().contains("a child's"));
    lab.settle().await;
    assert!(!sibling.is_ended() && !s.cancel_requested());
    assert!(sibling.cancel("enough"));
    gate.open();
    server.await.unwrap();
    assert!(lab.take_failures().is_empty());
}

/// handle-15: dropped half-way, it has no caller any more: what a child of it fails with goes
/// to the failure hook. Also: outcome-3.
pub async fn handle_15_a_failure_after_the_drop_is_reported(lab: Lab) {
    let (s, server, gate) = server(&lab).await;
    let mut hosted = Box::pin(s.host(async {
        launch(async {
            let _told = park().await;
            Err::<(), _>(Error::msg("a child's"))
        });
        parked().await
    }));
    assert!(poll_once(&mut hosted).await.is_pending());
    lab.settle().await;
    drop(hosted);
    gate.open();
    server.await.unwrap();
    assert_eq!(lab.take_failures().len(), 1);
}

/// handle-15: a scope that takes no more children refuses it: dropped unpolled, its caller
/// hears that it was stopped. Also: tree-5.
pub async fn handle_15_a_cancelled_or_ended_scope_refuses_it(lab: Lab) {
    for cancelled in [true, false] {
        let (s, server, gate) = server(&lab).await;
        if cancelled {
            s.cancel("enough");
        } else {
            s.close();
        }
        let refused = lab.counters().jobs_refused;
        for ended in [false, true] {
            let tally = Tally::new();
            let error = s.host(tally.count(parked())).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Stopped);
            let kind = error.reason().unwrap().kind();
            let of_scope = matches!(kind, ReasonKind::ScopeEnded);
            assert_eq!(of_scope, ended || !cancelled, "{kind:?}");
            assert_eq!((tally.polls(), tally.drops()), (0, 1));
            gate.open();
            while !server.is_ended() {
                yield_now().await.unwrap();
            }
        }
        assert_eq!(lab.counters().jobs_refused, refused + 2);
        server.await.unwrap();
    }
}

/// handle-15: it has its own body: an interrupt of the task around the scope is not heard in
/// it, and it takes none. Also: request-1.
pub async fn handle_15_it_hears_no_interrupt(lab: Lab) {
    let (s, server, gate) = server(&lab).await;
    let mut hosted = Box::pin(s.host(parked()));
    assert!(poll_once(&mut hosted).await.is_pending());
    assert!(server.job().interrupt("not yours"));
    let id = lab.snapshot().find("server").unwrap().id;
    assert_eq!(id, server.id());
    assert!(poll_once(&mut hosted).await.is_pending());
    let inside = s.host(async {
        let job = Scope::current().unwrap().job();
        assert!(!job.interrupt("nobody"));
        checkpoint().await
    });
    inside.await.unwrap();
    assert_eq!(server.job().uninterrupt(), 0);
    drop(hosted);
    gate.open();
    server.await.unwrap();
}

/// handle-15: cancelled in an await that cannot hear, it is dropped in a poll of its executor
/// when its patience is over. Also: cancel-6.
pub async fn handle_15_a_deaf_one_is_dropped_when_patience_is_over(lab: Lab) {
    let (s, server, gate) = server(&lab).await;
    let patience = Patience {
        unaware: 20 * MS,
        ..Patience::default()
    };
    let tally = Tally::new();
    let body = tally.count(std::future::pending::<()>());
    let hosted = s.task("deaf").patience(patience).host(body);
    let polls = spawn(async move { hosted.await.unwrap_err().kind() == ErrorKind::Stopped });
    lab.settle().await;
    let before = lab.elapsed();
    assert!(s.cancel("enough"));
    gate.open();
    server.await.unwrap();
    assert_eq!(lab.elapsed() - before, 20 * MS);
    assert_eq!(tally.drops(), 1);
    assert!(polls.await.unwrap(), "its poller is not cancelled");
    assert_eq!(lab.counters().jobs_force_dropped, 1);
}

/// handle-15: the deadline of the scope tells it, as a child. Also: time-5.
pub async fn handle_15_the_deadline_of_the_scope_tells_it(lab: Lab) {
    let slot = Arc::new(Mutex::new(None));
    let given = slot.clone();
    let server = spawn(async move {
        let limited = timeout(20 * MS, async move {
            *given.lock().unwrap() = Scope::current();
            parked().await
        });
        assert_eq!(limited.await.unwrap_err().kind(), ErrorKind::TimedOut);
    });
    lab.settle().await;
    let s = slot.lock().unwrap().take().unwrap();
    let before = lab.elapsed();
    let error = s.host(async { parked().await }).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stopped);
    assert_eq!(
        error.reason().unwrap().root_cause().kind(),
        ReasonKind::Deadline
    );
    assert_eq!(lab.elapsed() - before, 20 * MS);
    drop(s);
    server.await.unwrap();
}

/// handle-15: it has the task-locals of its scope, not those of the job that polls it. Also:
/// handle-10.
pub async fn handle_15_it_has_the_locals_of_its_scope(lab: Lab) {
    static WHO: Local<u32> = Local::new();
    let slot = Arc::new(Mutex::new(None));
    let (given, gate) = (slot.clone(), Gate::new());
    let stays = gate.clone();
    let server = spawn(WHO.scope(1, async move {
        *given.lock().unwrap() = Scope::current();
        stays.wait().await;
    }));
    lab.settle().await;
    let s = slot.lock().unwrap().take().unwrap();
    let polled = WHO.scope(2, async move { s.host(async { WHO.get() }).await });
    assert_eq!(polled.await.unwrap(), Some(1));
    gate.open();
    server.await.unwrap();
}
