//! The feature `anyhow`, through the facade: `anyhow::Error` is recognised by
//! its type, and what is inside it can be downcast.

use std::fmt;
use std::time::Duration;

use anyhow::Context as _;
use kinfolk::job::JobState;
use kinfolk::testkit::Sim;
use kinfolk::{
    Error, ErrorKind, OrFail, Scope, checkpoint, park, scope, scope_as, shield, sleep, spawn,
    timeout,
};

const MS: Duration = Duration::from_millis(1);

/// How many seeds each of these runs on.
const SEEDS: u64 = 20;

#[derive(Debug, PartialEq)]
struct Oops(&'static str);

impl fmt::Display for Oops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Oops {}

/// A context that is an error type.
#[derive(Debug, PartialEq)]
struct While(&'static str);

impl fmt::Display for While {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for While {}

/// Runs `body` on every seed, where a child's failure cancels no other job.
fn on_sim<B>(body: fn() -> B)
where
    B: Future<Output = ()> + Send + 'static,
{
    for seed in 0..SEEDS {
        let mut sim = Sim::seeded(seed);
        let family = Scope::build().supervisor();
        sim.run(async move { family.run_future(body()).await })
            .unwrap();
        sim.finish();
    }
}

fn bad() -> anyhow::Result<()> {
    Err(Oops("bad"))
        .context(While("loading"))
        .context("in words")
}

/// What every way into ours must keep.
#[track_caller]
fn is_kept(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Failed);
    assert_eq!(error.downcast_ref::<Oops>(), Some(&Oops("bad")));
    assert_eq!(error.downcast_ref::<While>(), Some(&While("loading")));
    assert!(error.downcast_ref::<std::io::Error>().is_none());
    assert_eq!(error.to_string(), "in words");
    assert_eq!(format!("{error:#}"), "in words: loading: bad");
    let shown = format!("{error:?}");
    assert!(
        shown.contains("loading") && shown.contains("bad"),
        "{shown}"
    );
    // A reporter that walks sources says each thing once.
    let below = std::error::Error::source(error).expect("a source");
    assert_eq!(below.to_string(), "loading");
}

#[test]
fn outcome_1_an_anyhow_error_can_be_downcast_however_it_comes() {
    on_sim(|| async {
        is_kept(&spawn(async { bad() }).await.unwrap_err());
        is_kept(&timeout(MS, async { bad() }).await.unwrap_err());
        is_kept(&shield(async { bad() }).await.unwrap_err());
        is_kept(&scope(async |_| bad().or_fail()).await.unwrap_err());
        is_kept(&scope(async |_| Ok(bad()?)).await.unwrap_err());
        let future = Scope::named("a").run_future(async { bad() });
        is_kept(&future.await.unwrap_err());
        // A child's, seen by the scope.
        let child = scope(async |s| {
            s.launch(async { bad() });
            Ok(())
        });
        is_kept(&child.await.unwrap_err());
        // Without any context.
        let plain = spawn(async { Err::<(), _>(anyhow::Error::new(Oops("bad"))) });
        let plain = plain.await.unwrap_err();
        assert_eq!(plain.downcast_ref::<Oops>(), Some(&Oops("bad")));
        assert_eq!(plain.to_string(), "bad");
        let words = spawn(async { Err::<(), _>(anyhow::anyhow!("words")) });
        assert_eq!(words.await.unwrap_err().to_string(), "words");
        // Sources below what anyhow holds.
        let io = std::io::Error::other(Oops("deep"));
        let deep = spawn(async { Err::<(), _>(io).context("x") });
        let deep = deep.await.unwrap_err();
        assert_eq!(deep.downcast_ref::<Oops>(), Some(&Oops("deep")));
        assert_eq!(spawn(async { anyhow::Ok(3) }).await.unwrap(), 3);
    });
}

#[test]
fn outcome_1_ours_goes_through_anyhow_and_comes_back() {
    on_sim(|| async {
        async fn child() -> anyhow::Result<()> {
            let late = timeout(MS, async { sleep(10 * MS).await });
            late.await?;
            Ok(())
        }
        // As it was: the kind too.
        let error = spawn(child()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        // In a box, which anyhow does not name by its type.
        let boxed = anyhow::Error::from_boxed(Error::msg("boxed").into());
        let boxed = spawn(async { Err::<(), _>(boxed) }).await.unwrap_err();
        assert_eq!(boxed.to_string(), "boxed");
        // With context it is a failure that has ours inside.
        let error = spawn(async { child().await.context("outer") });
        let error = error.await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Failed);
        assert_eq!(error.to_string(), "outer");
        // Into anyhow it goes like every error.
        let into = anyhow::Error::from(error);
        assert!(into.downcast_ref::<Error>().is_some());
    });
}

#[test]
fn outcome_1_anyhow_around_cancelled_means_cancelled() {
    on_sim(|| async {
        for layers in 0..3 {
            let task = spawn(async move {
                let told = park().await.map(|_| ());
                match layers {
                    0 => Ok(told?),
                    1 => told.context("while waiting"),
                    // The context is the cancellation.
                    _ => Err(anyhow::Error::new(Oops("bad")).context(told.unwrap_err())),
                }
            });
            sleep(MS).await.unwrap();
            assert!(task.cancel("outside"));
            assert!(task.outcome().await.unwrap().is_cancelled(), "{layers}");
        }
        let stopped = scope_as::<anyhow::Error, _>(async |s| {
            s.cancel("enough");
            checkpoint().await.context("while waiting")?;
            Ok(())
        });
        let error = stopped.await.unwrap_err();
        let ours = error.downcast_ref::<Error>().expect("ours");
        assert_eq!(ours.kind(), ErrorKind::Stopped);
    });
}

#[test]
fn outcome_1_a_scope_returns_anyhow() {
    on_sim(|| async {
        let mut node = None;
        let error = Scope::named("a")
            .run_as::<anyhow::Error, _>(async |s| {
                node = Some(s.job());
                s.launch(async { park().await.map(|_| ()) });
                bad()?;
                Ok(())
            })
            .await
            .unwrap_err();
        // The very error, contexts that are no errors included.
        assert_eq!(error.downcast_ref::<&str>(), Some(&"in words"));
        assert_eq!(error.downcast_ref::<Oops>(), Some(&Oops("bad")));
        assert!(error.downcast_ref::<Error>().is_none());
        assert_eq!(node.unwrap().state(), JobState::Failed);

        // Around a child's failure it takes its place.
        let error = scope_as::<anyhow::Error, _>(async |s| {
            let task = s.spawn(async { bad() });
            task.await.context("outer")?;
            Ok(())
        });
        let error = error.await.unwrap_err();
        assert_eq!(error.to_string(), "outer");
        is_kept(error.downcast_ref::<Error>().unwrap());

        // Among others it comes as ours.
        let error = scope_as::<anyhow::Error, _>(async |s| {
            s.launch(async {
                assert!(park().await.is_err());
                Err::<(), _>(Oops("later"))
            });
            checkpoint().await?;
            kinfolk::yield_now().await?;
            sleep(MS).await?;
            bad()
        });
        let error = error.await.unwrap_err();
        let ours = error.downcast_ref::<Error>().expect("ours");
        assert_eq!(ours.downcast_ref::<While>(), Some(&While("loading")));
        let later = &ours.suppressed()[0];
        assert_eq!(later.downcast_ref::<Oops>(), Some(&Oops("later")));

        // Its errors and its values pass.
        let value = scope_as::<anyhow::Error, _>(async |s| Ok(s.spawn(async { 3 }).await?));
        assert_eq!(value.await.unwrap(), 3);
    });
}

/// An error that goes into anyhow as another one.
#[derive(Debug)]
struct Disguised(&'static str);

impl fmt::Display for Disguised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl From<Disguised> for anyhow::Error {
    fn from(error: Disguised) -> Self {
        Oops(error.0).into()
    }
}

impl From<Error> for Disguised {
    fn from(error: Error) -> Self {
        assert_eq!(error.downcast_ref::<Oops>(), Some(&Oops("mask")));
        Disguised("unmasked")
    }
}

#[test]
fn outcome_1_an_error_that_anyhow_does_not_give_back_comes_through_from() {
    on_sim(|| async {
        let error = scope_as::<Disguised, _>(async |_| Err::<(), _>(Disguised("mask")));
        assert_eq!(error.await.unwrap_err().0, "unmasked");
    });
}
