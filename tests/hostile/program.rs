//! Random small programs, built from hostile types: what a seed says. The steps of a
//! body stand beside this file: `plain.rs`, `locks.rs` and `io.rs` those that need no
//! bodies of their own, `children.rs`, `scopes.rs` and `branches.rs` the others.
//!
//! A destructor that panics while a function returns loses what is returned: the
//! compiler drops the locals and forgets the value. So the programs keep nothing
//! hostile in a local over a `?`, but in a `Contained`.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use kinfolk_core::{Inline, IntoOutcome, Just, Scope, current_job, timeout};
use kinfolk_testkit::Rng;

use crate::types::{Fault, HostileFuture, Thing, Value, World, drop_alone};
use crate::{branches, children, io, locks, plain, scopes};

pub type Body = Pin<Box<dyn Future<Output = Result<Value, Fault>> + Send>>;

/// A body of at most so many levels.
pub fn body(world: &Arc<World>, seed: u64, depth: usize) -> Body {
    let body = steps(world, seed, depth);
    let mut rng = Rng::new(seed ^ 0xb0d1);
    match rng.chance(0.3) {
        true => Box::pin(HostileFuture::of(body, Value::new(world, &mut rng))),
        false => body,
    }
}

/// The same without a destructor.
pub fn steps(world: &Arc<World>, seed: u64, depth: usize) -> Body {
    let world = world.clone();
    Box::pin(async move {
        let mut rng = Rng::new(seed);
        for _ in 0..rng.below(4) {
            if !world.spend() {
                break;
            }
            let mut step = Step {
                here: Scope::current().expect("inside a job"),
                world: world.clone(),
                rng: Rng::new(rng.next_u64()),
                depth,
            };
            if let Err(error) = step.take().await {
                return Err(match rng.below(3) {
                    // Passed on inside an error of one's own.
                    0 => Fault::new(Value::new(&world, &mut rng), Some(error)),
                    1 => Fault::new(Value::new(&world, &mut rng), None),
                    _ => Fault::from(error),
                });
            }
        }
        let value = Value::new(&world, &mut rng);
        match rng.below(5) {
            0 => Err(Fault::new(value, None)),
            1 => std::panic::resume_unwind(Box::new(value)),
            _ => Ok(value),
        }
    })
}

/// One step of a body, and what it draws from.
pub struct Step {
    pub world: Arc<World>,
    pub rng: Rng,
    pub here: Scope,
    depth: usize,
}

impl Step {
    async fn take(&mut self) -> kinfolk_core::Result<()> {
        // At the bottom only what has no bodies of its own.
        let most = if self.depth == 0 { 4 } else { 12 };
        match self.rng.below(most) {
            0 | 1 => plain::step(self).await,
            2 => locks::step(self).await,
            3 => io::step(self).await,
            4..7 => children::step(self).await,
            7..9 => scopes::step(self).await,
            _ => branches::step(self).await,
        }
    }

    /// Which of `most` steps of a file is taken.
    pub fn pick(&mut self, file: &str, most: usize) -> usize {
        let which = self.rng.below(most);
        if std::env::var_os("KINFOLK_TRACE").is_some() {
            eprintln!("{:?}: {file} {which} at {}", current_job(), self.depth);
        }
        which
    }

    #[track_caller]
    pub fn value(&mut self) -> Value {
        Value::new(&self.world, &mut self.rng)
    }

    /// A body of one level less.
    pub fn inner(&mut self) -> Body {
        let seed = self.rng.next_u64();
        body(&self.world, seed, self.depth.saturating_sub(1))
    }

    /// A maker of such bodies.
    pub fn bodies(&mut self) -> impl FnMut() -> Body + Send + 'static {
        let (world, depth) = (self.world.clone(), self.depth.saturating_sub(1));
        let mut seeds = Rng::new(self.rng.next_u64());
        move || body(&world, seeds.next_u64(), depth)
    }

    pub fn millis(&mut self, most: usize) -> Duration {
        Duration::from_millis(self.rng.below(most) as u64)
    }

    /// A value that is taken: kept for others, or dropped here.
    pub fn dispose(&mut self, value: Value) {
        match self.rng.below(3) {
            0 => self.world.put(Thing::Value(value)),
            _ => drop(value),
        }
    }
}

/// A future whose type names no lifetime: the compiler finds it to be `Send` then.
pub fn boxed<T>(
    future: impl Future<Output = T> + Send + 'static,
) -> Pin<Box<dyn Future<Output = T> + Send>> {
    Box::pin(future)
}

/// A wait that may be for ever, with a limit.
pub fn limited<O: IntoOutcome>(
    limit: Duration,
    future: impl Future<Output = O> + Send + 'static,
) -> Inline<Just<Pin<Box<dyn Future<Output = O> + Send>>>> {
    timeout(limit, boxed(future))
}

/// Awaits a body inside other code of the program: what its destructor does ends here.
/// A panic there would lose the value of the body, as said above.
pub fn awaited(body: Body) -> Awaited {
    Awaited { body: Some(body) }
}

/// See `awaited`.
pub struct Awaited {
    body: Option<Body>,
}

impl Future for Awaited {
    type Output = Result<Value, Fault>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let body = self.body.as_mut().expect("not polled after its end");
        let made = body.as_mut().poll(cx);
        if made.is_ready() {
            drop_alone(self.body.take());
        }
        made
    }
}

/// Polls `future` once.
pub async fn once<F: Future + ?Sized>(future: &mut Pin<Box<F>>) {
    std::future::poll_fn(|cx| {
        drop_alone(future.as_mut().poll(cx));
        Poll::Ready(())
    })
    .await;
}
