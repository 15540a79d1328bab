//! Waiting for signals. They go to the whole process, so that the tests take
//! turns.

mod io_support;

use std::io::ErrorKind;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use io_support::on_each;
use kinfolk_core::{Error, Result, Scope, checkpoint, current_job, spawn, timeout, yield_now};
use kinfolk_runtime::process::Command;
use kinfolk_runtime::signal::{
    SIGALRM, SIGHUP, SIGINT, SIGUSR1, SIGUSR2, SIGWINCH, Signals, ctrl_c,
};

fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends a signal to this process. When this returns, it has come.
async fn raise(signal: i32) -> Result<()> {
    // A listener of its own says so: handlers are called one after the other, in
    // the order they came, and this one is the last.
    let mut last = Signals::new([signal])?;
    let sent = Command::new("kill")
        .args([format!("-{signal}"), std::process::id().to_string()])
        .status()
        .await?;
    assert!(sent.success());
    assert_eq!(last.recv().await?, signal);
    Ok(())
}

#[test]
fn io_5_a_signal_is_waited_for() {
    let _turn = turn();
    on_each("waited for", async |stage| {
        let (say, said) = std::sync::mpsc::channel();
        let task = Scope::current().expect("a job").task("listener").spawn({
            async move {
                let mut signals = Signals::new([SIGUSR1, SIGUSR2])?;
                let first = signals.recv().await?;
                let _ = say.send(first);
                Ok::<_, Error>((first, signals.recv().await?))
            }
        });
        stage.until_io("listener").await?;
        raise(SIGUSR2).await?;
        while said.try_recv().is_err() {
            yield_now().await?;
        }
        raise(SIGUSR1).await?;
        assert_eq!(task.await?, (SIGUSR2, SIGUSR1));
        Ok(())
    });
}

#[test]
fn io_5_what_comes_between_two_waits_is_kept() {
    let _turn = turn();
    on_each("kept", async |_| {
        let mut signals = Signals::new([SIGHUP, SIGUSR1, SIGUSR2])?;
        raise(SIGUSR2).await?;
        raise(SIGUSR1).await?;
        raise(SIGUSR2).await?;
        raise(SIGWINCH).await?;
        assert_eq!(signals.recv().await?, SIGUSR1, "the lowest first");
        assert_eq!(signals.recv().await?, SIGUSR2, "once, though it came twice");
        for round in 0..20 {
            let late = timeout(Duration::from_micros(round * 20), signals.recv()).await;
            assert!(late.is_err(), "{late:?}");
        }
        raise(SIGHUP).await?;
        assert_eq!(signals.recv().await?, SIGHUP);
        Ok(())
    });
}

#[test]
fn io_5_several_hear_the_same_signal() {
    let _turn = turn();
    on_each("several", async |stage| {
        let names = ["a", "b", "c"];
        let tasks = names.map(|name| {
            Scope::current().expect("a job").task(name).spawn(async {
                let mut signals = Signals::new([SIGALRM])?;
                Ok::<_, Error>(signals.recv().await?)
            })
        });
        for name in names {
            stage.until_io(name).await?;
        }
        raise(SIGALRM).await?;
        for task in tasks {
            assert_eq!(task.await?, SIGALRM);
        }
        // Nobody listens any more, and it still ends nobody.
        raise(SIGALRM).await?;
        Ok(())
    });
}

#[test]
fn io_5_ctrl_c_is_heard_from_the_call_on() {
    let _turn = turn();
    on_each("ctrl-c", async |_| {
        let pressed = ctrl_c();
        raise(SIGINT).await?;
        pressed.await?;
        Ok(())
    });
}

#[test]
fn io_5_told_a_listener_takes_nothing() {
    let _turn = turn();
    on_each("told", async |stage| {
        let task = Scope::current().expect("a job").task("told").spawn(async {
            let mut signals = Signals::new([SIGUSR1])?;
            let told = signals.recv().await.expect_err("told");
            assert_eq!(told.kind(), ErrorKind::Other);
            Ok::<_, Error>(signals)
        });
        stage.until_io("told").await?;
        task.cancel("enough");
        let mut signals = task.outcome().await?.into_value().expect("a late value");
        raise(SIGUSR1).await?;
        let task = spawn(async move {
            current_job().expect("a job").cancel("enough");
            // Told at entry, though there is one.
            assert!(signals.recv().await.is_err());
            Ok::<_, Error>(signals)
        });
        let mut signals = task.outcome().await?.into_value().expect("as above");
        assert_eq!(signals.recv().await?, SIGUSR1);
        Ok(())
    });
}

#[test]
fn io_5_what_cannot_be_heard_is_refused() {
    let _turn = turn();
    on_each("refused", async |_| {
        for signal in [9, 19, 11, 0, -1, 65] {
            let error = Signals::new([SIGUSR1, signal]).expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{signal}");
        }
        checkpoint().await?;
        yield_now().await?;
        Ok(())
    });
    let error = Signals::new([SIGUSR1]).expect_err("no job");
    assert!(error.to_string().contains("outside any job"), "{error}");
}
