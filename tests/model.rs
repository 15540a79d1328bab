//! Random families on the simulation, compared with a small sequential model
//! of the contract.
//!
//! Every event of a program has an instant of its own, so what the contract
//! promises does not depend on the schedule: the model predicts, for each
//! task, how it ends, when, with a late value or not, and which failures it
//! carries. Works of a program share a lock and a channel, which is closed at some instant: the
//! model says which work holds the lock until when, and which value is received, and when, or
//! comes back. The simulation runs each program on a seed of its own.
//!
//! `model/program.rs` makes the programs, `model/model.rs` says how they end,
//! `model/real.rs` runs them.

use std::panic::catch_unwind;

use kinfolk_testkit::guarded;
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

#[path = "model/model.rs"]
mod model;
#[path = "model/program.rs"]
mod program;
#[path = "model/real.rs"]
mod real;

use model::Model;
use program::{Outside, Plan, programs};

fn check(plans: &[Plan], seed: u64) {
    let (expected, hands) = Model::run(plans);
    let (seen, seen_hands, sim) = real::run(plans, seed);
    assert_eq!(
        seen_hands, hands,
        "seed {seed}: locks and channels\n{plans:#?}"
    );
    for (n, (seen, expected)) in seen.iter().zip(&expected).enumerate() {
        let (Some(seen), Some(expected)) = (seen, expected) else {
            assert_eq!(seen.is_some(), expected.is_some(), "task {n}");
            continue;
        };
        let dropped = matches!(plans[n].outside, Outside::DropHandle(_));
        let state = match expected.state {
            // Nobody could take the late value of a handle that is not here.
            "Late" if (dropped || real::has_no_handle(plans, n)) && seen.state == "Cancelled" => {
                "Cancelled"
            }
            state => state,
        };
        let same = seen.state == state
            && seen.at == expected.at
            && seen.failures.first() == expected.failures.first();
        assert!(
            same,
            "seed {seed}, task {n}: expected {expected:?}, saw {seen:?}\n{plans:#?}"
        );
    }
    sim.assert_nothing_left();
    sim.finish();
}

fn number_from(variable: &str, default: u64) -> u64 {
    let set = std::env::var(variable).ok();
    set.map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn random_families_end_as_the_model_says() {
    guarded("random_families_end_as_the_model_says", |_| {
        std::panic::set_hook(Box::new(|info| {
            // Planned panics are part of the programs.
            if !info.to_string().contains("failure ") {
                eprintln!("{info}");
            }
        }));
        let cases = u32::try_from(number_from("KINFOLK_CASES", 20_000)).expect("fewer");
        let seed = number_from("KINFOLK_SEED", 0);
        println!("{cases} programs from KINFOLK_SEED={seed}");
        let config = ProptestConfig {
            cases,
            failure_persistence: None,
            ..ProptestConfig::default()
        };
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let mut runner = TestRunner::new_with_rng(config, rng);
        runner
            .run(&(programs(), 0..1000u64), |(plans, seed)| {
                let checked = catch_unwind(|| check(&plans, seed));
                checked.map_err(|payload| {
                    let words = payload
                        .downcast_ref::<String>()
                        .cloned()
                        .unwrap_or_else(|| "a panic".into());
                    TestCaseError::fail(words)
                })
            })
            .unwrap_or_else(|error| panic!("KINFOLK_SEED={seed}: {error}"));
    });
}
