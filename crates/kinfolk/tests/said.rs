//! see-7: with the feature `tracing` what the library says goes to the subscriber of the
//! program, and without a subscriber to standard error; never to both. Each part is a run
//! of this test in a process of its own.

use std::process::{Command, Output};
use std::sync::Mutex;
use std::time::Duration;

use kinfolk::{Error, Runtime};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Which part a process is.
const PART: &str = "KINFOLK_SAID";

/// What the subscriber was told: the target and the words.
static TOLD: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

/// Keeps the words of every event; panics too, if it is to.
struct Listens {
    panics: bool,
    /// Its filter leaves out what is less than this.
    least: Level,
}

struct Words<'a>(&'a mut String);

impl Visit for Words<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            *self.0 = format!("{value:?}");
        }
    }
}

impl Subscriber for Listens {
    fn enabled(&self, of: &Metadata<'_>) -> bool {
        *of.level() <= self.least
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut words = String::new();
        event.record(&mut Words(&mut words));
        let target = event.metadata().target().to_string();
        TOLD.lock().expect("no panic").push((target, words));
        if self.panics {
            std::panic::resume_unwind(Box::new("a subscriber"));
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn subscribe(panics: bool, least: Level) {
    let listens = Listens { panics, least };
    tracing::subscriber::set_global_default(listens).expect("the first");
}

/// A main that fails, in a program whose subscriber hears errors alone, or nothing at all.
fn failing_main(part: &str) {
    match part {
        "main, errors" => subscribe(false, Level::ERROR),
        _ => tracing::subscriber::set_global_default(Deaf).expect("the first"),
    }
    let _ = kinfolk::runtime::run_main(async { Err::<(), _>(Error::msg("out of cheese")) });
    assert!(kinfolk::host::say::flush(Duration::from_secs(60)));
    print_told();
}

/// A subscriber whose filter leaves out everything.
struct Deaf;

impl Subscriber for Deaf {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        false
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// A failure that no handle takes, in a program with that subscriber.
fn part(part: &str) {
    if part.starts_with("main") {
        return failing_main(part);
    }
    if part != "none" {
        subscribe(part == "panics", Level::TRACE);
    }
    let rt = Runtime::builder().workers(1).build().expect("a runtime");
    let job = rt
        .scope()
        .task("nightly")
        .launch(async { Err::<(), _>(Error::msg("lost")) });
    rt.block_on(async { job.join().await.map(drop) })
        .expect("it ended");
    drop(rt);
    assert!(kinfolk::host::say::flush(Duration::from_secs(60)));
    print_told();
}

fn print_told() {
    for (target, words) in TOLD.lock().expect("no panic").iter() {
        println!("told {target}: {words}");
    }
}

/// This test in a process of its own, as that part.
fn run(part: &str) -> (String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(std::env::current_exe().expect("a path"))
        .args([
            "--exact",
            "see_7_what_is_said_goes_to_one_place",
            "--nocapture",
        ])
        .env(PART, part)
        .output()
        .expect("a process");
    let words = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    assert!(status.success(), "{part}: {}", words(stderr));
    (words(stdout), words(stderr))
}

#[test]
fn see_7_what_is_said_goes_to_one_place() {
    if let Ok(name) = std::env::var(PART) {
        return part(&name);
    }
    let line = "unhandled failure of root/nightly: lost";
    for part in ["listens", "panics"] {
        let (told, said) = run(part);
        assert_eq!(
            told.matches(&format!("told kinfolk: {line}")).count(),
            1,
            "{told}"
        );
        assert!(!said.contains("unhandled failure"), "{part}: {said}");
    }
    let (told, said) = run("none");
    assert!(!told.contains("told "), "{told}");
    assert_eq!(
        said.matches(&format!("kinfolk: {line}")).count(),
        1,
        "{said}"
    );
}

/// The error of main is said somewhere, whatever the filter of the subscriber is.
#[test]
fn see_7_the_error_of_main_is_said_whatever_the_filter() {
    let line = "Error: out of cheese";
    let (told, said) = run("main, errors");
    assert_eq!(told.matches(line).count(), 1, "{told}");
    assert!(!said.contains(line), "{said}");
    let (told, said) = run("main, deaf");
    assert!(!told.contains("told "), "{told}");
    assert_eq!(said.matches(line).count(), 1, "{said}");
}
