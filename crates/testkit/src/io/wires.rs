//! Streams of bytes in one direction: a pipe is one, a connection two.

use std::collections::{BTreeMap, VecDeque};

use super::disk::Errno;

/// How many bytes a stream holds.
const ROOM: usize = 64 * 1024;

/// The number of a stream.
pub(crate) type Wire = u64;

#[derive(Default)]
struct State {
    bytes: VecDeque<u8>,
    /// Nobody will write any more.
    ended: bool,
    /// Nobody will read any more.
    deaf: bool,
    /// The connection is gone.
    reset: bool,
}

/// All streams.
#[derive(Default)]
pub(crate) struct Wires {
    all: BTreeMap<Wire, State>,
    next: Wire,
}

/// What came of it; none if it has to wait.
pub(crate) type Tried<T> = Result<Option<T>, Errno>;

impl Wires {
    pub(crate) fn make(&mut self) -> Wire {
        self.next += 1;
        self.all.insert(self.next, State::default());
        self.next
    }

    fn state(&mut self, wire: Wire) -> &mut State {
        self.all.entry(wire).or_insert_with(|| State {
            ended: true,
            deaf: true,
            ..State::default()
        })
    }

    /// Up to `most` bytes, none at the end. `keep` leaves them there.
    pub(crate) fn read(&mut self, wire: Wire, most: usize, keep: bool) -> Tried<Vec<u8>> {
        let state = self.state(wire);
        let bytes = most.min(state.bytes.len());
        if bytes > 0 {
            return Ok(Some(match keep {
                true => state.bytes.iter().take(bytes).copied().collect(),
                false => state.bytes.drain(..bytes).collect(),
            }));
        }
        if state.reset {
            return Err(libc::ECONNRESET);
        }
        match state.ended || most == 0 {
            true => Ok(Some(Vec::new())),
            false => Ok(None),
        }
    }

    /// How many bytes could be written now.
    pub(crate) fn room(&mut self, wire: Wire) -> Tried<usize> {
        let state = self.state(wire);
        if state.reset {
            return Err(libc::ECONNRESET);
        }
        if state.deaf || state.ended {
            return Err(libc::EPIPE);
        }
        let room = ROOM - state.bytes.len();
        Ok((room > 0).then_some(room))
    }

    pub(crate) fn write(&mut self, wire: Wire, bytes: &[u8]) {
        self.state(wire).bytes.extend(bytes);
    }

    /// Nobody will write any more.
    pub(crate) fn end(&mut self, wire: Wire) {
        self.state(wire).ended = true;
        self.forget(wire);
    }

    /// Nobody will read any more. True if something was left unread.
    pub(crate) fn turn_deaf(&mut self, wire: Wire) -> bool {
        let state = self.state(wire);
        let unread = !state.bytes.is_empty();
        state.bytes.clear();
        state.deaf = true;
        self.forget(wire);
        unread
    }

    /// The connection is gone.
    pub(crate) fn reset(&mut self, wire: Wire) {
        let state = self.state(wire);
        state.reset = true;
        state.bytes.clear();
    }

    /// Whether there is something to read, or nothing ever will be.
    pub(crate) fn is_readable(&mut self, wire: Wire) -> bool {
        let state = self.state(wire);
        !state.bytes.is_empty() || state.ended || state.reset
    }

    pub(crate) fn is_writable(&mut self, wire: Wire) -> bool {
        let state = self.state(wire);
        state.bytes.len() < ROOM || state.deaf || state.reset
    }

    /// Whether the other end has hung up on one who reads.
    pub(crate) fn is_over(&mut self, wire: Wire) -> bool {
        let state = self.state(wire);
        state.ended || state.reset
    }

    fn forget(&mut self, wire: Wire) {
        let state = self.state(wire);
        if state.ended && state.deaf {
            self.all.remove(&wire);
        }
    }
}
