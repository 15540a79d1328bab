//! Findings over events: for each rule a program in which it finds what was wrong, though that
//! is over by now, and one of the same look in which it must not.

use std::panic::Location;
use std::time::Duration;

use kinfolk_core::{
    Error, Event, EventKind, Interests, JobId, JobKind, Lane, Scope, Sink, checkpoint, cleanup,
    park, sleep, timeout, yield_now,
};
use kinfolk_see::{FindingLevel, FindingRule, Findings, Recorder, Recording, Rules};
use kinfolk_testkit::{Sim, VirtualClock};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// Runs a program that gets the clock, and records it.
fn record<B>(program: impl FnOnce(VirtualClock) -> B) -> Recording
where
    B: Future<Output = Result<(), Error>> + Send + 'static,
{
    let recorder = Recorder::builder()
        .bytes(1 << 30)
        .age(Duration::MAX)
        .interests(Interests::ALL)
        .build();
    let clock = VirtualClock::new();
    let mut sim = Sim::builder(1)
        .clock(clock.clone())
        .sink(recorder.clone())
        .on_failure(|_| {})
        .build();
    sim.run(program(clock)).unwrap();
    let recording = recorder.recording();
    sim.finish();
    assert_eq!(recording.lost, 0);
    recording
}

/// The findings of one rule, as name, words and facts; there are no others.
fn only(findings: &Findings, rule: FindingRule) -> Vec<(String, String, Vec<String>)> {
    let words = findings.to_string();
    let all = findings.all().iter();
    all.map(|found| {
        assert_eq!(found.rule, rule, "{words}");
        (found.name.clone(), found.what.clone(), found.facts.clone())
    })
    .collect()
}

/// A task that keeps its thread, in `pieces` turns, and one that is queued meanwhile.
async fn busy(clock: VirtualClock, pieces: u32) -> Result<(), Error> {
    let home = Scope::current().unwrap();
    for _ in 0..3 {
        let clock = clock.clone();
        let busy = home.task("busy").spawn(async move {
            for _ in 0..pieces {
                clock.move_to(clock.elapsed() + 300 * MS / pieces);
                yield_now().await?;
            }
            Ok::<_, Error>(())
        });
        let other = home.task("waits").spawn(async { checkpoint().await });
        busy.await?;
        other.await?;
    }
    Ok(())
}

#[test]
fn see_6_long_polls_are_found_when_they_are_over() {
    let found = record(|clock| busy(clock, 1)).findings();
    let found = only(&found, FindingRule::LongPoll);
    assert_eq!(found.len(), 1, "{found:?}");
    let (name, what, facts) = &found[0];
    assert_eq!((&**name, &**what), ("busy", "kept its thread for 300 ms"));
    assert!(facts[0].ends_with(" after the start on"), "{facts:?}");
    assert_eq!(facts.last().unwrap(), "3 such turns in all");
    // As much work, in turns of 10 ms.
    let short = record(|clock| busy(clock, 30)).findings();
    assert!(short.is_empty(), "{short}");
}

/// On one schedule at least the other task is queued meanwhile; here by hand.
#[test]
fn see_6_a_long_poll_names_what_it_has_kept_waiting() {
    let recording = record(|clock| async move {
        let home = Scope::current().unwrap();
        let mut all = Vec::new();
        for n in 0..4 {
            let clock = clock.clone();
            all.push(home.task(format!("busy {n}")).spawn(async move {
                clock.move_to(clock.elapsed() + 200 * MS);
                Ok::<_, Error>(())
            }));
        }
        for task in all {
            task.await?;
        }
        Ok(())
    });
    let found = only(&recording.findings(), FindingRule::LongPoll);
    assert_eq!(found.len(), 4, "each has a name of its own");
    let waited = |many: &str| {
        let facts = found.iter().flat_map(|(_, _, facts)| facts);
        facts.filter(|fact| fact.starts_with(many)).count()
    };
    let (three, two, one) = (
        waited("3 tasks were queued meanwhile, task \"busy "),
        waited("2 tasks were queued meanwhile, task \"busy "),
        waited("1 task was queued meanwhile, task \"busy "),
    );
    assert_eq!((three, two, one), (1, 1, 1), "{found:?}");
    let rules = Rules::default().allow(FindingRule::LongPoll, "busy *");
    assert!(rules.check_recording(&recording, None).is_empty());
    let rules = Rules::default().limit(FindingRule::LongPoll, SECOND);
    assert!(rules.check_recording(&recording, None).is_empty());
}

/// A task that asks for turn after turn; each takes so long.
async fn asks_again(clock: VirtualClock, each: Duration) -> Result<(), Error> {
    let home = Scope::current().unwrap();
    let task = home.task("loop").spawn(async move {
        for _ in 0..10_050 {
            clock.move_to(clock.elapsed() + each);
            yield_now().await?;
        }
        Ok::<_, Error>(())
    });
    task.await
}

