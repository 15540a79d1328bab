//! `#[kinfolk::main]` and `#[kinfolk::test]`. Each expands to one visible
//! function call; the body stays as it was written.

// What the library says goes through `host::say`: no print of ours may block or panic.
#![deny(clippy::print_stderr, clippy::print_stdout, clippy::dbg_macro)]

use proc_macro::{Delimiter, Group, TokenStream, TokenTree};

/// Runs an `async fn main` as a job: everything it started has ended when the
/// program does. It runs on the native runtime, with the feature `runtime`, which is on by
/// default; as `#[kinfolk::main(tokio)]` on a tokio runtime, with the feature `tokio`.
///
/// The first Ctrl-C or SIGTERM cancels everything, and shuts the
/// runtime down by itself from then on; the second drops what is parked, the third aborts.
/// `main` is told as every task is, at a point: it may still say what was done and what
/// was not, and return. `Runtime::run_main` has the exit codes, `Builder::signals` what
/// happens when; on tokio `Root::run_main` and `RootBuilder::signals`.
///
/// Options stand side by side, with commas between, as in
/// `#[kinfolk::main(tokio, grace = "5s")]`:
///
/// - `workers = 4`: how many worker threads; as many as there are processors by default.
///   With `workers = 0` the main thread does all; on tokio the runtime is a current-thread
///   one then.
/// - `grace = "5s"`: how long after the first signal, or after the end of `main`, jobs
///   have until shields are lifted; `"10s"` by default. A number and `ms`, `s` or `m`.
/// - `signals = false`: leaves signals alone.
/// - `exit = "signal"`: after a signal the exit code is always 128 and its number.
/// - `quiet`: says nothing of signals, and of what was in the way at the end.
/// - `dump_on_usr1`: SIGUSR1 writes the tree of jobs, and what in it deserves a look, to
///   standard error; on the native runtime alone.
///
/// The error of a failed main is said on standard error, with the names of the jobs down
/// to the one that failed, and the process exits with 1.
#[proc_macro_attribute]
pub fn main(args: TokenStream, item: TokenStream) -> TokenStream {
    let words: Vec<String> = args.into_iter().map(|token| token.to_string()).collect();
    let here = Features {
        runtime: cfg!(feature = "runtime"),
        tokio: cfg!(feature = "tokio"),
    };
    let call = match main_call(&words, here) {
        Ok(call) => call,
        Err(message) => return error(&message),
    };
    let function = match Function::parse(item) {
        Ok(function) => function,
        Err(message) => return error(message),
    };
    let call = call.replace("MAIN", &format!("{}()", function.name));
    function.wrap("fn main() -> ::std::process::ExitCode", &call)
}

