//! What the environment says about seeds.

use std::ops::Range;

/// The number in a variable of the environment; none if it is not set.
///
/// # Panics
/// If it is set to something else: a run without it would look like the run that was
/// chosen.
#[track_caller]
pub(crate) fn number(variable: &str) -> Option<u64> {
    let text = std::env::var_os(variable)?;
    let number = text.to_str().and_then(|text| text.trim().parse().ok());
    match number {
        Some(number) => Some(number),
        None => panic!("{variable} must be a number, not {text:?}"),
    }
}

/// The one seed that `KINFOLK_SEED` picks, if it is set.
#[track_caller]
pub(crate) fn picked() -> Option<Range<u64>> {
    let seed = number("KINFOLK_SEED")?;
    match seed.checked_add(1) {
        Some(end) => Some(seed..end),
        None => panic!("KINFOLK_SEED must be less than {seed}"),
    }
}

/// How many seeds to run, if `KINFOLK_SEEDS` is set.
#[track_caller]
pub(crate) fn how_many() -> Option<u64> {
    let count = number("KINFOLK_SEEDS")?;
    assert!(count > 0, "KINFOLK_SEEDS must be at least 1, not 0");
    Some(count)
}

/// True if each seed must be run twice, as `KINFOLK_REPLAY=1` says.
pub(crate) fn twice() -> bool {
    number("KINFOLK_REPLAY").is_some_and(|times| times > 0)
}

/// The seeds of a test: the one that the environment picks; or as many as it says,
/// unless the test is for one seed only; or those of the test.
#[track_caller]
pub(crate) fn chosen(own: Range<u64>) -> Range<u64> {
    if let Some(picked) = picked() {
        return picked;
    }
    match how_many() {
        Some(count) if own.end.saturating_sub(own.start) > 1 => {
            own.start..own.start.saturating_add(count)
        }
        _ => own,
    }
}

/// The line to copy that runs a test again on one seed.
pub(crate) fn line(name: &str, seed: u64) -> String {
    // Set by cargo for the tests that it runs.
    let package = std::env::var("CARGO_PKG_NAME");
    let package = package.map_or(String::new(), |name| format!(" -p {name}"));
    format!("to run it again: KINFOLK_SEED={seed} cargo test{package} {name}")
}
