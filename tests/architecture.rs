//! The order of the crates, and of the modules of core and runtime, from what the
//! sources say: the dependencies of each `Cargo.toml`, and the paths in `use` lines
//! and in code. ARCHITECTURE.md says what stands in each layer.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The crates, from the bottom up: each may depend on those before it.
const CRATES: [&str; 13] = [
    "core",
    "macros",
    "queue",
    "signals",
    "see",
    "sync",
    "runtime",
    "adapters",
    "tokio",
    "tower",
    "testkit",
    "kinfolk",
    "conformance",
];

/// The folders of core, from the bottom up.
const CORE: [&[&str]; 6] = [
    &["base"],
    &["record"],
    &["engine"],
    &["points"],
    &["surface"],
    &["more"],
];

/// The modules of the runtime, from the bottom up. Those of the second layer make one
/// machine, and call each other in a circle.
const RUNTIME: [&[&str]; 4] = [
    &["sync", "busy", "clock", "timers"],
    &[
        "linux",
        "io",
        "blocking",
        "here",
        "machine",
        "main_lane",
        "quiet",
        "scheduler",
        "builder",
        "runtime",
    ],
    &["fs", "net", "process", "signal"],
    &["dump", "entry", "host_loop", "scope_blocking"],
];

/// What features in `more` still take from the memory of a job and from the engine's circle,
/// where a method of the model would say more. The list only shrinks: a feature that needs
/// something of a job asks `engine` or `surface` for it.
const REACHES: &[(&str, &str)] = &[
    ("blocking.rs", "engine::hook"),
    ("blocking.rs", "engine::lease"),
    ("blocking.rs", "record::header::JobRef"),
    ("combine/local_scope.rs", "engine::end"),
    ("combine/local_scope.rs", "record::header::Header"),
    ("combine/local_scope.rs", "record::header::JobRef"),
    ("combine/local_scope.rs", "record::state"),
    ("kit/work.rs", "record::header::Header"),
    ("kit/work.rs", "record::header::JobRef"),
    ("kit/work.rs", "record::state"),
    ("kit/work.rs", "record::works"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every Rust file below `dir`, by its path from there.
fn sources(dir: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![dir.to_path_buf()];
    while let Some(at) = dirs.pop() {
        for entry in fs::read_dir(&at).expect("a folder of the crate") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                let name = path.strip_prefix(dir).expect("below it");
                let name = name.to_str().expect("a plain name").replace('\\', "/");
                found.insert(name, read(&path));
            }
        }
    }
    found
}

/// The text without comments, and without the module of tests at its end.
fn code(text: &str) -> String {
    let mut code = String::new();
    for line in text.lines() {
        if line.starts_with("#[cfg(all(test") || line.starts_with("#[cfg(test)]") {
            break;
        }
        code.push_str(line.split("//").next().unwrap_or_default());
        code.push('\n');
    }
    code
}

/// The modules at the root of the crate that `file` names: after `crate::`, after as
/// many `super::` as lead there, and in the braces of `use crate::{…}`.
fn names(file: &str, text: &str) -> BTreeSet<String> {
    let code = code(text);
    // How many modules a file is below the root.
    let depth = file.trim_end_matches("/mod.rs").matches('/').count() + 1;
    let word = |at: &str| -> String {
        at.chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect()
    };
    let mut found = BTreeSet::new();
    for prefix in ["crate::".to_string(), "super::".repeat(depth)] {
        for (at, _) in code.match_indices(&prefix) {
            let before = code[..at].chars().next_back();
            if before.is_some_and(|c| c == '_' || c == ':' || c == '$' || c.is_alphanumeric()) {
                continue;
            }
            let rest = &code[at + prefix.len()..];
            match rest.strip_prefix('{') {
                Some(list) => found.extend(in_braces(list).iter().map(|part| word(part))),
                None => {
                    found.insert(word(rest));
                }
            }
        }
    }
    found
}

/// The parts of a list in braces, up to its end.
fn in_braces(list: &str) -> Vec<String> {
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for c in list.chars() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => parts.push(String::new()),
            c if c.is_whitespace() => {}
            c => parts.last_mut().expect("never empty").push(c),
        }
    }
    parts
}