/// Makes an `async fn` a test on the seeded simulation: virtual time, several
/// schedules, a check that nothing is left behind, a guard in real time. Needs
/// the feature `testkit`.
///
/// Beside `use kinfolk::*` the compiler takes a plain `#[test]` for ambiguous, as it does
/// for every macro that has the name of one of std: import `kinfolk::prelude::*`.
///
/// `#[kinfolk::test(seeds = 100)]` runs it on 100 schedules;
/// `#[kinfolk::test(seed = 7)]` on the one that failed.
/// `#[kinfolk::test(flavor = "native")]` runs it on the native runtime with two
/// workers instead, still with virtual time; it needs the feature `runtime`. With
/// `#[kinfolk::test(flavor = "native", time = "real")]` time is the system's, and the
/// test is run once: for tests that talk to other processes or machines.
/// `#[kinfolk::test(flavor = "tokio")]` runs it on a current-thread tokio runtime whose
/// clock is paused: tokio's timers and Kinfolk's jump together when no task can go on; it
/// needs the feature `tokio`. Sockets do not hold that clock: with
/// `#[kinfolk::test(flavor = "tokio", time = "real")]` the runtime has two workers, and time
/// is the system's.
///
/// On every other seed i/o is as rough as every program must bear: short reads and
/// writes, operations that are late, cancels that come too late.
/// `#[kinfolk::test(io = "rough")]` makes it so on all seeds, `io = "fair"` on none.
/// `#[kinfolk::test(time = "slips")]`: on odd seeds time also moves while tasks are
/// ready, so that a task may find that it is later than the instant it waited for.
///
/// A failure that no handle takes, of a detached job or of a child of a
/// supervisor, fails the test; `#[kinfolk::test(failures = "allowed")]` lets it
/// pass. Options stand side by side: `#[kinfolk::test(seeds = 100, failures =
/// "allowed")]`.
#[proc_macro_attribute]
pub fn test(args: TokenStream, item: TokenStream) -> TokenStream {
    let function = match Function::parse(item) {
        Ok(function) => function,
        Err(message) => return error(message),
    };
    let words: Vec<String> = args.into_iter().map(|token| token.to_string()).collect();
    let how = match how(&words) {
        Ok(how) => how,
        Err(message) => return error(message),
    };
    let name = &function.name;
    let runner = how.flavor.runner();
    let options = how.options();
    let call = format!("::kinfolk::testkit::{runner}(stringify!({name}), {options}, {name});");
    let head = format!("#[::core::prelude::v1::test] fn {name}()");
    function.wrap(&head, &call)
}

/// Which features of `kinfolk` are on, of those that bring a host for main.
#[derive(Clone, Copy)]
struct Features {
    runtime: bool,
    tokio: bool,
}

/// The call that runs main, which it calls `MAIN`.
fn main_call(words: &[String], features: Features) -> Result<String, String> {
    const USAGE: &str = "expected #[kinfolk::main], #[kinfolk::main(tokio)], or in brackets, \
                         with commas between: tokio, which comes first; workers = 4; \
                         grace = \"5s\"; signals = false; exit = \"signal\"; quiet; dump_on_usr1";
    let (tokio, words) = match words.split_first() {
        Some((first, rest)) if first == "tokio" && rest.first().is_none_or(|word| word == ",") => {
            (true, rest)
        }
        _ => (false, words),
    };
    if tokio && !features.tokio {
        return Err(
            "#[kinfolk::main(tokio)] needs the feature `tokio` of kinfolk: \
                          kinfolk = { default-features = false, features = [\"tokio\"], … }"
                .to_string(),
        );
    }
    let mut options = String::new();
    let mut seen = Vec::new();
    for option in words.split(|word| word == ",") {
        let words: Vec<&str> = option.iter().map(String::as_str).collect();
        options += &match words.as_slice() {
            // Nothing at all, or a comma at the end.
            [] => continue,
            ["quiet"] => ".quiet(true)".to_string(),
            ["dump_on_usr1"] if tokio => {
                return Err("dump_on_usr1 is an option of the native runtime".to_string());
            }
            ["dump_on_usr1"] => ".dump_on_usr1(true)".to_string(),
            ["signals", "=", on @ ("true" | "false")] => format!(".signals({on})"),
            ["exit", "=", "\"signal\""] => ".exit_by_signal(true)".to_string(),
            ["workers", "=", number] => {
                let number: usize = number.replace('_', "").parse().map_err(|_| USAGE)?;
                format!(".workers({number})")
            }
            ["grace", "=", text] => {
                let millis = millis(text).ok_or(
                    "grace takes a number and ms, s or m, as in #[kinfolk::main(grace = \"5s\")]",
                )?;
                format!(".grace(::core::time::Duration::from_millis({millis}))")
            }
            _ => return Err(USAGE.to_string()),
        };
        if seen.contains(&words[0].to_string()) {
            return Err("an option of #[kinfolk::main] is given twice".to_string());
        }
        seen.push(words[0].to_string());
    }
    if !tokio && !features.runtime {
        return Err(
            "#[kinfolk::main] needs the feature `runtime` of kinfolk, which is on by \
                    default: leave out `default-features = false`, or add \
                    features = [\"runtime\"]; on a tokio runtime write #[kinfolk::main(tokio)]"
                .to_string(),
        );
    }
    let host = match tokio {
        true => "::kinfolk::tokio",
        false => "::kinfolk::__main",
    };
    Ok(format!(
        "{host}::run_main_with({host}::main_options(){options}, MAIN)"
    ))
}

