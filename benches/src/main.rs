//! Kinfolk beside its peers, in one interleaved run.
//!
//! `cargo run --release -p kinfolk-bench -- [--only NAMES] [--write] [--rounds N] [--json FILE]`
//!
//! A run of everything writes the tables of `BENCHMARKS.md` anew. With
//! `--only`, the benches whose name contains one of NAMES, which commas divide, run, and the
//! file stays as it is; with `--write` too, their tables are replaced in it, and the others
//! stay.

mod contestant;
mod floor;
mod measure;
mod report;
mod ways;
mod workloads;

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

const ROUNDS: usize = 25;

const USAGE: &str = "usage: kinfolk-bench [--only NAMES] [--write] [--rounds N] [--json FILE]";

#[derive(Debug)]
struct Options {
    only: Option<String>,
    /// Tables of some benches are written into the file, too.
    write: bool,
    rounds: usize,
    json: Option<PathBuf>,
}

impl Options {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
        let mut options = Options {
            only: None,
            write: false,
            rounds: ROUNDS,
            json: None,
        };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} needs a value\n{USAGE}"));
            match word.as_str() {
                "--only" => options.only = Some(value()?),
                "--write" => options.write = true,
                "--rounds" => {
                    let rounds = value()?.parse().ok().filter(|rounds| *rounds > 0);
                    options.rounds = rounds.ok_or(format!("--rounds needs a number\n{USAGE}"))?;
                }
                "--json" => options.json = Some(value()?.into()),
                _ => return Err(format!("{word} is not an option\n{USAGE}")),
            }
        }
        Ok(options)
    }

    /// Whether a bench of that name is to run.
    fn wants(&self, bench: &str) -> bool {
        let only = self.only.as_deref();
        only.is_none_or(|names| names.split(',').any(|name| bench.contains(name)))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1).peekable();
    if words
        .next_if(|word| word == workloads::memory::CHILD)
        .is_some()
    {
        return workloads::memory::child(&words.next().unwrap_or_default());
    }
    if words
        .next_if(|word| word == workloads::clients::CLIENTS)
        .is_some()
    {
        return workloads::clients::child(words);
    }
    let options = Options::parse(words)?;
    if cfg!(debug_assertions) {
        eprintln!("WARNING: built without --release; the numbers mean nothing.");
    }
    let start = Instant::now();
    let mut tables = Vec::new();
    for group in workloads::all() {
        if !group.benches.iter().any(|bench| options.wants(bench.name)) {
            continue;
        }
        for table in measure::run(group, options.rounds) {
            println!("{}", report::plain(&table));
            tables.push(table);
        }
    }
    if tables.is_empty() {
        return Err("no bench has a name like that".into());
    }
    let rough = tables.iter().filter(|table| table.is_rough()).count();
    println!(
        "{} tables, {rough} of them rough; {:.0} s in all",
        tables.len(),
        start.elapsed().as_secs_f64()
    );
    if let Some(path) = &options.json {
        fs::write(path, tables.iter().map(report::json).collect::<String>())?;
    }
    if options.only.is_some() && !options.write {
        return Ok(());
    }
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../BENCHMARKS.md");
    let document = fs::read_to_string(&path)?;
    let document = match options.only {
        None => report::regenerate(&document, &all(&tables, options.rounds)),
        Some(_) => tables.iter().try_fold(document, |document, table| {
            report::replace(&document, table, &by_itself(table, options.rounds))
        }),
    };
    fs::write(&path, document.ok_or("BENCHMARKS.md has lost its markers")?)?;
    Ok(())
}

/// The generated part of the file, after a run of everything.
fn all(tables: &[measure::Table], rounds: usize) -> String {
    let texts: Vec<_> = tables.iter().map(report::markdown).collect();
    format!("{}\n\n{}", machine(rounds), texts.join("\n"))
}

/// Where the numbers of a table come from that did not run with all others.
fn by_itself(table: &measure::Table, rounds: usize) -> String {
    let mut peers = Vec::new();
    for row in &table.rows {
        // A variant is named after its crate.
        let name = row.contestant.split(',').next().unwrap_or_default();
        let peer = version(LOCK, name).map(|version| format!("{name} {version}"));
        peers.extend(
            peer.filter(|peer| !row.contestant.starts_with("kinfolk") && !peers.contains(peer)),
        );
    }
    format!(
        "From a run without the other tables: {}, {}; {rounds} rounds.",
        compiler(),
        peers.join(", ")
    )
}

