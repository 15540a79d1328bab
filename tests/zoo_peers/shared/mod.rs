//! The zoo of `tests/zoo`, in the idiom of tokio. The two crates beside this directory
//! compile these files: one with tokio and turmoil, one with madsim in the place of
//! tokio. What differs between them is in their `peer.rs` and `files.rs`.
//!
//! Every bug has its corrected twin here too. A bug counts as found if one of 200 seeds
//! fails with the bug, and none fails without it.

/// The entries of a family. `alone` is one program on one machine, `two` a server and a
/// client, `own` a run that the peer's crate carries out, `cannot` a program that cannot be
/// written there.
macro_rules! zoo {
    ($($kind:ident $name:ident $(= $what:expr)?;)*) => {
        pub(crate) const ENTRIES: &[crate::shared::Entry] = &[$(crate::shared::Entry {
            name: stringify!($name),
            how: zoo!(@ $kind $name $($what)?),
        },)*];
    };
    (@ alone $name:ident) => { crate::shared::How::Alone(|run| Box::pin($name(run))) };
    (@ two $name:ident) => { crate::shared::How::Two($name) };
    (@ own $name:ident) => { crate::shared::How::Own($name) };
    (@ cannot $name:ident $why:expr) => { crate::shared::How::Cannot($why) };
    (@ either $name:ident $how:expr) => { $how };
}
pub(crate) use zoo;

pub(crate) mod cancel;
pub(crate) mod deadlocks;
pub(crate) mod network;
pub(crate) mod order;
pub(crate) mod races;
pub(crate) mod unseen;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::error::Error;
use std::panic::catch_unwind;
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// On how many seeds a bug may be found, and its twin must stay green.
const SEEDS: u64 = 200;

pub(crate) type Result<T = (), E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;
pub(crate) type Body = Pin<Box<dyn Future<Output = Result> + Send>>;

/// One run of a program.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    pub(crate) bug: bool,
    pub(crate) seed: u64,
}

impl Run {
    /// A number below `end` that the seed decides, another one for each `salt`.
    pub(crate) fn draw(self, salt: u64, end: u64) -> u64 {
        let mut number = (self.seed * 64 + salt).wrapping_add(0x9E37_79B9_7F4A_7C15);
        number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (number ^ (number >> 31)) % end
    }
}

/// A server, which may go on for ever, and a client, whose end is the end of the run.
pub(crate) struct Two {
    /// How often a message is lost.
    pub(crate) loss: f64,
    pub(crate) server: Body,
    pub(crate) client: Body,
}

#[derive(Clone, Copy)]
pub(crate) enum How {
    Alone(fn(Run) -> Body),
    Two(fn(Run) -> Two),
    Own(fn(Run) -> Result),
    Cannot(&'static str),
}

pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) how: How,
}

/// Runs so many tasks side by side, and gives what they return, in order.
pub(crate) async fn side_by_side<T, B>(tasks: usize, make: impl Fn(usize) -> B) -> Result<Vec<T>>
where
    T: Send + 'static,
    B: Future<Output = Result<T>> + Send + 'static,
{
    let begun: Vec<_> = (0..tasks).map(|n| tokio::spawn(make(n))).collect();
    let mut values = Vec::new();
    for task in begun {
        values.push(task.await??);
    }
    Ok(values)
}

thread_local! {
    /// The words of the first panic of this thread. The panic that ends a run may be
    /// another one, which says that there was a first.
    static FIRST_PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Keeps the words of panics, and prints none: thousands of runs are to fail.
fn keep_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let payload = panic.payload();
        let words = payload.downcast_ref::<String>().map(String::as_str);
        let words = words.or_else(|| payload.downcast_ref::<&str>().copied());
        let words = words.unwrap_or("a panic").to_string();
        FIRST_PANIC.with_borrow_mut(|first| _ = first.get_or_insert(words));
    }));
}

/// What goes wrong in this run. A thread of its own for each, so that nothing is left of
/// the run before.
fn failure(how: How, run: Run) -> Option<String> {
    let body = move || {
        let ran = catch_unwind(move || match how {
            How::Alone(make) => crate::peer::alone(run, make(run)),
            How::Two(make) => crate::peer::two(run, make(run)),
            How::Own(own) => own(run),
            How::Cannot(_) => Ok(()),
        });
        let panic = FIRST_PANIC.take().unwrap_or_default();
        ran.map(|ran| ran.err().map(|error| error.to_string()))
            .unwrap_or(Some(panic))
    };
    let ran = std::thread::spawn(body).join();
    ran.unwrap_or_else(|_| Some("the thread of the run panicked".into()))
}

/// What is said of one entry: a word for the table, and a reason.
fn verdict(entry: &Entry) -> (&'static str, String) {
    if let How::Cannot(why) = entry.how {
        return ("cannot", why.to_string());
    }
    let first =
        |bug| (0..SEEDS).find_map(|seed| Some((seed, failure(entry.how, Run { bug, seed })?)));
    let one_line = |text: String| text.replace(['\n', '\t'], " ");
    if let Some((seed, said)) = first(false) {
        return ("twin", format!("seed {seed}: {}", one_line(said)));
    }
    match first(true) {
        Some((seed, said)) => ("found", format!("seed {seed}: {}", one_line(said))),
        None => ("missed", String::new()),
    }
}

/// The names of the bugs in a family of our own zoo.
fn names_of_ours(file: &str) -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../zoo/{file}.rs"));
    let text = std::fs::read_to_string(&path).expect("a family of the zoo");
    let kinds = ["test", "time_slips", "sim", "everywhere"];
    text.lines()
        .filter_map(|line| {
            let mut words = line.strip_prefix("    ")?.split(' ');
            let (name, kind, wrong) = (words.next()?, words.next()?, words.next()?);
            let entry = kinds.contains(&kind) && wrong.starts_with('"');
            entry.then(|| name.to_string())
        })
        .collect()
}

/// Runs the zoo, or the entries whose name has `KINFOLK_ZOO_ONLY` in it, and prints a line
/// for each: family, name, verdict, reason.
pub(crate) fn report() {
    let families: [(&str, &[Entry]); 7] = [
        ("races", races::ENTRIES),
        ("order", order::ENTRIES),
        ("deadlocks", deadlocks::ENTRIES),
        ("files", crate::files::ENTRIES),
        ("network", network::ENTRIES),
        ("cancel", cancel::ENTRIES),
        ("unseen", unseen::ENTRIES),
    ];
    let only = std::env::var("KINFOLK_ZOO_ONLY").unwrap_or_default();
    keep_panics();
    let mut red = false;
    for (family, entries) in families {
        let theirs: BTreeSet<_> = entries.iter().map(|entry| entry.name.to_string()).collect();
        if theirs != names_of_ours(family) {
            eprintln!("{family}: not the bugs of tests/zoo/{family}.rs");
            red = true;
        }
        for entry in entries.iter().filter(|entry| entry.name.contains(&only)) {
            let (word, why) = verdict(entry);
            red |= word == "twin";
            println!("{family}\t{}\t{word}\t{why}", entry.name);
        }
    }
    std::process::exit(i32::from(red));
}
