//! State that belongs to a thread: each worker counts its share of the words in an `Rc`, without
//! a lock. A word goes to the worker that has its shard.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use kinfolk::job::Pinned;
use kinfolk::sync::mpmc::{self, Receiver};
use kinfolk::{Error, Result, on, scope, yield_now};

#[kinfolk::main]
async fn main() -> Result<()> {
    let text = "the quick fox and the lazy dog and the end";
    let counts = count(text).await?;
    println!(
        "\"the\" {} times, \"and\" {} times",
        counts["the"], counts["and"]
    );
    Ok(())
}

/// Counts words: a shard for each worker, then all of them together.
async fn count(text: &str) -> Result<HashMap<String, u32>> {
    scope(async |s| {
        let (mut to_shards, mut shards) = (Vec::new(), Vec::new());
        for lane in Pinned::all() {
            let (to_shard, words) = mpmc::channel(16);
            to_shards.push(to_shard);
            // The closure goes to the worker, and the future that it makes stays there.
            shards.push(s.on(lane).spawn_with(move || shard(words)));
        }
        for word in text.split(' ') {
            let at = word.bytes().map(usize::from).sum::<usize>() % to_shards.len();
            to_shards[at].send(word.to_string()).await?;
        }
        drop(to_shards); // no more words: the shards end
        let mut counts = HashMap::new();
        for shard in shards {
            counts.extend(shard.await?);
        }
        Ok(counts)
    })
    .await
}

/// The shard of one worker. Neither it nor its helper is ever at another thread.
async fn shard(words: Receiver<String>) -> Result<HashMap<String, u32>> {
    let counts = Rc::new(RefCell::new(HashMap::new()));
    let here = Pinned::here().expect("a shard is on a pinned lane");
    while let Some(word) = words.recv().await? {
        let counts = counts.clone();
        // A child on the same lane may share what is not `Send`.
        on(here, async move {
            yield_now().await?;
            *counts.borrow_mut().entry(word).or_insert(0) += 1;
            Ok::<_, Error>(())
        })
        .await?;
    }
    Ok(counts.take())
}

#[kinfolk::test]
async fn each_word_is_counted_once() {
    let counts = count("a b a c a b").await.unwrap();
    assert_eq!((counts["a"], counts["b"], counts["c"]), (3, 2, 1));
}

/// Told at any of its points, it leaves nothing behind.
#[test]
fn a_count_can_be_stopped_anywhere() {
    let went = kinfolk::testkit::cancel_everywhere(async || count("a b a").await.map(drop));
    assert_eq!(went.forced, 0, "every wait hears it");
}
