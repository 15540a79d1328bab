//! What a job waits on, as data.

use std::fmt;

/// What a job waits on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum WaitKind {
    /// Nothing of ours: a foreign await, or no wait at all.
    Foreign = 0,
    /// A timer.
    Sleep = 1,
    /// The end of a job.
    Join = 2,
    /// The outcome of a task.
    Task = 3,
    /// The body of an inline scope.
    Scope = 4,
    /// The children of an inline scope whose body is over.
    Children = 5,
    /// A foreign future made a point by `or_cancel`.
    OrCancel = 6,
    /// `park`: nothing but a cancel ends it.
    Park = 7,
    /// The next frame.
    Pump = 8,
    /// A blocking call.
    Blocking = 9,
    /// A value that is produced elsewhere.
    Completion = 10,
    /// A point that a library has made itself.
    Custom = 11,
    /// An operation that the system carries out.
    Io = 12,
    /// A lock: a mutex, a read-write lock, a cell that is set once.
    Lock = 13,
    /// A permit of a semaphore.
    Permit = 14,
    /// A channel: room for a value, or a value.
    Channel = 15,
    /// A notification.
    Notify = 16,
    /// The others at a barrier.
    Barrier = 17,
}

/// In the kind of wait of a scope: its body is over, and it waits for its
/// children. BODY_DONE says that of a task; of a scope it says that its future is
/// gone too.
pub(crate) const BODY_OVER: u8 = 1 << 7;

impl WaitKind {
    pub(crate) fn from_bits(bits: u8) -> WaitKind {
        match bits & !BODY_OVER {
            1 => WaitKind::Sleep,
            2 => WaitKind::Join,
            3 => WaitKind::Task,
            4 => WaitKind::Scope,
            5 => WaitKind::Children,
            6 => WaitKind::OrCancel,
            7 => WaitKind::Park,
            8 => WaitKind::Pump,
            9 => WaitKind::Blocking,
            10 => WaitKind::Completion,
            11 => WaitKind::Custom,
            12 => WaitKind::Io,
            13 => WaitKind::Lock,
            14 => WaitKind::Permit,
            15 => WaitKind::Channel,
            16 => WaitKind::Notify,
            17 => WaitKind::Barrier,
            _ => WaitKind::Foreign,
        }
    }
}

impl fmt::Display for WaitKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WaitKind::Foreign => "a foreign await",
            WaitKind::Sleep => "sleep",
            WaitKind::Join => "join",
            WaitKind::Task => "task",
            WaitKind::Scope => "scope",
            WaitKind::Children => "children",
            WaitKind::OrCancel => "or_cancel",
            WaitKind::Park => "park",
            WaitKind::Pump => "the next pump",
            WaitKind::Blocking => "a blocking call",
            WaitKind::Completion => "a completion",
            WaitKind::Custom => "a custom point",
            WaitKind::Io => "i/o",
            WaitKind::Lock => "a lock",
            WaitKind::Permit => "a permit",
            WaitKind::Channel => "a channel",
            WaitKind::Notify => "a notification",
            WaitKind::Barrier => "a barrier",
        })
    }
}
