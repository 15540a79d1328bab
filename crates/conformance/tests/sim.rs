//! The conformance suite on the seeded simulation.

use kinfolk_testkit::harness;

/// Cases that would fail if ready points yielded: see the file.
const COUNTS_TURNS: &str = include_str!("counts_turns.txt");

fn counts_turns(name: &str) -> bool {
    COUNTS_TURNS.lines().any(|line| line == name)
}

macro_rules! on_sim {
    ($($module:ident: $($name:ident),* $(,)?);* $(;)?) => {
        const CASES: &[&str] = &[$($(stringify!($name)),*),*];

        $(mod $module {
            $(#[test]
            fn $name() {
                let on_seeds = match super::counts_turns(stringify!($name)) {
                    true => super::harness::on_even_sim,
                    false => super::harness::on_sim,
                };
                on_seeds(
                    stringify!($name),
                    |lab| Box::pin(kinfolk_conformance::$module::$name(lab)),
                );
            })*
        })*
    };
}

kinfolk_conformance::for_each_case!(on_sim);

#[test]
fn what_counts_turns_is_a_case() {
    for name in COUNTS_TURNS.lines().filter(|line| !line.starts_with('#')) {
        assert!(CASES.contains(&name), "there is no case {name}");
    }
}
