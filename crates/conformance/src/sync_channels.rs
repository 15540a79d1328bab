//! Channels: points that lose nothing, first come, first served.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use kinfolk_core::{Error, ErrorKind, Task, cancel_current, cleanup, spawn};
use kinfolk_sync::{TryRecvError, TrySendError, broadcast, mpmc, oneshot, watch};

use kinfolk_testkit::Lab;

/// What was said, in order.
#[derive(Clone, Default)]
pub(crate) struct Words(Arc<Mutex<Vec<String>>>);

impl Words {
    pub(crate) fn add(&self, word: String) {
        self.0.lock().unwrap().push(word);
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// A task that receives one value.
fn receives(rx: &mpmc::Receiver<u32>) -> Task<Option<u32>> {
    let rx = rx.clone();
    spawn(async move { Ok::<_, Error>(rx.recv().await?) })
}

/// A task that sends a value, and gives it to `back` if it was not sent.
fn sends(tx: &mpmc::Sender<u32>, value: u32, back: &Words) -> Task<()> {
    let (tx, back) = (tx.clone(), back.clone());
    spawn(async move {
        match tx.send(value).await {
            Ok(()) => Ok(()),
            Err(error) if error.is_closed() => Err(error.into()),
            Err(error) => {
                let told = error.cancelled().cloned().unwrap();
                back.add(format!("{}", error.into_inner()));
                Err(Error::from(told))
            }
        }
    })
}

/// io-6: a send that is told gives the value back, at entry and while it waits; with `?`
/// it is a cancellation.
pub async fn io_6_a_cancelled_send_gives_the_value_back(lab: Lab) {
    for room in [0, 1] {
        let (tx, rx) = mpmc::channel(room);
        let back = Words::default();
        let sender = tx.clone();
        let told = spawn(async move {
            cancel_current("now");
            let error = sender.send(1).await.unwrap_err();
            assert!(error.is_cancelled() && !error.is_closed());
            assert_eq!(error.into_inner(), 1);
            Ok::<_, Error>(sender.send(1).await?)
        });
        assert!(told.outcome().await.unwrap().is_cancelled());
        assert!(rx.is_empty());
        for n in 0..room {
            tx.try_send(n as u32).unwrap();
        }
        let waits = sends(&tx, 7, &back);
        lab.settle().await;
        assert!(waits.cancel("enough"));
        assert!(waits.outcome().await.unwrap().is_cancelled());
        assert_eq!(back.take(), ["7"]);
        assert_eq!(rx.len(), room);
    }
}

/// io-6, cancel-3: a value that was sent before its sender was told is sent.
pub async fn io_6_what_was_sent_is_sent(lab: Lab) {
    let (tx, rx) = mpmc::channel(1);
    tx.try_send(1).unwrap();
    let back = Words::default();
    let waits = sends(&tx, 2, &back);
    lab.settle().await;
    assert_eq!(rx.try_recv(), Ok(1));
    waits.cancel("too late");
    drop(waits.outcome().await);
    assert_eq!((rx.try_recv(), back.take().len()), (Ok(2), 0));
}

/// io-6: a receive that is told takes nothing, also if a value was on its way to it: the
/// next one gets it.
pub async fn io_6_a_cancelled_receive_takes_nothing(lab: Lab) {
    let (tx, rx) = mpmc::channel(4);
    let receiver = rx.clone();
    let told = spawn(async move {
        cancel_current("now");
        let told = receiver.recv().await.unwrap_err();
        cleanup(async {
            assert_eq!(receiver.recv().await?, Some(1));
            Ok::<_, Error>(())
        })
        .await?;
        Err::<(), _>(Error::from(told))
    });
    tx.send(1).await.unwrap();
    assert!(told.outcome().await.unwrap().is_cancelled());

    let (first, second) = (receives(&rx), receives(&rx));
    lab.settle().await;
    tx.send(2).await.unwrap();
    tx.send(3).await.unwrap();
    first.cancel("gone");
    let first = first.outcome().await.unwrap().into_value().flatten();
    let second = second.await.unwrap();
    let mut got: Vec<_> = [first, second].into_iter().flatten().collect();
    got.extend(std::iter::from_fn(|| rx.try_recv().ok()));
    got.sort_unstable();
    assert_eq!(got, [2, 3]);
}

/// io-6: senders are let in, and receivers served, in the order in which they came.
pub async fn io_6_channels_are_first_come_first_served(lab: Lab) {
    for room in [0, 1, 2] {
        let (tx, rx) = mpmc::channel(room);
        let (back, log) = (Words::default(), Words::default());
        let mut tasks = Vec::new();
        for n in 0..6 {
            tasks.push(sends(&tx, n, &back));
            lab.settle().await;
        }
        assert!(room == 0 || matches!(tx.try_send(9), Err(TrySendError::Full(9))));
        tasks[3].cancel("gone");
        lab.settle().await;
        for _ in 0..5 {
            log.add(format!("{:?}", rx.recv().await.unwrap().unwrap()));
        }
        assert_eq!(log.take(), ["0", "1", "2", "4", "5"]);
        for task in tasks {
            drop(task.outcome().await);
        }
        let mut served = Vec::new();
        for n in 0..4 {
            let (rx, log) = (rx.clone(), log.clone());
            served.push(spawn(async move {
                let got = rx.recv().await?.unwrap();
                log.add(format!("{n}: {got}"));
                Ok::<_, Error>(())
            }));
            lab.settle().await;
        }
        for n in 0..4 {
            tx.send(n).await.unwrap();
            lab.settle().await;
        }
        for task in served {
            task.await.unwrap();
        }
        assert_eq!(log.take(), ["0: 0", "1: 1", "2: 2", "3: 3"]);
    }
}

/// io-6: a send into a rendezvous returns once its value was received.
pub async fn io_6_a_rendezvous_is_hand_to_hand(lab: Lab) {
    let (tx, rx) = mpmc::rendezvous();
    assert!(matches!(tx.try_send(1), Err(TrySendError::Full(1))));
    let back = Words::default();
    let waits = sends(&tx, 1, &back);
    lab.settle().await;
    assert!(!waits.job().is_ended() && rx.len() == 1);
    assert_eq!(rx.recv().await.unwrap(), Some(1));
    waits.await.unwrap();
    let receiver = receives(&rx);
    lab.settle().await;
    tx.send(2).await.unwrap();
    assert_eq!(receiver.await.unwrap(), Some(2));
    let receiver = receives(&rx);
    lab.settle().await;
    tx.try_send(3).unwrap();
    assert_eq!(receiver.await.unwrap(), Some(3));
}

/// io-6: a closed channel is received from until it is empty; whoever waits to send gets
/// the value back; the last sender closes, and so does the last receiver.
pub async fn io_6_closing_drains(lab: Lab) {
    let (tx, rx) = mpmc::channel(2);
    tx.send(1).await.unwrap();
    tx.send(2).await.unwrap();
    let sender = tx.clone();
    let waits = spawn(async move {
        let error = sender.send(3).await.unwrap_err();
        assert!(error.is_closed() && error.cancelled().is_none());
        let value = *error.get_ref();
        assert_eq!(Error::from(error).kind(), ErrorKind::Failed);
        Ok::<_, Error>(value)
    });
    lab.settle().await;
    assert!(rx.close() && !tx.close());
    assert_eq!(waits.await.unwrap(), 3);
    let refused = tx.send(4).await.unwrap_err();
    assert!(refused.is_closed() && refused.into_inner() == 4);
    assert_eq!(rx.recv().await.unwrap(), Some(1));
    assert_eq!(rx.recv().await.unwrap(), Some(2));
    assert_eq!(rx.recv().await.unwrap(), None);
    assert_eq!(rx.try_recv(), Err(TryRecvError::Closed));

    let (tx, rx) = mpmc::unbounded_channel();
    let waits: Vec<_> = (0..40).map(|_| receives(&rx)).collect();
    lab.settle().await;
    tx.send(1).unwrap();
    drop(tx);
    let mut got = Vec::new();
    for task in waits {
        got.extend(task.await.unwrap());
    }
    assert_eq!(got, [1]);
    drop(rx);
    let (tx, rx) = mpmc::unbounded_channel();
    drop(rx);
    assert_eq!(tx.send(5).unwrap_err().into_inner(), 5);
}

/// io-6: a pipeline of many senders and receivers, some told: each value is received once
/// or given back once.
pub async fn io_6_each_value_once(lab: Lab) {
    for room in [0, 1, 3] {
        let (tx, rx) = mpmc::channel(room);
        let (back, got) = (Words::default(), Words::default());
        let senders: Vec<_> = (0..12).map(|n| sends(&tx, n, &back)).collect();
        let receivers: Vec<_> = (0..12)
            .map(|_| {
                let (rx, got) = (rx.clone(), got.clone());
                spawn(async move {
                    if let Some(value) = rx.recv().await? {
                        got.add(format!("{value}"));
                    }
                    Ok::<_, Error>(())
                })
            })
            .collect();
        let seed = lab.seed() as usize;
        senders[seed % 12].cancel("one");
        senders[(seed / 2) % 12].cancel("another");
        receivers[(seed / 3) % 12].cancel("one");
        receivers[(seed / 5) % 12].cancel("another");
        drop(tx);
        lab.settle().await;
        while let Ok(value) = rx.try_recv() {
            got.add(format!("{value}"));
            lab.settle().await;
        }
        for task in senders.into_iter().chain(receivers) {
            drop(task.outcome().await);
        }
        let mut all: Vec<u32> = (back.take().into_iter().chain(got.take()))
            .map(|word| word.parse().unwrap())
            .collect();
        all.sort_unstable();
        // A sender that was cancelled before it began never had a value to give back.
        all.dedup();
        assert!(all.len() >= 10, "{all:?}");
    }
}

/// io-6: a oneshot that is told has taken nothing; the value comes back if nobody wants
/// it, and a sender that goes says so.
pub async fn io_6_a_oneshot_is_not_lost(lab: Lab) {
    let told = spawn(async {
        let (tx, mut rx) = oneshot::channel();
        tx.send(7).unwrap();
        cancel_current("now");
        let told = (&mut rx).await.unwrap_err();
        assert!(told.cancelled().is_some() && !told.is_closed());
        assert_eq!(rx.try_recv(), Ok(7));
        Err::<(), _>(Error::from(told))
    });
    assert!(told.outcome().await.unwrap().is_cancelled());
    let told = spawn(async {
        let (tx, rx) = oneshot::channel();
        tx.send(7).unwrap();
        cancel_current("now");
        let error = rx.await.unwrap_err();
        let told = error.cancelled().cloned().unwrap();
        assert_eq!(error.into_value(), Some(7), "by value");
        Err::<(), _>(Error::from(told))
    });
    assert!(told.outcome().await.unwrap().is_cancelled());
    let (tx, rx) = oneshot::channel::<u32>();
    let waits = spawn(async move { Ok::<_, Error>(rx.await?) });
    lab.settle().await;
    tx.send(8).unwrap();
    waits.cancel("too late");
    assert_eq!(waits.outcome().await.unwrap().into_value(), Some(8));
    let (tx, rx) = oneshot::channel::<u32>();
    drop(tx);
    assert!(rx.await.unwrap_err().is_closed());
    let (mut tx, rx) = oneshot::channel::<u32>();
    let closes = spawn(async move {
        tx.closed().await?;
        Ok::<_, Error>(tx.send(9).unwrap_err())
    });
    lab.settle().await;
    drop(rx);
    assert_eq!(closes.await.unwrap(), 9);
}

/// io-6: a watch shows the latest value, says when it changed, and that nobody changes it
/// any more.
pub async fn io_6_a_watch_shows_the_latest(lab: Lab) {
    let (tx, mut rx) = watch::channel(0);
    let seen = Arc::new(AtomicUsize::new(0));
    let mut other = rx.clone();
    let sees = seen.clone();
    let watches = spawn(async move {
        while other.changed().await? {
            sees.store(*other.borrow_and_update(), SeqCst);
        }
        Ok::<_, Error>(())
    });
    lab.settle().await;
    for n in 1..=3 {
        tx.send(n).unwrap();
    }
    tx.send_modify(|n| *n += 1);
    lab.settle().await;
    assert_eq!(seen.load(SeqCst), 4);
    assert!(rx.has_changed() && rx.changed().await.unwrap() && !rx.has_changed());
    assert_eq!(*rx.wait_for(|n| *n == 4).await.unwrap().unwrap(), 4);
    let told = {
        let mut rx = rx.clone();
        spawn(async move { Ok::<_, Error>(rx.changed().await?) })
    };
    lab.settle().await;
    told.cancel("enough");
    assert!(told.outcome().await.unwrap().is_cancelled());
    drop(tx);
    assert!(!rx.changed().await.unwrap());
    watches.await.unwrap();
}

/// io-6: every receiver of a broadcast gets every value; one that is too slow is told how
/// many it has missed; one that is told to stop has taken nothing.
pub async fn io_6_a_broadcast_says_what_was_missed(lab: Lab) {
    let (tx, mut slow) = broadcast::channel(3);
    let mut fast = tx.subscribe();
    let hears = spawn(async move {
        let mut heard = Vec::new();
        while let Some(word) = fast.recv().await? {
            heard.push(word);
        }
        Ok::<_, Error>(heard)
    });
    for n in 0..5_u32 {
        lab.settle().await;
        assert_eq!(tx.send(n).unwrap(), 2);
    }
    lab.settle().await;
    assert!(matches!(
        slow.recv().await,
        Err(broadcast::RecvError::Lagged(2))
    ));
    assert_eq!(slow.try_recv(), Ok(2));
    let told = spawn(async move {
        cancel_current("now");
        let told = slow.recv().await.unwrap_err();
        assert_eq!(slow.try_recv(), Ok(3));
        Err::<(), _>(Error::from(told))
    });
    assert!(told.outcome().await.unwrap().is_cancelled());
    drop(tx);
    assert_eq!(hears.await.unwrap(), [0, 1, 2, 3, 4]);
}
