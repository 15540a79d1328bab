//! How a body is run: each runtime set up as its users would, anew for every
//! round. One thread, or two workers of which one runs the body.

use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use kinfolk_core::{Pool, Result, on};
use kinfolk_runtime::Runtime;
use smol::{Executor, LocalExecutor};

use crate::contestant::{NATIVE, ON_TOKIO};

/// A host for Kinfolk's bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The native runtime without workers: `block_on` turns everything.
    NativeOne,
    /// The native runtime with two workers; the body is a task of the pool.
    NativeTwo,
    /// tokio's current-thread runtime.
    TokioOne,
    /// tokio with two workers.
    TokioTwo,
}

impl Way {
    /// The hosts of one thread.
    pub const ONE: &[Way] = &[Way::NativeOne, Way::TokioOne];
    /// The hosts of two workers.
    pub const TWO: &[Way] = &[Way::NativeTwo, Way::TokioTwo];

    pub fn name(self) -> &'static str {
        match self {
            Way::NativeOne | Way::NativeTwo => NATIVE,
            Way::TokioOne | Way::TokioTwo => ON_TOKIO,
        }
    }

    /// Names for several ways to do one thing: its own and what follows it.
    pub fn names_of<const N: usize>(self, endings: [&str; N]) -> [&'static str; N] {
        // A few names, once in a run.
        endings.map(|ending| &*format!("{}{ending}", self.name()).leak())
    }

    /// Runs `body` as a task of a fresh tree.
    pub fn run<F, T>(self, body: F) -> T
    where
        F: Future<Output = Result<T>> + Send + 'static,
        T: Send + 'static,
    {
        let answer = match self {
            Way::NativeOne => native(0).block_on(body),
            Way::NativeTwo => native(2).block_on(async { on(Pool, body).await }),
            Way::TokioOne => tokio_runtime_one().block_on(on_tokio(body)),
            Way::TokioTwo => tokio_runtime_two().block_on(on_tokio(body)),
        };
        answer.expect("the body succeeds")
    }
}

async fn on_tokio<F, T>(body: F) -> Result<T>
where
    F: Future<Output = Result<T>> + Send + 'static,
    T: Send + 'static,
{
    kinfolk_tokio::Root::builder().build().run(body).await
}

fn native(workers: usize) -> Runtime {
    Runtime::builder()
        .workers(workers)
        .build()
        .expect("the runtime starts")
}

/// Without workers, on readiness.
pub fn native_readiness<F, T>(body: F) -> T
where
    F: Future<Output = Result<T>> + Send + 'static,
    T: Send + 'static,
{
    let rt = Runtime::builder()
        .workers(0)
        .io(kinfolk_runtime::io::IoDriver::Readiness)
        .build();
    let rt = rt.expect("the runtime starts");
    rt.block_on(body).expect("the body succeeds")
}

fn tokio_runtime_one() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("tokio starts")
}

fn tokio_runtime_two() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("tokio starts")
}

/// tokio's current-thread runtime; the body is a task.
pub fn tokio_one<F>(body: F) -> F::Output
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    let runtime = tokio_runtime_one();
    let task = runtime.spawn(body);
    runtime.block_on(task).expect("the body succeeds")
}

/// tokio's current-thread runtime; the body is what `block_on` polls. Waking
/// it goes through the driver.
pub fn tokio_one_block_on<F: Future>(body: F) -> F::Output {
    tokio_runtime_one().block_on(body)
}

/// tokio with two workers; the body is a task.
pub fn tokio_two<F>(body: F) -> F::Output
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    let runtime = tokio_runtime_two();
    let task = runtime.spawn(body);
    runtime.block_on(task).expect("the body succeeds")
}

/// smol's local executor, run by this thread.
pub fn smol_one<F: Future>(body: impl FnOnce(Rc<LocalExecutor<'static>>) -> F) -> F::Output {
    let executor = Rc::new(LocalExecutor::new());
    smol::block_on(executor.run(body(executor.clone())))
}

/// smol's executor on two threads; the body is a task.
pub fn smol_two<F>(body: impl FnOnce(Arc<Executor<'static>>) -> F) -> F::Output
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    let executor = Arc::new(Executor::new());
    let (stop, stopped) = smol::channel::bounded::<()>(1);
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                // It ends with an error, when the other end is dropped.
                let _ = smol::block_on(executor.run(stopped.recv()));
            });
        }
        let answer = smol::block_on(executor.spawn(body(executor.clone())));
        drop(stop);
        answer
    })
}

/// glommio on this thread. glommio makes a task of the body.
pub fn glommio<F: Future>(body: F) -> F::Output {
    glommio::LocalExecutorBuilder::default()
        .make()
        .expect("glommio starts")
        .run(body)
}

/// Queues a task on glommio, as the others do: its `spawn_local` polls a new
/// task at once, inside the call.
pub fn glommio_queued<T: 'static>(body: impl Future<Output = T> + 'static) -> glommio::Task<T> {
    let queue = glommio::executor().current_task_queue();
    glommio::spawn_local_into(body, queue).expect("the queue is there")
}

/// monoio on this thread, on a ring; the body is a task. Of what our ring is made
/// with, its version of io-uring has all but the one for no table of entries.
pub fn monoio<F>(body: F) -> F::Output
where
    F: Future<Output: 'static> + 'static,
{
    let mut ring = io_uring_of_monoio::IoUring::builder();
    ring.setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag();
    monoio::RuntimeBuilder::<monoio::IoUringDriver>::new()
        .uring_builder(ring)
        .build()
        .expect("monoio starts")
        .block_on(async { monoio::spawn(body).await })
}

/// compio on this thread, on a ring; the body is a task. Of what our ring is made
/// with, its builder offers all but the one for no table of entries.
pub fn compio<F>(body: F) -> F::Output
where
    F: Future<Output: 'static> + 'static,
{
    let mut ring = compio::driver::ProactorBuilder::new();
    ring.single_issuer(true)
        .defer_taskrun(true)
        .taskrun_flag(true);
    compio::runtime::Runtime::builder()
        .with_proactor(ring)
        .build()
        .expect("compio starts")
        .block_on(async { compio::runtime::spawn(body).await })
        .expect("the body succeeds")
}
