//! The desk of a station: where other threads leave word, and how its own
//! thread is woken when it waits in the driver.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::driver::Alarm;
use super::flight::{GONE, Landing};
use super::request::Request;

/// What other threads leave.
pub(crate) enum Message {
    Submit(Arc<dyn Landing>, Request),
    Cancel(Arc<dyn Landing>),
}

impl Message {
    /// The station is closed. What was submitted before ends by itself.
    pub(crate) fn refuse(self) {
        if let Message::Submit(landing, _) = self {
            landing.land(GONE);
        }
    }
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
    alarm: OnceLock<Arc<dyn Alarm>>,
}

impl Desk {
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_alarm(&self, alarm: Arc<dyn Alarm>) {
        let _ = self.alarm.set(alarm);
    }

    /// Leaves word. The thread is to be told by the caller, if this is true;
    /// otherwise the station is closed, and the message refused.
    pub(crate) fn leave(&self, message: Message) -> bool {
        let mut inbox = self.inbox();
        if inbox.closed {
            drop(inbox);
            message.refuse();
            return false;
        }
        inbox.messages.push(message);
        self.left
            .store(inbox.messages.len() as u32, Ordering::SeqCst);
        true
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
            self.state.store(UP, Ordering::SeqCst);
        }
        sat
    }

    /// After it.
    pub(crate) fn get_up(&self) {
        self.state.store(UP, Ordering::SeqCst);
    }

    /// Ends the wait of the thread in the driver, this one or the next.
    pub(crate) fn ring(&self) {
        if self.state.swap(RUNG, Ordering::SeqCst) == SEATED
            && let Some(alarm) = self.alarm.get()
        {
            alarm.ring();
        }
    }
}
