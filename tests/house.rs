//! What keeps the names and the English of this repository in order: each type has a
//! name of its own, the glossary is short, sorted and used, names in backticks exist,
//! and sentences name their subject. What is still against a rule stands in the lists
//! below; an entry that is no longer needed fails as well, so the lists only shrink.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Names that several files may define, since the reader meets them in one file at a
/// time or knows them from elsewhere.
const IDIOMS: &[(&str, &str)] = &[
    ("Inner", "the part of a handle that its clones share"),
    ("Machine", "in each host, what its threads share"),
    (
        "Plain",
        "each crate has its own switch between std and loom",
    ),
    ("Receiver", "each module of channels has one, as in std"),
    (
        "Recv",
        "the wait of a receiver, and the system call of that name",
    ),
    ("RecvError", "each module of channels has one, as in std"),
    ("Sealed", "the supertrait that keeps a trait closed"),
    (
        "Send",
        "the wait of a sender, and the system call of that name",
    ),
    ("Sender", "each module of channels has one, as in std"),
    (
        "SenderClosed",
        "the wait of that name in each module of channels",
    ),
    ("Shared", "what the two sides of one thing share"),
    ("State", "what stands under the lock of its file"),
    ("TryRecvError", "each module of channels has one, as in std"),
];

/// Names that stand in two files of which a build takes one, by what decides.
const EITHER: &[(&str, &str)] = &[
    ("Inside", "the feature `runtime` of testkit"),
    ("IoSide", "the feature `runtime` of testkit"),
    ("IoOptions", "the feature `runtime` of testkit"),
    ("SimIoHandle", "the feature `runtime` of testkit"),
    ("Spanned", "the feature `tracing`"),
    ("TestKernel", "the feature `runtime` of testkit"),
];

/// Names that two things still share. One that is mended is taken out of this list;
/// none is added.
const DEFINED_TWICE: &[&str] = &[];

/// Names in backticks that are not in our code.
const NOT_OURS: &[(&str, &str)] = &[
    ("CrossesDevices", "of std's io::ErrorKind"),
    ("IPV6_V6ONLY", "a socket option"),
    ("LocalKey", "of std"),
    ("NOT_ACTIVE", "a name as it should not be"),
    ("NameArgs", "stands for a name"),
    ("RLIMIT_MEMLOCK", "a limit of Linux"),
    ("SO_BROADCAST", "a socket option"),
    ("SO_REUSEADDR", "a socket option"),
    ("SO_REUSEPORT", "a socket option"),
    ("TCP_NODELAY", "a socket option"),
    ("TaskTracker", "of tokio-util"),
    ("TrackDescriptor", "a message of Perfetto's traces"),
    ("close_notify", "of TLS"),
    ("io_uring_enter", "a system call"),
    ("on_task_spawn", "of tokio's runtime builder"),
    ("pre_exec", "of std's Command"),
];

/// Files in backticks that stand for others.
const NO_FILES: &[&str] = &["_bad.rs", "_good.rs", "ops/NAME.rs"];

/// *whoever*, *nobody* and *somebody* in a thousand words, at most.
const MOST_PRONOUNS: f64 = 2.5;

/// *who* for a thing, in a thousand words, at most. A test cannot tell a person from a
/// task, so a few are allowed.
const MOST_WHO: f64 = 1.0;

/// Words of the glossary that a user needs, at most.
const MOST_FOR_USERS: usize = 30;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Every file of the repository with one of these endings, by its path from the root.
fn files(endings: &[&str]) -> BTreeMap<String, String> {
    let root = root();
    let mut found = BTreeMap::new();
    let mut dirs = vec![root.clone()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).expect("a folder of the repository") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy();
            if path.is_dir() {
                if name != "target" && (!name.starts_with('.') || name == ".ci") {
                    dirs.push(path);
                }
            } else if endings.iter().any(|ending| name.ends_with(ending)) {
                let name = path.strip_prefix(&root).expect("below it");
                let name = name.to_str().expect("a plain name").replace('\\', "/");
                let text = fs::read_to_string(&path).unwrap_or_default();
                found.insert(name, text);
            }
        }
    }
    found
}

/// The code of a file without comments and without the module of tests at its end.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .take_while(|line| !is_for_tests(line))
        .map(|line| match line.split_once("//") {
            Some((code, _)) if code.matches('"').count() % 2 == 0 => code,
            _ => line,
        })
}

fn is_for_tests(line: &str) -> bool {
    line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test")
}

