//! Snapshots as text: folded, aligned, coloured where that is asked for, and linear.

use std::io::IsTerminal;
use std::time::Duration;

use kinfolk_core::{JobId, ReasonKind, Scope, launch, park, sleep};
use kinfolk_testkit::{Sim, guarded};

const SECOND: Duration = Duration::from_secs(1);

fn end(mut sim: Sim) {
    sim.tree().request_shutdown(ReasonKind::Shutdown);
    sim.advance(3600 * SECOND);
    sim.finish();
}

/// A connection, with two children of its own.
async fn connection() -> kinfolk_core::Result<()> {
    let s = Scope::current().expect("a scope");
    s.task("reader").launch(park());
    s.task("writer").launch(sleep(3600 * SECOND));
    let told = park().await;
    let _ = kinfolk_core::cleanup(sleep(60 * SECOND)).await;
    told?;
    Ok(())
}

fn server(connections: usize) -> Sim {
    let mut sim = Sim::seeded(1);
    sim.root().task("server").launch(async move {
        let s = Scope::current().expect("a scope");
        for _ in 0..connections {
            s.task("conn").launch(connection());
        }
        s.task("other").launch(park());
        park().await?;
        Ok::<(), kinfolk_core::Error>(())
    });
    sim.settle();
    sim
}

/// see-2: equal siblings share a row that counts them, and so do their children below it.
#[test]
fn see_2_equal_siblings_are_folded() {
    guarded("folded", |_| {
        let mut sim = server(1_204);
        sim.advance(3 * 3600 * SECOND);
        let text = sim.snapshot().to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5, "{text}");
        assert!(lines[1].starts_with("└── task \"server\" "), "{text}");
        assert!(
            lines[2].starts_with("    ├── 1,204 × task \"conn\"  "),
            "{text}"
        );
        assert!(lines[2].contains("  Active  "), "{text}");
        assert!(lines[2].contains("  oldest 3 h  spawned at "), "{text}");
        assert!(lines[2].contains("1,204 in park at "), "{text}");
        assert!(
            lines[3].starts_with("    │   └── 1,204 × task \"reader\""),
            "the writers have ended: {text}"
        );
        assert!(lines[4].starts_with("    └── task \"other\""), "{text}");
        end(sim);
    });
}

/// see-2: a row of many says how many of them have been told, and which states they are in.
#[test]
fn see_2_a_row_counts_what_is_told() {
    guarded("counted", |_| {
        let mut sim = Sim::seeded(1);
        let mut jobs = Vec::new();
        for _ in 0..6 {
            jobs.push(sim.root().task("conn").launch(connection()));
        }
        sim.settle();
        for job in &jobs[..2] {
            job.cancel("enough");
        }
        sim.settle();
        let text = sim.snapshot().to_string();
        let line = text
            .lines()
            .find(|line| line.contains("6 × task \"conn\""))
            .unwrap_or_else(|| panic!("{text}"));
        assert!(line.contains("  4 Active, 2 Cancelling  "), "{text}");
        assert!(line.contains(", 2 told, 4 in park at "), "{text}");
        assert!(line.contains(", 2 in scope at "), "{text}");
        end(sim);
    });
}

/// see-2: three equal siblings stand apart, four share a row; in `unfolded` each stands alone.
#[test]
fn see_2_few_are_not_folded() {
    guarded("few", |_| {
        for (count, rows) in [(3, 4), (4, 2)] {
            let mut sim = Sim::seeded(1);
            for _ in 0..count {
                sim.root().task("one").launch(park());
            }
            sim.settle();
            let tree = sim.snapshot();
            assert_eq!(tree.to_string().lines().count(), rows, "{tree}");
            let apart = tree.text().unfolded().to_string();
            assert_eq!(apart.lines().count(), count + 1, "{apart}");
            end(sim);
        }
    });
}