/// How many milliseconds a string such as `"5s"`, with its quotes, stands for.
fn millis(text: &str) -> Option<u64> {
    let text = text.strip_prefix('"')?.strip_suffix('"')?;
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let each = match &text[digits.len()..] {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        _ => return None,
    };
    digits.trim_end().parse::<u64>().ok()?.checked_mul(each)
}

/// What a test runs on.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Flavor {
    #[default]
    Sim,
    Native,
    Tokio,
}

impl Flavor {
    /// The function of testkit that runs it.
    fn runner(self) -> &'static str {
        match self {
            Flavor::Sim => "run_test",
            Flavor::Native => "run_native_test",
            Flavor::Tokio => "run_tokio_test",
        }
    }
}

/// How a test is run.
#[derive(Default)]
struct How {
    flavor: Flavor,
    /// The seeds, as the expression of a range.
    seeds: Option<String>,
    failures_allowed: bool,
    real_time: bool,
    /// The call that sets how rough i/o is.
    io: &'static str,
    time_slips: bool,
}

impl How {
    /// The expression of the `TestOptions`.
    fn options(&self) -> String {
        let mut options = "::kinfolk::testkit::TestOptions::default()".to_string();
        if let Some(seeds) = &self.seeds {
            options += &format!(".seeds({seeds})");
        }
        if self.failures_allowed {
            options += ".allow_failures()";
        }
        if self.real_time {
            options += ".real_time()";
        }
        options += self.io;
        if self.time_slips {
            options += ".time_slips()";
        }
        options
    }
}

/// How the words of the attribute say that a test is run.
fn how(words: &[String]) -> Result<How, &'static str> {
    const USAGE: &str = "expected #[kinfolk::test], or in brackets, with commas between: \
                         seeds = 100 or seed = 7; flavor = \"native\" or \"tokio\"; time = \"real\" or \"slips\"; \
                         failures = \"allowed\"; io = \"rough\" or io = \"fair\"";
    const NO_SEEDS: &str = "seeds = 0 runs nothing: give at least one";
    let mut how = How::default();
    let mut seen = Vec::new();
    for option in words.split(|word| word == ",") {
        let words: Vec<&str> = option.iter().map(String::as_str).collect();
        let [what, "=", value] = words.as_slice() else {
            // Nothing at all, or a comma at the end.
            if words.is_empty() {
                continue;
            }
            return Err(USAGE);
        };
        // One schedule or several: they are one option.
        let option = what.trim_end_matches('s');
        if seen.contains(&option.to_string()) {
            return Err("an option of #[kinfolk::test] is given twice");
        }
        seen.push(option.to_string());
        match (*what, *value) {
            ("flavor", "\"native\"") => how.flavor = Flavor::Native,
            ("flavor", "\"tokio\"") => how.flavor = Flavor::Tokio,
            ("flavor", "\"sim\"") => {}
            ("time", "\"real\"") => how.real_time = true,
            ("time", "\"virtual\"") => {}
            ("time", "\"slips\"") => how.time_slips = true,
            ("failures", "\"allowed\"") => how.failures_allowed = true,
            ("io", "\"rough\"") => how.io = ".rough_io()",
            ("io", "\"fair\"") => how.io = ".fair_io()",
            ("seeds" | "seed", number) => {
                let number: u64 = number.replace('_', "").parse().map_err(|_| USAGE)?;
                how.seeds = Some(match *what {
                    "seeds" if number == 0 => return Err(NO_SEEDS),
                    "seeds" => format!("0..{number}"),
                    _ => format!("{number}..{}", number.checked_add(1).ok_or(USAGE)?),
                });
            }
            _ => return Err(USAGE),
        }
    }
    let is_sim = how.flavor == Flavor::Sim;
    if how.seeds.is_some() {
        match how.flavor {
            Flavor::Sim => {}
            Flavor::Native => {
                return Err(
                    "flavor = \"native\" takes no seeds: its schedules are those of real threads",
                );
            }
            Flavor::Tokio => {
                return Err("flavor = \"tokio\" takes no seeds: its schedules are tokio's");
            }
        }
    }
    if how.real_time && is_sim {
        return Err(
            "time = \"real\" needs flavor = \"native\" or \"tokio\": a simulation has no real time",
        );
    }
    if !is_sim && !how.io.is_empty() {
        return Err("flavor = \"native\" and \"tokio\" take no io: their kernel is the real one");
    }
    if how.time_slips && !is_sim {
        return Err("time = \"slips\" is for simulations, whose seed says when it does");
    }
    Ok(how)
}

