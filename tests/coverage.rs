//! Which test proves which id. Every rule of the contract, every line of the
//! source designs and every conformance case has a test that carries its id, or
//! stands in `ids/open.txt` with the reason. `COVERAGE.md` is written by this
//! test when `KINFOLK_WRITE=1`, and checked otherwise.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Every Rust file of the crates and of the tests.
fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "ui") {
                sources(&path, found);
            }
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            found.push(path);
        }
    }
}

/// `name | text` lines, comments left out.
fn ids(file: &str) -> Vec<(String, String)> {
    read(format!("tests/ids/{file}"))
        .lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
        .map(|line| {
            let (id, text) = line
                .split_once(" | ")
                .unwrap_or_else(|| panic!("{file}: {line}"));
            (id.to_string(), text.to_string())
        })
        .collect()
}

/// An id that cannot be confused with one of another list: `tree-3`, `src T7`,
/// `case A01`.
fn id_of_name(name: &str) -> Option<String> {
    let mut parts = name.split('_');
    let (first, second) = (parts.next()?, parts.next()?);
    match first {
        "src" | "case" => {
            let letter = second.chars().next()?.to_ascii_uppercase();
            let number: u32 = second.get(1..)?.parse().ok()?;
            Some(if first == "src" {
                format!("src {letter}{number}")
            } else {
                format!("case {letter}{number:02}")
            })
        }
        _ => {
            let number: u32 = second.parse().ok()?;
            Some(format!("{first}-{number}"))
        }
    }
}

/// Ids named in a line `Also: K12, tree-3.` of a doc comment. Letters and a
/// number are those of the source designs.
fn also(line: &str) -> Vec<String> {
    let Some(rest) = line.split("Also:").nth(1) else {
        return Vec::new();
    };
    rest.split([',', '.'])
        .map(str::trim)
        .filter(|word| !word.is_empty())
        .map(|word| match word.split_at_checked(1) {
            Some((letter, number)) if number.parse::<u32>().is_ok() => {
                format!("src {letter}{}", number.trim_start_matches('0'))
            }
            _ => word.to_string(),
        })
        .collect()
}

/// A function of a file.
struct Function {
    name: String,
    /// It is a test that runs, or a case of a suite.
    proves: bool,
    /// The ids that its doc comment names beside that of its name.
    also: Vec<String>,
}

fn functions_in(text: &str) -> Vec<Function> {
    let mut found = Vec::new();
    // What stands above the next function.
    let (mut named, mut is_test, mut is_ignored) = (Vec::new(), false, false);
    for line in text.lines().map(str::trim) {
        if line.starts_with("///") {
            named.extend(also(line));
            continue;
        }
        if line.starts_with("#[") {
            is_ignored |= line.contains("ignore");
            is_test |= line.contains("test");
            continue;
        }
        let (public, rest) = match line.strip_prefix("pub ") {
            Some(rest) => (true, rest),
            None => (false, line),
        };
        let (is_async, rest) = match rest.strip_prefix("async ") {
            Some(rest) => (true, rest),
            None => (false, rest),
        };
        if let Some(rest) = rest.strip_prefix("fn ") {
            let is_of_name = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
            found.push(Function {
                name: rest.chars().take_while(is_of_name).collect(),
                // A case of a suite is public, and the hosts run it.
                proves: (is_test && !is_ignored) || (public && is_async),
                also: std::mem::take(&mut named),
            });
        }
        (named, is_test, is_ignored) = (Vec::new(), false, false);
    }
    found
}

/// What the tests of one file prove: the test, and an id that it names.
fn tests_in(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for function in functions_in(text).into_iter().filter(|f| f.proves) {
        let ids = id_of_name(&function.name).into_iter().chain(function.also);
        found.extend(ids.map(|id| (function.name.clone(), id)));
    }
    found
}

#[test]
fn only_tests_that_run_prove_something() {
    // Each line behind a bar: these are no tests of this file.
    let text = "
        | /// Also: T7, lane-4.
        | #[test]
        | fn tree_1_runs() {}
        |
        | /// Also: K12.
        | #[test]
        | #[ignore = \"slow\"]
        | fn tree_2_is_ignored() {}
        |
        | /// Also: K13.
        | fn tree_3_helps() {}
        |
        | /// Also: M08.
        | pub async fn case_a01_a_case(lab: Lab) {}
        | /// Also: nonsense, tree-99.
        | #[tokio::test(start_paused = true)]
        | async fn no_id() {}
    "
    .replace("| ", "");
    let found: Vec<_> = tests_in(&text)
        .into_iter()
        .map(|(test, id)| format!("{test} {id}"))
        .collect();
    assert_eq!(
        found,
        [
            "tree_1_runs tree-1",
            "tree_1_runs src T7",
            "tree_1_runs lane-4",
            "case_a01_a_case case A01",
            "case_a01_a_case src M8",
            "no_id nonsense",
            "no_id tree-99",
        ]
    );
}

