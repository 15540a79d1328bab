//! Processes on the native runtime.

mod io_support;

use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use io_support::on_each;
use kinfolk_core::{
    Error, Result, Scope, Task, blocking, checkpoint, cleanup, current_job, scope, spawn, timeout,
    yield_now,
};
use kinfolk_runtime::Runtime;
use kinfolk_runtime::io::PipeReader;
use kinfolk_runtime::process::{Child, Command, Stdio};
use kinfolk_testkit::guarded;

const TERM: i32 = 15;
const KILL: i32 = 9;

/// Ends on SIGTERM.
fn sleeper() -> Command {
    Command::new("sleep").arg("1000")
}

fn sh(script: &str) -> Command {
    Command::new("sh").args(["-c", script])
}

/// What the system says of a process: its state and its group; none if it knows
/// of none.
fn known(id: u32) -> Option<(char, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut words = rest.split(' ');
    let state = words.next()?.chars().next()?;
    Some((state, words.nth(1)?.parse().ok()?))
}

/// Gone, not even a zombie.
#[track_caller]
fn assert_gone(id: u32) {
    assert_eq!(known(id), None, "process {id} is still known");
}

/// A line of output.
async fn line(pipe: &PipeReader) -> Result<String> {
    let mut line = String::new();
    while !line.ends_with('\n') {
        let (read, byte) = pipe.read([0_u8]).await;
        assert_eq!(read?, 1, "it ends after {line:?}");
        line.push(char::from(byte[0]));
    }
    Ok(line.trim_end().to_string())
}

/// One that does not hear SIGTERM, once this returns.
async fn deaf(grace: Duration) -> Result<Child> {
    let script = "trap '' TERM; echo ready; while :; do sleep 0.01; done";
    let mut child = sh(script).stdout(Stdio::Piped).grace(grace).spawn().await?;
    let out = child.stdout.take().expect("piped");
    assert_eq!(line(&out).await?, "ready");
    Ok(child)
}

/// A task that waits for the process that `start` starts; and its number.
async fn waiting(
    start: impl Future<Output = Result<Child>> + Send + 'static,
) -> Result<(u32, Task<()>)> {
    let (say, said) = std::sync::mpsc::channel();
    let task = spawn(async move {
        let mut child = start.await?;
        let _ = say.send(child.id());
        let told = child.wait().await.expect_err("told");
        Err(Error::from(told))
    });
    let id = loop {
        match said.try_recv() {
            Ok(id) => break id,
            Err(_) => yield_now().await?,
        }
    };
    Ok((id, task))
}

#[test]
fn io_5_a_process_is_waited_for() {
    on_each("waited for", async |_| {
        let mut child = sh("exit 3").spawn().await?;
        let id = child.id();
        assert_eq!(child.wait().await?.code(), Some(3));
        assert_gone(id);
        assert_eq!(
            child.wait().await?.code(),
            Some(3),
            "as often as it is asked"
        );
        assert_eq!(child.try_wait()?.and_then(|status| status.code()), Some(3));
        child.kill()?;
        assert!(Command::new("true").status().await?.success());
        let error = Command::new("/no/such/program").spawn().await;
        assert_eq!(error.expect_err("no program").kind(), ErrorKind::NotFound);
        let error = Command::new("/no/such/program").output().await;
        assert_eq!(error.expect_err("no program").kind(), ErrorKind::NotFound);
        Ok(())
    });
}

#[test]
fn io_5_a_process_gets_what_it_is_started_with() {
    on_each("started with", async |stage| {
        let dir = stage.scratch.0.canonicalize()?;
        let out = sh("pwd; echo $KIN,$HOME; cat; echo \"$0 $1\" >&2")
            .args(["a", "b c"])
            .env("KIN", "folk")
            .env_remove("HOME")
            .dir(&dir)
            .output()
            .await?;
        let said = String::from_utf8(out.stdout).expect("words");
        assert_eq!(said, format!("{}\nfolk,\n", dir.display()));
        assert_eq!(out.stderr, b"a b c\n");
        let out = Command::new("/usr/bin/env")
            .env("LOST", "1")
            .env_clear()
            .env("KEPT", "1")
            .stderr(Stdio::Null)
            .output()
            .await?;
        assert_eq!(out.stdout, b"KEPT=1\n");
        Ok(())
    });
}