/// The type that a line of code defines.
fn defined(line: &str) -> Option<String> {
    let mut words = line
        .trim_start()
        .split(|c: char| !c.is_alphanumeric() && !"_()".contains(c))
        .filter(|word| !word.is_empty())
        .skip_while(|word| word.starts_with("pub") || *word == "super)" || *word == "unsafe");
    let kind = words.next()?;
    // An indented `type` is one of a trait.
    if !["struct", "enum", "union", "trait"].contains(&kind)
        && (kind != "type" || line.starts_with(' '))
    {
        return None;
    }
    let name: String = (words.next()?.chars())
        .take_while(|c| c.is_alphanumeric() || *c == '_')
        .collect();
    name.starts_with(|c: char| c.is_uppercase()).then_some(name)
}

/// The files below `src` that a crate compiles for tests alone.
fn modules_for_tests(files: &BTreeMap<String, String>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (file, text) in files {
        let dir = match file.rsplit_once('/') {
            Some((dir, "mod.rs" | "lib.rs" | "main.rs")) => dir.to_string(),
            _ => file.trim_end_matches(".rs").to_string(),
        };
        let lines: Vec<_> = text.lines().collect();
        for pair in lines.windows(2) {
            if is_for_tests(pair[0])
                && let Some(module) = pair[1].strip_prefix("mod ")
                && let Some(module) = module.strip_suffix(';')
            {
                found.insert(format!("{dir}/{module}.rs"));
                found.insert(format!("{dir}/{module}/mod.rs"));
            }
        }
    }
    found
}

/// In which files each type name is defined. The cases of the conformance suite are
/// tests, and have their types beside them.
fn types() -> BTreeMap<String, BTreeSet<String>> {
    let files = files(&[".rs"]);
    let for_tests = modules_for_tests(&files);
    let mut found = BTreeMap::<String, BTreeSet<String>>::new();
    for (file, text) in &files {
        let ours = file.starts_with("crates/") && file.contains("/src/");
        if !ours || file.starts_with("crates/conformance/") || for_tests.contains(file) {
            continue;
        }
        for name in code(text).filter_map(defined) {
            found.entry(name).or_default().insert(file.clone());
        }
    }
    found
}

#[test]
fn a_type_name_is_defined_once() {
    let mut types = types();
    types.retain(|_, files| files.len() > 1);
    let known = IDIOMS.iter().chain(EITHER).map(|(name, _)| *name);
    let known: BTreeSet<_> = known.chain(DEFINED_TWICE.iter().copied()).collect();
    let more: Vec<_> = types
        .iter()
        .filter(|(name, _)| !known.contains(name.as_str()))
        .collect();
    assert!(more.is_empty(), "defined in several files: {more:#?}");
    let gone: Vec<_> = known
        .iter()
        .filter(|name| !types.contains_key(**name))
        .collect();
    assert!(
        gone.is_empty(),
        "defined once now, take them out of the list: {gone:?}"
    );
    let three = |(name, _): &&(&str, &str)| types[*name].len() != 2;
    let three: Vec<_> = EITHER.iter().filter(three).collect();
    assert!(three.is_empty(), "in more than two files: {three:?}");
}

/// The glossary: its sections, each with its entries as they stand.
fn glossary() -> Vec<(String, Vec<(String, String)>)> {
    let text = fs::read_to_string(root().join("GLOSSARY.md")).expect("the glossary");
    let mut sections = Vec::new();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            sections.push((title.to_string(), Vec::new()));
        } else if let Some((word, rest)) =
            (line.strip_prefix("**")).and_then(|rest| rest.split_once("**"))
        {
            let (_, entries) = sections.last_mut().expect("an entry stands in a section");
            entries.push((word.to_string(), rest.to_string()));
        }
    }
    sections
}