#[test]
fn see_6_spinning_is_found_when_it_is_over() {
    let spins = record(|clock| asks_again(clock, Duration::ZERO)).findings();
    let found = only(&spins, FindingRule::Spinning);
    let (name, what, _) = &found[0];
    assert_eq!((found.len(), &**name), (1, "loop"));
    assert!(what.starts_with("had 10,0"), "{what}");
    // As many turns, in which it works.
    let works = record(|clock| asks_again(clock, MS / 20)).findings();
    assert!(works.is_empty(), "{works}");
    // As many turns, which others ask for.
    let woken = record(|_| async {
        let home = Scope::current().unwrap();
        let task = home.task("woken").spawn(async {
            for _ in 0..10_050 {
                sleep(MS).await?;
            }
            Ok::<_, Error>(())
        });
        task.await
    });
    assert!(woken.findings().is_empty(), "{}", woken.findings());
}

/// A body that is told at so many points, and stops then.
async fn goes_on(points: usize) -> Result<(), Error> {
    let home = Scope::current().unwrap();
    let task = home.task("deaf").spawn(async move {
        let mut told = 0;
        while told < points {
            told += usize::from(park().await.is_err());
        }
        cleanup(async {
            for _ in 0..200 {
                checkpoint().await?;
            }
            Ok::<_, Error>(())
        })
        .await
    });
    sleep(MS).await?;
    task.cancel("enough");
    let _ = task.outcome().await?;
    Ok(())
}

#[test]
fn see_6_swallowed_cancels_are_found_when_the_body_is_over() {
    let found = record(|_| goes_on(101)).findings();
    assert_eq!(found.all()[0].level, FindingLevel::Error);
    let found = only(&found, FindingRule::SwallowedCancel);
    assert_eq!(found.len(), 1);
    let (name, what, facts) = &found[0];
    assert_eq!(name, "deaf");
    assert!(
        what.starts_with("went on after 1") && what.ends_with(" `Cancelled`s"),
        "{what}"
    );
    assert!(
        facts[0].starts_with("told: 10") && facts[0].contains("recorded.rs:"),
        "{facts:?}"
    );
    assert!(facts[1].starts_with("it has ended: "), "{facts:?}");
    // Told at a few points, and then it cleans up for long.
    let fine = record(|_| goes_on(3)).findings();
    assert!(fine.is_empty(), "{fine}");
    let two = Rules::default().count(FindingRule::SwallowedCancel, 3);
    assert_eq!(
        two.check_recording(&record(|_| goes_on(3)), None)
            .all()
            .len(),
        1
    );
}

/// A task that has to wait for its first turn, or is not started before its time.
async fn late(clock: VirtualClock, lazy: bool) -> Result<(), Error> {
    let home = Scope::current().unwrap();
    let first = home.task("first");
    let first = match lazy {
        true => first.spawn_lazy(async { checkpoint().await }),
        false => first.spawn(async { checkpoint().await }),
    };
    // In a turn that goes on.
    clock.move_to(clock.elapsed() + 2 * SECOND);
    first.await
}

#[test]
fn see_6_a_late_first_turn_is_found_and_what_was_in_the_way() {
    let rules = Rules::default().off(FindingRule::LongPoll);
    let found = rules.check_recording(&record(|clock| late(clock, false)), None);
    let found = only(&found, FindingRule::NeverPolled);
    assert_eq!(found.len(), 1);
    let (name, what, facts) = &found[0];
    assert_eq!(name, "first");
    assert_eq!(what, "had its first turn 2 s after it was queued");
    assert!(
        facts[0].starts_with("task \"main\" #")
            && facts[0].ends_with(" had a turn for 2 s of that"),
        "{facts:?}"
    );
    let lazy = rules.check_recording(&record(|clock| late(clock, true)), None);
    assert!(lazy.is_empty(), "{lazy}");
}

/// A request that has a second, and a query that takes so long.
async fn request(query: Duration) -> Result<(), Error> {
    let ended = timeout(SECOND, async move {
        let home = Scope::current().unwrap();
        let query = home.task("query").spawn(sleep(query));
        sleep(100 * MS).await?;
        query.await?;
        Ok::<_, Error>(())
    });
    let _ = ended.await;
    Ok(())
}

#[test]
fn see_6_a_missed_deadline_says_what_used_the_time() {
    let recording = record(|_| request(2 * SECOND));
    let found = only(&recording.findings(), FindingRule::DeadlineMissed);
    assert_eq!(found.len(), 1, "{found:?}");
    let (name, what, facts) = &found[0];
    assert!(name.starts_with("timeout@recorded.rs:"), "{name}");
    assert_eq!(what, "had 1 s, and its deadline has passed");
    assert!(
        facts[0].starts_with("1 s of 1 s: task \"query\" #")
            && facts[0].contains(" waited on sleep at "),
        "{facts:?}"
    );
    let fine = record(|_| request(900 * MS)).findings();
    assert!(fine.is_empty(), "{fine}");
    let longer = Rules::default().limit(FindingRule::DeadlineMissed, 2 * SECOND);
    assert!(longer.check_recording(&recording, None).is_empty());
}

