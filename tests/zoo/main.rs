//! The zoo: small programs, each with a bug of a kind that real programs have, and each
//! with its corrected twin. The tools of `kinfolk::testkit` must find the bug within 200
//! seeds, or the entry says why they cannot; the twin must stay green.
//!
//! Each program is one function that is told whether it has its bug, so that the
//! difference between the two can be read. Each entry has the words that its failure must
//! say: a panic about something else does not count. `KINFOLK_ZOO` says on how many seeds the
//! twins run. What is found, and by what, stands in a table of `docs/testing.md`: this test
//! writes it when `KINFOLK_WRITE=1`, and checks it otherwise.

/// The entries of a family, and a test for the twin of each.
macro_rules! zoo {
    ($($name:ident $how:ident $wrong:literal $expected:ident $words:literal;)*) => {
        pub(crate) const ENTRIES: &[crate::Entry] = &[$(crate::Entry {
            name: stringify!($name),
            wrong: $wrong,
            program: zoo!(@program $how $name),
            expected: zoo!(@expected $expected $words),
        },)*];

        mod twins {
            $(#[test]
            fn $name() {
                crate::twin(super::ENTRIES, stringify!($name));
            })*
        }
    };
    (@program test $name:ident) => {
        crate::Program::Test(|bug| Box::pin($name(bug)))
    };
    (@program time_slips $name:ident) => {
        crate::Program::TimeSlips(|bug| Box::pin($name(bug)))
    };
    (@program fault $name:ident) => { crate::Program::Sim(crate::Means::Fault, $name) };
    (@program partition $name:ident) => { crate::Program::Sim(crate::Means::Partition, $name) };
    (@program power_cut $name:ident) => { crate::Program::Sim(crate::Means::PowerCut, $name) };
    (@program everywhere $name:ident) => { crate::Program::Everywhere($name) };
    (@expected says $words:literal) => { crate::Expected::Says($words) };
    (@expected out_of_reach $why:literal) => { crate::Expected::OutOfReach($why) };
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
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kinfolk::testkit::io::{SimIo, SimKernel};
use kinfolk::testkit::{CancelEverywhere, GuardedRun, Sim, TestOptions, guarded, run_test};
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
    pub(crate) expected: Expected,
}

/// What becomes of a bug.
#[derive(Clone, Copy)]
pub(crate) enum Expected {
    /// It is found, and the failure says this.
    Says(&'static str),
    /// Why the simulation cannot show it.
    OutOfReach(&'static str),
}

/// A program and what finds its bug. The `bool` is true for the one that has it.
#[derive(Clone, Copy)]
pub(crate) enum Program {
    /// `#[kinfolk::test]`.
    Test(fn(bool) -> Body),
    /// `#[kinfolk::test(time = "slips")]`.
    TimeSlips(fn(bool) -> Body),
    /// A simulation by hand, with what the program asks for to show its bug.
    Sim(Means, fn(Run)),
    /// `cancel_everywhere`.
    Everywhere(fn(bool, CancelEverywhere)),
}

/// What finds a bug, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Means {
    /// Each ready task has the same chance, and i/o is fair.
    Plain,
    /// The seed lets points yield, gives priorities, makes a task slow.
    Explore,
    /// I/o is rough.
    Rough,
    TimeSlips,
    Fault,
    Partition,
    PowerCut,
    Everywhere,
}

impl Means {
    fn words(self) -> &'static str {
        match self {
            Means::Plain => "a plain test: the order of turns that the seed draws",
            Means::Explore => "yields, priorities, slow tasks and idle wakes of the seed",
            Means::Rough => "rough i/o, on the odd seeds",
            Means::TimeSlips => "`#[kinfolk::test(time = \"slips\")]`",
            Means::Fault => "a fault that the test asks for (`SimIo`)",
            Means::Partition => "a cut between machines (`SimKernel::partition`)",
            Means::PowerCut => "a power cut (`SimKernel::power_cut`)",
            Means::Everywhere => "`cancel_everywhere`",
        }
    }
}

/// One run of a program by hand.
pub(crate) struct Run<'a> {
    pub(crate) bug: bool,
    pub(crate) seed: u64,
    /// With no more than this.
    means: Means,
    watched: &'a GuardedRun,
}

impl Run<'_> {
    /// Runs `body` on the simulation, as `#[kinfolk::test]` would, with this i/o.
    pub(crate) fn simulate<B>(&self, io: SimIo, body: impl FnOnce(SimKernel) -> B)
    where
        B: Future<Output = Result<()>> + Send + 'static,
    {
        let unheard = Arc::new(Mutex::new(None));
        let heard = unheard.clone();
        let io = match self.means {
            Means::Plain | Means::Explore => SimIo::new(),
            Means::Rough => SimIo::rough(),
            _ => io,
        };
        let mut sim = Sim::builder(self.seed)
            .io(io)
            .on_failure(move |error| *heard.lock().unwrap() = Some(error.to_string()));
        if self.means != Means::Plain {
            sim = sim.explore();
        }
        let mut sim = sim.build();
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
    Some(number.unwrap_or_else(|_| panic!("{variable} must be a number, not {text:?}")))
}

