//! Streams of bytes in one direction: a pipe is one, a connection two.
//!
//! The state of one side of a connection is kept with the stream that it reads:
//! that the other side has ended, an error that it has not got yet, that the
//! connection is gone. So the answers are those of Linux, in the same order.

use std::collections::VecDeque;
use std::time::Duration;

use super::by_number::ByNumber;
use super::disk::Errno;
use super::kernel::{Changes, WaitKey};
use super::network::Path;

/// How many bytes a stream holds.
const ROOM: usize = 64 * 1024;

/// A pipe holds so many pages, each with the bytes of one write or more.
const PAGES: usize = 16;
const PAGE: usize = 4096;

/// The number of a stream.
pub(crate) type WireId = u64;

/// The use of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sort {
    Pipe,
    /// A connection between sockets of this machine, by name or as a pair.
    Local,
    Tcp,
}

/// Something that travels on a stream.
#[derive(Clone, Debug)]
pub(crate) enum Flown {
    Bytes(Vec<u8>),
    /// The side that wrote writes no more.
    End,
    /// The connection is gone.
    Reset,
}

struct State {
    sort: Sort,
    /// The stream in the other direction.
    back: Option<WireId>,
    /// The addresses of both ends, if a network is between them.
    path: Option<Path>,
    bytes: VecDeque<u8>,
    /// For a pipe: the used part of each page.
    pages: VecDeque<(usize, usize)>,
    /// Data on its way, and when it arrives: never, while the path is cut.
    flying: VecDeque<(Option<Duration>, Flown)>,
    /// The writer has ended its direction.
    shut: bool,
    /// The reader has learnt of that.
    ended: bool,
    /// The reader's end is closed.
    deaf: bool,
    /// The reader has shut its direction, and still has the socket.
    unheard: bool,
    /// The writer's end is closed.
    left: bool,
    /// The error that the next operation of the reader's side returns, once.
    error: Option<Errno>,
    /// For the reader's side the connection is gone.
    dead: bool,
}

/// All streams.
#[derive(Default)]
pub(crate) struct Wires {
    all: ByNumber<WireId, State>,
    next: WireId,
}

/// The result of an operation; none if it must wait.
pub(crate) type Tried<T> = Result<Option<T>, Errno>;

impl Wires {
    fn add(&mut self, sort: Sort, back: Option<WireId>, path: Option<Path>) -> WireId {
        self.next += 1;
        let state = State {
            sort,
            back,
            path,
            bytes: VecDeque::new(),
            pages: VecDeque::new(),
            flying: VecDeque::new(),
            shut: false,
            ended: false,
            deaf: false,
            unheard: false,
            left: false,
            error: None,
            dead: false,
        };
        self.all.insert(self.next, state);
        self.next
    }

    pub(crate) fn pipe(&mut self) -> WireId {
        self.add(Sort::Pipe, None, None)
    }

    /// Both directions of a connection. `path` is that of the first.
    pub(crate) fn connection(&mut self, sort: Sort, path: Option<Path>) -> (WireId, WireId) {
        let one = self.next + 1;
        let there = self.add(sort, Some(one + 1), path);
        let back = self.add(sort, Some(one), path.map(|(from, to)| (to, from)));
        (there, back)
    }

    fn state(&mut self, wire: WireId) -> &mut State {
        self.all.get_mut(&wire).expect("an open stream is there")
    }

    pub(crate) fn path(&self, wire: WireId) -> Option<Path> {
        self.all.get(&wire).and_then(|state| state.path)
    }

    /// Up to `most` bytes, none at the end. With `keep` they stay in the
    /// stream.
    pub(crate) fn read(&mut self, wire: WireId, most: usize, keep: bool) -> Tried<Vec<u8>> {
        let mut bytes = Vec::new();
        let to = |first: &[u8], second: &[u8]| bytes = [first, second].concat();
        let read = self.read_to(wire, most, keep, to)?;
        Ok(read.map(|_| bytes))
    }

    /// The same; `to` gets the bytes, in two pieces at the most, and the answer is how many.
    pub(crate) fn read_to(
        &mut self,
        wire: WireId,
        most: usize,
        keep: bool,
        to: impl FnOnce(&[u8], &[u8]),
    ) -> Tried<usize> {
        let state = self.state(wire);
        if !state.bytes.is_empty() {
            let bytes = most.min(state.bytes.len());
            // In at most two pieces, and not byte by byte.
            let (first, second) = state.bytes.as_slices();
            let (of_first, of_second) = (bytes.min(first.len()), bytes.saturating_sub(first.len()));
            to(&first[..of_first], &second[..of_second]);
            if !keep {
                state.take(bytes);
            }
            return Ok(Some(bytes));
        }
        let over = match state.sort {
            Sort::Pipe => most == 0 || state.ended,
            // On TCP the end comes before an error, on a local connection after it.
            Sort::Tcp if state.ended => true,
            Sort::Tcp | Sort::Local => {
                if let Some(errno) = state.error.take() {
                    return Err(errno);
                }
                state.ended || state.dead || state.unheard
            }
        };
        Ok(over.then_some(0))
    }