/// The tests that prove an id.
#[derive(Default)]
struct Proofs {
    tests: BTreeSet<String>,
    hosts: BTreeSet<&'static str>,
}

fn tests_by_id() -> BTreeMap<String, Proofs> {
    let mut files = Vec::new();
    sources(&root().join("crates"), &mut files);
    sources(&root().join("tests"), &mut files);
    let mut found: BTreeMap<String, Proofs> = BTreeMap::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("readable");
        let hosts = hosts_of(&file, &text);
        for (test, id) in tests_in(&text) {
            let proofs = found.entry(id).or_default();
            proofs.tests.insert(test);
            proofs.hosts.extend(&hosts);
        }
    }
    found
}

const HOSTS: [&str; 3] = ["the simulation", "native", "tokio"];

/// The hosts that the tests of a file run on, by what the file uses. A case of the
/// suite runs on all of them; a unit test or a loom model of core on none.
fn hosts_of(file: &Path, text: &str) -> Vec<&'static str> {
    let [simulation, native, tokio] = HOSTS;
    let path = file.to_string_lossy();
    let is_in = |dir: &str| path.contains(dir);
    if is_in("crates/conformance/src") {
        return HOSTS.to_vec();
    }
    if is_in("crates/core/") {
        return Vec::new();
    }
    let uses = |words: &[&str]| words.iter().any(|word| text.contains(word));
    let mut hosts = Vec::new();
    if uses(&[
        "Sim::",
        "Sim,",
        "cancel_everywhere",
        "on_sim",
        "kinfolk::test",
    ]) {
        hosts.push(simulation);
    }
    if is_in("crates/runtime/")
        || uses(&[
            "kinfolk_runtime",
            "kinfolk::Runtime",
            "kinfolk::main",
            "EXE_signalled",
        ])
    {
        hosts.push(native);
    }
    if is_in("crates/tokio/") || uses(&["kinfolk_tokio", "kinfolk::tokio"]) {
        hosts.push(tokio);
    }
    hosts
}

/// What does not run everywhere: cases that need one thread, and ids that no case of the
/// suite proves.
fn not_on_every_host(found: &BTreeMap<String, Proofs>) -> String {
    let mut page = String::from(
        "\n## Not on every host\n\nA case of the conformance suite runs on the simulation, on the native runtime (no\nworkers and two) and on tokio (one thread, two workers, and a `LocalSet` with the case\nitself on the main lane). On the native runtime with one worker and with eight it runs by\n`scripts/native` only, on tokio with those and with its clock paused by `scripts/tokio`.\n\nOn two workers these do not run, because only a host with one thread can promise\nwhat they look at:\n\n",
    );
    let script = read("scripts/native");
    assert!(script.contains("for workers in 1 2 8"), "it has changed");
    let list = read("crates/conformance/tests/one_thread.txt");
    for line in list.lines().filter(|line| !line.starts_with('#')) {
        if let Some((name, why)) = line.split_once(" # ") {
            let _ = writeln!(page, "- `{name}`: {why}");
        }
    }
    let script = read("scripts/tokio");
    assert!(script.contains("for workers in 1 2 8"), "it has changed");
    page.push_str("\nOn a `LocalSet`, with the case on the main lane and its children in the pool, these do\nnot run:\n\n");
    let list = read("crates/conformance/tests/local_set.txt");
    for line in list.lines().filter(|line| !line.starts_with('#')) {
        if let Some((name, why)) = line.split_once(" # ") {
            let _ = writeln!(page, "- `{name}`: {why}");
        }
    }
    page.push_str(
        "\nThese are proved by no case of the suite, but by tests on the hosts that stand here;\n*no host* means unit tests and loom models:\n\n",
    );
    let mut by_hosts: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (id, proofs) in found {
        if proofs.hosts.len() < HOSTS.len() {
            let hosts: Vec<_> = proofs.hosts.iter().copied().collect();
            let hosts = match hosts.is_empty() {
                true => "no host".into(),
                false => hosts.join(", "),
            };
            by_hosts.entry(hosts).or_default().push(id);
        }
    }
    for (hosts, ids) in by_hosts {
        let _ = writeln!(page, "- {hosts}: {}", ids.join(", "));
    }
    page.push_str("\nBeside the suite, the files of `tests/` run on these hosts only:\n\n");
    let mut by_hosts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for entry in std::fs::read_dir(root().join("tests")).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|ext| ext != "rs") {
            continue;
        }
        let hosts = hosts_of(&path, &read(&path));
        if !hosts.is_empty() && hosts.len() < HOSTS.len() {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let files = by_hosts.entry(hosts.join(", ")).or_default();
            files.insert(format!("`{name}`"));
        }
    }
    for (hosts, files) in by_hosts {
        let files: Vec<_> = files.into_iter().collect();
        let _ = writeln!(page, "- {hosts}: {}", files.join(", "));
    }
    page
}