#[test]
fn io_5_output_may_be_larger_than_a_pipe() {
    on_each("larger", async |_| {
        let out = sh("head -c 1000000 /dev/zero; head -c 300000 /dev/zero >&2; exit 7")
            .output()
            .await?;
        assert_eq!((out.stdout.len(), out.stderr.len()), (1_000_000, 300_000));
        assert_eq!(out.status.code(), Some(7));
        // In and out at the same time.
        let mut cat = Command::new("cat")
            .stdin(Stdio::Piped)
            .stdout(Stdio::Piped)
            .spawn()
            .await?;
        let (stdin, stdout) = (cat.stdin.take(), cat.stdout.take());
        let task = spawn(async move {
            let stdin = stdin.expect("piped");
            stdin.write_all(vec![5_u8; 1_000_000]).await.0
        });
        let (read, bytes) = stdout.expect("piped").read_to_end(b"5".to_vec()).await;
        assert_eq!((read?, bytes.len()), (1_000_000, 1_000_001));
        task.await?;
        assert!(cat.wait().await?.success());
        Ok(())
    });
}

#[test]
fn io_5_input_that_nobody_reads_is_an_error_and_no_death() {
    on_each("epipe", async |_| {
        let mut child = Command::new("true").stdin(Stdio::Piped).spawn().await?;
        let stdin = child.stdin.take().expect("piped");
        assert!(child.wait().await?.success());
        let (written, buf) = stdin.write_all(vec![0_u8; 100_000]).await;
        assert_eq!(written.expect_err("closed").kind(), ErrorKind::BrokenPipe);
        assert_eq!(buf.len(), 100_000);
        // One that closes it while we write.
        let mut child = sh("head -c 10 >&2")
            .stdin(Stdio::Piped)
            .stderr(Stdio::Null)
            .spawn()
            .await?;
        let stdin = child.stdin.take().expect("piped");
        let (written, _) = stdin.write_all(vec![0_u8; 1_000_000]).await;
        assert_eq!(written.expect_err("closed").kind(), ErrorKind::BrokenPipe);
        assert!(child.wait().await?.success());
        // A wait closes it, so no job waits for the other.
        let mut child = Command::new("cat")
            .stdin(Stdio::Piped)
            .stdout(Stdio::Null)
            .spawn()
            .await?;
        assert!(child.wait().await?.success());
        Ok(())
    });
}

#[test]
fn io_5_a_cancelled_job_stops_its_process() {
    on_each("stops", async |_| {
        let (id, task) = waiting(async { Ok(sleeper().spawn().await?) }).await?;
        assert!(known(id).is_some());
        task.cancel("enough");
        assert!(task.outcome().await?.is_cancelled());
        assert_gone(id);
        Ok(())
    });
}

#[test]
fn io_5_one_that_does_not_hear_is_killed() {
    on_each("deaf", async |_| {
        let mut child = deaf(Duration::from_millis(20)).await?;
        let status = child.stop().await?;
        assert_eq!(status.signal(), Some(KILL));
        assert_gone(child.id());
        // The same when its job is cancelled.
        let (id, task) = waiting(deaf(Duration::from_millis(20))).await?;
        task.cancel("enough");
        assert!(task.outcome().await?.is_cancelled());
        assert_gone(id);
        Ok(())
    });
}

#[test]
fn io_5_the_grace_is_not_spent_on_one_that_hears() {
    on_each("hears", async |_| {
        let script = "trap 'echo bye; exit 4' TERM; echo ready; while :; do sleep 0.01; done";
        let mut child = sh(script)
            .stdout(Stdio::Piped)
            .grace(Duration::from_secs(1000))
            .spawn()
            .await?;
        let out = child.stdout.take().expect("piped");
        assert_eq!(line(&out).await?, "ready");
        assert_eq!(child.stop().await?.code(), Some(4));
        assert_eq!(line(&out).await?, "bye");
        Ok(())
    });
}