/// see-2: siblings keep their order, with those that are folded where their first one is.
#[test]
fn see_2_rows_keep_the_order_of_the_jobs() {
    guarded("order", |_| {
        let mut sim = Sim::seeded(1);
        for name in ["a", "m", "b", "m", "m", "c", "b", "m"] {
            sim.root().task(name).launch(park());
        }
        sim.settle();
        let text = sim.snapshot().to_string();
        let names = text
            .lines()
            .skip(1)
            .map(|line| line.split('"').nth(1).unwrap());
        assert_eq!(
            names.collect::<Vec<_>>(),
            ["a", "m", "b", "c", "b"],
            "{text}"
        );
        end(sim);
    });
}

/// see-2: there is an escape code in the text only where colours are asked for, and without
/// the codes the two texts are the same. What goes into a file has none.
#[test]
fn see_2_colours_only_where_they_are_asked_for() {
    guarded("colours", |_| {
        let sim = server(5);
        let tree = sim.snapshot();
        let plain = tree.to_string();
        assert!(!plain.contains('\u{1b}'));
        let mut coloured = tree.text().coloured(true).to_string();
        assert!(
            coloured.contains("\u{1b}[1m5 × task \"conn\"\u{1b}[0m"),
            "{coloured:?}"
        );
        for code in ["0", "1", "2", "31", "33", "36"] {
            coloured = coloured.replace(&format!("\u{1b}[{code}m"), "");
        }
        assert_eq!(coloured, plain);
        let file = std::fs::File::open("/dev/null").expect("a file");
        assert!(!file.is_terminal());
        assert_eq!(tree.text().for_terminal(&file).to_string(), plain);
        end(sim);
    });
}

/// see-2: no line ends in spaces, and columns stand one below the other.
#[test]
fn see_2_columns_are_aligned() {
    guarded("aligned", |_| {
        let mut sim = server(5);
        sim.advance(SECOND);
        let text = sim.snapshot().to_string();
        let mut at = None;
        for line in text.lines() {
            assert_eq!(line, line.trim_end());
            let (front, _) = line
                .split_once("Active")
                .unwrap_or_else(|| panic!("{text}"));
            let here = front.chars().count();
            assert_eq!(*at.get_or_insert(here), here, "{text}");
        }
        end(sim);
    });
}

/// see-2: the children and the subtree of a job by the index are those by looking at all.
#[test]
fn see_2_children_and_subtrees_by_the_index() {
    guarded("index", |_| {
        let sim = server(7);
        let tree = sim.snapshot();
        for (at, node) in tree.nodes().iter().enumerate() {
            let by_index: Vec<JobId> = tree.children(node.id).map(|child| child.id).collect();
            let children = tree
                .nodes()
                .iter()
                .filter(|child| child.parent == Some(node.id));
            assert_eq!(by_index, children.map(|child| child.id).collect::<Vec<_>>());
            let below = tree.nodes()[at + 1..]
                .iter()
                .take_while(|below| below.depth > node.depth);
            assert_eq!(tree.subtree(node.id).len(), below.count() + 1);
            assert_eq!(tree.subtree(node.id)[0].id, node.id);
            assert_eq!(tree.get(node.id).map(|node| node.id), Some(node.id));
        }
        let gone = sim.root().task("later").launch(park()).id();
        assert!(tree.get(gone).is_none() && tree.subtree(gone).is_empty());
        assert_eq!(tree.children(gone).count(), 0);
        end(sim);
    });
}

/// A task that launches the next one below itself, and parks.
fn link(left: usize) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        if left > 0 {
            launch(link(left - 1));
        }
        let _ = park().await;
    })
}

/// see-2: a tree 100,000 deep prints, folds and is walked child by child, on a small stack.
#[test]
fn see_2_a_deep_tree_prints_without_recursion() {
    guarded("deep", |_| {
        let mut sim = Sim::seeded(1);
        sim.root().launch(link(100_000));
        sim.settle();
        let tree = sim.snapshot();
        assert_eq!(tree.to_string().lines().count(), 100_002);
        let mut at = tree.nodes()[0].id;
        let mut depth = 0;
        while let Some(child) = tree.children(at).next() {
            (at, depth) = (child.id, depth + 1);
        }
        assert_eq!(depth, 100_001);
        end(sim);
    });
}
