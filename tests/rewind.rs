//! What a failing seed, and a failing stop of `cancel_everywhere`, leave behind: a recording of
//! the run. What is to fail runs in a process of its own.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kinfolk::see::Recorder;
use kinfolk::testkit::{Sim, cancel_everywhere_then};
use kinfolk::{Error, Scope, checkpoint, park, scope, sleep, spawn, yield_now};

const MS: Duration = Duration::from_millis(1);

/// A folder for one test; removed when this is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let name = format!("kinfolk-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        Folder(path)
    }

    /// The names of the files in it; none if it is not there.
    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).into_iter().flatten();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs one of the tests below in a process of its own, its recordings in that folder. True if
/// it was green, and what it has said.
fn run(test: &str, folder: impl AsRef<OsStr>, seed: Option<&str>) -> (bool, String) {
    let seed = seed.map(|seed| ("KINFOLK_SEED", seed));
    run_with(test, folder, seed.as_slice())
}

fn run_with(test: &str, folder: impl AsRef<OsStr>, variables: &[(&str, &str)]) -> (bool, String) {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command
        .args([test, "--exact", "--ignored", "--nocapture"])
        .env_remove("KINFOLK_SEED")
        .env_remove("KINFOLK_SEEDS")
        .env_remove("KINFOLK_POINT")
        .env("RUST_BACKTRACE", "0")
        .env("KINFOLK_RECORDINGS", folder);
    command.envs(variables.iter().copied());
    let out = command.output().expect("it runs");
    let said = [out.stdout, out.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    (out.status.success(), said)
}

#[kinfolk::test(seeds = 5)]
#[ignore = "run by another"]
async fn loses_a_message() -> Result<(), Error> {
    let home = Scope::current().expect("a scope");
    let worker = home.task("worker \u{1b}[2J").spawn(async {
        scope(async |s| {
            s.task("inner").launch(park());
            park().await?;
            Ok(())
        })
        .await
    });
    sleep(3 * MS).await?;
    worker.cancel("no longer needed");
    let _ = worker.outcome().await?;
    panic!("a message is lost");
}

#[kinfolk::test(seeds = 5)]
#[ignore = "run by another"]
async fn keeps_its_messages() -> Result<(), Error> {
    spawn(async { sleep(MS).await }).await
}

/// The message names the files; they hold the second run of that seed up to the failure.
#[test]
fn test_2_a_failing_seed_leaves_its_recording() {
    let folder = Folder::new("seed");
    let (ok, said) = run("loses_a_message", &folder.0, Some("3"));
    assert!(!ok && said.contains("a message is lost"), "{said}");
    let expected = [
        "rewind-loses_a_message-3.pftrace",
        "rewind-loses_a_message-3.txt",
    ];
    assert_eq!(folder.files(), expected);
    let path = folder.0.join("rewind-loses_a_message-3.txt");
    let line = format!("recorded: {}, and ", path.display());
    assert_eq!(said.matches(&line).count(), 1, "{said}");

    let text = folder.read(expected[1]);
    assert!(
        text.starts_with("a message is lost\nloses_a_message failed with seed 3\n"),
        "{text}"
    );
    assert!(text.contains("KINFOLK_SEED=3 cargo test -p kinfolk-tests loses_a_message"));
    let cancelled = "task \"worker \\u{1b}[2J\" #";
    assert!(
        text.contains(cancelled) && !text.contains('\u{1b}'),
        "{text}"
    );
    let why = " was cancelled: cancel requested \"no longer needed\"\n  --> tests/rewind.rs:";
    assert!(text.contains(why), "{text}");
    assert!(
        text.contains("task \"inner\" #") && text.contains(" is told to stop at tests/rewind.rs:")
    );
    // From the first event to the panic; what the drop of the simulation did is left out.
    assert!(text.contains("0 more are lost"), "{text}");
    assert!(text.contains("   0.000000000  thread "), "{text}");
    assert!(text.contains("   0.003000000  thread "), "{text}");
    let first = text.find("root \"root\" #0 is made at ").expect(&text);
    let asked = text.find(" asked for at tests/rewind.rs:").expect(&text);
    let told = text.find(" is told to stop at ").expect(&text);
    assert!(first < asked && asked < told, "{text}");
    let (_, events) = text.split_once("\nevents\n").unwrap();
    assert!(
        !events.contains("root \"root\" #0 leaves the tree"),
        "{events}"
    );

    // The same failure again writes the same two files.
    let before = folder.read(expected[1]);
    let (ok, _) = run("loses_a_message", &folder.0, Some("3"));
    assert!(!ok);
    assert_eq!(folder.files(), expected);
    // But for the thread's number, which may be another.
    let plain = |text: &str| {
        let lines = text
            .lines()
            .map(|line| line.split("  thread ").next().unwrap().to_string());
        lines.collect::<Vec<_>>()
    };
    assert_eq!(plain(&folder.read(expected[1])), plain(&before));
}

/// A green test makes no file, and no folder.
#[test]
fn test_2_green_seeds_leave_nothing() {
    let folder = Folder::new("green");
    let (ok, said) = run("keeps_its_messages", &folder.0, None);
    assert!(ok, "{said}");
    assert!(!folder.0.exists());
}

/// An empty variable means no recording. A folder that cannot be made is said, and the failure
/// stays what it is.
#[test]
fn test_2_a_recording_that_cannot_be_written_hides_no_failure() {
    let (ok, said) = run("loses_a_message", "", None);
    assert!(!ok && said.contains("a message is lost"), "{said}");
    assert!(
        said.contains("KINFOLK_SEED=0") && !said.contains("record"),
        "{said}"
    );
    let folder = Folder::new("file");
    fs::write(&folder.0, "in the way").unwrap();
    let (ok, said) = run("loses_a_message", folder.0.join("below"), None);
    assert!(!ok && said.contains("a message is lost"), "{said}");
    assert!(
        said.contains("its recording could not be written to "),
        "{said}"
    );
    assert!(said.contains("KINFOLK_SEED=0"), "{said}");
    fs::remove_file(&folder.0).unwrap();
    // A disk that is full: the file of every name in there is one that takes nothing.
    if Path::new("/dev/full").exists() {
        fs::create_dir(&folder.0).unwrap();
        for name in ["txt", "pftrace"] {
            let name = folder.0.join(format!("rewind-loses_a_message-0.{name}"));
            std::os::unix::fs::symlink("/dev/full", name).unwrap();
        }
        // They are replaced, and what they point to is not written.
        let (ok, said) = run("loses_a_message", &folder.0, None);
        assert!(!ok && said.contains("recorded: "), "{said}");
        let text = fs::symlink_metadata(folder.0.join("rewind-loses_a_message-0.txt")).unwrap();
        assert!(text.is_file() && text.len() > 100);
    }
}

/// Where no folder is named it is cargo's.
#[test]
fn test_2_recordings_go_beside_what_cargo_builds() {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    let out = command
        .args(["loses_a_message", "--exact", "--ignored", "--nocapture"])
        .env_remove("KINFOLK_RECORDINGS")
        .env("KINFOLK_SEED", "4")
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
    let (_, after) = said.split_once("recorded: ").expect(&said);
    let path = Path::new(after.split(", and ").next().unwrap());
    assert_eq!(path.file_name().unwrap(), "rewind-loses_a_message-4.txt");
    assert!(path.parent().unwrap().ends_with("kinfolk"), "{said}");
    assert!(path.is_file(), "{said}");
}

#[test]
#[ignore = "run by another"]
fn loses_money() {
    let money = Arc::new(Mutex::new(0));
    let seen = money.clone();
    cancel_everywhere_then(
        move || {
            let money = money.clone();
            async move {
                *money.lock().unwrap() = 0;
                let pays = spawn(async move {
                    checkpoint().await?;
                    *money.lock().unwrap() -= 10;
                    checkpoint().await?;
                    *money.lock().unwrap() += 10;
                    Ok::<_, Error>(())
                });
                pays.await
            }
        },
        move || {
            let lost = *seen.lock().unwrap();
            assert_eq!(lost, 0, "money is lost");
        },
    );
}

/// The same of a stop of `cancel_everywhere`, with the cancel that it made.
#[test]
fn test_3_a_failing_stop_leaves_its_recording() {
    let folder = Folder::new("stop");
    let (ok, said) = run("loses_money", &folder.0, None);
    assert!(!ok && said.contains("money is lost"), "{said}");
    let files = folder.files();
    assert_eq!(files.len(), 2, "{files:?}");
    let name = files[1].strip_suffix(".txt").expect("a text");
    assert!(
        name.starts_with("rewind-cancel_everywhere-at-tests-rewind-rs-"),
        "{name}"
    );
    let (_, point) = said.split_once("KINFOLK_POINT=").expect(&said);
    let point = point.split(')').next().unwrap();
    let plain = point.replace(['@', ':', '+'], "-");
    assert!(name.ends_with(&format!("-0-{plain}")), "{name}: {point}");
    assert!(said.contains(&format!("{name}.txt, and ")), "{said}");
    let text = folder.read(&files[1]);
    assert!(
        text.contains("money is lost") && text.contains(point),
        "{text}"
    );
    let why = " was cancelled: cancel requested \"cancel_everywhere\"";
    assert!(text.contains(why), "{text}");
    let hop = " is cancelled, below ";
    assert!(
        text.contains(hop) && text.contains(" is told to stop"),
        "{text}"
    );
}

#[kinfolk::test(seed = 6)]
#[ignore = "run by another"]
async fn hangs() -> Result<(), Error> {
    spawn(async { sleep(MS).await }).await?;
    loop {
        std::thread::park();
    }
}

#[test]
#[ignore = "run by another"]
fn hangs_once_stopped() {
    kinfolk::testkit::cancel_everywhere(|| async {
        while checkpoint().await.is_err() {
            std::thread::park();
        }
    });
}

/// A hang that the guard ends is recorded if its run was picked; the message of another one says
/// that it would be.
#[test]
fn test_2_a_hang_leaves_its_recording_once_it_is_picked() {
    let folder = Folder::new("hang");
    let second = ("KINFOLK_TEST_SECONDS", "1");
    let (ok, said) = run_with("hangs", &folder.0, &[second]);
    assert!(!ok && said.contains("hangs after 1 s"), "{said}");
    assert!(
        said.contains("run again like that, it is recorded"),
        "{said}"
    );
    assert!(!folder.0.exists());
    let (ok, said) = run_with("hangs", &folder.0, &[second, ("KINFOLK_SEED", "6")]);
    assert!(!ok && said.contains("hangs after 1 s"), "{said}");
    assert_eq!(
        folder.files(),
        ["rewind-hangs-6.pftrace", "rewind-hangs-6.txt"]
    );
    assert!(said.contains("\nrecorded: "), "{said}");
    let text = folder.read("rewind-hangs-6.txt");
    assert!(text.starts_with("hangs hangs after 1 s:\n"), "{text}");
    assert!(text.contains("task \"main\" #"), "{text}");

    let point = [
        second,
        ("KINFOLK_SEED", "0"),
        ("KINFOLK_POINT", "cancel@point:1"),
    ];
    let (ok, said) = run_with("hangs_once_stopped", &folder.0, &point);
    assert!(!ok && said.contains("hangs after 1 s"), "{said}");
    assert_eq!(folder.files().len(), 4, "{said}");
    assert!(said.contains("\nrecorded: "), "{said}");
    let (ok, said) = run_with("hangs", "", &[second, ("KINFOLK_SEED", "6")]);
    assert!(!ok && !said.contains("record"), "{said}");
}

async fn is_wrong() -> Result<(), Error> {
    let worker = spawn(park());
    sleep(MS).await?;
    worker.cancel("no longer needed");
    let _ = worker.outcome().await?;
    panic!("the sum is wrong");
}

#[kinfolk::test(flavor = "native")]
#[ignore = "run by another"]
async fn fails_on_threads() -> Result<(), Error> {
    is_wrong().await
}

#[kinfolk::test(flavor = "tokio")]
#[ignore = "run by another"]
async fn fails_on_tokio() -> Result<(), Error> {
    is_wrong().await
}

#[kinfolk::test(flavor = "native")]
#[ignore = "run by another"]
async fn is_right_on_threads() -> Result<(), Error> {
    spawn(async { sleep(MS).await }).await
}

/// A failure on real threads cannot be repeated: the first run is recorded.
#[test]
fn test_1_a_failure_on_real_threads_leaves_its_recording() {
    for (test, host) in [("fails_on_threads", "native"), ("fails_on_tokio", "tokio")] {
        let folder = Folder::new(host);
        let (ok, said) = run(test, &folder.0, None);
        assert!(!ok && said.contains("the sum is wrong"), "{said}");
        let expected = [
            format!("rewind-{test}-{host}.pftrace"),
            format!("rewind-{test}-{host}.txt"),
        ];
        assert_eq!(folder.files(), expected);
        let line = format!("the sum is wrong\nrecorded: {}", folder.0.display());
        assert!(said.contains(&line), "{said}");
        let text = folder.read(&expected[1]);
        assert!(text.starts_with("the sum is wrong\n"), "{text}");
        assert!(text.contains(&format!("{test} failed on {host}")), "{text}");
        let why = " was cancelled: cancel requested \"no longer needed\"\n  --> tests/rewind.rs:";
        assert!(text.contains(why), "{text}");
        let (ok, said) = run(test, "", None);
        assert!(!ok && said.contains("the sum is wrong"), "{said}");
        assert!(!said.contains("record"), "{said}");
    }
    let folder = Folder::new("right");
    let (ok, said) = run("is_right_on_threads", &folder.0, None);
    assert!(ok && !folder.0.exists(), "{said}");
}

/// What is recorded is the run that failed: a recorder changes no choice of a seed.
#[test]
fn test_2_a_recorder_changes_no_schedule() {
    let order = |seed: u64, records: bool| {
        let log: Arc<Mutex<Vec<u32>>> = Arc::default();
        let mut builder = Sim::builder(seed).explore().time_slips();
        if records {
            let all = kinfolk::see::Interests::ALL;
            builder = builder.sink(Recorder::builder().interests(all).build());
        }
        let mut sim = builder.build();
        let seen = log.clone();
        sim.run(async move {
            let tasks: Vec<_> = (0..6)
                .map(|n| {
                    let seen = seen.clone();
                    spawn(async move {
                        for round in 0..8 {
                            seen.lock().unwrap().push(100 * n + round);
                            match (n + round) % 3 {
                                0 => checkpoint().await?,
                                1 => yield_now().await?,
                                _ => sleep(n * MS).await?,
                            }
                        }
                        Ok::<_, Error>(())
                    })
                })
                .collect();
            tasks[5].cancel("enough");
            for task in tasks {
                let _ = task.outcome().await?;
            }
            Ok::<_, Error>(())
        })
        .unwrap();
        let made = sim.counters().jobs_created;
        sim.finish();
        let order = log.lock().unwrap().clone();
        (made, order)
    };
    let mut different = 0;
    for seed in 0..200 {
        assert_eq!(order(seed, true), order(seed, false), "seed {seed}");
        different += u32::from(order(seed, true) != order(seed + 1, true));
    }
    assert!(different > 150, "{different} of 200 schedules differ");
}