/// An `async fn` without arguments.
struct Function {
    attributes: TokenStream,
    item: TokenStream,
    name: String,
}

impl Function {
    fn parse(item: TokenStream) -> Result<Function, &'static str> {
        let mut attributes = TokenStream::new();
        let mut rest = TokenStream::new();
        let mut tokens = item.into_iter().peekable();
        while let Some(TokenTree::Punct(punct)) = tokens.peek() {
            if punct.as_char() != '#' {
                break;
            }
            attributes.extend(tokens.by_ref().take(2));
        }
        let mut name = None;
        let mut is_async = false;
        let mut after_fn = false;
        let mut arguments = None;
        for token in tokens {
            if let TokenTree::Ident(ident) = &token {
                let word = ident.to_string();
                if after_fn && name.is_none() {
                    name = Some(word);
                } else if name.is_none() {
                    is_async |= word == "async";
                    after_fn |= word == "fn";
                }
            }
            if let TokenTree::Group(group) = &token
                && group.delimiter() == Delimiter::Parenthesis
                && name.is_some()
                && arguments.is_none()
            {
                arguments = Some(group.stream().is_empty());
            }
            rest.extend([token]);
        }
        match (name, is_async, arguments) {
            (Some(name), true, Some(true)) => Ok(Function {
                attributes,
                item: rest,
                name,
            }),
            (Some(_), true, _) => Err("the function must take no arguments"),
            _ => Err("expected an async fn"),
        }
    }

    /// A plain function of that head around the original, which it calls.
    fn wrap(self, head: &str, call: &str) -> TokenStream {
        let mut body = self.item;
        body.extend(tokens(call));
        let mut out = self.attributes;
        out.extend(tokens(head));
        out.extend([TokenTree::Group(Group::new(Delimiter::Brace, body))]);
        out
    }
}

fn tokens(text: &str) -> TokenStream {
    text.parse().expect("a template of ours")
}

fn error(message: &str) -> TokenStream {
    tokens(&format!("::core::compile_error!({message:?});"))
}

#[cfg(test)]
mod tests {
    use super::{Features, Flavor, how, main_call};

    const BOTH: Features = Features {
        runtime: true,
        tokio: true,
    };

    /// The call that the words in the brackets of `main` stand for.
    fn call(text: &str, features: Features) -> Result<String, String> {
        let spaced = text.replace('=', " = ").replace(',', " , ");
        let words: Vec<String> = spaced.split_whitespace().map(String::from).collect();
        main_call(&words, features)
    }