/// see-6: with a snapshot, what has used the time of a deadline that is near is told from the
/// events: also what is over by then.
#[test]
fn see_6_a_deadline_that_is_near_says_what_has_used_the_time() {
    let recorder = Recorder::builder().interests(Interests::ALL).build();
    let mut sim = Sim::builder(1).sink(recorder.clone()).build();
    sim.root().task("request").launch(timeout(SECOND, async {
        let slow = Scope::current()
            .unwrap()
            .task("slow")
            .spawn(sleep(800 * MS));
        slow.await?;
        // It waits here now, and that is not what has used the time.
        park().await?;
        Ok::<_, Error>(())
    }));
    sim.advance(950 * MS);
    let (now, recording) = (sim.snapshot(), recorder.recording());
    let findings = Rules::default().check_recording(&recording, Some(&now));
    let found = only(&findings, FindingRule::DeadlineNear);
    assert_eq!(found.len(), 1, "{findings}");
    let used = found[0].2.last().unwrap();
    assert!(
        used.contains(": task \"slow\" #") && used.contains(" waited on sleep at "),
        "{used}"
    );
    assert!(
        Rules::default()
            .check_recording(&recording, None)
            .is_empty()
    );
    // Much time is left.
    drop(sim);
    let mut sim = Sim::builder(1).sink(recorder.clone()).build();
    sim.root()
        .task("request")
        .launch(timeout(10 * SECOND, park()));
    sim.advance(950 * MS);
    let findings = Rules::default().check_recording(&recorder.recording(), Some(&sim.snapshot()));
    assert!(
        findings.of(FindingRule::DeadlineNear).next().is_none(),
        "{findings}"
    );
}

/// see-6: a service may have begun long before the recording. What such a job did is found all
/// the same; a snapshot has its name.
#[test]
fn see_6_jobs_older_than_the_recording_are_found() {
    let recorder = Recorder::builder()
        .bytes(0)
        .interests(Interests::ALL)
        .build();
    let clock = VirtualClock::new();
    let mut sim = Sim::builder(1)
        .clock(clock.clone())
        .sink(recorder.clone())
        .build();
    let keeps = |keeps: Duration, clock: &VirtualClock| {
        let clock = clock.clone();
        async move {
            sleep(SECOND).await?;
            clock.move_to(clock.elapsed() + keeps);
            park().await
        }
    };
    sim.root().task("old").launch(keeps(300 * MS, &clock));
    sim.root().task("short").launch(keeps(50 * MS, &clock));
    sim.root().task("many turns").launch(async {
        for _ in 0..200 {
            yield_now().await?;
        }
        Ok::<_, Error>(())
    });
    sim.advance(2 * SECOND);
    let (recording, now) = (recorder.recording(), sim.snapshot());
    assert!(recording.lost > 0);
    let old = now.find("old").expect("it lives").id;

    let findings = recording.findings();
    let found = only(&findings, FindingRule::LongPoll);
    assert_eq!(found.len(), 1, "{findings}");
    assert_eq!(found[0].0, old.to_string());
    let words = format!(
        "warning: job \"{old}\" kept its thread for 300 ms\n  --> made before the recording begins"
    );
    assert!(findings.to_string().contains(&words), "{findings}");

    let findings = Rules::default().check_recording(&recording, Some(&now));
    let found = only(&findings, FindingRule::LongPoll);
    assert_eq!((found.len(), &*found[0].0), (1, "old"), "{findings}");
    assert!(
        findings.to_string().contains("--> spawned at "),
        "{findings}"
    );
    sim.finish();
}

/// see-6: of a job that is older than the recording it is not known whether a turn was its first.
#[test]
fn see_6_a_late_turn_of_an_old_job_is_not_its_first() {
    let recorder = Recorder::builder().interests(Interests::ALL).build();
    let put = |job: u64, at: Duration, kind: EventKind| {
        let id = JobId::from_bits(job).unwrap();
        let at = u64::try_from(at.as_nanos()).unwrap();
        recorder.event(&Event::new(id, at, kind));
    };
    put(1, SECOND, EventKind::Scheduled { by: None });
    put(2, SECOND, EventKind::Scheduled { by: None });
    put(1, 4 * SECOND, EventKind::PollBegin);
    put(1, 4 * SECOND, EventKind::PollEnd);
    let findings = recorder.recording().findings();
    assert!(findings.is_empty(), "{findings}");
    // One that was made within it.
    let (kind, site, lane) = (JobKind::Task, Location::caller(), Lane::Pool);
    for job in [3, 4] {
        put(job, 5 * SECOND, EventKind::Create { kind, site, lane });
        put(job, 5 * SECOND, EventKind::Scheduled { by: None });
    }
    put(3, 8 * SECOND, EventKind::PollBegin);
    put(3, 8 * SECOND, EventKind::PollEnd);
    let findings = recorder.recording().findings();
    let found = only(&findings, FindingRule::NeverPolled);
    assert!(
        found[0].2.contains(&"2 such tasks in all".to_string()),
        "{findings}"
    );
}
