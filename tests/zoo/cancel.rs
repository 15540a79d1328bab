//! Cancellation: what is lost, left or skipped when a program is stopped.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use kinfolk::testkit::CancelEverywhere;
use kinfolk::{
    Error, OrCancel, Result, checkpoint, cleanup, detach, now, race, scope, shield, sleep, spawn,
    timeout,
};
use kinfolk_runtime::net::UnixStream;
use tokio::sync::{mpsc, oneshot};

use crate::{MS, SECOND};

zoo! {
    value_lost everywhere "an item is taken from one queue, and a point comes before it is in the other"
        says "an item is lost";
    half_a_transfer everywhere "a point stands between the two halves of a transfer"
        says "money is lost";
    clean_up_skipped everywhere "a `?` leaves the function before what it opened is closed"
        says "what was opened is closed";
    shield_forgotten everywhere "clean-up of a task that is cancelled begins with a point, which fails at once"
        says "what was opened is closed";
    clean_up_without_an_end everywhere "clean-up waits for an answer that may never come"
        says "clean-up did not finish";
    stop_turned_into_a_failure everywhere "the error that says `cancelled` is replaced by an error of the program's own"
        says "the scenario was stopped and failed: the disk is slow";
    stop_taken_for_a_failure everywhere "a loop tries again after every error, also after a cancel"
        says "the scenario was told to stop and is still running";
    interrupt_swallowed everywhere "an error of a sleep is thrown away, and the interrupt with it"
        says "told to stop, and sent it all the same";
    farewell_to_a_closed_channel everywhere "a task that is stopped sends a last message, and expects a listener"
        says "a listener: SendError";
    taken_out_and_dropped everywhere "state is taken out over an await, and the future is dropped there"
        says "items are lost";
    goes_on_in_the_background everywhere "work is detached, and goes on after its caller was stopped"
        says "1 jobs and 1 timers left";
    stopped_while_it_closes everywhere "closing is shielded after a stop, and not against a stop that comes meanwhile"
        says "what was opened is closed";
    half_read_message test "a timeout drops a message of which the head was read"
        says "a message is lost";
    loser_had_an_item test "the loser of a race had taken an item from a queue"
        says "an item is lost";
    permit_lost_in_a_timeout test "a timeout leaves before the permit is given back"
        says "a permit is lost";
    answer_to_a_leaver test "a server expects that the asker still waits for its answer"
        says "the asker waits";
    lock_flag_stays test "a cancelled task leaves the mark that says `busy`"
        says "still marked as busy";
}

fn value_lost(bug: bool, everywhere: CancelEverywhere) {
    let queues = Arc::new(Mutex::new((VecDeque::new(), Vec::new())));
    let after = queues.clone();
    let scenario = move || {
        *queues.lock().unwrap() = (VecDeque::from([1, 2, 3]), Vec::new());
        let queues = queues.clone();
        async move {
            for _ in 0..3 {
                if bug {
                    let item = queues.lock().unwrap().0.pop_front();
                    checkpoint().await?;
                    queues.lock().unwrap().1.extend(item);
                } else {
                    checkpoint().await?;
                    let mut queues = queues.lock().unwrap();
                    let item = queues.0.pop_front();
                    queues.1.extend(item);
                }
            }
            Ok::<_, Error>(())
        }
    };
    everywhere.run_then(scenario, move || {
        let queues = after.lock().unwrap();
        let items = queues.0.len() + queues.1.len();
        drop(queues); // a panic would poison it for the next run
        assert_eq!(items, 3, "an item is lost");
    });
}

fn half_a_transfer(bug: bool, everywhere: CancelEverywhere) {
    let accounts = Arc::new(Mutex::new((100, 0)));
    let after = accounts.clone();
    let scenario = move || {
        *accounts.lock().unwrap() = (100, 0);
        let accounts = accounts.clone();
        async move {
            let transfer = async move {
                accounts.lock().unwrap().0 -= 10;
                sleep(SECOND).await?;
                accounts.lock().unwrap().1 += 10;
                Ok::<_, Error>(())
            };
            match bug {
                true => transfer.await,
                false => shield(transfer).await,
            }
        }
    };
    everywhere.run_then(scenario, move || {
        let (one, other) = *after.lock().unwrap();
        assert_eq!(one + other, 100, "money is lost");
    });
}