/// Which files know a layer above their own: the file, and that module.
fn against(files: &BTreeMap<String, String>, layers: &[&[&str]]) -> BTreeSet<(String, String)> {
    let layer = |module: &str| layers.iter().position(|layer| layer.contains(&module));
    let mut found = BTreeSet::new();
    for (file, text) in files {
        if file == "lib.rs" {
            continue;
        }
        let module = file.split('/').next().unwrap_or_default();
        let Some(own) = layer(module.trim_end_matches(".rs")) else {
            panic!("{file} stands in no layer: say which in tests/architecture.rs");
        };
        for name in names(file, text) {
            if layer(&name).is_some_and(|other| other > own) {
                found.insert((file.clone(), name));
            }
        }
    }
    found
}

#[test]
fn crates_depend_on_those_before_them() {
    let place = |name: &str| CRATES.iter().position(|crate_| *crate_ == name);
    for entry in fs::read_dir(root().join("crates")).expect("the crates") {
        let path = entry.expect("an entry").path();
        if !path.join("Cargo.toml").exists() {
            continue;
        }
        let name = path.file_name().expect("a name").to_string_lossy();
        let own = place(&name).unwrap_or_else(|| panic!("{name} has no place in CRATES"));
        let mut counts = false;
        for line in read(&path.join("Cargo.toml")).lines() {
            if line.starts_with('[') {
                counts = line.ends_with("dependencies]") && !line.contains("dev-");
            }
            let Some(rest) = line.strip_prefix("kinfolk-").filter(|_| counts) else {
                continue;
            };
            let other = rest.split(['.', ' ', '=']).next().unwrap_or_default();
            let below = place(other).is_some_and(|other| other < own);
            assert!(
                below,
                "{name} depends on {other}, which does not come before it"
            );
        }
    }
}

#[test]
fn the_folders_of_core_keep_their_order() {
    let found = against(&sources(&root().join("crates/core/src")), &CORE);
    assert!(
        found.is_empty(),
        "these know a layer above theirs: {found:#?}"
    );
}

/// Which files of `engine` a file uses, by their names there.
fn used_in_engine(text: &str) -> BTreeSet<String> {
    let code = code(text);
    code.match_indices("crate::engine::")
        .map(|(at, path)| {
            let rest = &code[at + path.len()..];
            assert!(!rest.starts_with('{'), "one path for each file: {rest:.60}");
            rest.chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect()
        })
        .collect()
}

/// Everything that `from` leads to.
fn reached(uses: &BTreeMap<String, BTreeSet<String>>, from: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut todo = vec![from.to_string()];
    while let Some(file) = todo.pop() {
        for next in uses.get(&file).into_iter().flatten() {
            if found.insert(next.clone()) {
                todo.push(next.clone());
            }
        }
    }
    found
}

/// The files of `engine` that are part of a circle are those in its folder of that name.
/// `patience` is, by its methods alone: see the note on the layers of core.
#[test]
fn the_circle_of_the_engine_is_in_one_folder() {
    let name = |path: &str| {
        path.rsplit('/')
            .next()
            .unwrap_or_default()
            .replace(".rs", "")
    };
    let (mut uses, mut circle) = (BTreeMap::new(), BTreeSet::new());
    for (path, text) in sources(&root().join("crates/core/src/engine")) {
        let file = name(&path);
        if file == "mod" {
            continue;
        }
        if path.starts_with("circle/") {
            circle.insert(file.clone());
        }
        let mut used = used_in_engine(&text);
        used.remove(&file);
        let before = uses.insert(file, used);
        assert!(before.is_none(), "two files of that name: {path}");
    }
    let mut round: BTreeSet<String> = uses
        .keys()
        .filter(|file| reached(&uses, file).contains(*file))
        .cloned()
        .collect();
    round.insert("patience".into());
    assert_eq!(round, circle);
    assert!(circle.len() <= 12, "it has grown");
}

