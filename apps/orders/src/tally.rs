//! What a server counts of its requests: which work goes on after its client has gone. All three
//! servers have the same middleware around their handler, outside of everything else.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::get;

/// Of one server; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Tally(Arc<Mutex<Counts>>);

/// What it has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Clients that have gone before their answer.
    pub gone: u64,
    /// Work that goes on now, and whose client has gone.
    pub now_without_client: u64,
    /// The same when SIGTERM came.
    pub at_stop: u64,
    /// Work that has gone on without its client, for a moment or for long.
    pub ran_on: u64,
    /// For how long, at the most.
    pub longest: Duration,
}

impl Tally {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the requests of `router`: each handler finds its [`Work`] among the extensions of
    /// the request, and keeps it until the work is over. `GET /counts` says what was counted.
    pub fn around(self, router: Router) -> Router {
        let counted = router.layer(from_fn_with_state(self.clone(), visit));
        let counts = get(async |State(tally): State<Tally>| tally.to_string());
        counted.route("/counts", counts.with_state(self))
    }

    /// SIGTERM has come.
    pub fn stopping(&self) {
        let mut counts = self.lock();
        counts.at_stop = counts.now_without_client;
    }
}

/// One line, which [`Counts::read`] reads.
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.lock();
        write!(
            f,
            "{} {} {} {} {}",
            counts.gone,
            counts.now_without_client,
            counts.at_stop,
            counts.ran_on,
            counts.longest.as_micros()
        )
    }
}

impl Counts {
    /// What a [`Tally`] has written.
    pub fn read(line: &str) -> Option<Counts> {
        let mut numbers = line.split(' ').map_while(|word| word.parse().ok());
        Some(Counts {
            gone: numbers.next()?,
            now_without_client: numbers.next()?,
            at_stop: numbers.next()?,
            ran_on: numbers.next()?,
            longest: Duration::from_micros(numbers.next()?),
        })
    }
}

/// One request.
async fn visit(State(tally): State<Tally>, mut request: Request, next: Next) -> Response {
    let fate = Arc::new(Mutex::new(Fate::default()));
    let work = WorkInHand {
        fate: fate.clone(),
        tally: tally.clone(),
    };
    // hyper drops this future when the client hangs up, and `next` goes first: work that ends
    // with it is over by then.
    let visit = Visit { fate, tally };
    request.extensions_mut().insert(Work {
        _hand: Arc::new(work),
    });
    let response = next.run(request).await;
    visit.answered();
    response
}

/// What is known of one request.
#[derive(Debug, Default)]
struct Fate {
    answered: bool,
    work_is_over: bool,
    client_gone: Option<Instant>,
}

/// The client of a request, as the server sees it.
struct Visit {
    fate: Arc<Mutex<Fate>>,
    tally: Tally,
}

impl Visit {
    fn answered(self) {
        let mut fate = self.fate.lock().unwrap_or_else(PoisonError::into_inner);
        fate.answered = true;
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut fate = self.fate.lock().unwrap_or_else(PoisonError::into_inner);
        if fate.answered {
            return;
        }
        let mut counts = self.tally.lock();
        counts.gone += 1;
        if !fate.work_is_over {
            fate.client_gone = Some(Instant::now());
            counts.now_without_client += 1;
        }
    }
}

/// The work of a request. It is over when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Work {
    _hand: Arc<WorkInHand>,
}

#[derive(Debug)]
struct WorkInHand {
    fate: Arc<Mutex<Fate>>,
    tally: Tally,
}

impl Drop for WorkInHand {
    fn drop(&mut self) {
        let mut fate = self.fate.lock().unwrap_or_else(PoisonError::into_inner);
        fate.work_is_over = true;
        if let Some(since) = fate.client_gone {
            let mut counts = self.tally.lock();
            counts.now_without_client -= 1;
            counts.ran_on += 1;
            counts.longest = counts.longest.max(since.elapsed());
        }
    }
}
