//! Spans of jobs, seen by a subscriber of the test's own.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use kinfolk_core::{Error, Scope, park};
use kinfolk_see::JobSpans;
use kinfolk_testkit::Sim;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

#[derive(Default)]
struct Words(HashMap<String, String>);

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0
            .insert(field.name().to_string(), format!("{value:?}"));
    }
}

/// What the subscriber saw, in words.
#[derive(Clone, Default)]
struct Listener(Arc<Mutex<Heard>>);

#[derive(Default)]
struct Heard {
    spans: Vec<(HashMap<String, String>, Option<u64>, usize)>,
    events: Vec<(Option<u64>, HashMap<String, String>)>,
}

impl Subscriber for Listener {
    fn enabled(&self, of: &Metadata<'_>) -> bool {
        of.target() == "kinfolk::job"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut words = Words::default();
        span.record(&mut words);
        let mut heard = self.0.lock().unwrap();
        heard
            .spans
            .push((words.0, span.parent().map(Id::into_u64), 1));
        Id::from_u64(heard.spans.len() as u64)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut words = Words::default();
        event.record(&mut words);
        let parent = event.parent().map(Id::into_u64);
        self.0.lock().unwrap().events.push((parent, words.0));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}

    fn clone_span(&self, id: &Id) -> Id {
        self.0.lock().unwrap().spans[id.into_u64() as usize - 1].2 += 1;
        id.clone()
    }

    fn try_close(&self, id: Id) -> bool {
        let mut heard = self.0.lock().unwrap();
        let left = &mut heard.spans[id.into_u64() as usize - 1].2;
        *left -= 1;
        *left == 0
    }
}

#[test]
fn see_4_each_job_is_a_span_in_that_of_its_parent() {
    let listener = Listener::default();
    tracing::subscriber::with_default(listener.clone(), || {
        let mut sim = Sim::builder(3).sink(JobSpans::new()).build();
        sim.run(async {
            let inner = Scope::named("\x1b[31mhome").run(async |s| {
                let worker = s.task("worker").spawn(park());
                worker.cancel("enough\n");
                let _ = worker.outcome().await?;
                Ok(())
            });
            inner.await?;
            Ok::<_, Error>(())
        })
        .unwrap();
        sim.finish();
    });
    let heard = listener.0.lock().unwrap();
    let find = |name: &str| {
        let at = heard
            .spans
            .iter()
            .position(|(words, ..)| words["name"] == name);
        at.unwrap_or_else(|| panic!("no span {name}")) as u64 + 1
    };
    let (home, worker) = (find("\\u{1b}[31mhome"), find("worker"));
    let (words, parent, _) = &heard.spans[worker as usize - 1];
    assert_eq!((words["kind"].as_str(), *parent), ("task", Some(home)));
    assert!(words["site"].contains("spans.rs:"), "{words:?}");
    assert!(words["id"].starts_with('#'));
    let of_worker: Vec<_> = heard
        .events
        .iter()
        .filter(|event| event.0 == Some(worker))
        .collect();
    let said: Vec<&str> = of_worker
        .iter()
        .map(|(_, words)| words["message"].as_str())
        .collect();
    assert!(said.starts_with(&["created", "cancelled"]), "{said:?}");
    assert_eq!(said.last(), Some(&"ended"));
    let cancel = &of_worker[1].1;
    assert_eq!(cancel["words"], "enough\\n");
    assert_eq!(cancel["reason"], "cancel requested");
    assert!(
        heard.spans.iter().all(|(_, _, left)| *left == 0),
        "all are closed"
    );
}
