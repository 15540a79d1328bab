//! What the program on Kinfolk promises, and which of it the other two do not keep.

use std::path::Path;
use std::time::Duration;

use orders::drill::{self, Plan};
use orders::script::{self, Played};
use orders::{Kind, Limits};

/// For what is promised: none of it takes so long.
const LONG: Duration = Duration::from_secs(60);

/// For what a server never does: it would not do it later either, since what it waits for never
/// comes.
const IN_VAIN: Duration = Duration::from_millis(100);

/// To undo what is under way, on a loaded machine.
const MARGIN: Duration = Duration::from_secs(3);

fn exe() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_orders"))
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap().block_on(future)
}

fn play(kind: Kind, patience: Duration) -> Played {
    block_on(script::play(exe(), kind, patience)).unwrap()
}

/// handle-7, shield-3, shutdown-1: the work of a client that hangs up is undone, the server waits
/// for nothing else than the client that is left, and a clean-up that hangs is cut and named.
#[test]
fn handle_7_on_kinfolk_work_ends_with_its_client() {
    let Played {
        hang_up, bank_down, ..
    } = play(Kind::WithKinfolk, LONG);
    assert!(hang_up.work_ends_with_client, "{hang_up:?}");
    assert_eq!(hang_up.counts.at_stop, 0, "{hang_up:?}");
    assert_eq!(hang_up.counts.now_without_client, 0, "{hang_up:?}");
    assert_eq!(hang_up.answered_after_sigterm, Some(200), "{hang_up:?}");
    assert!(hang_up.stops_without_the_bank, "{hang_up:?}");
    assert_eq!(hang_up.books.whole, 1, "{hang_up:?}");
    assert_eq!(hang_up.books.half_done, 0, "{hang_up:?}");
    assert_eq!(hang_up.books.stock_lost, 0, "{hang_up:?}");

    assert_eq!(bank_down.answered, Some(503), "{bank_down:?}");
    assert!(bank_down.stops, "{bank_down:?}");
    assert_eq!(bank_down.half_done, 1, "{bank_down:?}");
    assert!(bank_down.names_it, "{bank_down:?}");
}

/// The same script, by tokio's guides: nothing is half done, but the work of a client that is
/// gone goes on to its end, holds up the server, and a clean-up that hangs holds it up for ever.
#[test]
fn by_the_guides_work_goes_on_without_its_client() {
    let Played {
        hang_up, bank_down, ..
    } = play(Kind::ByTheGuides, IN_VAIN);
    assert!(!hang_up.work_ends_with_client, "{hang_up:?}");
    assert_eq!(hang_up.counts.at_stop, 1, "{hang_up:?}");
    assert_eq!(hang_up.answered_after_sigterm, Some(200), "{hang_up:?}");
    assert!(!hang_up.stops_without_the_bank, "{hang_up:?}");
    assert_eq!(hang_up.paid_without_client(), 1, "{hang_up:?}");
    assert_eq!(hang_up.books.half_done, 0, "{hang_up:?}");

    assert_eq!(bank_down.answered, None, "{bank_down:?}");
    assert!(!bank_down.stops, "{bank_down:?}");
    assert!(!bank_down.names_it, "{bank_down:?}");
}

/// With axum alone the work ends with its client, in the middle: the bank has the money.
#[test]
fn with_axum_alone_an_order_is_left_half_done() {
    let Played {
        hang_up, bank_down, ..
    } = play(Kind::AxumAlone, LONG);
    assert!(hang_up.work_ends_with_client, "{hang_up:?}");
    assert_eq!(hang_up.answered_after_sigterm, Some(200), "{hang_up:?}");
    assert!(hang_up.stops_without_the_bank, "{hang_up:?}");
    assert_eq!(hang_up.books.half_done, 1, "{hang_up:?}");
    assert_eq!(hang_up.books.money_taken, 1, "{hang_up:?}");
    assert_eq!(hang_up.books.stock_lost, 1, "{hang_up:?}");

    assert_eq!(bank_down.answered, None, "{bank_down:?}");
    assert!(bank_down.stops, "{bank_down:?}");
    assert!(!bank_down.names_it, "{bank_down:?}");
}

/// handle-7, time-7: under load, a client that hangs up, a time limit and SIGTERM leave no order
/// half done and no work behind.
#[test]
fn handle_7_orders_are_whole_under_load() {
    for seed in 1..=2 {
        let plan = Plan {
            clients: 12,
            before: Duration::from_millis(700),
            seed,
        };
        let column = block_on(drill::run(exe(), Kind::WithKinfolk, plan)).unwrap();
        assert!(column.answers.made > 0, "{column:?}");
        assert!(column.answers.hung_up > 0, "{column:?}");
        assert!(column.books.whole >= column.answers.made, "{column:?}");
        assert_eq!(column.books.half_done, 0, "{column:?}");
        assert_eq!(column.books.stock_lost, 0, "{column:?}");
        assert_eq!(column.counts.now_without_client, 0, "{column:?}");
        assert!(!column.killed, "{column:?}");
        let grace = Limits::default().grace;
        assert!(column.stopped_after < grace + MARGIN, "{column:?}");
    }
}
