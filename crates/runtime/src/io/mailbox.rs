//! The desk of a station: where other threads leave word, and how its own
//! thread is woken when it waits in the driver.

use std::sync::Arc;

use super::counts::Counts;
use super::driver::Alarm;
use super::in_flight::Landing;
use super::request::Request;
use crate::sync::{AtomicU32, Mutex, MutexGuard, Ordering, lock};

/// What other threads leave.
pub(crate) enum Message {
    Submit(Arc<dyn Landing>, Request),
    Cancel(Arc<dyn Landing>),
}

/// Nobody sits in the driver.
const UP: u32 = 0;
/// The thread waits in the driver: the alarm wakes it.
const SEATED: u32 = 1;
/// Somebody has rung since it last sat down.
const RUNG: u32 = 2;

#[derive(Default)]
struct Inbox {
    messages: Vec<Message>,
    closed: bool,
}

/// The desk of a station.
#[derive(Default)]
pub(crate) struct Desk {
    inbox: Mutex<Inbox>,
    state: AtomicU32,
    /// How much is in the inbox, to be seen without the lock.
    left: AtomicU32,
    /// None before the driver is made, and once the desk is closed.
    alarm: Mutex<Option<Arc<dyn Alarm>>>,
    /// Here, where others can read them.
    counts: Counts,
}

impl Desk {
    /// What the station's operations have come to.
    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        lock(&self.inbox)
    }

    pub(crate) fn set_alarm(&self, alarm: Arc<dyn Alarm>) {
        *lock(&self.alarm) = Some(alarm);
    }

    /// Leaves word; the thread is to be told by the caller. If the station is
    /// closed the message comes back.
    pub(crate) fn leave(&self, message: Message) -> Result<(), Message> {
        let mut inbox = self.inbox();
        if inbox.closed {
            return Err(message);
        }
        inbox.messages.push(message);
        self.left
            .store(inbox.messages.len() as u32, Ordering::SeqCst);
        Ok(())
    }

    /// True if somebody has left word.
    pub(crate) fn has_word(&self) -> bool {
        self.left.load(Ordering::SeqCst) != 0
    }

    /// Swaps what was left for the empty `messages`.
    pub(crate) fn read(&self, messages: &mut Vec<Message>) {
        if self.has_word() {
            let mut inbox = self.inbox();
            std::mem::swap(&mut inbox.messages, messages);
            self.left.store(0, Ordering::SeqCst);
        }
    }

    /// Takes nothing more; what was left.
    pub(crate) fn close(&self) -> Vec<Message> {
        let mut inbox = self.inbox();
        inbox.closed = true;
        *lock(&self.alarm) = None;
        self.left.store(0, Ordering::SeqCst);
        std::mem::take(&mut inbox.messages)
    }

    /// Before the thread waits in the driver. False if it was rung for: then it
    /// looks round first.
    pub(crate) fn sit_down(&self) -> bool {
        let sat = self
            .state
            .compare_exchange(UP, SEATED, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok();
        if !sat {
            self.get_up();
        }
        sat
    }

    /// After it. A ring that is overwritten here is not lost: a swap sees what
    /// was left before it.
    pub(crate) fn get_up(&self) {
        self.state.swap(UP, Ordering::SeqCst);
    }

    /// Ends the wait of the thread in the driver, this one or the next.
    pub(crate) fn ring(&self) {
        if self.state.swap(RUNG, Ordering::SeqCst) == SEATED {
            let alarm = lock(&self.alarm).clone();
            if let Some(alarm) = alarm {
                alarm.ring();
            }
        }
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::io::in_flight::Ticket;
    use loom::sync::Condvar;
    use loom::thread;

    /// A message that leads nowhere.
    #[derive(Default)]
    struct Nobody(Ticket);

    impl Landing for Nobody {
        fn land(self: Arc<Self>, _result: i32) {}

        fn ticket(&self) -> &Ticket {
            &self.0
        }
    }

    /// A driver that nothing but its alarm wakes.
    struct Deaf {
        rung: Mutex<bool>,
        rings: Condvar,
    }

    impl Deaf {
        fn wait(&self) {
            let mut rung = lock(&self.rung);
            while !*rung {
                rung = self.rings.wait(rung).expect("nobody panics");
            }
            *rung = false;
        }
    }

    impl Alarm for Deaf {
        fn ring(&self) {
            *lock(&self.rung) = true;
            self.rings.notify_one();
        }
    }

    /// The thread of the station, as `Station::park` does it, until it has read
    /// so many.
    fn reads(desk: &Desk, driver: &Deaf, mut most: usize) {
        let mut messages = Vec::new();
        while most > 0 {
            let sat = desk.sit_down();
            desk.read(&mut messages);
            most -= messages.len();
            if sat && messages.is_empty() {
                driver.wait();
            }
            messages.clear();
            if sat {
                desk.get_up();
            }
        }
    }

    fn writes(desk: &Desk) {
        let nobody = Arc::new(Nobody::default());
        assert!(desk.leave(Message::Cancel(nobody)).is_ok());
        desk.ring();
    }

    /// D1, with so many who write. A message that waits for a sleeper is a
    /// thread that waits for ever, and loom says so.
    fn no_message_waits(writers: usize, each: usize) {
        loom::model(move || {
            let driver = Arc::new(Deaf {
                rung: Mutex::new(false),
                rings: Condvar::new(),
            });
            let desk = Arc::new(Desk::default());
            desk.set_alarm(driver.clone());
            let threads: Vec<_> = (0..writers)
                .map(|_| {
                    let desk = desk.clone();
                    thread::spawn(move || (0..each).for_each(|_| writes(&desk)))
                })
                .collect();
            reads(&desk, &driver, writers * each);
            for thread in threads {
                thread.join().expect("a writer");
            }
        });
    }

    #[test]
    fn desk_no_message_of_one_waits_for_a_sleeper() {
        no_message_waits(1, 2);
    }

    #[test]
    fn desk_no_message_of_two_waits_for_a_sleeper() {
        no_message_waits(2, 1);
    }

    /// The same for a word that was left elsewhere, where the thread looks before
    /// it sits down and not after.
    #[test]
    fn desk_who_is_rung_for_something_else_does_not_sleep() {
        loom::model(|| {
            let driver = Arc::new(Deaf {
                rung: Mutex::new(false),
                rings: Condvar::new(),
            });
            let desk = Arc::new(Desk::default());
            desk.set_alarm(driver.clone());
            let word = Arc::new(AtomicU32::new(0));
            let writer = {
                let (desk, word) = (desk.clone(), word.clone());
                thread::spawn(move || {
                    for _ in 0..2 {
                        word.fetch_add(1, Ordering::SeqCst);
                        desk.ring();
                    }
                })
            };
            while word.load(Ordering::SeqCst) < 2 {
                if desk.sit_down() {
                    driver.wait();
                    desk.get_up();
                }
            }
            writer.join().expect("a writer");
        });
    }
}
