//! The causal trace and the waterfall of a shutdown, from events that are told one by one, in
//! orders that threads bring about.

use std::panic::Location;
use std::sync::Arc;

use kinfolk_core::{Event, EventKind, JobId, JobKind, JobState, Lane, ReasonKind, Sink};
use kinfolk_see::{Causes, ShutdownWaterfall};

fn id(number: u64) -> JobId {
    JobId::from_bits(number).expect("not 0")
}

/// Tells a causal trace what happened, and what of that it keeps.
struct Tale(Arc<Causes>);

impl Tale {
    fn tell(&self, at: u64, job: u64, kind: EventKind) {
        self.0.event(&Event::new(id(job), at, kind));
    }

    #[track_caller]
    fn made(&self, at: u64, job: u64, kind: JobKind, parent: Option<u64>) {
        let (site, lane) = (Location::caller(), Lane::Pool);
        let create = EventKind::Create { kind, site, lane };
        let event = Event::new(id(job), at, create);
        self.0.event_with(&event, &format!("job {job}"));
        if let Some(parent) = parent.map(id) {
            self.tell(at, job, EventKind::Attach { parent });
        }
    }

    #[track_caller]
    fn cancels(&self, at: u64, job: u64, words: &str, by: Option<u64>) {
        let request = EventKind::CancelRequest {
            reason: ReasonKind::Asked,
            site: Location::caller(),
            by: by.map(id),
        };
        self.0.event_with(&Event::new(id(job), at, request), words);
    }

    fn hop(&self, at: u64, job: u64, from: u64) {
        self.tell(at, job, EventKind::CancelHop { from: id(from) });
    }

    #[track_caller]
    fn told(&self, at: u64, job: u64) {
        let site = Some(Location::caller());
        self.tell(at, job, EventKind::Told { site });
    }

    fn ends(&self, at: u64, job: u64, to: JobState) {
        self.tell(at, job, EventKind::State { to });
        self.tell(at, job, EventKind::Finalize { cancelled: false });
    }
}

/// A shutdown of a root with a quick child, a child that waits for its own child, a shield
/// with a child that is never asked, and one that had ended before.
fn shutdown() -> (Tale, ShutdownWaterfall) {
    let tale = Tale(Causes::new());
    tale.made(0, 1, JobKind::Root, None);
    // Their numbers are not in the order of their births.
    tale.made(1, 9, JobKind::Task, Some(1));
    tale.made(2, 5, JobKind::Task, Some(1));
    tale.made(3, 4, JobKind::Task, Some(5));
    tale.made(4, 8, JobKind::Shield, Some(1));
    tale.made(5, 7, JobKind::Task, Some(8));
    tale.made(6, 3, JobKind::Task, Some(1));
    tale.cancels(40, 3, "earlier", None);
    tale.ends(50, 3, JobState::Cancelled);
    tale.cancels(1_000, 1, "stop", None);
    for (job, from) in [(9, 1), (5, 1), (4, 5)] {
        tale.hop(1_000, job, from);
    }
    tale.tell(1_000, 8, EventKind::CancelHeld { from: id(1) });
    tale.told(1_100, 9);
    tale.ends(1_500, 9, JobState::Cancelled);
    tale.told(1_200, 5);
    tale.told(1_300, 4);
    let site = Location::caller();
    tale.tell(1_400, 8, EventKind::ShieldLifted { site });
    tale.ends(1_600, 7, JobState::Completed);
    tale.ends(1_700, 8, JobState::Completed);
    tale.tell(4_900, 4, EventKind::Dropped);
    tale.ends(4_900, 4, JobState::Cancelled);
    tale.ends(5_000, 5, JobState::Failed);
    tale.ends(5_200, 1, JobState::Cancelled);
    let waterfall = tale.0.shutdown().expect("it was cancelled");
    (tale, waterfall)
}

#[test]
fn see_5_a_shutdown_says_when_each_job_was_asked_told_and_over() {
    let (_tale, all) = shutdown();
    assert_eq!(
        (all.asked, all.ended, all.took()),
        (1_000, Some(5_200), 4_200)
    );
    let rows: Vec<_> = all
        .rows
        .iter()
        .map(|row| {
            let told = row.told.map(|(at, _)| at);
            let ended = row.ended.map(|(at, _)| at);
            (row.job.id, row.depth, row.asked, told, ended, row.dropped)
        })
        .collect();
    let expected = [
        (id(1), 0, Some(1_000), None, Some(5_200), false),
        (id(9), 1, Some(1_000), Some(1_100), Some(1_500), false),
        (id(5), 1, Some(1_000), Some(1_200), Some(5_000), false),
        (id(4), 2, Some(1_000), Some(1_300), Some(4_900), true),
        (id(8), 1, None, None, Some(1_700), false),
        // Never asked, and waited for all the same.
        (id(7), 2, None, None, Some(1_600), false),
    ];
    assert_eq!(rows, expected);
    let held = all.rows[4].held.expect("it held the cancel back");
    assert_eq!((held.since, held.until), (1_000, Some(1_400)));
    assert_eq!(all.rows[1].held, None);
    // The root waited for the second child, and that for its own.
    assert_eq!(all.critical, [0, 2, 3]);
    let own: Vec<u64> = all.rows.iter().map(|row| row.own_time).collect();
    assert_eq!(own, [200, 0, 100, 3_900, 0, 0]);
    assert_eq!(all.slowest().expect("a row").job.id, id(4));
}