#[test]
fn io_5_dropped_a_process_is_stopped_before_its_scope_ends() {
    on_each("dropped", async |_| {
        let id = scope(async |_| {
            let child = sleeper().spawn().await?;
            Ok(child.id())
        })
        .await?;
        assert_gone(id);
        // Taken elsewhere: it ends with its scope all the same.
        let mut child = scope(async |_| Ok(sleeper().spawn().await?)).await?;
        assert_gone(child.id());
        assert_eq!(child.wait().await?.signal(), Some(TERM));
        Ok(())
    });
}

#[test]
fn io_5_a_timed_out_wait_leaves_the_process_alone() {
    on_each("left alone", async |_| {
        let mut child = sleeper().spawn().await?;
        let late = timeout(Duration::from_millis(5), child.wait()).await;
        assert!(late.is_err());
        assert!(child.try_wait()?.is_none());
        assert!(known(child.id()).is_some_and(|(state, _)| state != 'Z'));
        // Not SIGHUP: whoever runs this under nohup has it ignored, for all below.
        child.signal(libc::SIGUSR1)?;
        assert_eq!(child.wait().await?.signal(), Some(libc::SIGUSR1));
        let mut child = sleeper().spawn().await?;
        child.kill()?;
        assert_eq!(child.wait().await?.signal(), Some(KILL));
        // Where it runs for its caller only, it is stopped.
        let late = timeout(Duration::from_millis(20), sleeper().status()).await;
        assert!(late.is_err());
        let late = timeout(Duration::from_millis(20), sleeper().output()).await;
        assert!(late.is_err());
        Ok(())
    });
}

#[test]
fn io_5_a_group_goes_with_its_leader() {
    on_each("group", async |_| {
        let script = "sleep 1000 & echo $!; wait";
        let mut child = sh(script).stdout(Stdio::Piped).own_group().spawn().await?;
        let out = child.stdout.take().expect("piped");
        let grandchild: u32 = line(&out).await?.parse()?;
        assert_eq!(known(grandchild).map(|(_, group)| group), Some(child.id()));
        assert_eq!(child.stop().await?.signal(), Some(TERM));
        assert_gone(child.id());
        until_dead(grandchild).await?;
        // One that ends by itself and leaves something behind.
        let mut child = sh("sleep 1000 >&- & echo $!")
            .stdout(Stdio::Piped)
            .own_group()
            .spawn()
            .await?;
        let out = child.stdout.take().expect("piped");
        let grandchild: u32 = line(&out).await?.parse()?;
        assert!(child.wait().await?.success());
        until_dead(grandchild).await?;
        Ok(())
    });
}

/// It is not our child: whose it is now reaps it, or not.
async fn until_dead(id: u32) -> Result<()> {
    while known(id).is_some_and(|(state, _)| state != 'Z') {
        yield_now().await?;
    }
    Ok(())
}

#[test]
fn case_j13_a_cancelled_job_starts_nothing_but_in_cleanup() {
    on_each("starts nothing", async |stage| {
        let path = stage.path("touched");
        let touch = Command::new("touch").arg(&path);
        let task = spawn(async move {
            current_job().expect("a job").cancel("enough");
            let told = touch.spawn().await.expect_err("told");
            assert!(Error::from(told).is_cancelled());
            let told = touch.status().await.expect_err("told");
            assert!(Error::from(told).is_cancelled());
            let told = touch.output().await.expect_err("told");
            assert!(Error::from(told).is_cancelled());
            assert!(!path.exists());
            cleanup(async {
                assert!(touch.status().await?.success());
                Ok::<_, Error>(())
            })
            .await?;
            assert!(path.exists());
            checkpoint().await?;
            Ok::<_, Error>(())
        });
        assert!(task.outcome().await?.is_cancelled());
        Ok(())
    });
}

