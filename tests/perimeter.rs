//! The facade's perimeter: few names at its root, each in a circle of its page, and
//! everything public of core in one of its modules.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The names at the root are read at one sitting.
const MOST_AT_THE_ROOT: usize = 70;

fn source(of: &str) -> String {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    std::fs::read_to_string(crates.join(of).join("src/lib.rs")).expect("its lib.rs")
}

/// The names that each module of a `lib.rs` makes public; the root's name is empty. Items
/// behind `#[doc(hidden)]` are left out.
fn public_names(source: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut names: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let code: String = source
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with("//"))
        .collect::<Vec<_>>()
        .join(" ");
    let (mut module, mut hidden) = (String::new(), false);
    let mut rest = code.as_str();
    while let Some(at) = rest.find(['#', 'p', 'm', '}']) {
        rest = &rest[at..];
        if rest.starts_with("#[doc(hidden)]") {
            hidden = true;
        } else if let Some(used) = rest.strip_prefix("pub use ") {
            let end = used.find(';').expect("the end of a use");
            if !hidden {
                let all = names.entry(module.clone()).or_default();
                all.extend(used_names(&used[..end]));
            }
            (hidden, rest) = (false, &used[end..]);
        } else if let Some(named) = rest.strip_prefix("pub mod ") {
            let end = named.find([' ', ';']).expect("the end of a name");
            let name = named[..end].to_string();
            if !hidden {
                names.entry(String::new()).or_default().insert(name.clone());
            }
            let opens = named[end..].trim_start().starts_with('{');
            if opens && !hidden {
                module = name;
            } else if opens {
                // Nothing in it is public for readers.
                rest = &rest[end_of_block(rest)..];
            }
            hidden = false;
        } else if rest.starts_with('}') {
            module.clear();
        }
        rest = rest.get(1..).unwrap_or("");
    }
    names
}

/// Where the first block of `code` is closed.
fn end_of_block(code: &str) -> usize {
    let mut depth = 0;
    code.char_indices()
        .find_map(|(at, c)| {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => return None,
            }
            (depth == 0).then_some(at)
        })
        .expect("its end")
}

/// The names that `a::b::{C, d as e}` brings in.
fn used_names(used: &str) -> Vec<String> {
    let list = match used.split_once('{') {
        Some((_, list)) => list.trim_end_matches('}'),
        None => used,
    };
    list.split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
        .map(|item| {
            let last = item.rsplit_once(" as ").map(|(_, name)| name);
            let last = last.unwrap_or_else(|| item.rsplit("::").next().expect("a name"));
            last.trim().to_string()
        })
        .collect()
}

#[test]
fn the_root_has_few_names_and_its_page_lists_each() {
    let source = source("kinfolk");
    let names = public_names(&source);
    let root = &names[""];
    assert!(
        root.len() <= MOST_AT_THE_ROOT,
        "{} names at the root of the facade, {MOST_AT_THE_ROOT} at most: put some into a module",
        root.len()
    );
    assert!(root.len() > 50, "only {root:?} was found");
    let page: String = source
        .lines()
        .filter(|line| line.starts_with("//!"))
        .collect();
    let unlisted: Vec<&String> = root
        .iter()
        .filter(|name| {
            let forms = [
                format!("`{name}`"),
                format!("`{name}()`"),
                format!("`{name}!`"),
                format!("kinfolk::{name}`"),
                format!("kinfolk::{name}]`"),
            ];
            !forms.iter().any(|form| page.contains(form))
        })
        .collect();
    assert!(
        unlisted.is_empty(),
        "no circle of the facade's page lists {unlisted:?}"
    );
}

#[test]
fn what_core_makes_public_is_in_the_facade_once() {
    let facade = public_names(&source("kinfolk"));
    let core = public_names(&source("core"));
    let mut places: BTreeMap<&String, Vec<&String>> = BTreeMap::new();
    for (module, names) in facade.iter().filter(|(module, _)| *module != "prelude") {
        for name in names {
            places.entry(name).or_default().push(module);
        }
    }
    let missing: Vec<&String> = core[""]
        .iter()
        .filter(|name| !places.contains_key(name))
        .collect();
    assert!(missing.is_empty(), "not in the facade: {missing:?}");
    let twice: Vec<_> = (places.iter())
        .filter(|(name, at)| at.len() > 1 && **name != "*")
        .collect();
    assert!(twice.is_empty(), "in the facade more than once: {twice:?}");
}

#[test]
fn names_are_read_out_of_the_source() {
    let names = public_names(
        "pub use a::{B, c as d};\npub mod e {\n    pub use f::G;\n}\n#[doc(hidden)]\npub mod h {\n    \
         pub use i::{J, m};\n    pub use n;\n}\npub use k as l;\n",
    );
    let root: Vec<&str> = names[""].iter().map(String::as_str).collect();
    assert_eq!(root, ["B", "d", "e", "l"]);
    assert!(names["e"].contains("G") && !names.contains_key("h"));
}
