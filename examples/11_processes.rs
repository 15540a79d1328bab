//! A runner of process trees: a family of processes, and if one fails the others
//! are stopped, with what they have started.
//!
//! No code here keeps a list of processes or handles a signal. Each process belongs
//! to the task that waits for it; when that is cancelled the process gets SIGTERM,
//! after a grace SIGKILL, and is reaped before the scope is left.

use std::time::Duration;

use kinfolk::process::{Command, Stdio};
use kinfolk::{Error, Result, Scope, scope, timeout};

/// One service of the program: a name, and what its shell runs.
struct Service {
    name: &'static str,
    script: &'static str,
}

/// Runs a service until it ends.
async fn run(service: &Service) -> Result<()> {
    let mut child = Command::new("sh")
        .args(["-c", service.script])
        .env("NAME", service.name)
        .stdin(Stdio::Null)
        .stderr(Stdio::Null)
        .own_group() // what it starts is stopped with it
        .grace(Duration::from_millis(300))
        .spawn()
        .await?;
    println!("{}: started, number {}", service.name, child.id());
    match child.wait().await? {
        status if status.success() => Ok(()),
        status => Err(Error::msg(format!("{}: {status}", service.name))),
    }
}

/// Runs all of them until each has ended, or one fails.
async fn run_all(services: &'static [Service]) -> Result<()> {
    scope(async |s| {
        for service in services {
            s.task(service.name).launch(run(service));
        }
        Ok(())
    })
    .await
}

const PROGRAM: &[Service] = &[
    Service {
        name: "web",
        // Two of its own, as servers have.
        script: "sleep 1000 & sleep 1000 & echo $NAME: listening; wait",
    },
    Service {
        name: "db",
        script: "trap 'echo $NAME: saving; exit 0' TERM; echo $NAME: open; \
                 while :; do sleep 0.05; done",
    },
    Service {
        name: "stubborn",
        script: "trap '' TERM; while :; do sleep 0.05; done",
    },
    Service {
        name: "migration",
        script: "sleep 0.4; echo $NAME: not possible; exit 3",
    },
];

#[kinfolk::main]
async fn main() -> Result<()> {
    let failed = run_all(PROGRAM).await;
    println!(
        "one failed, the others are stopped: {}",
        failed.unwrap_err()
    );

    // The same with a limit for all of them.
    let late = timeout(Duration::from_millis(200), run_all(&PROGRAM[..2])).await;
    println!("too late, all are stopped: {}", late.unwrap_err());

    // And one that is told by hand.
    let web = Scope::current()
        .ok_or_else(|| Error::msg("in main"))?
        .spawn(run(&PROGRAM[0]));
    web.cancel("for today");
    println!(
        "{}",
        web.outcome()
            .await?
            .reason()
            .map_or_else(String::new, ToString::to_string)
    );
    Ok(())
}

/// However it ends, no process is left: each writes its number to a file.
#[test]
fn nothing_is_left_running() -> Result<()> {
    let path = std::env::temp_dir().join(format!("kinfolk-pids-{}", std::process::id()));
    std::fs::write(&path, "")?;
    let script = format!("sleep 1000 & echo $$ $! >> {}; wait", path.display());
    let services: &'static [Service] = Box::leak(Box::new([
        Service {
            name: "a",
            script: script.clone().leak(),
        },
        Service {
            name: "b",
            script: script.leak(),
        },
    ]));
    kinfolk::Runtime::new()?.block_on(async {
        let task = kinfolk::spawn(run_all(services));
        while std::fs::read_to_string(&path)?.lines().count() < 2 {
            kinfolk::yield_now().await?;
        }
        task.cancel("enough");
        assert!(task.outcome().await?.is_cancelled());
        let numbers = std::fs::read_to_string(&path)?;
        for number in numbers.split_whitespace() {
            // Whoever reaps those that are not ours may take its time.
            while is_running(number) {
                kinfolk::yield_now().await?;
            }
        }
        Ok::<_, Error>(())
    })?;
    std::fs::remove_file(&path)?;
    Ok(())
}

#[cfg(test)]
fn is_running(number: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| !rest.starts_with('Z'))
}