#[test]
fn io_5_in_cleanup_one_can_still_talk_to_a_process() {
    on_each("talk", async |stage| {
        let script = "read word; echo \"got $word\"";
        let task = Scope::current()
            .expect("a job")
            .task("talker")
            .spawn(async move {
                let mut child = sh(script)
                    .stdin(Stdio::Piped)
                    .stdout(Stdio::Piped)
                    .spawn()
                    .await?;
                let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
                let (stdin, stdout) = (stdin.expect("piped"), stdout.expect("piped"));
                let (told, buf) = stdout.read(Vec::with_capacity(10)).await;
                assert!(told.is_err() && buf.is_empty());
                cleanup(async {
                    let (written, _) = stdin.write_all("bye\n").await;
                    written?;
                    assert_eq!(line(&stdout).await?, "got bye");
                    assert!(child.wait().await?.success());
                    Ok::<_, Error>(())
                })
                .await?;
                checkpoint().await?;
                Ok::<_, Error>(())
            });
        stage.until_io("talker").await?;
        task.cancel("enough");
        assert!(task.outcome().await?.is_cancelled());
        Ok(())
    });
}

#[test]
fn io_5_many_at_once_and_one_that_fails_stops_the_others() {
    on_each("many", async |_| {
        let (say, said) = std::sync::mpsc::channel();
        let failed = scope(async |s| {
            for n in 0..20 {
                let say = say.clone();
                s.launch(async move {
                    let command = match n {
                        13 => sh("exit 13"),
                        _ => sleeper(),
                    };
                    let mut child = command.spawn().await?;
                    let _ = say.send(child.id());
                    match child.wait().await?.code() {
                        Some(13) => Err(Error::msg("thirteen")),
                        _ => Ok(()),
                    }
                });
            }
            Ok(())
        })
        .await;
        assert_eq!(failed.expect_err("one fails").to_string(), "thirteen");
        drop(say);
        for id in said {
            assert_gone(id);
        }
        Ok(())
    });
}

/// How many files of this process stand for processes that were reaped.
fn dead_pidfds() -> usize {
    let infos = std::fs::read_dir("/proc/self/fdinfo").expect("our files");
    infos
        .filter(|entry| {
            let path = entry.as_ref().expect("an entry").path();
            std::fs::read_to_string(path).is_ok_and(|info| info.contains("Pid:\t-1\n"))
        })
        .count()
}

#[test]
fn io_5_given_up_at_any_time_nothing_is_left() {
    on_each("given up", async |stage| {
        let path = stage.path("numbers");
        let script = format!("echo $$ >> {}; exec sleep 1000", path.display());
        let mut begun = 0;
        for round in 0..60 {
            let late = timeout(Duration::from_micros(round * 50), async {
                let mut child = sh(&script).spawn().await?;
                begun += 1;
                child.wait().await?;
                Ok::<_, Error>(())
            })
            .await;
            assert!(late.is_err(), "{late:?}");
            for id in std::fs::read_to_string(&path).unwrap_or_default().lines() {
                assert_gone(id.parse()?);
            }
        }
        assert!(begun > 0);
        // Other tests have theirs for a moment.
        while dead_pidfds() > 0 {
            yield_now().await?;
        }
        Ok(())
    });
}

#[test]
fn io_5_a_shutdown_that_cannot_wait_kills() {
    guarded("shutdown", |watched| {
        for workers in [0, 2] {
            let rt = Runtime::builder()
                .workers(workers)
                .build()
                .expect("a runtime");
            watched.watch(rt.tree());
            let (say, said) = std::sync::mpsc::channel();
            let task = rt.scope().spawn(async move {
                let mut child = deaf(Duration::from_secs(1000)).await?;
                let _ = say.send(child.id());
                child.wait().await?;
                Ok::<_, Error>(())
            });
            let id = rt
                .block_on(async {
                    loop {
                        match said.try_recv() {
                            Ok(id) => break Ok::<_, Error>(id),
                            Err(_) => yield_now().await?,
                        }
                    }
                })
                .expect("it starts");
            let job = task.into_job();
            rt.shutdown(Duration::from_millis(20)).expect("a report");
            assert!(job.is_ended());
            // Where nobody could wait for it, a thread reaps it.
            while known(id).is_some() {
                std::thread::yield_now();
            }
        }
    });
}

#[test]
fn a_process_is_refused_outside_every_job() {
    let start = Command::new("true").spawn();
    let rt = Runtime::new().expect("a runtime");
    let error = rt
        .block_on(async { start.await.map(drop) })
        .expect_err("no job");
    assert!(error.to_string().contains("outside any job"), "{error}");
}

