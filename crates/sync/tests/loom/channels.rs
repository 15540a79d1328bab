//! Channels.

use std::sync::Arc;

use kinfolk_core::Error;
use kinfolk_sync::{TryRecvError, TrySendError, mpmc, oneshot, watch};
use loom::sync::Mutex;
use loom::thread;

use crate::host::{finish, tree};
use crate::{now_or_never, polled};

/// A value is received, and so makes room, while the job that waits to send the next is
/// cancelled: that one was sent or comes back, once.
#[test]
fn send_vs_cancel() {
    loom::model(|| {
        let (tree, queue) = tree();
        let (tx, rx) = mpmc::channel(1);
        tx.try_send(1).unwrap();
        let back = Arc::new(Mutex::new(None));
        let gives = back.clone();
        let task = tree.root_scope().spawn(async move {
            if let Err(error) = tx.send(2).await {
                assert!(error.is_cancelled());
                *gives.lock().unwrap() = Some(error.into_inner());
            }
            Ok::<_, Error>(())
        });
        queue.run_all();
        let other = thread::spawn(move || {
            assert_eq!(rx.try_recv(), Ok(1));
            rx
        });
        assert!(task.cancel("now"));
        queue.run_all();
        let rx = other.join().unwrap();
        queue.run_all();
        // A send that was told though it had sent would have no value, and panic.
        let outcome = now_or_never(task.outcome()).unwrap().unwrap();
        assert!(outcome.is_cancelled(), "{outcome:?}");
        let received = rx.try_recv().ok();
        let back = back.lock().unwrap().take();
        assert!(
            matches!((received, back), (Some(2), None) | (None, Some(2))),
            "received {received:?}, back {back:?}"
        );
        assert_eq!(rx.try_recv(), Err(TryRecvError::Closed));
        finish(tree, &queue);
    });
}

/// A channel is closed while a value is sent: it is received or comes back, once.
#[test]
fn close_vs_send() {
    for full in [false, true] {
        loom::model(move || {
            let (tx, rx) = mpmc::channel(1);
            if full {
                tx.try_send(1).unwrap();
            }
            let other = thread::spawn(move || {
                rx.close();
                rx
            });
            let mut sends = polled(async move { tx.send(2).await });
            let sent = sends.poll();
            let rx = other.join().unwrap();
            let sent = sends.finish(sent);
            if full {
                assert_eq!(rx.try_recv(), Ok(1));
            }
            match sent {
                Ok(()) => assert_eq!(rx.try_recv(), Ok(2)),
                Err(error) => assert!(error.is_closed() && error.into_inner() == 2),
            }
            assert_eq!(rx.try_recv(), Err(TryRecvError::Closed));
        });
    }
}

/// A value is sent while a receiver begins to wait: no lost wake.
#[test]
fn send_vs_receive() {
    loom::model(|| {
        let (tx, rx) = mpmc::channel(1);
        let other = thread::spawn(move || tx.try_send(1).unwrap());
        let mut receives = polled(async move { rx.recv().await });
        let got = receives.poll();
        other.join().unwrap();
        assert_eq!(receives.finish(got).unwrap(), Some(1));
    });
}

/// A value is taken while a sender begins to wait for its room: no lost wake.
#[test]
fn take_vs_wait_for_room() {
    loom::model(|| {
        let (tx, rx) = mpmc::channel(1);
        tx.try_send(1).unwrap();
        let other = thread::spawn(move || {
            assert_eq!(rx.try_recv(), Ok(1));
            rx
        });
        let mut sends = polled(async move { tx.send(2).await });
        let sent = sends.poll();
        let rx = other.join().unwrap();
        sends.finish(sent).unwrap();
        assert_eq!(rx.try_recv(), Ok(2));
    });
}

/// A value is put in at one end while others are taken at the other one: in order, each once.
#[test]
fn value_vs_take() {
    loom::model(|| {
        let (tx, rx) = mpmc::channel(2);
        tx.try_send(Box::new(1)).unwrap();
        let other = thread::spawn(move || {
            tx.try_send(Box::new(2)).unwrap();
            tx
        });
        let mut got = vec![*rx.try_recv().unwrap()];
        got.extend(rx.try_recv().map(|value| *value));
        let _tx = other.join().unwrap();
        got.extend(rx.try_recv().map(|value| *value));
        assert_eq!(got, [1, 2]);
    });
}

/// A value is put into the place that another one leaves at the same time, or there is no
/// room for it yet.
#[test]
fn room_vs_put() {
    loom::model(|| {
        let (tx, rx) = mpmc::channel(1);
        tx.try_send(Box::new(1)).unwrap();
        let other = thread::spawn(move || {
            assert_eq!(*rx.try_recv().unwrap(), 1);
            rx
        });
        let back = tx.try_send(Box::new(2)).err();
        let rx = other.join().unwrap();
        if let Some(TrySendError::Full(value)) = back {
            tx.try_send(value).unwrap();
        }
        assert_eq!(*rx.try_recv().unwrap(), 2);
    });
}

/// The back goes on to a new block, and takes one that the front has left, while the front
/// leaves another: no block is freed that is in use, and none is lost.
#[test]
fn block_vs_block() {
    loom::model(|| {
        let (tx, rx) = mpmc::unbounded_channel();
        for n in 0..3 {
            tx.send(Box::new(n)).unwrap();
        }
        let other = thread::spawn(move || {
            for n in 3..6 {
                tx.send(Box::new(n)).unwrap();
            }
            tx
        });
        let mut got = Vec::new();
        for _ in 0..4 {
            got.extend(rx.try_recv().map(|value| *value));
        }
        let _tx = other.join().unwrap();
        got.extend(std::iter::from_fn(|| rx.try_recv().ok()).map(|value| *value));
        assert_eq!(got, [0, 1, 2, 3, 4, 5]);
    });
}

