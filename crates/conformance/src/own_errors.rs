//! Scopes that fail with the author's own error type: what comes back exactly,
//! and what comes as `E::from(error)`.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use kinfolk_core::{
    Cancelled, Error, ErrorKind, Inline, JobState, OrFail, Outcome, ReasonKind, Scope, WithScopeAs,
    checkpoint, cleanup, current_job, park, scope, scope_as, sleep, spawn, yield_now,
};

use kinfolk_testkit::{Gate, Lab, Tally};

const MS: Duration = Duration::from_millis(1);

/// The author's own error. Not `Clone`: there is one of each.
#[derive(Debug)]
enum Mine {
    /// Nothing of ours in it.
    Own(&'static str, Arc<()>),
    /// Around an error of ours, which is its source.
    Around(&'static str, Error),
    /// Made by `From`.
    From(Error),
}

impl fmt::Display for Mine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mine::Own(word, _) | Mine::Around(word, _) => f.write_str(word),
            Mine::From(_) => f.write_str("from"),
        }
    }
}

impl StdError for Mine {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Mine::Own(..) => None,
            Mine::Around(_, error) | Mine::From(error) => Some(error),
        }
    }
}

impl From<Error> for Mine {
    fn from(error: Error) -> Self {
        Mine::From(error)
    }
}

impl Mine {
    fn own(word: &'static str) -> Mine {
        Mine::Own(word, Arc::default())
    }

    /// What `From` was given.
    #[track_caller]
    fn given(self) -> Error {
        match self {
            Mine::From(error) => error,
            other => panic!("it was not made by From: {other:?}"),
        }
    }
}

#[derive(Debug)]
struct Oops(&'static str);

impl fmt::Display for Oops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl StdError for Oops {}

fn fail(word: &'static str) -> Result<(), Error> {
    Err(Oops(word)).or_fail()
}

fn oops(error: &Error) -> &'static str {
    error.downcast_ref::<Oops>().expect("an Oops").0
}

/// The word of the `Mine` that `error` carries.
fn mine(error: &Error) -> String {
    error.downcast_ref::<Mine>().expect("a Mine").to_string()
}

/// Returns what it was told.
async fn parked() -> Result<(), Cancelled> {
    park().await.map(|_| ())
}

/// Panics without a word on standard error.
fn raise<T>(words: &'static str) -> T {
    std::panic::resume_unwind(Box::new(words))
}

/// The error of a task that cancels no other job.
async fn error_of<F>(future: F) -> Error
where
    F: Future<Output: kinfolk_core::IntoOutcome<Value: Send + fmt::Debug>> + Send + 'static,
{
    let alone = Scope::build().supervisor();
    let error = alone.run(async |s| Ok(s.spawn(future).await.unwrap_err()));
    error.await.unwrap()
}