    #[test]
    fn main_takes_options() {
        let native = |options: &str| {
            let options = options.replace("MS", "::core::time::Duration::from_millis");
            let made = format!("::kinfolk::__main::main_options(){options}");
            format!("::kinfolk::__main::run_main_with({made}, MAIN)")
        };
        for (text, expected) in [
            ("", ""),
            ("workers = 4", ".workers(4)"),
            ("signals = false", ".signals(false)"),
            ("signals = true", ".signals(true)"),
            ("dump_on_usr1, quiet", ".dump_on_usr1(true).quiet(true)"),
            ("grace = \"5s\", quiet", ".grace(MS(5000)).quiet(true)"),
            ("grace = \"250ms\",", ".grace(MS(250))"),
            ("grace = \"2m\"", ".grace(MS(120000))"),
            (
                "exit = \"signal\", workers = 1_0",
                ".exit_by_signal(true).workers(10)",
            ),
        ] {
            assert_eq!(call(text, BOTH), Ok(native(expected)), "{text}");
        }
        // The same of tokio.
        for options in [
            "",
            "workers = 4",
            "signals = false",
            "grace = \"5s\", quiet",
        ] {
            let theirs = call(options, BOTH).map(|call| call.replace("__main", "tokio"));
            for text in [format!("tokio, {options}"), format!("tokio, {options},")] {
                assert_eq!(call(&text, BOTH), theirs, "{text}");
            }
        }
        assert_eq!(call("tokio", BOTH), call("tokio,", BOTH));
    }

    /// Whichever feature another crate turns on: plain `main` is native.
    #[test]
    fn main_is_native_and_says_which_feature_it_lacks() {
        for (runtime, tokio) in [(false, true), (false, false)] {
            let lacks = Features { runtime, tokio };
            for text in ["", "workers = 2", "signals = false"] {
                let said = call(text, lacks).unwrap_err();
                assert!(said.contains("needs the feature `runtime`"), "{said}");
            }
        }
        let lacks = Features {
            runtime: true,
            tokio: false,
        };
        assert_eq!(call("", lacks), call("", BOTH));
        for text in ["tokio", "tokio, quiet"] {
            let said = call(text, lacks).unwrap_err();
            assert!(said.contains("needs the feature `tokio`"), "{said}");
        }
        let lacks = Features {
            runtime: false,
            tokio: true,
        };
        assert_eq!(call("tokio, quiet", lacks), call("tokio, quiet", BOTH));
    }

    #[test]
    fn options_of_main_that_mean_nothing_are_refused() {
        for (text, complaint) in [
            ("toki", "expected #[kinfolk::main]"),
            ("tokio quiet", "expected #[kinfolk::main]"),
            ("quiet, tokio", "expected #[kinfolk::main]"),
            ("tokio, tokio", "expected #[kinfolk::main]"),
            ("tokio, quiet, quiet", "given twice"),
            ("workers = many", "expected #[kinfolk::main]"),
            ("workers", "expected #[kinfolk::main]"),
            ("quiet = true", "expected #[kinfolk::main]"),
            ("dump_on_usr1 = true", "expected #[kinfolk::main]"),
            ("tokio, dump_on_usr1", "an option of the native runtime"),
            ("exit = \"success\"", "expected #[kinfolk::main]"),
            ("grace = 5", "a number and ms, s or m"),
            ("grace = \"5\"", "a number and ms, s or m"),
            ("grace = \"5h\"", "a number and ms, s or m"),
            ("grace = \"long\"", "a number and ms, s or m"),
            ("quiet, quiet", "given twice"),
            ("workers = 1, workers = 2", "given twice"),
        ] {
            let refused = call(text, BOTH).expect_err(text);
            assert!(refused.contains(complaint), "{text}: {refused}");
        }
    }

