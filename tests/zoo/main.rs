//! The zoo: small programs, each with a bug of a kind that real programs have, and each
//! with its corrected twin. The tools of `kinfolk::testkit` must find the bug within 200
//! seeds, or the entry says why they cannot; the twin must stay green.
//!
//! Each program is one function that is told whether it has its bug, so that the
//! difference between the two can be read. `KINFOLK_ZOO` says on how many seeds the twins
//! run. What is found stands in a table of `docs/testing.md`: this test writes it when
//! `KINFOLK_WRITE=1`, and checks it otherwise.

/// The entries of a family, and a test for the twin of each.
macro_rules! zoo {
    ($($name:ident $how:ident $wrong:literal $(, out of reach: $why:literal)?;)*) => {
        pub(crate) const ENTRIES: &[crate::Entry] = &[$(crate::Entry {
            name: stringify!($name),
            wrong: $wrong,
            program: zoo!(@program $how $name),
            out_of_reach: zoo!(@why $($why)?),
        },)*];

        mod twins {
            $(#[test]
            fn $name() {
                crate::twin(super::ENTRIES, stringify!($name));
            })*
        }
    };
    (@program test $name:ident) => {
        crate::Program::Test(
            kinfolk::testkit::TestOptions::default,
            |bug| Box::pin($name(bug)),
        )
    };
    (@program time_slips $name:ident) => {
        crate::Program::Test(
            || kinfolk::testkit::TestOptions::default().time_slips(),
            |bug| Box::pin($name(bug)),
        )
    };
    (@program sim $name:ident) => { crate::Program::Sim($name) };
    (@program everywhere $name:ident) => { crate::Program::Everywhere($name) };
    (@why) => { None };
    (@why $why:literal) => { Some($why) };
}

mod calls;
mod cancel;
mod deadlocks;
mod files;
mod network;
mod order;
mod races;
mod unseen;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kinfolk::testkit::io::{SimIo, SimKernel};
use kinfolk::testkit::{CancelEverywhere, Sim, TestOptions, Watched, guarded, run_test};
use kinfolk::{Result, spawn};

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// On how many seeds a bug must be found, and a twin runs unless `KINFOLK_ZOO` says more.
const SEEDS: u64 = 200;

type Body = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// One bug and its twin.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    /// What is wrong, in one sentence.
    pub(crate) wrong: &'static str,
    pub(crate) program: Program,
    /// Why the simulation cannot show it.
    pub(crate) out_of_reach: Option<&'static str>,
}

/// A program and what finds its bug. The `bool` is true for the one that has it.
#[derive(Clone, Copy)]
pub(crate) enum Program {
    /// `#[kinfolk::test]` with these options.
    Test(fn() -> TestOptions, fn(bool) -> Body),
    /// A simulation by hand, with the faults or the power cut that the program asks for.
    Sim(fn(Run)),
    /// `cancel_everywhere`.
    Everywhere(fn(bool, CancelEverywhere)),
}

/// One run of a program by hand.
pub(crate) struct Run<'a> {
    pub(crate) bug: bool,
    pub(crate) seed: u64,
    watched: &'a Watched,
}

impl Run<'_> {
    /// Runs `body` on the simulation, as `#[kinfolk::test]` would, with this i/o.
    pub(crate) fn simulate<B>(&self, io: SimIo, body: impl FnOnce(SimKernel) -> B)
    where
        B: Future<Output = Result<()>> + Send + 'static,
    {
        let unheard = Arc::new(Mutex::new(None));
        let heard = unheard.clone();
        let mut sim = Sim::builder(self.seed)
            .explore()
            .io(io)
            .on_failure(move |error| *heard.lock().unwrap() = Some(error.to_string()))
            .build();
        self.watched.watch(sim.tree());
        let body = body(sim.io());
        let ran = sim.run(body);
        let seed = self.seed;
        assert!(ran.is_ok(), "it failed with seed {seed}: {ran:?}");
        sim.assert_nothing_left();
        sim.finish();
        let unheard = unheard.lock().unwrap().take();
        assert!(unheard.is_none(), "unheard with seed {seed}: {unheard:?}");
    }
}

/// Runs so many tasks side by side, and gives what they return, in order.
pub(crate) async fn side_by_side<T, B>(tasks: usize, make: impl Fn(usize) -> B) -> Result<Vec<T>>
where
    T: Send + 'static,
    B: Future<Output = Result<T>> + Send + 'static,
{
    let begun: Vec<_> = (0..tasks).map(|n| spawn(make(n))).collect();
    let mut values = Vec::new();
    for task in begun {
        values.push(task.await?);
    }
    Ok(values)
}

/// A number in the environment.
fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    let number = text.trim().parse();
    Some(number.unwrap_or_else(|_| panic!("{variable} is {text:?}, and is to be a number")))
}

/// The twin stays green.
fn twin(entries: &'static [Entry], name: &'static str) {
    let entry = entries.iter().find(|entry| entry.name == name);
    let asked = number("KINFOLK_ZOO");
    let seeds = asked.unwrap_or(SEEDS);
    match entry.expect("an entry").program {
        Program::Test(options, body) => {
            run_test(name, options().seeds(0..seeds), move || body(false));
        }
        Program::Sim(run) => {
            let seeds = match number("KINFOLK_SEED") {
                Some(seed) => seed..seed + 1,
                None => 0..seeds,
            };
            guarded(name, move |watched| {
                for seed in seeds {
                    let run = || {
                        run(Run {
                            bug: false,
                            seed,
                            watched: &watched,
                        });
                    };
                    if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
                        println!(
                            "to run it again: KINFOLK_SEED={seed} \
                             cargo test -p kinfolk-tests --test zoo {name}"
                        );
                        resume_unwind(panic);
                    }
                }
            });
        }
        // Each seed is a stop at every point: an ordinary run takes a tenth of them.
        Program::Everywhere(run) => {
            run(
                false,
                CancelEverywhere::new().seeds(asked.unwrap_or(SEEDS / 10)),
            );
        }
    }
}