/// What a file takes from `record`, but for places in the source, and from `circle`.
fn reaches(text: &str, circle: &BTreeSet<String>) -> BTreeSet<String> {
    let code = code(text);
    let word = |at: &str| -> String {
        at.chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect()
    };
    let mut found = BTreeSet::new();
    for (at, path) in code.match_indices("crate::record::") {
        let rest = &code[at + path.len()..];
        match rest.strip_prefix("header::") {
            Some(list) if list.starts_with('{') => {
                let names = in_braces(&list[1..]);
                found.extend(names.iter().map(|name| format!("record::header::{name}")));
            }
            Some(name) => drop(found.insert(format!("record::header::{}", word(name)))),
            None => drop(found.insert(format!("record::{}", word(rest)))),
        }
    }
    found.remove("record::header::Site");
    let used = used_in_engine(text);
    found.extend(
        used.intersection(circle)
            .map(|file| format!("engine::{file}")),
    );
    found
}

#[test]
fn features_reach_into_no_more_of_the_model() {
    let src = root().join("crates/core/src");
    let circle = sources(&src.join("engine/circle")).into_keys();
    let circle: BTreeSet<_> = circle.map(|file| file.replace(".rs", "")).collect();
    let mut found = BTreeSet::new();
    for (file, text) in sources(&src.join("more")) {
        let into = reaches(&text, &circle).into_iter();
        found.extend(into.map(|what| (file.clone(), what)));
    }
    let known = (REACHES.iter()).map(|(file, what)| (file.to_string(), what.to_string()));
    let known: BTreeSet<_> = known.collect();
    let more: Vec<_> = found.difference(&known).collect();
    assert!(more.is_empty(), "ask the model instead: {more:#?}");
    let gone: Vec<_> = known.difference(&found).collect();
    assert!(gone.is_empty(), "no longer needed in the list: {gone:#?}");
}

#[test]
fn what_a_feature_reaches_for_is_seen() {
    let text = "use crate::record::header::{Header, Site};\nuse crate::record::state;\n\
                use crate::record::header::Site;\nuse crate::engine::walk;\n\
                use crate::engine::names;\n// crate::record::no\n";
    let circle = BTreeSet::from(["walk".to_string()]);
    let seen: Vec<_> = reaches(text, &circle).into_iter().collect();
    assert_eq!(
        seen,
        ["engine::walk", "record::header::Header", "record::state"]
    );
}

#[test]
fn a_circle_is_found() {
    let uses = BTreeMap::from([
        ("a".to_string(), BTreeSet::from(["b".to_string()])),
        ("b".to_string(), BTreeSet::from(["c".to_string()])),
        ("c".to_string(), BTreeSet::from(["b".to_string()])),
    ]);
    let round = |file| reached(&uses, file).contains(file);
    assert_eq!(["a", "b", "c"].map(round), [false, true, true]);
    let text = "use crate::engine::turn;\n// crate::engine::no\nfn f() { crate::engine::end::g() }";
    let used: Vec<_> = used_in_engine(text).into_iter().collect();
    assert_eq!(used, ["end", "turn"]);
}

#[test]
fn the_modules_of_the_runtime_keep_their_order() {
    let found = against(&sources(&root().join("crates/runtime/src")), &RUNTIME);
    assert!(
        found.is_empty(),
        "these know a layer above theirs: {found:#?}"
    );
}

#[test]
fn what_a_file_names_is_seen() {
    let text = "use crate::more::a;\nuse crate::{base::b, points::{c, d}};\n\
                // crate::surface::no\nfn f() { super::super::record::e() }\n\
                #[cfg(all(test, not(loom)))]\nuse crate::surface::no;\n";
    let seen = names("engine/turn.rs", text);
    let seen: Vec<_> = seen.iter().map(String::as_str).collect();
    assert_eq!(seen, ["base", "more", "points", "record"]);
    let file = BTreeMap::from([("engine/turn.rs".to_string(), text.to_string())]);
    let against = against(&file, &CORE);
    let against: Vec<_> = against.iter().map(|(_, layer)| layer.as_str()).collect();
    assert_eq!(against, ["more", "points"]);
}