/// outcome-1: if the body's error is all that went wrong, the caller gets the
/// very value: it was not converted, and no other code holds it.
pub async fn outcome_1_an_own_error_comes_back_as_it_was(lab: Lab) {
    let token = Arc::new(());
    let tally = Tally::new();
    let guard = tally.guard();
    let before = lab.elapsed();
    let mut node = None;
    let error = Scope::named("family")
        .run_as::<Mine, _>(async |s| {
            node = Some(s.job());
            s.launch(async move {
                let _guard = guard;
                let told = park().await.unwrap_err();
                assert_eq!(told.reason().root_cause().kind(), ReasonKind::BodyFailed);
                cleanup(sleep(10 * MS)).await?;
                Err::<(), Error>(told.into())
            });
            lab.settle().await;
            Err::<(), _>(Mine::Own("bad", token.clone()))
        })
        .await
        .unwrap_err();
    match error {
        Mine::Own("bad", same) => {
            assert!(Arc::ptr_eq(&same, &token));
            drop(same);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(Arc::strong_count(&token), 1, "there was one of it");
    assert_eq!(tally.drops(), 1, "the child was waited for");
    assert_eq!(lab.elapsed() - before, 10 * MS);
    assert_eq!(node.unwrap().state(), JobState::Failed);
    checkpoint().await.unwrap();
    assert!(lab.take_failures().is_empty());
}

/// outcome-1: the type is named in the call or in the closure, or the result
/// decides it; `?` takes what it has a `From` for. Values pass through.
pub async fn outcome_1_the_own_type_is_named_or_inferred(_lab: Lab) {
    async fn inferred() -> Result<u8, Mine> {
        scope_as(async |s| Ok(s.spawn(async { 3 }).await?)).await
    }
    assert_eq!(inferred().await.unwrap(), 3);
    let named = scope_as::<Mine, _>(async |s| Ok(s.spawn(async { 4 }).await?));
    assert_eq!(named.await.unwrap(), 4);
    let said = scope_as(async |s| -> Result<u8, Mine> { Ok(s.spawn(async { 5 }).await?) });
    assert_eq!(said.await.unwrap(), 5);
    let built: Result<u8, Mine> = (Scope::named("a").timeout(MS))
        .run_as(async |s| Ok(s.spawn(async { 6 }).await?))
        .await;
    assert_eq!(built.unwrap(), 6);
    // Ours is such a type, and then it is the same as without.
    let ours = scope_as::<Error, _>(async |s| {
        s.launch(async { fail("bad") });
        parked().await?;
        Ok(())
    });
    let error = ours.await.unwrap_err();
    assert_eq!((error.kind(), oops(&error)), (ErrorKind::Failed, "bad"));
    assert!(error.job().is_some());
    let ours = scope_as::<Error, _>(async |_| fail("body")).await;
    assert_eq!(oops(&ours.unwrap_err()), "body");
}

/// outcome-1: what did not come from the body comes through `From`: a child's
/// failure, a deadline, a cancel of the scope, a panic.
pub async fn outcome_1_what_is_not_the_bodys_comes_through_from(lab: Lab) {
    let child = scope_as::<Mine, _>(async |s| {
        s.launch(async { fail("child") });
        Ok(())
    });
    let error = child.await.unwrap_err().given();
    assert_eq!((error.kind(), oops(&error)), (ErrorKind::Failed, "child"));

    let late = Scope::build()
        .timeout(MS)
        .run_as::<Mine, _>(async |_| Ok(sleep(10 * MS).await.map_err(Error::from)?));
    let error = late.await.unwrap_err().given();
    assert_eq!(error.kind(), ErrorKind::TimedOut);

    let stopped = scope_as::<Mine, _>(async |s| {
        s.cancel("enough");
        checkpoint().await.map_err(Error::from)?;
        Ok(())
    });
    let error = stopped.await.unwrap_err().given();
    assert_eq!(error.kind(), ErrorKind::Stopped);

    let panicked = scope_as::<Mine, _>(async |_| raise::<Result<(), Mine>>("boom"));
    let error = panicked.await.unwrap_err().given();
    assert_eq!(error.kind(), ErrorKind::Panicked);
    assert_eq!(
        error.take_panic().unwrap().downcast_ref::<&str>(),
        Some(&"boom")
    );

    // An enclosing cancellation goes on as Cancelled, and is one further out.
    let gate = Gate::new();
    let waits = gate.clone();
    let task = spawn(async move {
        let error = scope_as::<Mine, _>(async |_| {
            waits.open();
            Ok(park().await.map(|_| ()).map_err(Error::from)?)
        })
        .await
        .unwrap_err();
        assert!(matches!(&error, Mine::From(ours) if ours.is_cancelled()));
        Err::<(), _>(error)
    });
    gate.wait().await;
    assert!(task.cancel("outside"));
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert!(lab.take_failures().is_empty());
}

/// outcome-1: a body's own error that is one of several can be downcast from
/// the error that `From` was given, wherever it stands.
/// Also: outcome-2.
pub async fn outcome_1_an_own_error_among_others_is_downcast(lab: Lab) {
    // The body first.
    let error = scope_as::<Mine, _>(async |s| {
        s.launch(async {
            assert!(park().await.is_err());
            fail("later")
        });
        lab.settle().await;
        Err::<(), _>(Mine::own("first"))
    })
    .await
    .unwrap_err()
    .given();
    assert_eq!(mine(&error), "first");
    assert_eq!(error.kind(), ErrorKind::Failed);
    assert_eq!(error.suppressed().len(), 1);
    assert_eq!(oops(&error.suppressed()[0]), "later");

    // The child first.
    let error = scope_as::<Mine, _>(async |s| {
        s.launch(async { fail("first") });
        lab.settle().await;
        Err::<(), _>(Mine::own("later"))
    })
    .await
    .unwrap_err()
    .given();
    assert_eq!(oops(&error), "first");
    assert_eq!(mine(&error.suppressed()[0]), "later");
    assert_eq!(error.suppressed_count(), 1);
}

/// outcome-1: an own error around a child's failure takes the place of that
/// failure, so it alone failed and comes back as it was.
/// Also: outcome-2.
pub async fn outcome_1_an_own_error_around_a_childs_takes_its_place(_lab: Lab) {
    let error = scope_as::<Mine, _>(async |s| {
        let task = s.spawn(async { fail("bad") });
        let error = task.await.unwrap_err();
        Err::<(), _>(Mine::Around("while loading", error))
    })
    .await
    .unwrap_err();
    match error {
        Mine::Around("while loading", error) => {
            assert_eq!(oops(&error), "bad");
            assert!(error.suppressed().is_empty());
        }
        other => panic!("{other:?}"),
    }
    // Passed on by `?`: what `From` made is the author's, and is not made twice.
    let error = scope_as::<Mine, _>(async |s| Ok(s.spawn(async { fail("bad") }).await?))
        .await
        .unwrap_err()
        .given();
    assert_eq!(oops(&error), "bad");
    assert_eq!(error.suppressed_count(), 0);
}

/// outcome-1: an own error around a `Cancelled` means cancelled, if that
/// cancellation has reached the scope; a stale one is a failure, and comes back
/// as it was.
/// Also: outcome-8.
pub async fn outcome_1_an_own_error_around_cancelled_is_recognised(lab: Lab) {
    let mut node = None;
    let mut stale = None;
    let error = scope_as::<Mine, _>(async |s| {
        node = Some(s.job());
        s.cancel("enough");
        let told = checkpoint().await.unwrap_err();
        stale = Some(told.clone());
        Err::<(), _>(Mine::Around("while loading", told.into()))
    })
    .await
    .unwrap_err()
    .given();
    assert_eq!(error.kind(), ErrorKind::Stopped);
    assert_eq!(node.take().unwrap().state(), JobState::Cancelled);

    let stale = stale.unwrap();
    let error = scope_as::<Mine, _>(async |s| {
        node = Some(s.job());
        Err::<(), _>(Mine::Around("again", stale.into()))
    })
    .await
    .unwrap_err();
    assert!(matches!(error, Mine::Around("again", _)));
    assert_eq!(node.unwrap().state(), JobState::Failed);

    // As the outcome of a task it is recognised in the same way.
    let task = spawn(async {
        assert!(current_job().unwrap().cancel("me"));
        scope_as::<Mine, _>(async |_| {
            let told = checkpoint().await.unwrap_err();
            Err::<(), _>(Mine::Around("inside", told.into()))
        })
        .await
    });
    assert!(task.outcome().await.unwrap().is_cancelled());
    // The scope alone was cancelled: its Stopped is the task's failure.
    let error = error_of(async {
        scope_as::<Mine, _>(async |s| {
            s.cancel("it");
            Ok(checkpoint().await.map_err(Error::from)?)
        })
        .await
    });
    let error = error.await;
    assert_eq!(error.kind(), ErrorKind::Failed);
    assert!(error.downcast_ref::<Mine>().is_some());
    assert!(lab.take_failures().is_empty());
}

/// An error whose `From` panics, and so does its destructor.
#[derive(Debug)]
struct Rude(Arc<AtomicUsize>, Option<Error>);

impl fmt::Display for Rude {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("rude")
    }
}

impl StdError for Rude {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.1.as_ref().map(|error| error as _)
    }
}

