//! Several sinks in one.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use kinfolk_core::host::contained;
use kinfolk_core::{Event, Interests, Sink};

/// Several sinks as one: a runtime takes one sink. Each gets the events that one of them asked
/// for, in the order in which they were added.
///
/// ```
/// use kinfolk_runtime::Runtime;
/// use kinfolk_see::{Causes, Recorder, Sinks};
///
/// let (causes, recorder) = (Causes::new(), Recorder::new());
/// let both = Sinks::of([causes.clone(), recorder.clone()]);
/// let rt = Runtime::builder().sink(both).build().unwrap();
/// # drop(rt);
/// ```
///
/// One that panics is called no more; the others go on.
#[derive(Default)]
pub struct Sinks(Vec<OneSink>);

struct OneSink {
    sink: Arc<dyn Sink>,
    interests: Interests,
    is_broken: AtomicBool,
}

impl Sinks {
    /// Puts these side by side.
    pub fn of<const N: usize>(sinks: [Arc<dyn Sink>; N]) -> Arc<Sinks> {
        let one = |sink: Arc<dyn Sink>| OneSink {
            interests: sink.interests(),
            sink,
            is_broken: AtomicBool::new(false),
        };
        Arc::new(Sinks(sinks.into_iter().map(one).collect()))
    }

    /// How many of them have panicked, and are called no more.
    pub fn broken(&self) -> usize {
        self.0
            .iter()
            .filter(|one| one.is_broken.load(Relaxed))
            .count()
    }

    fn each(&self, call: impl Fn(&dyn Sink, Interests)) {
        for one in &self.0 {
            if !one.is_broken.load(Relaxed) && contained(|| call(&*one.sink, one.interests)) {
                one.is_broken.store(true, Relaxed);
            }
        }
    }
}

impl Sink for Sinks {
    fn event(&self, event: &Event) {
        self.each(|sink, _| sink.event(event));
    }

    fn event_with(&self, event: &Event, text: &str) {
        self.each(|sink, interests| match interests.has(Interests::TEXTS) {
            true => sink.event_with(event, text),
            false => sink.event(event),
        });
    }

    fn trouble(&self, what: &str) -> Option<String> {
        let done = RefCell::new(Vec::new());
        self.each(|sink, _| done.borrow_mut().extend(sink.trouble(what)));
        let done = done.into_inner();
        (!done.is_empty()).then(|| done.join("; "))
    }

    fn interests(&self) -> Interests {
        let all = self.0.iter().map(|one| one.interests);
        all.fold(Interests::NONE, |all, one| all | one)
    }
}

impl fmt::Debug for Sinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sinks({})", self.0.len())
    }
}
