//! What the tests share: a root on each flavor of tokio, bodies and handlers that misbehave.
#![allow(dead_code)]

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Empty, Full};
use kinfolk_core::{BoxError, Scope};
use kinfolk_tokio::Root;
use tokio::runtime::Runtime;

pub const SECOND: Duration = Duration::from_secs(1);

/// A root, and what its failure hook got.
#[derive(Clone)]
pub struct Lab {
    pub root: Root,
    pub failures: Arc<Mutex<Vec<String>>>,
    pub forced: Arc<AtomicUsize>,
    /// The clock is tokio's paused one: it jumps when nothing is left to do.
    pub is_paused: bool,
}

impl Lab {
    fn new(is_paused: bool) -> Lab {
        let failures = Arc::new(Mutex::new(Vec::new()));
        let forced = Arc::new(AtomicUsize::new(0));
        let (got, dropped) = (failures.clone(), forced.clone());
        let root = Root::builder()
            .on_failure(Box::new(move |error: &kinfolk_core::Error| {
                got.lock().unwrap().push(error.to_string());
            }))
            .on_forced(Box::new(move |_| {
                dropped.fetch_add(1, SeqCst);
            }))
            .build();
        Lab {
            root,
            failures,
            forced,
            is_paused,
        }
    }

    pub fn scope(&self) -> Scope {
        self.root.scope()
    }

    pub fn failures(&self) -> Vec<String> {
        std::mem::take(&mut self.failures.lock().unwrap())
    }

    /// Until nothing lives below the root.
    pub async fn is_empty(&self) {
        while self.root.snapshot().len() > 1 {
            tokio::task::yield_now().await;
        }
    }

    /// The names of the tasks.
    pub fn tasks(&self) -> Vec<String> {
        let tree = self.root.snapshot();
        let is_task = |kind| kind == kinfolk_core::JobKind::Task;
        let tasks = tree.nodes().iter().filter(|node| is_task(node.kind));
        tasks.map(|node| node.name.clone()).collect()
    }
}

/// Runs a test on a current-thread runtime whose clock is paused, and on two workers. At the
/// end everything has ended by itself, and no failure is left that the test did not take.
pub fn on_each<T: Future<Output = ()>>(test: impl Fn(Lab) -> T) {
    let single = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build();
    run(true, single.unwrap(), &test);
    run(false, two_workers(), &test);
}

/// The same with the system's clock alone, for tests with sockets.
pub fn on_sockets<T: Future<Output = ()>>(test: impl Fn(Lab) -> T) {
    let single = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    run(false, single.unwrap(), &test);
    run(false, two_workers(), &test);
}

fn two_workers() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.enable_all().worker_threads(2).build().unwrap()
}

fn run<T: Future<Output = ()>>(is_paused: bool, runtime: Runtime, test: &impl Fn(Lab) -> T) {
    runtime.block_on(async {
        let lab = Lab::new(is_paused);
        let run = async {
            test(lab.clone()).await;
            let report = lab.root.shutdown().await.unwrap();
            assert!(report.is_clean(), "paused {is_paused}: {report}");
        };
        let limit = 60 * SECOND;
        let ended = tokio::time::timeout(if is_paused { 10_000 * limit } else { limit }, run);
        if ended.await.is_err() {
            panic!("the test hangs:\n{}", lab.root.snapshot());
        }
        assert_eq!(lab.failures(), [""; 0], "paused {is_paused}");
        let counters = lab.root.counters();
        assert_eq!(counters.living(), 0, "paused {is_paused}");
        assert_eq!(lab.forced.load(SeqCst), 0, "paused {is_paused}");
    });
}

/// Says when it is dropped.
pub struct Dropped(pub Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

pub fn flag() -> Arc<AtomicBool> {
    Arc::default()
}

/// Until it is set.
pub async fn set(flag: &AtomicBool) {
    while !flag.load(SeqCst) {
        tokio::task::yield_now().await;
    }
}

pub type AnyBody = http_body_util::combinators::UnsyncBoxBody<Bytes, BoxError>;
pub type Answered = Result<Response<AnyBody>, Infallible>;

pub fn text(words: impl Into<Bytes>) -> Response<AnyBody> {
    Response::new(boxed(Full::new(words.into())))
}

pub fn boxed<B>(body: B) -> AnyBody
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    body.map_err(Into::into).boxed_unsync()
}

pub fn get(path: &str) -> Request<Empty<Bytes>> {
    Request::get(path).body(Empty::new()).unwrap()
}

pub fn grpc(path: &str) -> Request<Empty<Bytes>> {
    let request = Request::post(path).header("content-type", "application/grpc+proto");
    request.body(Empty::new()).unwrap()
}

/// What a scripted body does next.
pub enum Step {
    Data(&'static str),
    Panic,
    Fail,
    /// Waits for something that is no point, for ever.
    Hang,
}

/// A body that does one step after the other.
pub struct Script {
    steps: VecDeque<Step>,
    pub dropped: Arc<AtomicBool>,
    pub polled: Arc<AtomicUsize>,
}

impl Script {
    pub fn new(steps: impl IntoIterator<Item = Step>) -> Script {
        Script {
            steps: steps.into_iter().collect(),
            dropped: flag(),
            polled: Arc::default(),
        }
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        self.dropped.store(true, SeqCst);
    }
}

impl Body for Script {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.polled.fetch_add(1, SeqCst);
        Poll::Ready(match self.steps.pop_front() {
            None => None,
            Some(Step::Data(words)) => Some(Ok(Frame::data(Bytes::from_static(words.as_bytes())))),
            Some(Step::Panic) => panic!("the body panics"),
            Some(Step::Fail) => Some(Err("the body fails".into())),
            Some(Step::Hang) => {
                self.steps.push_front(Step::Hang);
                return Poll::Pending;
            }
        })
    }
}
