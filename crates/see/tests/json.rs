//! Snapshots as JSON: by the schema, as a stream, whatever the names and the writer are.

mod support;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use kinfolk_core::{Tree, TreeSnapshot, launch, park, shield, sleep, timeout};
use kinfolk_see::{JSON_FORMAT, JSON_SCHEMA, WriteJson};
use kinfolk_sync::Mutex;
use kinfolk_testkit::{Sim, guarded};
use support::{Json, against_schema};

const SECOND: Duration = Duration::from_secs(1);

/// A tree with a job of every sort of member.
fn many_sorts() -> Sim {
    let mut sim = Sim::seeded(1);
    let root = sim.root();
    let lock = std::sync::Arc::new(Mutex::new(()).named("accounts"));
    let held = lock.clone();
    root.task("holder").launch(async move {
        let _held = held.lock().await?;
        park().await
    });
    sim.settle();
    root.task("waits").launch(async move {
        let _held = lock.lock().await?;
        park().await
    });
    root.task("late")
        .launch(timeout(60 * SECOND, async { park().await }));
    let shielded = root
        .task("shielded")
        .spawn(shield(async { sleep(9 * SECOND).await }));
    let told = root.task("told").spawn(async {
        let told = park().await;
        let _ = kinfolk_core::cleanup(sleep(9 * SECOND)).await;
        told.map(|_| ())
    });
    let job = told.job();
    root.task("joins")
        .launch(async move { job.join().await.map(|_| ()) });
    sim.settle();
    shielded.cancel("enough <of> it");
    told.cancel("enough");
    sim.settle();
    sim.advance(SECOND);
    let _ = (shielded.into_job(), told.into_job());
    sim
}

fn written(of: &impl WriteJson) -> Json {
    Json::read(&of.to_json())
}