/// Every id with its text, in the order of the lists.
fn all_ids() -> Vec<(&'static str, Vec<(String, String)>)> {
    let prefixed = |file, prefix: &str| {
        ids(file)
            .into_iter()
            .map(|(id, text)| (format!("{prefix}{id}"), text))
            .collect()
    };
    vec![
        ("The contract", prefixed("contract.txt", "")),
        ("The source designs", prefixed("checklist.txt", "src ")),
        (
            "The conformance cases",
            prefixed("conformance.txt", "case "),
        ),
    ]
}

#[test]
fn every_id_has_a_test_or_a_reason() {
    let found = tests_by_id();
    let open: BTreeMap<String, String> = ids("open.txt").into_iter().collect();
    let mut page = String::from(
        "# Which test proves which id\n\nWritten by `KINFOLK_WRITE=1 cargo test -p kinfolk-tests --test coverage`. The texts\nof the ids are in `docs/contract.md` and `tests/ids/`. What does not run on\nevery host, and what is open, stands at the end, with the reason.\n",
    );
    let (mut missing, mut known) = (Vec::new(), BTreeSet::new());
    for (title, list) in all_ids() {
        let _ = write!(page, "\n## {title}\n\n");
        for (id, _) in list {
            known.insert(id.clone());
            match found.get(&id) {
                Some(proofs) => {
                    let tests: Vec<_> = proofs.tests.iter().map(|t| format!("`{t}`")).collect();
                    let _ = writeln!(page, "- **{id}**: {}", tests.join(", "));
                }
                None if open.contains_key(&id) => {}
                None => missing.push(id),
            }
        }
    }
    let wrong: Vec<_> = found
        .iter()
        .filter(|(id, _)| !known.contains(*id))
        .map(|(id, proofs)| (id, &proofs.tests))
        .collect();
    assert!(wrong.is_empty(), "tests that name no id: {wrong:#?}");
    page.push_str(&not_on_every_host(&found));
    page.push_str("\n## Open\n\n");
    for (id, why) in &open {
        assert!(
            known.contains(id),
            "ids/open.txt names {id}, which is no id"
        );
        let part = if found.contains_key(id) {
            " (in part)"
        } else {
            ""
        };
        let _ = writeln!(page, "- **{id}**{part}: {why}");
    }
    assert!(
        missing.is_empty(),
        "no test and no reason in tests/ids/open.txt for: {missing:?}"
    );
    let path = root().join("tests/COVERAGE.md");
    if std::env::var_os("KINFOLK_WRITE").is_some() {
        std::fs::write(&path, &page).expect("COVERAGE.md");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == page, "tests/COVERAGE.md is stale: write it again");
}

/// Where unsafe code rests on a bit or a count, it names the test that would notice:
/// that test is there, and runs.
#[test]
fn every_test_that_would_notice_exists() {
    let mut files = Vec::new();
    sources(&root().join("crates"), &mut files);
    sources(&root().join("tests"), &mut files);
    let texts: Vec<String> = files
        .iter()
        .map(|file| std::fs::read_to_string(file).expect("readable"))
        .collect();
    let tests: BTreeSet<String> = texts
        .iter()
        .flat_map(|text| functions_in(text))
        .filter_map(|function| function.proves.then_some(function.name))
        .collect();
    let mut named: BTreeMap<String, usize> = BTreeMap::new();
    let crates = root().join("crates");
    for (file, text) in files.iter().zip(&texts) {
        let Ok(path) = file.strip_prefix(&crates) else {
            continue;
        };
        let of = path.components().next().expect("a crate");
        for name in noticing(text) {
            let is_run = tests.contains(name);
            assert!(is_run, "{}: no test {name} that runs", file.display());
            let of = of.as_os_str().to_string_lossy().into_owned();
            *named.entry(of).or_default() += 1;
        }
    }
    let named = |of: &str| named.get(of).copied().unwrap_or(0);
    assert!(named("core") > 40, "only {} in core", named("core"));
    // Rings, slots and sleepers of the runtime are a crate of their own.
    let runtime = named("runtime") + named("queue");
    assert!(runtime > 12, "only {runtime} in runtime and queue");
    assert!(named("sync") > 10, "only {} in sync", named("sync"));
    assert!(named("testkit") > 0, "none in the testkit");
}