#[test]
fn see_5_a_shutdown_prints_bars_and_the_path_that_took_the_time() {
    let (_tale, all) = shutdown();
    let text = all.to_string();
    let head = "stopped in 4.20 us: 3.90 us of 4.20 us: `job 4`\n";
    assert!(text.starts_with(head), "{text}");
    let lines: Vec<&str> = text.lines().skip(1).collect();
    let bar = |line: &str| -> (String, String) {
        let (bar, words) = line[3..].split_once('|').expect("a bar");
        (bar.to_string(), words.trim_start().to_string())
    };
    let marks: String = lines.iter().map(|line| &line[..1]).collect();
    assert_eq!(marks, "* **  ");
    // A column is 105 ns.
    let expected = [
        ("-".repeat(40), "root \"job 1\" #1, cancelled 4.20 us"),
        (
            format!("-{}{}", "=".repeat(4), " ".repeat(35)),
            ", cancelled 500 ns",
        ),
        (format!("--{}{}", "=".repeat(37), " "), ", failed 4 us"),
        (
            format!("---{}{}", "=".repeat(35), " ".repeat(2)),
            ", cancelled 3.90 us, dropped",
        ),
        (
            format!("{}{}", "·".repeat(7), " ".repeat(33)),
            ", completed 700 ns",
        ),
        (
            format!("{}{}", "·".repeat(6), " ".repeat(34)),
            "task \"job 7\" #7, completed 600 ns",
        ),
    ];
    for (line, (columns, words)) in lines.iter().zip(&expected) {
        let (bar, said) = bar(line);
        assert_eq!(bar, *columns, "{line}");
        assert!(said.ends_with(words), "{line}");
    }
    assert_eq!(lines.len(), expected.len());
    assert!(lines[1].contains(", told 100 ns at "), "{text}");
    assert!(lines[4].contains(", held back until 400 ns at "), "{text}");
    assert!(
        lines[3].contains("|   task \"job 4\" #4, told 300 ns at "),
        "{text}"
    );
}

/// One that goes on is timed up to what is known, and its slowest job is named: here one that
/// was never told.
#[test]
fn see_5_a_shutdown_that_goes_on_says_so() {
    let tale = Tale(Causes::new());
    tale.made(0, 1, JobKind::Root, None);
    tale.made(1, 2, JobKind::Task, Some(1));
    tale.made(2, 3, JobKind::Task, Some(1));
    tale.cancels(2, 2, "one", None);
    tale.ends(2, 2, JobState::Cancelled);
    assert!(tale.0.shutdown().is_none(), "the root was not cancelled");
    tale.cancels(100, 1, "stop", None);
    tale.hop(100, 3, 1);
    tale.made(150, 4, JobKind::Task, Some(1));
    tale.told(350, 4);
    let all = tale.0.shutdown().expect("it was cancelled");
    assert_eq!((all.ended, all.took()), (None, 250));
    let text = all.to_string();
    assert!(text.starts_with("stopping for 250 ns so far: "), "{text}");
    assert_eq!(text.matches(", goes on").count(), 3, "{text}");
    // A waterfall of a part.
    let part = tale.0.waterfall(id(2)).expect("it was cancelled");
    assert_eq!((part.rows.len(), part.took()), (1, 0));
    assert!(tale.0.waterfall(id(3)).is_none(), "no cancel entered there");
    tale.ends(400, 4, JobState::Completed);
    tale.told(500, 3);
    tale.ends(500, 3, JobState::Cancelled);
    let never = Tale(Causes::new());
    never.made(0, 1, JobKind::Task, None);
    never.cancels(5, 1, "deaf", None);
    let text = never.0.waterfall(id(1)).expect("cancelled").to_string();
    assert!(
        text.starts_with("stopping for 0 ns so far: 0 ns of 0 ns: `job 1`, never told\n"),
        "{text}"
    );
}