/// The twin stays green.
fn twin(entries: &'static [Entry], name: &'static str) {
    let entry = entries.iter().find(|entry| entry.name == name);
    let asked = number("KINFOLK_ZOO");
    let seeds = asked.unwrap_or(SEEDS);
    let options = TestOptions::default().seeds(0..seeds);
    match entry.expect("an entry").program {
        Program::Test(body) => run_test(name, options, move || body(false)),
        Program::TimeSlips(body) => run_test(name, options.time_slips(), move || body(false)),
        Program::Sim(means, run) => {
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
                            means,
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

/// Runs the program that has the bug on one seed, with this to find it.
fn run_with(program: Program, means: Means, name: &'static str, seed: u64) {
    let options = TestOptions::default().seeds(seed..seed + 1);
    let by_hand = move |run: fn(Run)| {
        guarded(name, move |watched| {
            run(Run {
                bug: true,
                seed,
                means,
                watched: &watched,
            });
        });
    };
    match (program, means) {
        (Program::Test(body), Means::Plain) => guarded(name, move |watched| {
            let run = Run {
                bug: true,
                seed,
                means,
                watched: &watched,
            };
            run.simulate(SimIo::new(), |_| body(true));
        }),
        (Program::Test(body), Means::Explore) => {
            run_test(name, options.fair_io(), move || body(true));
        }
        (Program::Test(body), _) => run_test(name, options, move || body(true)),
        (Program::TimeSlips(body), Means::TimeSlips) => {
            run_test(name, options.time_slips(), move || body(true));
        }
        (Program::TimeSlips(body), _) => run_test(name, options, move || body(true)),
        (Program::Sim(_, run), _) => by_hand(run),
        (Program::Everywhere(_), _) => unreachable!("it has no run on one seed alone"),
    }
}

/// The first seed on which the program fails, and what it says then.
fn first_failure(entry: &Entry, means: Means) -> Option<(u64, String)> {
    let panic_of = |run: &dyn Fn()| catch_unwind(AssertUnwindSafe(run)).err();
    let (name, program) = (entry.name, entry.program);
    if let Program::Everywhere(run) = program {
        let panic = panic_of(&|| run(true, CancelEverywhere::new().seeds(20)))?;
        let text = words(&*panic);
        let at = text.split_once("KINFOLK_SEED=").map(|(_, rest)| rest);
        let at = at.and_then(|rest| rest.split_whitespace().next());
        let seed = at.and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(|| panic!("{name}: no line to copy in {text}"));
        return Some((seed, text));
    }
    (0..SEEDS).find_map(|seed| {
        let panic = panic_of(&|| run_with(program, means, name, seed))?;
        Some((seed, words(&*panic)))
    })
}

/// A bug that was found.
struct Found {
    seed: u64,
    said: String,
    /// The least that finds it.
    by: Means,
}

/// What finds the bug of this entry; what is wrong if that is not as it must be.
fn look_for(entry: &Entry) -> std::result::Result<Option<Found>, String> {
    let name = entry.name;
    let most = match entry.program {
        Program::Test(_) => Means::Rough,
        Program::TimeSlips(_) => Means::TimeSlips,
        Program::Sim(means, _) => means,
        Program::Everywhere(_) => Means::Everywhere,
    };
    let (words, first) = match (entry.expected, first_failure(entry, most)) {
        (Expected::OutOfReach(_), None) => return Ok(None),
        (Expected::OutOfReach(_), Some((seed, said))) => {
            return Err(format!("{name} is found at seed {seed}: {said}"));
        }
        (Expected::Says(_), None) => return Err(format!("{name} is not found")),
        (Expected::Says(words), Some(first)) => (words, first),
    };
    let wrong = |said: &str| format!("{name} must say {words:?}, and says {said}");
    let (seed, said) = first;
    if !said.contains(words) {
        return Err(wrong(&said));
    }
    let mut by = most;
    // A program that cuts the power or the network does so whatever the i/o.
    let less: &[Means] = match entry.program {
        Program::Test(_) => &[Means::Plain, Means::Explore],
        Program::TimeSlips(_) => &[Means::Rough],
        Program::Sim(Means::Fault, _) => &[Means::Explore, Means::Rough],
        Program::Sim(..) | Program::Everywhere(_) => &[],
    };
    for means in less {
        match first_failure(entry, *means) {
            None => {}
            Some((_, said)) if !said.contains(words) => return Err(wrong(&said)),
            Some((seed, _)) if most >= Means::TimeSlips => {
                return Err(format!(
                    "{name} asks for {most:?}, and {means:?} finds it at {seed}"
                ));
            }
            Some(_) => {
                by = *means;
                break;
            }
        }
    }
    Ok(Some(Found { seed, said, by }))
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
    let (mut wrong, mut report) = (Vec::new(), String::new());
    let (mut bugs, mut shown) = (0, 0);
    let (mut table, mut beyond) = (String::new(), String::new());
    for (family, entries) in FAMILIES {
        let mut found_by: BTreeMap<Means, Vec<String>> = BTreeMap::new();
        bugs += entries.len();
        for entry in *entries {
            match look_for(entry) {
                Err(what) => wrong.push(what),
                Ok(Some(Found { seed, said, by })) => {
                    let said = said.lines().next().unwrap_or_default();
                    report += &format!("{:32} seed {seed:3}  {by:?}  {said}\n", entry.name);
                    found_by.entry(by).or_default().push(spaced(entry.name));
                    shown += 1;
                }
                Ok(None) => report += &format!("{:32} not found\n", entry.name),
            }
            if let Expected::OutOfReach(why) = entry.expected {
                beyond += &format!(
                    "| {} | no | {why} | {} |\n",
                    entry.wrong,
                    spaced(entry.name)
                );
            }
        }
        for (means, names) in found_by {
            let names = names.join(", ");
            table += &format!("| {family} | yes | {} | {names} |\n", means.words());
        }
    }
    println!("{report}");
    assert!(wrong.is_empty(), "{}\n{report}", wrong.join("\n"));
    let sum = format!("Of {bugs} bugs, {shown} are found within {SEEDS} seeds:\n\n");
    let head =
        "| class of bug | shown | by what, or why not | which of the zoo |\n|---|---|---|---|\n";
    compare_with_the_document(&[&sum, head, &table, &beyond].concat());
}

fn spaced(name: &str) -> String {
    name.replace('_', " ")
}
