//! The program with fewer clients: nothing is half done, nothing runs on, and the server
//! stops within its grace.

use std::path::Path;
use std::time::Duration;

use orders::drill::{Plan, run};
use orders::{GRACE, Kind};

/// To undo what is under way, on a loaded machine.
const MARGIN: Duration = Duration::from_secs(3);

/// handle-15: a client that hangs up, a time limit and SIGTERM leave no order half done and
/// no work behind.
#[test]
fn handle_15_orders_are_whole_whatever_ends_a_request() {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().unwrap();
    for seed in 1..=2 {
        let plan = Plan {
            clients: 12,
            before: Duration::from_millis(700),
            seed,
        };
        let exe = Path::new(env!("CARGO_BIN_EXE_orders"));
        let column = runtime.block_on(run(exe, Kind::WithKinfolk, plan)).unwrap();
        assert!(column.answers.made > 0, "{column:?}");
        assert!(column.answers.hung_up > 0, "{column:?}");
        assert!(column.books.whole >= column.answers.made, "{column:?}");
        assert_eq!(column.books.half_done, 0, "{column:?}");
        assert_eq!(column.books.stock_lost, 0, "{column:?}");
        assert_eq!(column.counts.now_without_client, 0, "{column:?}");
        assert!(!column.killed, "{column:?}");
        assert!(column.stopped_after < GRACE + MARGIN, "{column:?}");
    }
}