/// What a panic says.
fn words(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().cloned();
    let text = text.or_else(|| {
        payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_string())
    });
    text.unwrap_or_default()
}

/// The first seed that shows the bug, and the first line of what is said then.
fn first_found(entry: &Entry) -> Option<(u64, String)> {
    let name = entry.name;
    let panic_of = |run: &dyn Fn()| catch_unwind(AssertUnwindSafe(run)).err();
    let first_line = |text: &str| text.lines().next().unwrap_or_default().to_string();
    let program = entry.program;
    if let Program::Everywhere(run) = program {
        let panic = panic_of(&|| run(true, CancelEverywhere::new().seeds(20)))?;
        let text = words(&*panic);
        let at = text.split_once("KINFOLK_SEED=").map(|(_, rest)| rest);
        let at = at.and_then(|rest| rest.split_whitespace().next());
        let seed = at.and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(|| panic!("{name}: no line to copy in {text}"));
        return Some((seed, first_line(&text)));
    }
    (0..SEEDS).find_map(|seed| {
        let panic = panic_of(&|| match program {
            Program::Test(options, body) => {
                run_test(name, options().seeds(seed..seed + 1), move || body(true));
            }
            Program::Sim(run) => guarded(name, move |watched| {
                run(Run {
                    bug: true,
                    seed,
                    watched: &watched,
                });
            }),
            Program::Everywhere(_) => unreachable!("see above"),
        })?;
        Some((seed, first_line(&words(&*panic))))
    })
}

const FAMILIES: &[(&str, &[Entry])] = &[
    ("races and lost updates", races::ENTRIES),
    ("assumptions about order and time", order::ENTRIES),
    ("deadlocks, back-pressure, leaks", deadlocks::ENTRIES),
    ("files and power cuts", files::ENTRIES),
    ("network", network::ENTRIES),
    ("cancellation", cancel::ENTRIES),
    ("blocking calls", calls::ENTRIES),
    ("beyond a simulation", unseen::ENTRIES),
];

const BEGIN: &str = "<!-- written by KINFOLK_WRITE=1 cargo test -p kinfolk-tests --test zoo -->\n";
const END: &str = "<!-- end of the zoo -->";

fn compare_with_the_document(table: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/testing.md");
    let text = std::fs::read_to_string(&path).expect("docs/testing.md");
    let begin = text.find(BEGIN).expect("the mark before the table") + BEGIN.len();
    let end = text.find(END).expect("the mark behind the table");
    if std::env::var_os("KINFOLK_WRITE").is_some() {
        let new = [&text[..begin], table, &text[end..]].concat();
        std::fs::write(&path, new).expect("docs/testing.md");
        return;
    }
    assert_eq!(
        &text[begin..end],
        table,
        "docs/testing.md does not say what is found: \
         KINFOLK_WRITE=1 cargo test -p kinfolk-tests --test zoo"
    );
}

#[test]
fn every_bug_is_found_or_out_of_reach() {
    let picked = |variable: &&str| std::env::var_os(*variable).is_some();
    if let Some(variable) = ["KINFOLK_SEED", "KINFOLK_POINT"].into_iter().find(picked) {
        println!("{variable} is set, and bugs are looked for on all seeds: nothing is done");
        return;
    }
    let mut table = String::from("| family | bugs | found |\n|---|---|---|\n");
    let (mut wrong, mut report, mut reasons) = (Vec::new(), String::new(), String::new());
    let (mut bugs, mut shown) = (0, 0);
    for (family, entries) in FAMILIES {
        let mut found = 0;
        for entry in *entries {
            let first = first_found(entry);
            let at = first.as_ref().map(|(seed, _)| *seed);
            report += &match &first {
                Some((seed, said)) => format!("{:32} seed {seed:3}  {said}\n", entry.name),
                None => format!("{:32} not found\n", entry.name),
            };
            match (at, entry.out_of_reach) {
                (Some(_), None) => found += 1,
                (None, Some(why)) => {
                    reasons += &format!("| {} | {} | {why} |\n", spaced(entry.name), entry.wrong);
                }
                (None, None) => wrong.push(format!("{} is not found", entry.name)),
                (Some(seed), Some(_)) => {
                    wrong.push(format!("{} is found at seed {seed}", entry.name));
                }
            }
        }
        table += &format!("| {family} | {} | {found} |\n", entries.len());
        (bugs, shown) = (bugs + entries.len(), shown + found);
    }
    println!("{report}");
    assert!(wrong.is_empty(), "{wrong:?}\n{report}");
    let sum = format!("Of {bugs} bugs, {shown} are found within {SEEDS} seeds:\n\n");
    let beyond = "\nOut of reach:\n\n| bug | what is wrong | why a simulation does not show it |\n|---|---|---|\n";
    compare_with_the_document(&[&sum, &table, beyond, &reasons].concat());
}

fn spaced(name: &str) -> String {
    name.replace('_', " ")
}
