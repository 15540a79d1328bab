//! What the clients of a test have sent and heard, and whether a log agrees.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex};

use kinfolk::testkit::Rng;
use kvlog::record::{BEGINNING, Found, Record};

/// The records of a log, and where the last whole one ends.
pub fn replay(log: &[u8]) -> (Vec<Record>, usize) {
    let (mut records, mut end) = (Vec::new(), 0);
    if log.starts_with(&BEGINNING) {
        end = BEGINNING.len();
    }
    while let Found::Whole { record, len, .. } = Record::read(&log[end..], end as u64) {
        records.push(record);
        end += len;
    }
    (records, end)
}

/// What a client knows of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    Written,
    NotWritten,
    Unknown,
}

#[derive(Clone)]
struct Page {
    record: Record,
    fate: Fate,
    sent: usize,
    heard: usize,
}

/// Shared by the clients.
#[derive(Clone, Default)]
pub struct Book(Arc<Mutex<(BTreeMap<String, Page>, usize)>>);

impl Book {
    /// Some change that nobody has made before.
    pub fn invent(&self, rng: &mut Rng) -> Record {
        let mut book = self.0.lock().unwrap();
        let id = format!("{}-{}", book.1, rng.next_u64());
        let longest = if rng.chance(0.05) { 20_000 } else { 100 };
        let value = format!("{id}{}", ".".repeat(rng.below(longest)));
        let record = Record {
            id: id.clone(),
            key: format!("k{}", rng.below(8)),
            value: (!rng.chance(0.1)).then_some(value.into()),
        };
        book.1 += 1;
        let page = Page {
            record: record.clone(),
            fate: Fate::Unknown,
            sent: book.1,
            heard: usize::MAX,
        };
        book.0.insert(id, page);
        record
    }

    pub fn note(&self, id: &str, fate: Fate) {
        let mut book = self.0.lock().unwrap();
        book.1 += 1;
        let heard = book.1;
        let page = book.0.get_mut(id).expect("it was invented");
        page.fate = fate;
        if fate == Fate::Written {
            page.heard = heard;
        }
    }

    /// What is known of a change.
    #[allow(dead_code)] // As below.
    pub fn fate(&self, id: &str) -> Fate {
        self.0.lock().unwrap().0[id].fate
    }

    /// What stands in it now: a book of its own.
    #[allow(dead_code)] // Not every test that has a book copies it.
    pub fn copy(&self) -> Book {
        let book = self.0.lock().unwrap().clone();
        Book(Arc::new(Mutex::new(book)))
    }

    pub fn count(&self, fate: Fate) -> usize {
        let book = self.0.lock().unwrap();
        book.0.values().filter(|page| page.fate == fate).count()
    }

    /// Each record that was acknowledged is there, none twice, none torn, none that
    /// was refused, and in an order that the clients can have seen.
    pub fn check(&self, log: &[u8]) -> Vec<Record> {
        let book = self.0.lock().unwrap();
        let (records, _) = replay(log);
        let (mut found, mut last_sent) = (HashSet::new(), 0);
        for record in &records {
            let id = &record.id;
            assert!(found.insert(id.clone()), "{id} is there twice");
            let Some(page) = book.0.get(id) else {
                panic!("nobody has sent {id}");
            };
            assert!(page.record == *record, "{id} was something else");
            assert_ne!(page.fate, Fate::NotWritten, "{id} was refused and is there");
            assert!(page.heard > last_sent, "{id} is behind what was sent later");
            last_sent = last_sent.max(page.sent);
        }
        for (id, page) in &book.0 {
            let there = page.fate != Fate::Written || found.contains(id);
            assert!(there, "{id} was acknowledged and is not there");
        }
        records
    }
}