/// Counts what is open; none may be after a run.
fn counted<B>(everywhere: CancelEverywhere, body: impl Fn(Arc<AtomicI32>) -> B + Send + 'static)
where
    B: Future<Output = Result<()>> + Send + 'static,
{
    let open = Arc::new(AtomicI32::new(0));
    let after = open.clone();
    let scenario = move || {
        open.store(0, SeqCst);
        body(open.clone())
    };
    everywhere.run_then(scenario, move || {
        assert_eq!(after.load(SeqCst), 0, "what was opened is closed");
    });
}

fn clean_up_skipped(bug: bool, everywhere: CancelEverywhere) {
    counted(everywhere, move |open| async move {
        open.fetch_add(1, SeqCst);
        let slept = sleep(SECOND).await;
        if bug {
            slept.clone()?;
        }
        open.fetch_sub(1, SeqCst);
        slept?;
        Ok(())
    });
}

fn shield_forgotten(bug: bool, everywhere: CancelEverywhere) {
    counted(everywhere, move |open| async move {
        open.fetch_add(1, SeqCst);
        let slept = sleep(SECOND).await;
        let close = async {
            sleep(MS).await?; // says good-bye
            open.fetch_sub(1, SeqCst);
            Ok::<_, Error>(())
        };
        match bug {
            true => close.await?,
            false => cleanup(close).await?,
        }
        slept?;
        Ok(())
    });
}

fn clean_up_without_an_end(bug: bool, everywhere: CancelEverywhere) {
    everywhere.run(move || async move {
        let (answer, answered) = oneshot::channel::<()>();
        let slept = sleep(SECOND).await;
        if slept.is_err() {
            let wait = async {
                let _ = answered.or_cancel().await?;
                Ok::<_, Error>(())
            };
            match bug {
                true => cleanup(wait).await?,
                // Without an answer it goes on all the same.
                false => _ = cleanup(timeout(MS, wait)).await,
            }
        }
        drop(answer);
        slept?;
        Ok::<_, Error>(())
    });
}

fn stop_turned_into_a_failure(bug: bool, everywhere: CancelEverywhere) {
    everywhere.run(move || async move {
        match sleep(SECOND).await {
            Err(_) if bug => Err(Error::msg("the disk is slow")),
            slept => Ok(slept?),
        }
    });
}

fn stop_taken_for_a_failure(bug: bool, everywhere: CancelEverywhere) {
    everywhere.run(move || async move {
        loop {
            match sleep(SECOND).await {
                Err(_) if bug => {} // tries again
                slept => return Ok::<_, Error>(slept?),
            }
        }
    });
}

fn interrupt_swallowed(bug: bool, everywhere: CancelEverywhere) {
    let ended = Arc::new(Mutex::new((false, false)));
    let after = ended.clone();
    let scenario = move || {
        *ended.lock().unwrap() = (false, false);
        let ended = ended.clone();
        async move {
            for _ in 0..2 {
                let slept = sleep(SECOND).await;
                ended.lock().unwrap().0 |= slept.is_err();
                // A cancel is asked for; that it may be an interrupt is forgotten.
                if !bug || kinfolk::is_cancelled() {
                    slept?;
                }
            }
            ended.lock().unwrap().1 = true; // sent
            Ok::<_, Error>(())
        }
    };
    everywhere.run_then(scenario, move || {
        let (told, sent) = *after.lock().unwrap();
        assert!(!(told && sent), "told to stop, and sent it all the same");
    });
}

fn farewell_to_a_closed_channel(bug: bool, everywhere: CancelEverywhere) {
    everywhere.run(move || {
        scope(async move |s| {
            let (words, mut heard) = mpsc::unbounded_channel();
            s.launch(async move {
                let slept = sleep(SECOND).await;
                let sent = words.send("bye");
                if bug {
                    sent.expect("a listener");
                }
                slept
            });
            heard.recv().or_cancel().await?;
            Ok::<_, Error>(())
        })
    });
}

/// Puts the items back when it goes.
struct Taken(Arc<Mutex<Vec<u32>>>, Vec<u32>);

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.lock().unwrap().append(&mut self.1);
    }
}

fn taken_out_and_dropped(bug: bool, everywhere: CancelEverywhere) {
    let items = Arc::new(Mutex::new(Vec::new()));
    let after = items.clone();
    let scenario = move || {
        *items.lock().unwrap() = vec![1, 2];
        let items = items.clone();
        async move {
            let taken = std::mem::take(&mut *items.lock().unwrap());
            if bug {
                let slept = sleep(SECOND).await;
                *items.lock().unwrap() = taken;
                return slept;
            }
            let _back = Taken(items, taken);
            sleep(SECOND).await
        }
    };
    everywhere.may_be_dropped().run_then(scenario, move || {
        let left = after.lock().unwrap().len();
        assert_eq!(left, 2, "items are lost");
    });
}

fn goes_on_in_the_background(bug: bool, everywhere: CancelEverywhere) {
    let state = Arc::new(Mutex::new((false, false)));
    let after = state.clone();
    let scenario = move || {
        *state.lock().unwrap() = (false, false);
        let state = state.clone();
        async move {
            let own = state.clone();
            let write = async move {
                sleep(MS).await?;
                own.lock().unwrap().1 = true;
                Ok::<_, Error>(())
            };
            if bug {
                detach(write);
                let slept = sleep(2 * MS).await;
                state.lock().unwrap().0 = slept.is_err();
                slept?;
            } else {
                let written = spawn(write).await;
                state.lock().unwrap().0 = written.is_err();
                written?;
            }
            Ok::<_, Error>(())
        }
    };
    everywhere.run_then(scenario, move || {
        let (stopped, written) = *after.lock().unwrap();
        assert!(
            !(stopped && written),
            "written after its caller was stopped"
        );
    });
}