#[test]
fn the_glossary_is_short_sorted_and_used() {
    let sections = glossary();
    let (first, for_users) = sections.first().expect("a section");
    assert!(
        for_users.len() <= MOST_FOR_USERS,
        "{} words in \"{first}\"",
        for_users.len()
    );
    let mut seen = BTreeSet::new();
    for (title, entries) in &sections {
        let words: Vec<_> = entries
            .iter()
            .map(|(word, _)| word.to_lowercase())
            .collect();
        assert!(!words.is_empty(), "nothing in \"{title}\"");
        assert!(
            words.is_sorted(),
            "not sorted: \"{title}\" {:?}",
            words.windows(2).find(|pair| pair[0] > pair[1])
        );
        for word in words {
            assert!(seen.insert(word.clone()), "{word} twice");
        }
    }
    let mut words = String::new();
    for (file, text) in files(&[".rs", ".md"]) {
        let speaks_of_today = file != "CHANGELOG.md" && !file.contains("/decisions/");
        if speaks_of_today && file != "GLOSSARY.md" {
            let text = text
                .to_lowercase()
                .replace(|c: char| !c.is_alphanumeric(), " ");
            words.extend(text.split_whitespace().flat_map(|word| [" ", word]));
        }
    }
    let is_used = |word: &&String| {
        let word = word.replace(|c: char| !c.is_alphanumeric(), " ");
        // As words, or as the name of a type.
        words.contains(&format!(" {word}"))
            || words.contains(&format!(" {}", word.replace(' ', "")))
    };
    let unused: Vec<_> = seen.iter().filter(|word| !is_used(word)).collect();
    assert!(unused.is_empty(), "used nowhere: {unused:?}");
}

/// The words of a documentation comment or a Markdown file, line by line.
fn prose(file: &str, text: &str) -> Vec<String> {
    let mut fenced = false;
    let mut found = Vec::new();
    for line in text.lines() {
        let line = if file.ends_with(".md") {
            line
        } else {
            let line = line.trim_start();
            match line
                .strip_prefix("///")
                .or_else(|| line.strip_prefix("//!"))
            {
                Some(doc) if !doc.starts_with('/') => doc,
                _ => {
                    fenced = false;
                    continue;
                }
            }
        };
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            found.push(line.to_string());
        }
    }
    found
}

/// The parts of a line in backticks.
fn in_backticks(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Every identifier in the code of the repository, and in its scripts and manifests.
fn identifiers() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (file, text) in files(&[".rs", ".toml", ".txt"]) {
        if file == "tests/house.rs" {
            continue;
        }
        for line in text.lines() {
            let line = match line.split_once("//") {
                Some((code, _)) if file.ends_with(".rs") && code.matches('"').count() % 2 == 0 => {
                    code
                }
                _ => line,
            };
            let words = line.split(|c| !is_word(c)).filter(|word| !word.is_empty());
            found.extend(words.map(str::to_string));
        }
    }
    for dir in ["scripts", ".ci"] {
        for entry in fs::read_dir(root().join(dir)).expect("the scripts") {
            let text = fs::read_to_string(entry.expect("an entry").path()).unwrap_or_default();
            let words = text.split(|c| !is_word(c)).filter(|word| !word.is_empty());
            found.extend(words.map(str::to_string));
        }
    }
    found
}

/// The identifiers that a part in backticks names, if it looks like code: a path, a
/// call, or one word in camel or snake case.
fn named(part: &str) -> Vec<&str> {
    let part = part.trim_start_matches(['&', '*', '.', '#', '!', '[']);
    let end = part
        .find(|c: char| !is_word(c) && c != ':')
        .unwrap_or(part.len());
    let (path, rest) = part.split_at(end);
    if path.ends_with(':') || path.is_empty() || path.contains(":") && !path.contains("::") {
        return Vec::new();
    }
    let is_call = rest.starts_with('(');
    // What follows a name: nothing, arguments, or the parameters of a type.
    if !(rest.is_empty() || is_call || rest.starts_with("::") || rest.starts_with('<')) {
        return Vec::new();
    }
    let segments: Vec<_> = path.split("::").filter(|word| !word.is_empty()).collect();
    let looks_like_code = |word: &str| {
        let caps = word.chars().filter(|c| c.is_uppercase()).count();
        let small = word.chars().filter(|c| c.is_lowercase()).count();
        let camel = word.starts_with(|c: char| c.is_uppercase()) && caps > 1 && small > 0;
        let snake = word.trim_matches('_').contains('_');
        (camel || snake) && word.is_ascii()
    };
    if segments.len() > 1 || is_call || segments.iter().any(|word| looks_like_code(word)) {
        segments
    } else {
        Vec::new()
    }
}

#[test]
fn names_in_backticks_exist() {
    let identifiers = identifiers();
    let mut allowed: BTreeSet<_> = NOT_OURS.iter().map(|(name, _)| *name).collect();
    let mut unused = allowed.clone();
    allowed.extend(["std", "core", "self", "crate", "super"]);
    let mut gone = BTreeMap::<String, BTreeSet<String>>::new();
    for (file, text) in files(&[".rs", ".md"]) {
        // Decisions and changes speak of names as they were.
        if file.contains("/decisions/") || file == "CHANGELOG.md" || file == "tests/house.rs" {
            continue;
        }
        for line in prose(&file, &text) {
            for part in in_backticks(&line) {
                for name in named(part) {
                    let known = identifiers.contains(name)
                        || name.starts_with(|c: char| c.is_ascii_digit());
                    if allowed.contains(name) {
                        if !known {
                            unused.remove(name);
                        }
                    } else if !known {
                        (gone.entry(format!("{name} in `{part}`")).or_default())
                            .insert(file.clone());
                    }
                }
            }
        }
    }
    assert!(
        gone.is_empty(),
        "in backticks, but nowhere in the code: {gone:#?}"
    );
    assert!(
        unused.is_empty(),
        "no longer needed in NOT_OURS: {unused:?}"
    );
}