/// A value is sent while the receiver that waits goes: the next one in line gets it.
#[test]
fn send_vs_drop_of_the_receiver() {
    loom::model(|| {
        let (tx, rx) = mpmc::channel(1);
        let receives = |rx: mpmc::Receiver<u32>| polled(async move { rx.recv().await });
        let mut first = receives(rx.clone());
        assert!(first.poll().is_none());
        let mut second = receives(rx);
        let got = second.poll();
        assert!(got.is_none());
        let other = thread::spawn(move || {
            tx.try_send(1).unwrap();
            tx
        });
        drop(first);
        let _tx = other.join().unwrap();
        assert_eq!(second.finish(got).unwrap(), Some(1));
    });
}

/// Hand to hand: the sender leaves while the receiver comes. It was received or comes
/// back with the sender, and the next value is received.
#[test]
fn rendezvous_vs_drop_of_the_sender() {
    loom::model(|| {
        let (tx, rx) = mpmc::rendezvous();
        let next = tx.clone();
        let mut sends = polled(async move { tx.send(1).await });
        assert!(sends.poll().is_none());
        let mut receives = polled(async move { rx.recv().await });
        let other = thread::spawn(move || {
            let got = receives.poll();
            (receives, got)
        });
        drop(sends);
        let (receives, got) = other.join().unwrap();
        if got.is_none() {
            next.try_send(2).unwrap();
        }
        let got = receives.finish(got).unwrap();
        assert!(matches!(got, Some(1 | 2)));
    });
}

/// Two receivers were promised what one sender had, which leaves: one waits on, and is
/// woken by the next.
#[test]
fn broken_promise_vs_send() {
    loom::model(|| {
        let (tx, rx) = mpmc::rendezvous();
        let next = tx.clone();
        let _open = rx.clone();
        let mut receives = polled(async move { rx.recv().await });
        assert!(receives.poll().is_none());
        let mut sends = polled(async move { tx.send(1).await });
        assert!(sends.poll().is_none(), "it is promised, and not taken yet");
        let other = thread::spawn(move || {
            drop(sends);
            let mut sends = polled(async move { next.send(2).await });
            let sent = sends.poll();
            (sends, sent)
        });
        // It was woken: it takes the first, or finds nothing and waits on.
        let got = receives.poll();
        let (sends, sent) = other.join().unwrap();
        let got = receives.finish(got).unwrap();
        match got {
            Some(1) => assert!(sent.is_none()),
            Some(2) => sends.finish(sent).unwrap(),
            other => panic!("{other:?}"),
        }
    });
}

/// The last sender goes while a receiver begins to wait: it is told so.
#[test]
fn last_sender_vs_receive() {
    loom::model(|| {
        let (tx, rx) = mpmc::unbounded_channel::<u32>();
        let other = thread::spawn(move || drop(tx));
        let mut receives = polled(async move { rx.recv().await });
        let got = receives.poll();
        other.join().unwrap();
        assert_eq!(receives.finish(got).unwrap(), None);
    });
}

/// A value is set while a receiver begins to wait for a change: no lost wake.
#[test]
fn watch_vs_wait() {
    loom::model(|| {
        let (tx, mut rx) = watch::channel(0);
        let other = thread::spawn(move || tx.send(1).unwrap());
        let mut waits = polled(async move { rx.changed().await.map(|_| *rx.borrow()) });
        let got = waits.poll();
        other.join().unwrap();
        assert_eq!(waits.finish(got).unwrap(), 1);
    });
}

/// The value of a oneshot is sent while its receiver goes: it came or comes back.
#[test]
fn oneshot_vs_drop() {
    loom::model(|| {
        let (tx, rx) = oneshot::channel();
        let mut waits = polled(rx);
        assert!(waits.poll().is_none());
        let other = thread::spawn(move || tx.send(7));
        let got = waits.poll();
        drop(waits);
        let sent = other.join().unwrap();
        match got {
            Some(value) => assert_eq!((value.unwrap(), sent), (7, Ok(()))),
            // Sent after it had looked, and dropped with it; or refused.
            None => assert!(matches!(sent, Ok(()) | Err(7))),
        }
    });
}

/// The value of a oneshot is sent while the job that awaits it, by value, is cancelled: it is
/// received, comes with the error or comes back to its sender, once.
#[test]
fn oneshot_vs_cancel() {
    loom::model(|| {
        let (tree, queue) = tree();
        let (tx, rx) = oneshot::channel();
        let kept = Arc::new(Mutex::new(None));
        let keeps = kept.clone();
        let task = tree.root_scope().spawn(async move {
            let value = match rx.await {
                Ok(value) => Some(value),
                Err(error) => error.into_value(),
            };
            *keeps.lock().unwrap() = value;
            Ok::<_, Error>(())
        });
        queue.run_all();
        let other = thread::spawn(move || tx.send(1).err());
        assert!(task.cancel("now"));
        queue.run_all();
        let back = other.join().unwrap();
        queue.run_all();
        assert!(
            now_or_never(task.outcome())
                .unwrap()
                .unwrap()
                .is_cancelled()
        );
        let kept = kept.lock().unwrap().take();
        assert!(
            matches!((kept, back), (Some(1), None) | (None, Some(1))),
            "kept {kept:?}, back {back:?}"
        );
        finish(tree, &queue);
    });
}