/// Where the numbers come from.
fn machine(rounds: usize) -> String {
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let models = || {
        cpus.lines()
            .filter_map(|line| line.strip_prefix("model name"))
    };
    let model = models().next().unwrap_or("unknown");
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let peers = [
        "tokio",
        "tokio-util",
        "smol",
        "async-executor",
        "glommio",
        "monoio",
        "compio",
        "hyper",
        "async-channel",
        "async-lock",
        "flume",
        "kanal",
    ];
    let peers = peers.map(|name| format!("{name} {}", version(LOCK, name).unwrap_or("unknown")));
    format!(
        "{} × {}, Linux {}, {}, {}; {rounds} rounds.",
        models().count(),
        model.trim_matches([' ', '\t', ':']),
        kernel.split('-').next().unwrap_or_default().trim(),
        compiler(),
        peers.join(", "),
    )
}

/// The compiler and its version.
fn compiler() -> String {
    let words = Command::new("rustc").arg("--version").output();
    let words = words.map_or(Vec::new(), |output| output.stdout);
    let words = String::from_utf8_lossy(&words);
    words
        .split(" (")
        .next()
        .unwrap_or("rustc")
        .trim()
        .to_string()
}

const LOCK: &str = include_str!("../../Cargo.lock");

/// The version of a package in a lock file; the newest, if it has several.
fn version<'a>(lock: &'a str, package: &str) -> Option<&'a str> {
    let (_, rest) = lock.rsplit_once(&format!("name = \"{package}\"\nversion = \""))?;
    rest.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contestant::{Bar, Unit};

    fn parse(words: &[&str]) -> Result<Options, String> {
        Options::parse(words.iter().map(|word| word.to_string()))
    }

    #[test]
    fn options_are_read() {
        let options = parse(&["--only", "yield", "--rounds", "3", "--json", "out"]).unwrap();
        assert_eq!(options.only.as_deref(), Some("yield"));
        assert_eq!(options.rounds, 3);
        assert_eq!(options.json, Some("out".into()));
        assert_eq!(parse(&[]).unwrap().rounds, ROUNDS);
        assert!(!options.write && parse(&["--write"]).unwrap().write);
    }

    #[test]
    fn several_names_are_divided_by_commas() {
        let options = parse(&["--only", "channel,permit"]).unwrap();
        assert!(options.wants("channel st") && options.wants("permit mt"));
        assert!(!options.wants("lock st"));
        assert!(parse(&[]).unwrap().wants("lock st"));
    }

    #[test]
    fn what_is_not_an_option_is_refused() {
        assert!(parse(&["--fast"]).is_err());
        assert!(parse(&["--only"]).is_err());
        assert!(parse(&["--rounds", "many"]).is_err());
        assert!(parse(&["--rounds", "0"]).is_err());
    }

    #[test]
    fn no_two_benches_and_no_two_contestants_of_one_share_a_name() {
        let mut seen = std::collections::HashSet::new();
        for group in workloads::all() {
            for bench in &group.benches {
                assert!(seen.insert(bench.name), "{}", bench.name);
            }
            let names = group.contestants.iter().map(|contestant| contestant.name);
            let different: std::collections::HashSet<_> = names.collect();
            assert_eq!(different.len(), group.contestants.len());
        }
    }

    #[test]
    fn versions_come_from_the_lock_file() {
        assert_eq!(
            version("[[package]]\nname = \"a\"\nversion = \"1.2\"\n", "a"),
            Some("1.2")
        );
        assert_eq!(version(LOCK, "nobody"), None);
        assert!(version(LOCK, "glommio").is_some());
    }

    #[test]
    fn what_a_target_is_measured_by_takes_part() {
        for group in workloads::all() {
            let has = |name| group.contestants.iter().any(|who| who.name == name);
            for bench in &group.benches {
                for target in bench.targets {
                    if let Bar::Of(name, _) | Bar::Over(name, _) = target.bar {
                        assert!(has(name), "{} has no {name}", bench.name);
                    }
                }
            }
        }
    }

    #[test]
    fn every_contestant_gives_a_number_for_every_bench() {
        for group in workloads::all() {
            // Memory is measured by processes of this very program.
            if group.benches[0].unit == Unit::Nanoseconds {
                measure::run(group, 1);
            }
        }
    }
}
