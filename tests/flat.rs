//! A scope that outlives ten million children uses memory for the living ones
//! only. Alone in its process, since it looks at the memory of all of it.
//! `KINFOLK_SCALE` is a tenth of the children (100,000 unless set).

use kinfolk_core::scope;
use kinfolk_testkit::{Sim, guarded};

fn size() -> usize {
    std::env::var("KINFOLK_SCALE")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(100_000)
}

/// Resident memory of this process.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: usize = text
        .split(' ')
        .nth(1)
        .and_then(|n| n.parse().ok())
        .expect("a number");
    pages * 4096
}

#[test]
fn tree_1_a_scope_that_outlives_ten_million_children_stays_flat() {
    guarded("flat", |_| {
        let rounds = size() / 10;
        let mut sim = Sim::seeded(1);
        sim.run(async move {
            scope(async |s| {
                let mut before = 0;
                for round in 0..rounds {
                    for _ in 0..100 {
                        s.launch(async {});
                    }
                    s.spawn(async {}).await?;
                    kinfolk_core::yield_now().await?;
                    if round == rounds / 10 {
                        before = resident();
                    }
                }
                let grown = resident().saturating_sub(before);
                assert!(grown < 8 << 20, "grew by {grown} bytes");
                Ok(())
            })
            .await
        })
        .unwrap();
        sim.finish();
    });
}