impl From<Error> for Rude {
    fn from(_: Error) -> Self {
        raise("from")
    }
}

impl Drop for Rude {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
        if self.1.is_some() {
            raise("drop")
        }
    }
}

/// outcome-1: a panic in the user's `From` is one of the caller's: the scope is
/// over, and nothing is left of it.
pub async fn outcome_1_a_panic_in_from_is_the_callers(lab: Lab) {
    let node = Arc::new(std::sync::Mutex::new(None));
    let seen = node.clone();
    let error = error_of(async move {
        let answer = scope_as::<Rude, _>(async |s| {
            *seen.lock().unwrap() = Some(s.job());
            s.launch(async { fail("child") });
            Ok(())
        });
        answer.await.is_ok()
    });
    let error = error.await;
    assert_eq!(error.kind(), ErrorKind::Panicked);
    let node = node.lock().unwrap().take().unwrap();
    assert_eq!(node.state(), JobState::Failed);
    assert_eq!(lab.counters().living(), 2, "the root and this case");
}

/// outcome-1: an own error that is given up because it only passed the
/// cancellation on may panic in its destructor.
pub async fn outcome_1_an_own_error_given_up_may_panic_when_dropped(lab: Lab) {
    let drops = Arc::new(AtomicUsize::new(0));
    let counted = drops.clone();
    let error = error_of(async move {
        let answer = scope_as::<Rude, _>(async |s| {
            s.launch(parked());
            s.cancel("enough");
            let told = park().await.unwrap_err();
            Err::<(), _>(Rude(counted, Some(told.into())))
        });
        answer.await.is_ok()
    });
    // `From` then panics: the task fails, and its scope has not hung.
    let error = error.await;
    assert_eq!(error.take_panic().unwrap().downcast_ref(), Some(&"from"));
    assert_eq!(drops.load(SeqCst), 1);
    assert_eq!(lab.counters().living(), 2, "the root and this case");
}

