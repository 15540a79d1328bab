//! What the recorded instruction counts say: `benches/counts/baseline.txt`,
//! which `scripts/instructions` checks against the code.

use std::collections::BTreeMap;

fn recorded() -> BTreeMap<&'static str, f64> {
    include_str!("../benches/counts/baseline.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let (name, count) = line.split_once(' ').expect("name and count");
            (name, count.parse().expect("a number"))
        })
        .collect()
}

/// T1: asking whether one is cancelled costs the same with a thousand children
/// as with none, and no more than a load and a test do.
#[test]
fn src_t1_asking_costs_the_same_whatever_the_children() {
    let counts = recorded();
    assert_eq!(
        counts["is_cancelled_alone"],
        counts["is_cancelled_with_children"]
    );
    assert!(counts["is_cancelled_alone"] <= 12.0, "{counts:?}");
    assert!(counts["cancel_requested"] <= 6.0, "{counts:?}");
}

/// A point that goes on is cheap, its share of the turn's yields included.
#[test]
fn a_ready_point_is_cheap() {
    let counts = recorded();
    assert!(counts["ready_point"] <= 30.0, "{counts:?}");
}
