//! What keeps the names and the English of this repository in order: each type has a
//! name of its own, the glossary is short, sorted and used, names in backticks exist,
//! and sentences name their subject; and whether every name that the library prints is
//! escaped. What is still against a rule stands in the lists
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
    (
        "Shared",
        "what the two sides of one thing share, and never public",
    ),
    ("State", "what stands under the lock of its file"),
    ("TryRecvError", "each module of channels has one, as in std"),
];

/// Names that stand in two files of which a build takes one, by what decides.
const EITHER: &[(&str, &str)] = &[
    ("Inside", "the feature `runtime` of testkit"),
    ("IoSide", "the feature `runtime` of testkit"),
    ("IoOptions", "the feature `runtime` of testkit"),
    ("SimIoHandle", "the feature `runtime` of testkit"),
    ("MainSignals", "Unix, and systems without its signals"),
    ("Spanned", "the feature `tracing`"),
    ("TestKernel", "the feature `runtime` of testkit"),
];

/// Names that two things still share. One that is mended is taken out of this list;
/// none is added.
const DEFINED_TWICE: &[&str] = &[];

/// Names in backticks that are not in our code.
const NOT_OURS: &[(&str, &str)] = &[
    ("LocalRuntime", "of tokio, not in its stable part"),
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

/// Phrases that shine through from another language, in a thousand words, at most: a sentence
/// with the system's own verb says the same in fewer words. It falls as files are rewritten.
const MOST_PHRASES: f64 = 0.7;

/// Such phrases.
const PHRASES: &[&str] = &[
    "all the same",
    "are to be",
    "can be had",
    "come to",
    "comes to",
    "is to be",
    "to be had",
];

/// The files in which `compare_exchange` stands: each has the one word of one protocol.
const PROTOCOLS: &[(&str, &str)] = &[
    (
        "crates/signals/src/unix.rs",
        "when a signal came that counted, and which was the first",
    ),
    (
        "crates/core/src/base/observe/counters.rs",
        "which thread has a place",
    ),
    (
        "crates/core/src/base/sync.rs",
        "the byte lock, and std or loom",
    ),
    (
        "crates/core/src/engine/tree.rs",
        "which tree has a place in the table of roots",
    ),
    (
        "crates/core/src/record/slab_word.rs",
        "the word of a slab of cells",
    ),
    ("crates/core/src/record/state.rs", "the state word of a job"),
    (
        "crates/queue/src/door.rs",
        "who hands a turn to a driver that sleeps",
    ),
    (
        "crates/queue/src/ring.rs",
        "who takes from the head of a ring",
    ),
    ("crates/queue/src/slot.rs", "who takes what is in a slot"),
    (
        "crates/runtime/src/io/mailbox.rs",
        "whether the thread waits in its driver",
    ),
    (
        "crates/runtime/src/io/readiness/offload.rs",
        "whether a call was begun or given up",
    ),
    (
        "crates/runtime/src/main_lane.rs",
        "whether the main thread sleeps",
    ),
    (
        "crates/sync/src/permits.rs",
        "the word of permits that are free",
    ),
    (
        "crates/sync/src/sync.rs",
        "the lock of a line, and std or loom",
    ),
];

/// Lines of a function, at most, unless its comment says why it has more.
const LONGEST: usize = 80;

/// Types of which a file defines two and a build takes one.
const ONE_OF_TWO: &[(&str, &str)] = &[
    ("crates/core/src/base/sync.rs", "Link"),
    ("crates/core/src/base/sync.rs", "Plain"),
    ("crates/runtime/src/linux.rs", "StatBuf"),
    ("crates/sync/src/sync.rs", "Lock"),
    ("crates/sync/src/sync.rs", "Plain"),
];

/// File names that stand in a crate more than once, and why that misleads no reader.
const SAME_FILE_NAMES: &[(&str, &str)] = &[
    (
        "core: outlet.rs",
        "base has where events leave, engine what leaves there",
    ),
    ("see: trace.rs", "of a cancel, and for Perfetto"),
    (
        "core: alarm.rs",
        "record has what is kept, engine what is done with it",
    ),
    (
        "core: brake.rs",
        "record has what is kept, engine what is done with it",
    ),
    (
        "core: lane.rs",
        "base has the lane as a value, surface the types that a spawn takes",
    ),
    (
        "core: lease.rs",
        "engine has the share, surface the handle of it",
    ),
    (
        "core: patience.rs",
        "base has the setting, engine the timers that apply it",
    ),
    (
        "core: point.rs",
        "points has those of core, more/kit what authors of libraries write theirs with",
    ),
    (
        "core: with_tracing.rs",
        "each folder has one, for what it does with the feature",
    ),
    (
        "core: without_tracing.rs",
        "each folder has one, for what it does without the feature",
    ),
    (
        "runtime: names.rs",
        "fs has those of files, net those of hosts",
    ),
    (
        "runtime: registered.rs",
        "io has the pool that programs use, io/uring what a ring knows of it",
    ),
    (
        "runtime: stream.rs",
        "io has what every stream can do, io/series a stream of items, net what sockets share",
    ),
    (
        "runtime: sync.rs",
        "io/ops has the operation of that name; the other is the switch to loom",
    ),
    (
        "runtime: vectored.rs",
        "io/ops has the operations, fs the methods that begin them",
    ),
];

/// Words of the glossary that a user needs, at most.
const MOST_FOR_USERS: usize = 30;

/// In how many words they are explained, at most: one page.
const MOST_ON_THE_PAGE: usize = 720;

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
                let built = name == "target" || name.starts_with("target-");
                if !built && (!name.starts_with('.') || name == ".ci") {
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
    let mut found = BTreeMap::<String, BTreeSet<String>>::new();
    for (file, text) in &sources() {
        if file.starts_with("crates/conformance/") {
            continue;
        }
        for name in code(text).filter_map(defined) {
            found.entry(name).or_default().insert(file.clone());
        }
    }
    found
}

/// The files of our crates, without those that are compiled for tests alone.
fn sources() -> BTreeMap<String, String> {
    let mut files = files(&[".rs"]);
    let for_tests = modules_for_tests(&files);
    files.retain(|file, _| {
        file.starts_with("crates/") && file.contains("/src/") && !for_tests.contains(file)
    });
    files
}

/// The types that a file defines more than once.
fn twice_in(text: &str) -> BTreeSet<String> {
    let (mut seen, mut twice) = (BTreeSet::new(), BTreeSet::new());
    for name in code(text).filter_map(defined) {
        if !seen.insert(name.clone()) {
            twice.insert(name);
        }
    }
    twice
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

#[test]
fn a_type_name_is_defined_once_in_a_file() {
    let mut found = BTreeSet::new();
    for (file, text) in sources() {
        found.extend(twice_in(&text).into_iter().map(|name| (file.clone(), name)));
    }
    let known = (ONE_OF_TWO.iter()).map(|(file, name)| (file.to_string(), name.to_string()));
    let known: BTreeSet<_> = known.collect();
    let more: Vec<_> = found.difference(&known).collect();
    assert!(more.is_empty(), "defined twice in one file: {more:#?}");
    let gone: Vec<_> = known.difference(&found).collect();
    assert!(gone.is_empty(), "no longer needed in the list: {gone:?}");
}

/// A name that several files may define is not one that programs see: there it says too
/// little. The modules of channels are the exception; they are not in the facade's lists.
#[test]
fn an_idiom_is_not_public() {
    let facade = root().join("crates/kinfolk/src/lib.rs");
    let facade = fs::read_to_string(facade).expect("the facade");
    let code: Vec<_> = code(&facade)
        .filter(|line| !line.starts_with("//!"))
        .collect();
    let names: BTreeSet<_> = (code.iter())
        .flat_map(|line| line.split(|c| !is_word(c)))
        .collect();
    let public: Vec<_> = (IDIOMS.iter())
        .filter(|(name, _)| names.contains(name))
        .collect();
    assert!(public.is_empty(), "excused, but public: {public:?}");
}

/// The name of a file, but for those that each folder or crate has.
fn file_name(path: &str) -> Option<&str> {
    let name = path.rsplit('/').next().expect("a path");
    (!["mod.rs", "lib.rs", "main.rs"].contains(&name)).then_some(name)
}

#[test]
fn a_file_name_stands_once_in_a_crate() {
    let mut places = BTreeMap::<String, Vec<String>>::new();
    for file in sources().keys() {
        let krate = file.split('/').nth(1).expect("a crate");
        if let Some(name) = file_name(file) {
            let place = places.entry(format!("{krate}: {name}")).or_default();
            place.push(file.clone());
        }
    }
    places.retain(|_, files| files.len() > 1);
    let known: BTreeSet<_> = SAME_FILE_NAMES.iter().map(|(name, _)| *name).collect();
    let more: Vec<_> = (places.iter())
        .filter(|(name, _)| !known.contains(name.as_str()))
        .collect();
    assert!(more.is_empty(), "several files of one name: {more:#?}");
    let gone: Vec<_> = (known.iter())
        .filter(|name| !places.contains_key(**name))
        .collect();
    assert!(gone.is_empty(), "no longer needed in the list: {gone:?}");
}

#[test]
fn each_protocol_has_one_file() {
    let mut found = BTreeSet::new();
    for (file, text) in sources() {
        if code(&text).any(|line| line.contains("compare_exchange")) {
            found.insert(file);
        }
    }
    let known: BTreeSet<_> = PROTOCOLS.iter().map(|(file, _)| file.to_string()).collect();
    let more: Vec<_> = found.difference(&known).collect();
    assert!(
        more.is_empty(),
        "compare_exchange outside the file of a protocol: {more:?}"
    );
    let gone: Vec<_> = known.difference(&found).collect();
    assert!(gone.is_empty(), "no longer needed in the list: {gone:?}");
}

/// A function of a file: its name, the line on which it begins, and how many it has.
fn functions(text: &str) -> Vec<(String, usize, usize)> {
    let lines: Vec<_> = text
        .lines()
        .take_while(|line| !is_for_tests(line))
        .collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let begin = line.trim_start();
        let indent = &line[..line.len() - begin.len()];
        let head = begin.split_once("fn ").filter(|(before, _)| {
            before.split_whitespace().all(|word| {
                ["const", "unsafe", "async", "extern", "\"C\""].contains(&word)
                    || word.starts_with("pub")
            })
        });
        let Some((_, head)) = head else { continue };
        let name = head.chars().take_while(|c| is_word(*c)).collect();
        // Formatted code: a body ends with a brace below the beginning of its function; one
        // without a body, or on a single line, ends before that.
        let rest = &lines[at..];
        let own = |line: &&str| line.starts_with(indent) && !line[indent.len()..].starts_with(' ');
        let last = (rest.iter().enumerate()).find(|(n, line)| match n {
            0 => line.ends_with(['}', ';']),
            _ => own(line) && (line.trim() == "}" || line.ends_with(';')),
        });
        if let Some((last, _)) = last {
            found.push((name, at, last + 1));
        }
    }
    found
}

#[test]
fn a_long_function_says_why() {
    let mut long = Vec::new();
    for (file, text) in sources() {
        let lines: Vec<_> = text.lines().collect();
        for (name, at, length) in functions(&text) {
            let comment = (lines[..at].iter().rev())
                .take_while(|line| line.trim_start().starts_with(['/', '#']))
                .any(|line| line.contains("Long because"));
            if length > LONGEST && !comment {
                long.push(format!("{name} in {file}: {length} lines"));
            }
        }
    }
    assert!(
        long.is_empty(),
        "more than {LONGEST} lines, and no comment says \"Long because …\": {long:#?}"
    );
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
    let page: usize = (for_users.iter())
        .map(|(word, rest)| word.split(' ').count() + rest.split_whitespace().count())
        .sum();
    assert!(
        page <= MOST_ON_THE_PAGE,
        "\"{first}\" has {page} words, more than a page"
    );
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
    words.push(' ');
    let is_used = |word: &&String| {
        let word = word.replace(|c: char| !c.is_alphanumeric(), " ");
        // As whole words, one or many, or as the name of a type.
        words.contains(&format!(" {word} "))
            || words.contains(&format!(" {word}s "))
            || words.contains(&format!(" {} ", word.replace(' ', "")))
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
        let camel = word.starts_with(|c: char| c.is_uppercase()) && caps > 0 && small > 0;
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
        let generated = file == "tests/COVERAGE.md";
        if file.contains("/decisions/")
            || generated
            || file == "CHANGELOG.md"
            || file == "tests/house.rs"
        {
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

/// How often one of these phrases stands in the words, also across the ends of lines.
fn phrases(words: &[String], these: &[&str]) -> usize {
    let these: Vec<Vec<&str>> = these.iter().map(|it| it.split(' ').collect()).collect();
    (0..words.len())
        .filter(|at| {
            let here = |phrase: &Vec<&str>| {
                let mut there = words[*at..].iter().map(String::as_str);
                phrase.iter().all(|word| there.next() == Some(*word))
            };
            these.iter().any(here)
        })
        .count()
}

#[test]
fn sentences_are_plain() {
    let (mut all, mut found, mut by_file) = (0, 0, Vec::new());
    for (file, text) in files(&[".rs", ".md"]) {
        let prose = prose(&file, &text).join(" ");
        let spoken: String = prose.split('`').step_by(2).collect::<Vec<_>>().join(" ");
        let words: Vec<String> = (spoken.split(|c: char| !c.is_alphabetic() && c != '\''))
            .filter(|word| !word.is_empty())
            .map(str::to_lowercase)
            .collect();
        let here = phrases(&words, PHRASES);
        all += words.len();
        found += here;
        if here > 0 {
            by_file.push((here, file));
        }
    }
    by_file.sort_unstable_by(|a, b| b.cmp(a));
    by_file.truncate(20);
    let here = 1000.0 * found as f64 / all as f64;
    assert!(
        here <= MOST_PHRASES,
        "{here:.2} of {PHRASES:?} in a thousand of {all} words, most in {by_file:#?}"
    );
}

#[test]
fn phrases_are_seen() {
    let words = ["it", "is", "to", "be", "had", "all", "the", "same"].map(str::to_string);
    assert_eq!(phrases(&words, PHRASES), 3);
    assert_eq!(phrases(&words[..3], PHRASES), 0);
}

/// Sources whose messages go to people, and whose names come from programs.
const PRINTS: &[&str] = &[
    "crates/core/src/",
    "crates/queue/src/",
    "crates/runtime/src/",
    "crates/see/src/",
    "crates/sync/src/",
    "crates/testkit/src/sim.rs",
    "crates/testkit/src/unheard.rs",
    "crates/tokio/src/",
];

/// Names that are printed as they are, and why that does no harm.
const PLAIN_NAMES: &[(&str, &str, &str)] = &[
    (
        "crates/core/src/base/observe/sink.rs",
        "{name}",
        "of interests, which are ours",
    ),
    (
        "crates/see/src/causes/waterfall.rs",
        "{name}",
        "escaped in the line before",
    ),
    ("crates/see/src/record.rs", "{name}", "of a unit of time"),
    (
        "crates/runtime/src/builder.rs",
        "self.name",
        "of threads, for the system",
    ),
    (
        "crates/runtime/src/io/choice.rs",
        "{name}",
        "a variable of the environment that is none of two words, and a driver of ours",
    ),
    (
        "crates/runtime/src/runtime.rs",
        "{name}",
        "of threads, for the system",
    ),
    (
        "crates/testkit/src/sim.rs",
        "{name}",
        "of a test, by its function",
    ),
];

/// The macros that make words, and the functions.
const MAKES_WORDS: &[&str] = &[
    "write!(",
    "writeln!(",
    "format!(",
    "format_args!(",
    "panic!(",
];

/// What in a text of code prints a name that is not escaped: a placeholder between quotation
/// marks, one that is called as names are, and a field or a function that is.
fn unescaped(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for makes in MAKES_WORDS {
        for (at, _) in code.match_indices(makes) {
            let call = in_brackets(&code[at + makes.len()..]);
            if call.contains("\\\"{") {
                found.push("\\\"{".to_string());
            }
            for held in ["{name}", "{path}", "{text}"] {
                if call.contains(held) {
                    found.push(held.to_string());
                }
            }
            for called in [".name", "job_name()", "task_name(", "name_of(", ".path()"] {
                for (at, _) in call.match_indices(called) {
                    let (front, behind) = (&call[..at], &call[at + called.len()..]);
                    let is_other = called == ".name" && behind.starts_with(|c: char| is_word(c));
                    let own = front.rfind([',', ' ', '(']).map_or(0, |at| at + 1);
                    let guard = front.rfind("quoted(").max(front.rfind("escaped("));
                    let escaped = guard.is_some_and(|guard| !front[guard..].contains(')'));
                    if !is_other && !escaped {
                        let own = own.min(at);
                        found.push(format!("{}{called}", &call[own..at]));
                    }
                }
            }
        }
    }
    found
}

/// What stands before the bracket that closes one that was opened.
fn in_brackets(text: &str) -> &str {
    let (mut depth, mut in_text, mut escaped) = (1, false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => in_text = !in_text,
            '(' if !in_text => depth += 1,
            ')' if !in_text => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[..at];
        }
    }
    text
}

#[test]
fn see_2_names_are_escaped_where_they_are_printed() {
    let mut found = BTreeSet::new();
    let mut spared = BTreeSet::new();
    for (file, text) in files(&[".rs"]) {
        // What escapes is the one place that writes quotation marks around a name.
        let escapes = file == "crates/core/src/base/escape.rs" || file == "crates/see/src/json.rs";
        let prints = PRINTS.iter().any(|prints| file.starts_with(prints));
        if !prints || escapes || file.ends_with("tests.rs") {
            continue;
        }
        let code: Vec<&str> = code(&text).collect();
        for what in unescaped(&code.join("\n")) {
            let spares = |(of, name, _): &&(&str, &str, &str)| *of == file && *name == what;
            match PLAIN_NAMES.iter().find(spares) {
                Some((of, name, _)) => drop(spared.insert((*of, *name))),
                None => drop(found.insert(format!("{file}: {what}"))),
            }
        }
    }
    assert!(
        found.is_empty(),
        "print these with `quoted` or `escaped`, or say in PLAIN_NAMES why not: {found:#?}"
    );
    let listed: BTreeSet<_> = PLAIN_NAMES
        .iter()
        .map(|(of, name, _)| (*of, *name))
        .collect();
    assert_eq!(listed, spared, "what is listed is there");
}

#[test]
fn see_2_names_that_are_not_escaped_are_seen() {
    for (code, found) in [
        (r#"write!(f, "\"{}\"", x)"#, true),
        (r#"write!(f, "{name} was cancelled")"#, true),
        (r#"format!("{} {}", job.kind, job.name)"#, true),
        (r#"format!("{} {}", job.kind, quoted(&job.name))"#, false),
        (r#"format!("{}", escaped(a)); b.name"#, false),
        (r#"format!("{} {}", escaped(a), b.name)"#, true),
        (r#"panic!("{}", names::name_of(h))"#, true),
        (r#"write!(f, "{}", node.names)"#, false),
        (r#"write!(f, "a (b) {}", f(x), y.name)"#, true),
    ] {
        assert_eq!(!unescaped(code).is_empty(), found, "{code}");
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
    assert_eq!(named("Local<T>"), ["Local"]);
    assert_eq!(named("cancel"), Vec::<&str>::new());
    assert_eq!(named("Held"), ["Held"]);
    assert_eq!(named("A"), Vec::<&str>::new());
    assert_eq!(
        twice_in("struct A;\nenum B {}\nfn a() { struct A; }\n").len(),
        0
    );
    let twice = twice_in("struct A;\nfn a() {\n    struct A;\n}\n");
    assert!(twice.contains("A"));
    let two = "fn a() -> u8 {\n    1\n}\n    pub(crate) unsafe fn b(\n        x: u8,\n    ) {\n        c;\n    }\nfn d();\n";
    let two = functions(two);
    assert_eq!(two[0], ("a".to_string(), 0, 3));
    assert_eq!(two[1], ("b".to_string(), 3, 5));
    assert_eq!(two[2], ("d".to_string(), 8, 1));
    assert_eq!(named("a sentence"), Vec::<&str>::new());
    assert_eq!(named("cargo test"), Vec::<&str>::new());
    let doc = "/// One `A`.\n/// ```\n/// let b = `c`;\n/// ```\nfn d() {}\n//// no\n";
    assert_eq!(prose("x.rs", doc), [" One `A`."]);
}