    /// How many of `wanted` bytes could be written to a pipe now.
    pub(crate) fn room_in_pipe(&mut self, wire: WireId, wanted: usize) -> Tried<usize> {
        let state = self.state(wire);
        if wanted == 0 {
            return Ok(Some(0));
        }
        if state.deaf {
            return Err(libc::EPIPE);
        }
        let room = state.tail(wanted) + (PAGES - state.pages.len()) * PAGE;
        let takes = wanted.min(room);
        // As on Linux: up to a page, all of it or nothing.
        let too_little = takes == 0 || (wanted <= PAGE && takes < wanted);
        Ok((!too_little).then_some(takes))
    }

    /// How many of `wanted` bytes the side that reads `input` could write to
    /// `output` now.
    pub(crate) fn room(&mut self, input: WireId, output: WireId, wanted: usize) -> Tried<usize> {
        let own = self.state(input);
        if own.sort == Sort::Tcp && (own.error.is_some() || own.dead) {
            return Err(own.error.take().unwrap_or(libc::EPIPE));
        }
        let state = self.state(output);
        let local = state.sort == Sort::Local;
        if state.shut || (local && (state.deaf || state.unheard)) {
            return Err(libc::EPIPE);
        }
        if wanted == 0 {
            return Ok(Some(0));
        }
        let room = ROOM - state.held();
        Ok((room > 0).then_some(room.min(wanted)))
    }

    /// Puts bytes into a pipe; there is room.
    pub(crate) fn write_to_pipe(&mut self, wire: WireId, bytes: &[u8]) {
        self.state(wire).put_in_pages(bytes);
    }

    /// `flown` arrives now.
    fn arrive(&mut self, wire: WireId, flown: Flown, bounced: &mut Vec<WireId>) {
        let Some(back) = self.all.get(&wire).map(|state| state.back) else {
            return;
        };
        let shut = back
            .and_then(|back| self.all.get(&back))
            .map(|back| back.shut);
        let state = self.state(wire);
        match flown {
            Flown::Bytes(bytes) => {
                // They will not be read, and the writer gets an error. A reader that
                // has only shut its direction still gets them.
                let closed = state.unheard && shut == Some(true) && state.sort == Sort::Tcp;
                if state.deaf || closed {
                    bounced.extend(back);
                    if closed {
                        state.die(libc::ECONNRESET);
                    }
                } else if !state.dead {
                    state.bytes.extend(bytes);
                }
            }
            Flown::End => state.ended = true,
            Flown::Reset => {
                let errno = if state.ended {
                    libc::EPIPE
                } else {
                    libc::ECONNRESET
                };
                state.die(errno);
            }
        }
    }

    /// Sends `flown` on its way, which takes a while or no time; without a delay
    /// it waits for the path. The streams that have changed go to `changed`.
    pub(crate) fn send(
        &mut self,
        wire: WireId,
        flown: Flown,
        (at, now): (Option<Duration>, Duration),
        changed: &mut Changes,
    ) {
        let Some(state) = self.all.get_mut(&wire) else {
            return;
        };
        if state.flying.is_empty() && at == Some(now) {
            let mut bounced = Vec::new();
            self.arrive(wire, flown, &mut bounced);
            changed.insert(WaitKey::Wire(wire));
            for back in bounced {
                self.send(back, Flown::Reset, (at, now), changed);
            }
            return;
        }
        // In order: data sent before arrives before.
        let last = state.flying.back().map_or(Some(now), |(at, _)| *at);
        let at = at.zip(last).map(|(at, last)| at.max(last));
        state.flying.push_back((at, flown));
    }

    /// When the next data on its way arrives.
    pub(crate) fn next_arrival(&self, wire: WireId) -> Option<Duration> {
        self.all.get(&wire)?.flying.front()?.0
    }

    /// Delivers data whose time has come; returns the streams on which a reset
    /// goes back.
    pub(crate) fn land(&mut self, wire: WireId, now: Duration) -> Vec<WireId> {
        let mut bounced = Vec::new();
        while let Some(state) = self.all.get_mut(&wire)
            && let Some((Some(at), _)) = state.flying.front()
            && *at <= now
            && let Some((_, flown)) = state.flying.pop_front()
        {
            self.arrive(wire, flown, &mut bounced);
        }
        self.forget(wire);
        bounced
    }

    /// The path of these streams is cut, or healed: data on its way arrives then, or
    /// not at all. Returns the streams that have changed.
    pub(crate) fn delay(
        &mut self,
        is_theirs: impl Fn(Path) -> bool,
        at: Option<Duration>,
    ) -> Vec<WireId> {
        let mut theirs = Vec::new();
        for (wire, state) in &mut self.all {
            if state.path.is_some_and(&is_theirs) {
                theirs.push(*wire);
                state.flying.iter_mut().for_each(|flown| flown.0 = at);
            }
        }
        theirs.sort_unstable();
        theirs
    }