    /// The options that the words in the brackets stand for.
    fn options(text: &str) -> Result<String, &'static str> {
        // As tokens come: a string is one, and so are a number and a name.
        let spaced = text.replace('=', " = ").replace(',', " , ");
        let words: Vec<String> = spaced.split_whitespace().map(String::from).collect();
        let how = how(&words)?;
        let options = how.options();
        let calls = options.strip_prefix("::kinfolk::testkit::TestOptions::default()");
        let runner = match how.flavor {
            Flavor::Sim => "sim",
            Flavor::Native => "native",
            Flavor::Tokio => "tokio",
        };
        Ok(format!("{runner}{}", calls.unwrap_or(&options)))
    }

    #[test]
    fn options_are_read() {
        for (text, expected) in [
            ("", "sim"),
            ("seeds = 100", "sim.seeds(0..100)"),
            ("seeds = 10_000,", "sim.seeds(0..10000)"),
            ("seed = 7", "sim.seeds(7..8)"),
            ("flavor = \"sim\"", "sim"),
            ("flavor = \"native\"", "native"),
            ("flavor = \"native\", time = \"real\"", "native.real_time()"),
            ("flavor = \"tokio\"", "tokio"),
            ("flavor = \"tokio\", time = \"real\"", "tokio.real_time()"),
            (
                "flavor = \"tokio\", failures = \"allowed\"",
                "tokio.allow_failures()",
            ),
            ("time = \"virtual\"", "sim"),
            ("time = \"slips\"", "sim.time_slips()"),
            (
                "io = \"rough\", failures = \"allowed\"",
                "sim.allow_failures().rough_io()",
            ),
            ("io = \"fair\", seeds = 3", "sim.seeds(0..3).fair_io()"),
        ] {
            assert_eq!(options(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn options_that_mean_nothing_are_refused() {
        for (text, complaint) in [
            ("flavor = \"smol\"", "expected #[kinfolk::test]"),
            ("flavour = \"native\"", "expected #[kinfolk::test]"),
            ("flavor", "expected #[kinfolk::test]"),
            ("native", "expected #[kinfolk::test]"),
            ("time = \"unreal\"", "expected #[kinfolk::test]"),
            ("io = \"calm\"", "expected #[kinfolk::test]"),
            ("failures = \"refused\"", "expected #[kinfolk::test]"),
            ("seeds = \"100\"", "expected #[kinfolk::test]"),
            ("seeds = - 1", "expected #[kinfolk::test]"),
            ("seeds = 100 seed = 7", "expected #[kinfolk::test]"),
            ("seed = 18446744073709551615", "expected #[kinfolk::test]"),
            ("seeds = 0", "runs nothing"),
            ("seeds = 0_0", "runs nothing"),
        ] {
            let refused = options(text).expect_err(text);
            assert!(refused.contains(complaint), "{text}: {refused}");
        }
    }

    #[test]
    fn options_that_contradict_each_other_are_refused() {
        for (text, complaint) in [
            ("seeds = 10, seeds = 20", "given twice"),
            ("seeds = 10, seed = 7", "given twice"),
            ("io = \"rough\", io = \"fair\"", "given twice"),
            ("flavor = \"sim\", flavor = \"native\"", "given twice"),
            ("time = \"real\", time = \"slips\"", "given twice"),
            (
                "failures = \"allowed\", failures = \"allowed\"",
                "given twice",
            ),
            ("flavor = \"native\", seeds = 10", "takes no seeds"),
            ("flavor = \"native\", seed = 7", "takes no seeds"),
            ("flavor = \"native\", io = \"rough\"", "take no io"),
            ("flavor = \"tokio\", io = \"rough\"", "take no io"),
            ("flavor = \"tokio\", seeds = 10", "takes no seeds"),
            ("flavor = \"tokio\", time = \"slips\"", "is for simulations"),
            (
                "flavor = \"native\", time = \"slips\"",
                "is for simulations",
            ),
            ("time = \"real\"", "needs flavor = \"native\""),
            (
                "flavor = \"sim\", time = \"real\"",
                "needs flavor = \"native\"",
            ),
        ] {
            let refused = options(text).expect_err(text);
            assert!(refused.contains(complaint), "{text}: {refused}");
        }
    }
}