fn stopped_while_it_closes(bug: bool, everywhere: CancelEverywhere) {
    counted(everywhere, move |open| async move {
        open.fetch_add(1, SeqCst);
        let slept = sleep(SECOND).await;
        let told = slept.is_err();
        let close = async {
            sleep(MS).await?;
            open.fetch_sub(1, SeqCst);
            Ok::<_, Error>(())
        };
        // Without a stop so far, a shield seems not to be needed.
        match bug && !told {
            true => close.await?,
            false => cleanup(close).await?,
        }
        slept?;
        Ok(())
    });
}

/// A message is its length in one byte, and so many bytes.
async fn whole_message(stream: &UnixStream) -> Result<Vec<u8>> {
    let (read, head) = stream.read_exact([0]).await;
    read?;
    let (read, body) = stream.read_exact(vec![0; usize::from(head[0])]).await;
    read?;
    Ok(body)
}

async fn half_read_message(bug: bool) -> Result<()> {
    let (reader, writer) = UnixStream::pair()?;
    let sender = spawn(async move {
        for _ in 0..2 {
            writer.write_all([4]).await.0?;
            sleep(10 * MS).await?;
            writer.write_all("four").await.0?;
        }
        sleep(SECOND).await?; // and hangs up
        Ok::<_, Error>(())
    });
    let (mut messages, mut buf) = (Vec::new(), Vec::new());
    let until = now() + 100 * MS;
    while messages.len() < 2 && now() < until {
        if bug {
            if let Ok(message) = timeout(3 * MS, whole_message(&reader)).await {
                messages.push(message);
            }
            continue;
        }
        // What was read stays, whatever happens to the wait for more.
        let fill = async {
            let (read, chunk) = reader.read(Vec::with_capacity(16)).await;
            read?;
            buf.extend(chunk);
            Ok::<_, Error>(())
        };
        let _ = timeout(3 * MS, fill).await;
        while buf.first().is_some_and(|len| buf.len() > usize::from(*len)) {
            let end = usize::from(buf[0]) + 1;
            messages.push(buf.drain(..end).skip(1).collect());
        }
    }
    sender.await?;
    assert_eq!(messages, [b"four", b"four"], "a message is lost");
    Ok(())
}

async fn loser_had_an_item(bug: bool) -> Result<()> {
    let (items, mut queue) = mpsc::channel(4);
    let producer = spawn(async move {
        for item in 0..4_u32 {
            sleep(MS).await?;
            let _ = items.send(item).or_cancel().await?;
        }
        Ok::<_, Error>(())
    });
    let got = Mutex::new(Vec::new());
    let mut open = true;
    while open {
        let take = async {
            let item = queue.recv().or_cancel().await?;
            if bug {
                checkpoint().await?; // writes to the log
            }
            got.lock().unwrap().extend(item);
            Ok::<_, Error>(item.is_some())
        };
        let tick = async {
            sleep(MS).await?;
            Ok::<_, Error>(true)
        };
        open = race((take, tick)).await?;
    }
    producer.await?;
    let got = got.lock().unwrap();
    assert_eq!(*got, [0, 1, 2, 3], "an item is lost");
    Ok(())
}

/// Gives a permit back when it goes.
struct Permit(Arc<AtomicI32>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

async fn permit_lost_in_a_timeout(bug: bool) -> Result<()> {
    let permits = Arc::new(AtomicI32::new(2));
    for length in [MS, 3 * MS] {
        let permits = permits.clone();
        let work = async move {
            permits.fetch_sub(1, SeqCst);
            if bug {
                sleep(length).await?;
                permits.fetch_add(1, SeqCst);
            } else {
                let _permit = Permit(permits);
                sleep(length).await?;
            }
            Ok::<_, Error>(())
        };
        let _ = timeout(2 * MS, work).await;
    }
    assert_eq!(permits.load(SeqCst), 2, "a permit is lost");
    Ok(())
}

async fn answer_to_a_leaver(bug: bool) -> Result<()> {
    let (answer, answered) = oneshot::channel();
    let server = spawn(async move {
        sleep(MS).await?;
        let sent = answer.send(7);
        if bug {
            sent.expect("the asker waits");
        }
        Ok::<_, Error>(())
    });
    let wait = async {
        let _ = answered.or_cancel().await?;
        Ok::<_, Error>(())
    };
    let _ = timeout(MS, wait).await;
    server.await
}

async fn lock_flag_stays(bug: bool) -> Result<()> {
    let busy = Arc::new(AtomicI32::new(1));
    let own = busy.clone();
    let worker = spawn(async move {
        own.fetch_sub(1, SeqCst);
        let permit = (!bug).then(|| Permit(own.clone()));
        sleep(MS).await?;
        if permit.is_none() {
            own.fetch_add(1, SeqCst);
        }
        Ok::<_, Error>(())
    });
    sleep(MS).await?;
    worker.cancel("enough");
    let _ = worker.outcome().await?;
    assert_eq!(busy.load(SeqCst), 1, "still marked as busy");
    Ok(())
}