    /// The writer ends its direction; true if it had not before.
    pub(crate) fn shut(&mut self, wire: WireId) -> bool {
        !std::mem::replace(&mut self.state(wire).shut, true)
    }

    /// The reader shuts its direction, and keeps its end.
    pub(crate) fn stop_listening(&mut self, wire: WireId) {
        self.state(wire).unheard = true;
    }

    /// The reader's side has learnt that the connection is gone. Some of the data on
    /// its way from it may be lost: `kept` bytes are left.
    pub(crate) fn break_off(&mut self, input: WireId, output: WireId, kept: usize) {
        let own = self.state(input);
        own.die(0);
        own.error = None;
        own.bytes.clear();
        self.state(output).bytes.truncate(kept);
    }

    /// How many bytes are in the stream.
    pub(crate) fn waiting(&self, wire: WireId) -> usize {
        self.all.get(&wire).map_or(0, |state| state.bytes.len())
    }

    /// The reader's end is closed. True if data was left unread.
    pub(crate) fn close_reader(&mut self, wire: WireId) -> bool {
        let state = self.state(wire);
        let unread = !state.bytes.is_empty();
        state.bytes.clear();
        state.pages.clear();
        state.deaf = true;
        self.forget(wire);
        unread
    }

    /// The writer's end is closed.
    pub(crate) fn close_writer(&mut self, wire: WireId) {
        let state = self.state(wire);
        (state.shut, state.left) = (true, true);
        // Without a network the reader learns of it at once.
        state.ended |= state.sort != Sort::Tcp;
        self.forget(wire);
    }

    /// The next operation of the reader of a local connection returns this
    /// error, once.
    pub(crate) fn tell(&mut self, wire: WireId, errno: Errno) {
        self.state(wire).error = Some(errno);
    }

    /// True if for the reader's side the connection is gone.
    pub(crate) fn is_dead(&mut self, wire: WireId) -> bool {
        self.state(wire).dead
    }

    pub(crate) fn sort(&mut self, wire: WireId) -> Sort {
        self.state(wire).sort
    }

    /// True if a read would not wait.
    pub(crate) fn is_readable(&mut self, wire: WireId) -> bool {
        let state = self.state(wire);
        !state.bytes.is_empty() || state.ended || state.dead || state.unheard
    }

    pub(crate) fn is_writable(&mut self, wire: WireId) -> bool {
        let state = self.state(wire);
        let room = match state.sort {
            Sort::Pipe => state.pages.len() < PAGES,
            _ => state.held() < ROOM,
        };
        room || state.deaf || state.shut
    }

    /// True if the other end has closed the connection to the reader.
    pub(crate) fn is_over(&mut self, wire: WireId) -> bool {
        let state = self.state(wire);
        state.ended || state.dead
    }

    fn forget(&mut self, wire: WireId) {
        if let Some(state) = self.all.get(&wire)
            && state.deaf
            && state.left
            && state.flying.is_empty()
        {
            self.all.remove(&wire);
        }
    }
}

impl State {
    /// The connection is gone for this side, which gets the error once.
    fn die(&mut self, errno: Errno) {
        if !self.dead {
            (self.dead, self.error) = (true, Some(errno));
        }
    }

    /// The bytes that take room: those in the stream, and those on their way.
    fn held(&self) -> usize {
        let flying = self.flying.iter().map(|(_, flown)| match flown {
            Flown::Bytes(bytes) => bytes.len(),
            Flown::End | Flown::Reset => 0,
        });
        self.bytes.len() + flying.sum::<usize>()
    }

    /// How many bytes of a write go behind those of the previous one, into its
    /// page: those beyond whole pages, if all of them fit.
    fn tail(&self, wanted: usize) -> usize {
        let over = wanted % PAGE;
        match self.pages.back() {
            Some((_, to)) if to + over <= PAGE => over,
            _ => 0,
        }
    }

    fn put_in_pages(&mut self, bytes: &[u8]) {
        let tail = self.tail(bytes.len());
        if let Some((_, to)) = self.pages.back_mut() {
            *to += tail;
        }
        let mut left = bytes.len() - tail;
        while left > 0 {
            let page = left.min(PAGE);
            self.pages.push_back((0, page));
            left -= page;
        }
        self.bytes.extend(bytes);
    }

    /// The first `bytes` bytes were read.
    fn take(&mut self, bytes: usize) {
        let mut left = bytes;
        while let Some((from, to)) = self.pages.front_mut()
            && left > 0
        {
            let here = left.min(*to - *from);
            *from += here;
            left -= here;
            if from == to {
                self.pages.pop_front();
            }
        }
        self.bytes.drain(..bytes);
    }
}