/// Threads tell what they did in any order: what came first counts, not what is told first.
#[test]
fn see_5_the_first_of_each_counts_in_whatever_order_it_is_told() {
    let tale = Tale(Causes::new());
    tale.made(0, 1, JobKind::Task, None);
    // The walk comes before the attacher has told below what it stands.
    tale.made(1, 2, JobKind::Task, None);
    tale.cancels(10, 1, "first", Some(7));
    tale.cancels(12, 1, "second", None);
    tale.hop(10, 2, 1);
    tale.hop(14, 2, 1);
    tale.tell(1, 2, EventKind::Attach { parent: id(1) });
    tale.told(20, 2);
    tale.told(30, 2);
    tale.told(40, 2);
    let why = tale.0.why_cancelled(id(2)).expect("it was cancelled");
    assert_eq!(
        (why.entry.at, why.entry.text.as_deref()),
        (10, Some("first"))
    );
    assert_eq!(why.entry.by.as_ref().map(|by| by.id), Some(id(7)));
    assert_eq!((why.hops.len(), why.hops[0].at), (1, 10));
    assert_eq!(
        (why.job.told.map(|(at, _)| at), why.job.times_told),
        (Some(20), 3)
    );
    let text = why.to_string();
    assert!(
        text.contains("   = its points said Cancelled 3 times\n"),
        "{text}"
    );
    assert!(
        text.contains("   |    +10 ns  its body is told at "),
        "{text}"
    );

    // Cancelled by itself before the cancel from above came: that is the cause.
    tale.made(2, 3, JobKind::Task, Some(1));
    tale.cancels(5, 3, "own", None);
    tale.hop(10, 3, 1);
    let own = tale.0.why_cancelled(id(3)).expect("cancelled");
    assert_eq!((own.entry.job.id, own.hops.len()), (id(3), 0));
    // The other way round: the cause is above.
    tale.made(3, 4, JobKind::Task, Some(1));
    tale.hop(10, 4, 1);
    tale.cancels(15, 4, "late", None);
    let above = tale.0.why_cancelled(id(4)).expect("cancelled");
    assert_eq!((above.entry.job.id, above.hops.len()), (id(1), 1));

    // A shield is known to stand where the cancel came from, before that is told.
    tale.made(4, 5, JobKind::Shield, None);
    tale.tell(10, 5, EventKind::CancelHeld { from: id(1) });
    let all = tale.0.waterfall(id(1)).expect("cancelled");
    assert!(all.rows.iter().any(|row| row.job.id == id(5)), "{all}");
    assert!(tale.0.why_cancelled(id(99)).is_none());
}

/// A guard holds a cancel back from when both are there until the last one is gone; one that
/// was gone before held nothing.
#[test]
fn see_5_guards_are_told_with_the_time_for_which_they_held() {
    let tale = Tale(Causes::new());
    let (first, second) = (Location::caller(), Location::caller());
    tale.made(0, 1, JobKind::Task, None);
    for (job, left) in [(2, [30, 40]), (3, [5, 8]), (4, [30, 40])] {
        tale.made(1, job, JobKind::Task, Some(1));
        tale.tell(2, job, EventKind::GuardEntered { site: first });
        tale.tell(3, job, EventKind::GuardEntered { site: second });
        for at in left {
            tale.tell(at, job, EventKind::GuardLeft);
        }
    }
    tale.cancels(10, 1, "stop", None);
    tale.hop(40, 2, 1);
    tale.hop(10, 3, 1);
    tale.cancels(20, 4, "itself", None);
    let held = |job| {
        let why = tale.0.why_cancelled(id(job)).expect("cancelled");
        why.hops.first().and_then(|hop| hop.held)
    };
    let by_two = held(2).expect("it was held back");
    assert_eq!(
        (by_two.since, by_two.until, by_two.site),
        (40, Some(40), Some(first))
    );
    assert_eq!(held(3), None, "its guards were gone");
    let all = tale.0.waterfall(id(4)).expect("cancelled");
    let by_itself = all.rows[0].held.expect("it was held back");
    assert_eq!((by_itself.since, by_itself.until), (20, Some(40)));
    let text = tale.0.why_cancelled(id(2)).expect("cancelled").to_string();
    assert!(
        text.contains("task \"job 2\" #2 holds it back, entered at "),
        "{text}"
    );
}

/// What has ended is kept up to a number, the oldest gives way, and that is counted; what no
/// cancel came near is not kept.
#[test]
fn see_5_ended_jobs_are_kept_up_to_a_number() {
    let tale = Tale(Causes::keeping(2));
    for job in 1..=3 {
        tale.made(job, job, JobKind::Task, None);
        tale.made(job, 10 + job, JobKind::Task, None);
        tale.cancels(10 + job, job, "stop", None);
        tale.ends(20 + job, job, JobState::Cancelled);
        tale.ends(20 + job, 10 + job, JobState::Completed);
    }
    assert!(tale.0.why_cancelled(id(1)).is_none(), "the oldest");
    assert!(tale.0.why_cancelled(id(2)).is_some() && tale.0.why_cancelled(id(3)).is_some());
    assert_eq!(tale.0.forgotten(), 1);
    // A job of which the beginning was not told is none.
    tale.told(50, 77);
    tale.cancels(50, 78, "late", None);
    assert!(tale.0.why_cancelled(id(78)).is_none());
    // What came of a job that was dropped.
    tale.made(60, 5, JobKind::Task, None);
    tale.cancels(61, 5, "deaf", None);
    tale.tell(70, 5, EventKind::Dropped);
    tale.ends(71, 5, JobState::Cancelled);
    let why = tale.0.why_cancelled(id(5)).expect("cancelled");
    assert!(why.job.dropped);
    let text = why.to_string();
    assert!(
        text.contains("its future was dropped: it did not hear its cancel"),
        "{text}"
    );
}