#[test]
fn files_in_backticks_exist() {
    let all = files(&[""]);
    let mut gone = BTreeMap::<String, BTreeSet<String>>::new();
    for (file, text) in &all {
        let reads = file.ends_with(".rs") || file.ends_with(".md");
        if !reads || file.contains("/decisions/") || file == "CHANGELOG.md" {
            continue;
        }
        for line in prose(file, text) {
            for part in in_backticks(&line) {
                let ending = [".rs", ".md"].iter().any(|ending| part.ends_with(ending));
                let plain = part.chars().all(|c| is_word(c) || "./-".contains(c));
                if ending && plain && part.len() > 4 {
                    let tail = format!(
                        "/{}",
                        part.trim_start_matches("../").trim_start_matches("./")
                    );
                    if !NO_FILES.contains(&part)
                        && !all.keys().any(|file| format!("/{file}").ends_with(&tail))
                    {
                        gone.entry(part.to_string())
                            .or_default()
                            .insert(file.clone());
                    }
                }
            }
        }
    }
    assert!(gone.is_empty(), "in backticks, but no such file: {gone:#?}");
}

/// How many words stand in rustdoc and Markdown, and how many of them are these.
fn count(these: &[&str]) -> (usize, usize, Vec<(usize, String)>) {
    let (mut all, mut found, mut by_file) = (0, 0, Vec::new());
    for (file, text) in files(&[".rs", ".md"]) {
        let before = found;
        for line in prose(&file, &text) {
            let spoken: String = line.split('`').step_by(2).collect::<Vec<_>>().join(" ");
            for word in spoken.split(|c: char| !c.is_alphabetic() && c != '\'') {
                all += usize::from(!word.is_empty());
                found += usize::from(these.contains(&word.to_lowercase().as_str()));
            }
        }
        if found > before {
            by_file.push((found - before, file));
        }
    }
    by_file.sort_unstable_by(|a, b| b.cmp(a));
    by_file.truncate(20);
    (all, found, by_file)
}

#[test]
fn sentences_name_their_subject() {
    for (these, most) in [
        (&["whoever", "nobody", "somebody"][..], MOST_PRONOUNS),
        (&["who"][..], MOST_WHO),
    ] {
        let (all, found, by_file) = count(these);
        let here = 1000.0 * found as f64 / all as f64;
        assert!(
            here <= most,
            "{here:.2} of {these:?} in a thousand of {all} words, most in {by_file:#?}"
        );
    }
}

#[test]
fn definitions_and_names_are_seen() {
    let line = |line: &str| defined(line);
    assert_eq!(line("pub(crate) struct A<'a> {"), Some("A".to_string()));
    assert_eq!(
        line("pub unsafe trait Driver: Send {"),
        Some("Driver".to_string())
    );
    assert_eq!(line("pub(super) enum Case {"), Some("Case".to_string()));
    assert_eq!(
        line("    struct InAFunction(u32);"),
        Some("InAFunction".to_string())
    );
    assert_eq!(line("type Alias<T> = Vec<T>;"), Some("Alias".to_string()));
    assert_eq!(line("    type Output = u32;"), None);
    assert_eq!(line("fn f(x: Struct) {"), None);
    assert_eq!(named("Scope::close()"), ["Scope", "close"]);
    assert_eq!(named("TaskSet"), ["TaskSet"]);
    assert_eq!(named("next_pump()"), ["next_pump"]);
    assert_eq!(named("Local<T>"), Vec::<&str>::new());
    assert_eq!(named("cancel"), Vec::<&str>::new());
    assert_eq!(named("a sentence"), Vec::<&str>::new());
    assert_eq!(named("cargo test"), Vec::<&str>::new());
    let doc = "/// One `A`.\n/// ```\n/// let b = `c`;\n/// ```\nfn d() {}\n//// no\n";
    assert_eq!(prose("x.rs", doc), [" One `A`."]);
}
