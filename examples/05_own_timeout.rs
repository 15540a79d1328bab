//! A timeout made by hand, from `interrupt`, `uninterrupt` and `interrupts`.
//!
//! `kinfolk::timeout` is a scope: it cancels itself, and whose cancellation it
//! was follows from the tree. Sometimes there is no scope to cancel: a deadline
//! that other code keeps, a key that the user may press. Then interrupt the task
//! itself, and withdraw the interrupt on the way out; the count says whether other
//! code has interrupted it as well. This is how asyncio's timeouts work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use kinfolk::{Error, ErrorKind, ReasonKind, Result, current_job, sleep, spawn, timeout};

/// Gives `work` so long; none if that was not enough.
async fn move_on_after<T>(
    limit: Duration,
    work: impl Future<Output = Result<T>>,
) -> Result<Option<T>> {
    let me = current_job().ok_or_else(|| Error::msg("outside any job"))?;
    let asked_before = me.interrupts();
    let fired = Arc::new(AtomicBool::new(false));
    let alarm = spawn({
        let (me, fired) = (me.clone(), fired.clone());
        async move {
            sleep(limit).await?;
            fired.store(true, SeqCst);
            me.interrupt("time is up");
            Ok::<_, Error>(())
        }
    });

    let result = work.await;

    // The alarm is stopped, or has run: what it asked for is taken back. If
    // the work was done before it heard, there is nothing to hear any more.
    alarm.cancel("in time");
    let _how = alarm.outcome().await?;
    if fired.load(SeqCst) && me.uninterrupt() <= asked_before {
        // Nobody else has asked: the request was ours, and ends here.
        return match result {
            Err(error) if is_interrupt(&error) => Ok(None),
            other => other.map(Some),
        };
    }
    // Somebody else has: it goes on to them.
    result.map(Some)
}

fn is_interrupt(error: &Error) -> bool {
    let reason = error.reason().map(|reason| reason.kind());
    error.kind() == ErrorKind::Cancelled && reason == Some(ReasonKind::Interrupted)
}

const MS: Duration = Duration::from_millis(1);

async fn work(takes: Duration) -> Result<&'static str> {
    sleep(takes).await?;
    Ok("done")
}

#[kinfolk::main]
async fn main() -> Result<()> {
    println!("in time:   {:?}", move_on_after(500 * MS, work(MS)).await?);
    println!("too late:  {:?}", move_on_after(MS, work(500 * MS)).await?);

    // It nests with itself and with the timeout of the house: each ends what
    // is its own.
    let inner = move_on_after(500 * MS, timeout(MS, work(500 * MS))).await;
    println!("the house: {}", inner.unwrap_err());
    let outer = timeout(500 * MS, move_on_after(MS, work(500 * MS))).await;
    println!("by hand:   {:?}", outer?);

    // Asked by somebody else, it is no timeout: it goes on, and ends the task.
    let task = spawn(move_on_after(500 * MS, work(500 * MS)));
    sleep(MS).await?;
    task.interrupt("the user pressed a key");
    println!("asked:     {}", task.await.unwrap_err());
    Ok(())
}

/// Stopped at each of its points in turn, it leaves neither an alarm nor a request
/// behind.
#[test]
fn a_timeout_made_by_hand_can_be_stopped_anywhere() {
    async fn all_sorts() -> Result<()> {
        let me = current_job().expect("in a job");
        // One more may be asked for from outside: that is one of the ways to be stopped.
        let nothing_left = || assert!(me.interrupts() <= 1);
        let in_time = move_on_after(5 * MS, work(MS)).await;
        nothing_left();
        assert_eq!(in_time?, Some("done"));
        let late = move_on_after(MS, work(5 * MS)).await;
        nothing_left();
        assert_eq!(late?, None);
        let nested = move_on_after(5 * MS, move_on_after(MS, work(9 * MS))).await;
        nothing_left();
        assert_eq!(nested?, Some(None));
        let inner = move_on_after(5 * MS, timeout(MS, work(9 * MS))).await;
        nothing_left();
        match inner {
            Err(error) if error.kind() == ErrorKind::TimedOut => Ok(()),
            other => other.map(|_| unreachable!("it takes longer")),
        }
    }
    let went = kinfolk::testkit::cancel_everywhere(all_sorts);
    assert_eq!(went.forced, 0, "every wait hears it");
}