/// The names after *Noticed by*, and those in the tables that say so.
fn noticing(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut table = false;
    // In prose the name may stand on the next line.
    let mut awaited = false;
    for line in text.lines() {
        let line = line.trim_start().trim_start_matches(['/', '!', ' ']);
        table = line.starts_with('|') && (table || line.contains("| noticed by |"));
        let prose = line.split_once("oticed by").map(|(_, rest)| rest);
        let prose = prose.or_else(|| awaited.then_some(line));
        awaited = line.ends_with("Noticed by") || line.ends_with("Noticed");
        let quoted = if table { Some(line) } else { prose };
        let Some(quoted) = quoted else { continue };
        let most = if table { usize::MAX } else { 1 };
        let found = quoted.split('`').skip(1).step_by(2).take(most);
        names.extend(found.filter(|name| name.contains('_')));
    }
    names
}

/// Every case in the suite's files is in the list that the hosts run.
#[test]
fn every_case_is_in_the_list() {
    let dir = root().join("crates/conformance/src");
    let list = read("crates/conformance/src/list.rs");
    let listed: BTreeSet<&str> = list
        .lines()
        .map(|line| line.trim().trim_end_matches([',', ';', ':']))
        .collect();
    let mut files = Vec::new();
    sources(&dir, &mut files);
    let mut cases = 0;
    for file in files {
        for line in std::fs::read_to_string(file).expect("readable").lines() {
            if let Some(rest) = line.strip_prefix("pub async fn ") {
                let name = rest.split('(').next().expect("a name");
                assert!(
                    listed.contains(name),
                    "{name} is not in list.rs: run scripts/cases"
                );
                cases += 1;
            }
        }
    }
    assert!(cases > 500, "only {cases} cases were found");
}

/// The crates that a program is built of.
const LIBRARY: [&str; 11] = [
    "adapters", "core", "kinfolk", "macros", "queue", "runtime", "see", "signals", "sync", "tokio",
    "tower",
];

/// Each crate is looked through by the tests below, but for the suite, whose tests are
/// its sources.
#[test]
fn every_crate_is_looked_through() {
    let crates = std::fs::read_dir(root().join("crates")).expect("a directory");
    for entry in crates {
        let name = entry.expect("an entry").file_name();
        let name = name.to_string_lossy();
        let known = ["conformance", "testkit"].contains(&&*name) || LIBRARY.contains(&&*name);
        assert!(known, "crates/{name} is a crate of the library, or is not");
    }
}

/// outcome-1: what the user's code throws is caught in one file, whose table has every
/// place. The testkit catches the panics of the test that it runs.
#[test]
fn outcome_1_only_one_file_catches_a_panic() {
    let mut files = Vec::new();
    for name in LIBRARY {
        sources(&root().join("crates").join(name).join("src"), &mut files);
    }
    let catching: Vec<_> = files
        .iter()
        .filter(|file| {
            let text = read(file);
            let own = text.split("#[cfg(all(test").next().unwrap_or_default();
            let own = own.split("#[cfg(test)]").next().unwrap_or_default();
            let mut code = own
                .lines()
                .filter(|line| !line.trim_start().starts_with("//"));
            code.any(|line| line.contains("catch_unwind"))
        })
        .collect();
    let [one] = catching[..] else {
        panic!("call the user's code through unwind.rs: {catching:#?}");
    };
    assert!(one.ends_with("core/src/base/unwind.rs"), "{one:?}");
}

/// see-7: no print of ours but in one file. `clippy` says so too, of macros.
#[test]
fn see_7_only_one_file_writes_to_standard_error() {
    let mut files = Vec::new();
    for name in LIBRARY.into_iter().chain(["testkit"]) {
        sources(&root().join("crates").join(name).join("src"), &mut files);
    }
    let words = ["print!(", "println!(", "dbg!(", "stderr()", "stdout()"];
    let mut wrong = Vec::new();
    for file in files {
        let text = read(&file);
        // Tests stand at the end of their file, or in one of their own.
        let own = text.split("#[cfg(all(test").next().unwrap_or_default();
        let own = own.split("#[cfg(test)]").next().unwrap_or_default();
        if file.ends_with("core/src/base/say.rs") {
            assert!(own.contains("stderr()"), "it has moved");
            continue;
        }
        if file.file_name().is_some_and(|name| name == "tests.rs") {
            continue;
        }
        let code = own
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        for line in code {
            if words.iter().any(|word| line.contains(word)) {
                wrong.push(format!("{}: {}", file.display(), line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "use `host::say`:\n{}", wrong.join("\n"));
}
