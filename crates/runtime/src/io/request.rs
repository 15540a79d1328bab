//! What a driver is asked to do: plain data, as a kernel wants it.
//!
//! Its pointers lead into the in-flight record of the operation, which does not move and is
//! kept until the operation is complete.

use super::ops::Class;
pub use super::ops::{
    AcceptArgs, AcceptManyArgs, AllocateArgs, CloseArgs, ConnectArgs, MakeDirArgs, NopArgs,
    OpenArgs, PollArgs, ReadArgs, ReadVectoredArgs, RecvArgs, RecvManyArgs, RecvMsgArgs,
    RenameArgs, Request, SendArgs, SendMsgArgs, ShutdownArgs, StatArgs, SyncArgs, SyncRangeArgs,
    UnlinkArgs, WriteArgs, WriteThenSyncArgs, WriteVectoredArgs,
};
pub use crate::linux::StatBuf;

/// Where a read or write takes offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offset {
    /// At an offset.
    At(u64),
    /// At the current position of the file or stream.
    Current,
}

impl Request {
    /// True if it may be complete as soon as the system has it, so that the system should
    /// have it soon.
    pub(crate) fn may_be_over_at_once(&self) -> bool {
        self.class() != Class::Input
    }

    /// True if a driver may try it by a single call, which succeeds as a rule: mostly there
    /// is room for what is sent.
    pub(crate) fn may_go_at_once(&self) -> bool {
        matches!(self, Request::Send(_))
    }

    /// True if it counts toward the limit of operations in flight. One that waits for
    /// another side does not: many of them would keep the other side from being served.
    pub(crate) fn counts_toward_limit(&self) -> bool {
        self.class() == Class::Bounded
    }

    /// True if it ends by itself, whatever others do: a virtual clock waits for it. If the
    /// clock waited for the reader of a pipe, the writer might wait for the clock.
    pub(crate) fn ends_by_itself(&self) -> bool {
        matches!(self.class(), Class::Bounded | Class::MayBlock)
    }
}

// SAFETY: plain data. Code that follows the pointers is bound by the rule above.
unsafe impl Send for Request {}
// SAFETY: as above.
unsafe impl Sync for Request {}