/// On this thread, and on those and in those processes that it starts, the system has
/// no `pidfd_open`.
fn without_pidfd_open() {
    let nr = libc::SYS_pidfd_open as u32;
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let equal = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let answer = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        // The number of the call.
        step(load, 0, 0, 0),
        step(equal, 0, 1, nr),
        step(answer, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
        step(answer, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: numbers, and a program that lives as long as the call.
    let set = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const program,
        )
    };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: two numbers, no memory.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, std::process::id(), 0) };
    assert_eq!(fd, -1, "it was to be gone");
}

#[test]
fn io_5_processes_where_the_system_has_no_file_for_them() {
    guarded("without_pidfd_open", |watched| {
        without_pidfd_open();
        for workers in [0, 2] {
            let rt = Runtime::builder().workers(workers).build();
            let rt = rt.expect("a runtime");
            watched.watch(rt.tree());
            rt.block_on(watched_by_threads()).expect("processes");
            let report = rt.shutdown(Duration::from_secs(1)).expect("a report");
            assert!(report.is_clean(), "{report}");
        }
    });
}

async fn watched_by_threads() -> Result<()> {
    let said = sh("echo one; exit 3").output().await?;
    assert_eq!(
        (said.status.code(), &*said.stdout),
        (Some(3), &b"one\n"[..])
    );
    let missing = Command::new("/no/such/program").spawn().await;
    assert_eq!(missing.expect_err("none").kind(), ErrorKind::NotFound);

    let mut child = sleeper().spawn().await?;
    let id = child.id();
    let late = timeout(Duration::from_millis(5), child.wait()).await;
    assert!(late.is_err(), "it goes on");
    assert_eq!(child.stop().await?.signal(), Some(TERM));
    assert_gone(id);

    let mut child = deaf(Duration::from_millis(10)).await?;
    let id = child.id();
    assert_eq!(child.stop().await?.signal(), Some(KILL));
    assert_gone(id);

    let mut child = sleeper().own_group().spawn().await?;
    child.kill()?;
    assert_eq!(child.wait().await?.signal(), Some(KILL));

    let (id, task) = waiting(async { Ok(sleeper().spawn().await?) }).await?;
    task.cancel("enough");
    assert!(task.outcome().await?.is_cancelled());
    assert_gone(id);
    Ok(())
}

#[test]
fn io_5_a_process_has_the_timers_of_the_program_and_not_of_a_worker() {
    fn slack() -> i32 {
        // SAFETY: a number, no memory.
        unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) }
    }
    let usual = slack();
    assert!(usual > 1, "{usual}");
    on_each("slack", move |_| async move {
        let said = spawn(async {
            let said = Command::new("cat").arg("/proc/self/timerslack_ns");
            Ok::<_, Error>(said.output().await?)
        });
        let said = String::from_utf8(said.await?.stdout).expect("a number");
        assert_eq!(said.trim(), usual.to_string());
        let blocks = spawn(async move { blocking(move |_| slack()).await });
        assert_eq!(blocks.await?, usual, "nor has a thread for blocking calls");
        Ok(())
    });
}

/// Told at any moment while it starts: nothing has failed, and nothing is left.
#[test]
fn io_5_a_process_given_up_while_it_starts_is_no_failure() {
    let failures = Arc::new(Mutex::new(Vec::new()));
    let heard = failures.clone();
    guarded("given_up", move |watched| {
        let rt = Runtime::builder()
            .workers(2)
            .on_failure(Box::new(move |error| {
                heard.lock().unwrap().push(error.to_string())
            }))
            .build()
            .expect("a runtime");
        watched.watch(rt.tree());
        let ran = rt.block_on(async {
            for turn in 0..200 {
                let task = spawn(async {
                    let mut child = sleeper().spawn().await?;
                    Ok::<_, Error>(child.wait().await?)
                });
                for _ in 0..turn % 10 {
                    yield_now().await?;
                }
                task.cancel("enough");
                assert!(task.outcome().await?.is_cancelled());
            }
            Ok::<_, Error>(())
        });
        ran.expect("processes");
    });
    assert_eq!(*failures.lock().unwrap(), [""; 0]);
}