type Waiting<F> = Inline<WithScopeAs<F>>;

/// outcome-1: a scope that is dropped while its error waits for the children
/// cancels them; nobody is there to take the error, so the failure hook does.
pub async fn outcome_1_an_own_error_that_waits_is_dropped_with_the_scope(lab: Lab) {
    fn is_send<F>(waiting: Waiting<F>) -> Waiting<F>
    where
        WithScopeAs<F>: kinfolk_core::Open,
        Waiting<F>: Send,
    {
        waiting
    }
    let drops = Arc::new(AtomicUsize::new(0));
    let tally = Tally::new();
    let told = Arc::new(AtomicUsize::new(0));
    let (counted, guard, hears) = (drops.clone(), tally.guard(), told.clone());
    let outcome = scope(async |outer| {
        let mut waiting = Box::pin(is_send(scope_as::<Rude, _>(async move |s| {
            let parked = Gate::new();
            let open = parked.clone();
            s.launch(async move {
                let _guard = guard;
                open.open();
                assert!(park().await.is_err());
                hears.fetch_add(1, SeqCst);
                cleanup(sleep(10 * MS)).await
            });
            parked.wait().await;
            Err::<(), _>(Rude(counted, None))
        })));
        while told.load(SeqCst) == 0 {
            assert!(futures_util::poll!(&mut waiting).is_pending());
            yield_now().await?;
        }
        assert_eq!(drops.load(SeqCst), 0, "it waits");
        drop(waiting);
        assert_eq!(tally.drops(), 0, "the child is waited for by the outer");
        Ok(outer.job())
    })
    .await;
    assert_eq!(tally.drops(), 1);
    let outer = outcome.unwrap();
    assert!(matches!(outer.join().await, Ok(Outcome::Completed(()))));
    // Whoever ended the scope has let go of what it reported.
    lab.settle().await;
    let unheard = lab.take_failures();
    assert_eq!(unheard.len(), 1);
    assert!(unheard[0].downcast_ref::<Rude>().is_some());
    assert_eq!(drops.load(SeqCst), 0);
    drop(unheard);
    assert_eq!(drops.load(SeqCst), 1);
}