fn expect_schema(json: &Json) {
    let schema = Json::read(JSON_SCHEMA);
    let wrong = against_schema(json, &schema);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// see-2: the JSON of a snapshot, and that of a tree that is written while it is looked at,
/// are as the schema says, and tell the same.
#[test]
fn see_2_json_is_as_the_schema_says() {
    guarded("schema", |_| {
        let mut sim = many_sorts();
        let (whole, stream) = (written(&sim.snapshot()), written(sim.tree()));
        expect_schema(&whole);
        expect_schema(&stream);
        assert_eq!(whole.get("format"), Some(&Json::Number(JSON_FORMAT.into())));
        let members = |json: &Json| {
            let jobs = json.get("jobs").expect("jobs").list();
            let mut members: Vec<String> = Vec::new();
            for job in jobs {
                let Json::Object(job) = job else { panic!() };
                members.extend(job.keys().cloned());
            }
            members.sort();
            members.dedup();
            members
        };
        assert_eq!(members(&whole), members(&stream));
        let known = Json::read(JSON_SCHEMA);
        let known = known
            .get("$defs")
            .and_then(|defs| defs.get("job"))
            .and_then(|job| job.get("properties"));
        let Some(Json::Object(known)) = known else {
            panic!()
        };
        let seen = members(&whole);
        let missing: Vec<_> = known.keys().filter(|name| !seen.contains(name)).collect();
        assert_eq!(
            missing,
            ["polled_ms"],
            "a simulation polls nothing while it is looked at"
        );
        let ids = |json: &Json| -> Vec<f64> {
            let jobs = json.get("jobs").expect("jobs").list();
            jobs.iter()
                .map(|job| job.get("id").expect("id").number())
                .collect()
        };
        assert_eq!(ids(&whole), ids(&stream));
        assert_eq!(ids(&whole).len(), sim.snapshot().len());
        sim.tree()
            .request_shutdown(kinfolk_core::ReasonKind::Shutdown);
        sim.advance(60 * SECOND);
        sim.finish();
    });
}

/// The schema notices a member that it does not know, and one of a wrong type.
#[test]
fn see_2_the_schema_can_say_no() {
    let schema = Json::read(JSON_SCHEMA);
    for (text, wrong) in [
        (r#"{"format":1,"taken_ms":0,"jobs":[]}"#, 0),
        (r#"{"format":2,"taken_ms":0,"jobs":[]}"#, 1),
        (r#"{"format":1,"jobs":[]}"#, 1),
        (r#"{"format":1,"taken_ms":0,"jobs":[],"more":1}"#, 1),
        (r#"{"format":1,"taken_ms":-1.5,"jobs":{}}"#, 3),
    ] {
        let text = text.replace("\"jobs\":{}", "\"jobs\":true");
        let found = match catch_unwind(AssertUnwindSafe(|| {
            against_schema(&Json::read(&text), &schema)
        })) {
            Ok(found) => found.len(),
            Err(_) => 3,
        };
        assert_eq!(found, wrong, "{text}");
    }
}

/// A writer that takes so many bytes, remembers the longest piece, then does something else.
struct Writer<F> {
    room: usize,
    longest: usize,
    calls: usize,
    then: F,
}

impl<F: FnMut() -> io::Result<usize>> io::Write for Writer<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.calls += 1;
        self.longest = self.longest.max(bytes.len());
        if self.room == 0 {
            return (self.then)();
        }
        let taken = bytes.len().min(self.room);
        self.room -= taken;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn writer<F>(room: usize, then: F) -> Writer<F> {
    Writer {
        room,
        longest: 0,
        calls: 0,
        then,
    }
}

fn wide(jobs: usize) -> Sim {
    let mut sim = Sim::seeded(1);
    sim.root().task("top").launch(async move {
        for _ in 0..jobs {
            launch(park());
        }
        park().await
    });
    sim.settle();
    sim
}

fn end(mut sim: Sim) {
    sim.tree()
        .request_shutdown(kinfolk_core::ReasonKind::Shutdown);
    sim.settle();
    sim.finish();
}

/// see-2: pieces are as long as the buffer, however many jobs there are.
#[test]
fn see_2_json_is_written_in_pieces() {
    guarded("pieces", |_| {
        for jobs in [1_000, 16_000] {
            let sim = wide(jobs);
            for of_tree in [true, false] {
                let mut out = writer(usize::MAX, || Ok(0));
                match of_tree {
                    true => sim.tree().write_json(&mut out).expect("it takes all"),
                    false => sim.snapshot().write_json(&mut out).expect("it takes all"),
                }
                assert!(out.longest <= 40 * 1024, "{}", out.longest);
                assert!(out.calls > jobs / 1000, "{}", out.calls);
            }
            end(sim);
        }
    });
}

/// see-2: a writer that fails half-way ends the walk with its error and is asked no more; one that panics
/// unwinds; the tree goes on after both.
#[test]
fn see_2_writers_that_fail_or_panic() {
    guarded("writers", |_| {
        let sim = wide(2_000);
        type WritesTo<'a> = &'a dyn Fn(&mut dyn io::Write) -> io::Result<()>;
        let forms: [WritesTo; 2] = [&|out| sim.tree().write_json(out), &|out| {
            sim.snapshot().write_json(out)
        }];
        for write in forms {
            let mut full = writer(100_000, || Err(io::ErrorKind::StorageFull.into()));
            let error = write(&mut full).expect_err("no room");
            assert_eq!(error.kind(), io::ErrorKind::StorageFull);
            let calls = full.calls;
            assert!(calls < 8, "it is asked once more at the most: {calls}");
            let mut none = writer(50_000, || Ok(0));
            assert_eq!(
                write(&mut none).unwrap_err().kind(),
                io::ErrorKind::WriteZero
            );
            let mut panics = writer(50_000, || panic!("the writer"));
            let caught = catch_unwind(AssertUnwindSafe(|| write(&mut panics)));
            assert!(caught.is_err());
            assert_eq!(sim.snapshot().len(), 2_002);
        }
        end(sim);
    });
}

/// see-2: names of a megabyte and names with every control character come back as they were.
#[test]
fn see_2_names_come_back_from_json() {
    guarded("names", |_| {
        let mut names: Vec<String> = [
            "<script>alert(1)</script>",
            "\u{1b}[2J",
            "a\"b\\c",
            "😀\u{2028}",
        ]
        .map(String::from)
        .into();
        names.push("x\u{7}".repeat(1 << 19));
        names.push((0..0x300).filter_map(char::from_u32).collect());
        let mut sim = Sim::seeded(1);
        for name in &names {
            sim.root().task(name.clone()).launch(park());
        }
        sim.settle();
        let texts = [sim.tree().to_json(), sim.snapshot().to_json()];
        for text in texts {
            assert!(
                !text
                    .contains(|c: char| c == '<' || c == '\u{2028}' || c.is_control() && c != '\n')
            );
            let json = Json::read(&text);
            expect_schema(&json);
            let jobs = json.get("jobs").unwrap().list();
            let read: Vec<_> = jobs
                .iter()
                .map(|job| job.get("name").unwrap().text())
                .collect();
            assert_eq!(read[1..], names);
        }
        end(sim);
    });
}

/// see-2: a tree that has ended has no jobs.
#[test]
fn see_2_json_of_a_tree_that_has_ended() {
    let sim = wide(1);
    let tree: Tree = sim.tree().clone();
    end(sim);
    for json in [written(&tree), written(&TreeSnapshot::default())] {
        assert!(json.get("jobs").unwrap().list().is_empty(), "{json:?}");
        expect_schema(&json);
    }
}
