//! The mailbox of a thread: other threads leave submissions and cancels there, and wake the
//! thread when it waits in its driver.

use std::sync::Arc;

use super::counts::Counts;
use super::driver::Notifier;
use super::in_flight::InFlight;
use super::request::Request;
use crate::sync::{AtomicU32, Mutex, MutexGuard, Ordering, lock};

/// What other threads leave.
pub(crate) enum Message {
    Submit(Arc<dyn InFlight>, Request),
    Cancel(Arc<dyn InFlight>),
}

/// The thread does not wait in its driver.
const AWAKE: u32 = 0;
/// The thread waits in the driver: the notifier wakes it.
const WAITING: u32 = 1;
/// The thread was notified since it last prepared to wait.
const NOTIFIED: u32 = 2;

#[derive(Default)]
struct Inbox {
    messages: Vec<Message>,
    closed: bool,
}

/// The mailbox of a thread.
#[derive(Default)]
pub(crate) struct Mailbox {
    inbox: Mutex<Inbox>,
    state: AtomicU32,
    /// How much is in the inbox, to be seen without the lock.
    unread: AtomicU32,
    /// None before the driver is made, and once the mailbox is closed.
    notifier: Mutex<Option<Arc<dyn Notifier>>>,
    /// Here, where others can read them.
    counts: Counts,
}

impl Mailbox {
    /// How the thread's operations have ended.
    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        lock(&self.inbox)
    }

    pub(crate) fn set_notifier(&self, notifier: Arc<dyn Notifier>) {
        *lock(&self.notifier) = Some(notifier);
    }

    /// Leaves a message; the caller wakes the thread. If the mailbox is closed, the message
    /// comes back.
    pub(crate) fn leave(&self, message: Message) -> Result<(), Message> {
        let mut inbox = self.inbox();
        if inbox.closed {
            return Err(message);
        }
        inbox.messages.push(message);
        self.unread
            .store(inbox.messages.len() as u32, Ordering::SeqCst);
        Ok(())
    }

    /// True if there are messages.
    pub(crate) fn has_messages(&self) -> bool {
        self.unread.load(Ordering::SeqCst) != 0
    }

    /// Swaps the messages for the empty `messages`.
    pub(crate) fn read(&self, messages: &mut Vec<Message>) {
        if self.has_messages() {
            let mut inbox = self.inbox();
            std::mem::swap(&mut inbox.messages, messages);
            self.unread.store(0, Ordering::SeqCst);
        }
    }

    /// Takes no more messages; the unread ones.
    pub(crate) fn close(&self) -> Vec<Message> {
        let mut inbox = self.inbox();
        inbox.closed = true;
        *lock(&self.notifier) = None;
        self.unread.store(0, Ordering::SeqCst);
        std::mem::take(&mut inbox.messages)
    }

    /// Before the thread waits in its driver. False if it was notified: then it looks for
    /// messages first.
    pub(crate) fn prepare_wait(&self) -> bool {
        let sat = self
            .state
            .compare_exchange(AWAKE, WAITING, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok();
        if !sat {
            self.end_wait();
        }
        sat
    }

    /// After it. A notification that is overwritten here is not lost: the swap sees the
    /// messages that were left before it.
    pub(crate) fn end_wait(&self) {
        self.state.swap(AWAKE, Ordering::SeqCst);
    }

    /// Ends the wait of the thread in the driver, this one or the next.
    pub(crate) fn notify(&self) {
        if self.state.swap(NOTIFIED, Ordering::SeqCst) == WAITING {
            let notifier = lock(&self.notifier).clone();
            if let Some(notifier) = notifier {
                notifier.notify();
            }
        }
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::io::in_flight::OpIdCell;
    use loom::sync::Condvar;
    use loom::thread;

    /// A message that leads nowhere.
    #[derive(Default)]
    struct Nobody(OpIdCell);

    impl InFlight for Nobody {
        fn complete(self: Arc<Self>, _result: i32) {}

        fn id_cell(&self) -> &OpIdCell {
            &self.0
        }
    }

    /// A driver that nothing but its notifier wakes.
    struct Deaf {
        notified: Mutex<bool>,
        notifies: Condvar,
    }

    impl Deaf {
        fn wait(&self) {
            let mut notified = lock(&self.notified);
            while !*notified {
                notified = self.notifies.wait(notified).expect("nobody panics");
            }
            *notified = false;
        }
    }

    impl Notifier for Deaf {
        fn notify(&self) {
            *lock(&self.notified) = true;
            self.notifies.notify_one();
        }
    }

    /// The thread of the thread, as `ThreadIo::park` does it, until it has read
    /// so many.
    fn reads(mailbox: &Mailbox, driver: &Deaf, mut most: usize) {
        let mut messages = Vec::new();
        while most > 0 {
            let sat = mailbox.prepare_wait();
            mailbox.read(&mut messages);
            most -= messages.len();
            if sat && messages.is_empty() {
                driver.wait();
            }
            messages.clear();
            if sat {
                mailbox.end_wait();
            }
        }
    }

    fn writes(mailbox: &Mailbox) {
        let nobody = Arc::new(Nobody::default());
        assert!(mailbox.leave(Message::Cancel(nobody)).is_ok());
        mailbox.notify();
    }

    /// D1, with so many who write. A message that waits for a sleeper is a
    /// thread that waits for ever, and loom says so.
    fn no_message_waits(writers: usize, each: usize) {
        loom::model(move || {
            let driver = Arc::new(Deaf {
                notified: Mutex::new(false),
                notifies: Condvar::new(),
            });
            let mailbox = Arc::new(Mailbox::default());
            mailbox.set_notifier(driver.clone());
            let threads: Vec<_> = (0..writers)
                .map(|_| {
                    let mailbox = mailbox.clone();
                    thread::spawn(move || (0..each).for_each(|_| writes(&mailbox)))
                })
                .collect();
            reads(&mailbox, &driver, writers * each);
            for thread in threads {
                thread.join().expect("a writer");
            }
        });
    }

    #[test]
    fn mailbox_no_message_of_one_waits_for_a_sleeper() {
        no_message_waits(1, 2);
    }

    #[test]
    fn mailbox_no_message_of_two_waits_for_a_sleeper() {
        no_message_waits(2, 1);
    }

    /// The same for a word that was unread elsewhere, where the thread looks before
    /// it sits down and not after.
    #[test]
    fn mailbox_who_is_rung_for_something_else_does_not_sleep() {
        loom::model(|| {
            let driver = Arc::new(Deaf {
                notified: Mutex::new(false),
                notifies: Condvar::new(),
            });
            let mailbox = Arc::new(Mailbox::default());
            mailbox.set_notifier(driver.clone());
            let word = Arc::new(AtomicU32::new(0));
            let writer = {
                let (mailbox, word) = (mailbox.clone(), word.clone());
                thread::spawn(move || {
                    for _ in 0..2 {
                        word.fetch_add(1, Ordering::SeqCst);
                        mailbox.notify();
                    }
                })
            };
            while word.load(Ordering::SeqCst) < 2 {
                if mailbox.prepare_wait() {
                    driver.wait();
                    mailbox.end_wait();
                }
            }
            writer.join().expect("a writer");
        });
    }
}
