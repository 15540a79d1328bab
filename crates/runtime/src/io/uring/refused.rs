//! A kernel that is short of memory refuses to be entered: ENOMEM or EAGAIN. The ring
//! rests for a while, longer each time, before it asks again. What the kernel has not
//! taken after [`TRIES`] times fails with that error; cancels are kept.

use std::io;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use io_uring::opcode;

use super::{ALARM, CANCEL, CANCEL_SERIES, FIRST, Spilt, Uring, op_id};
use crate::io::driver::{Landed, Wait};

/// How often the kernel is asked before operations fail: about half a second.
const TRIES: u32 = 32;

/// Between the first two tries; it doubles.
const SHORTEST: Duration = Duration::from_millis(1);

/// While the thread rests it hears nothing: no alarm waits for longer than that.
const LONGEST: Duration = Duration::from_millis(16);

/// Marks the end of the queue, where its entries lie. Nobody waits for its completion.
const END: u64 = ALARM - 1;

/// How often the kernel has refused, one time after the other.
#[derive(Default)]
pub(super) struct Refusals {
    times: u32,
    /// Why, and when it is asked again.
    last: Option<(i32, Instant)>,
}

impl Refusals {
    /// Takes in what the kernel has answered.
    #[inline]
    pub(super) fn answered(&mut self, answer: &io::Result<usize>) {
        match answer {
            Ok(_) if self.last.is_none() => {}
            Ok(_) => *self = Refusals::default(),
            Err(error) => self.refused(error.raw_os_error()),
        }
    }

    #[cold]
    fn refused(&mut self, errno: Option<i32>) {
        if let Some(errno @ (libc::ENOMEM | libc::EAGAIN)) = errno {
            let pause = SHORTEST * 2_u32.saturating_pow(self.times).min(16);
            self.times += 1;
            self.last = Some((errno, Instant::now() + pause.min(LONGEST)));
        }
    }

    /// True while the kernel is not asked.
    pub(super) fn rest(&self) -> bool {
        self.last.is_some_and(|(_, until)| Instant::now() < until)
    }

    /// Rests here for as long as `wait` allows. True if the kernel is not to be asked
    /// even then.
    #[cold]
    fn rest_for(&self, wait: Wait) -> bool {
        let Some((_, until)) = self.last else {
            return false;
        };
        let rest = until.saturating_duration_since(Instant::now());
        std::thread::sleep(match wait {
            // The thread has other things to do meanwhile.
            Wait::Peek | Wait::No => return !rest.is_zero(),
            Wait::AtMost(most) => rest.min(most),
            Wait::ForGood => rest,
        });
        self.rest()
    }
}

fn is_cancel(number: u64) -> bool {
    number == CANCEL || (number != ALARM && number & FIRST == 0 && number & CANCEL_SERIES != 0)
}

impl Uring {
    /// True if this turn goes by without the kernel, which has refused lately. What is
    /// over it has said already.
    #[inline]
    pub(super) fn rests(&mut self, wait: Wait, landed: &mut Vec<Landed>) -> bool {
        if self.refusals.last.is_none() {
            return false;
        }
        self.collect(landed);
        let wait = if landed.is_empty() { wait } else { Wait::No };
        self.refusals.rest_for(wait)
    }

    /// What the kernel has refused too often fails.
    #[inline]
    pub(super) fn give_up_refused(&mut self, landed: &mut Vec<Landed>) {
        if let Some((errno, _)) = self.refusals.last
            && self.refusals.times >= TRIES
        {
            self.fail_unsent(errno, landed);
        }
    }

    #[cold]
    fn fail_unsent(&mut self, errno: i32, landed: &mut Vec<Landed>) {
        let mut failed = self.withdraw();
        let mut kept = std::mem::take(&mut self.spill);
        kept.retain(|spilt| match spilt {
            Spilt::One(entry) if is_cancel(entry.get_user_data()) => true,
            Spilt::One(entry) => {
                failed.push(entry.get_user_data());
                false
            }
            // Both are here, and the second answers for them.
            Spilt::Two(linked) => {
                failed.push(linked[1].get_user_data());
                false
            }
        });
        self.spill = kept;
        for number in failed {
            if number == ALARM {
                self.listening = false;
            } else if number & FIRST == 0 {
                let id = op_id(number);
                self.linked.remove(&id);
                self.series.remove(&id);
                self.polled.remove(&id);
                landed.push(Landed::over(id, -errno));
            }
        }
    }

    /// Makes of the entries that the kernel has not taken such as do nothing, and says
    /// whose they were; but for cancels, and for the second of two that are linked if
    /// the kernel has the first.
    fn withdraw(&mut self) -> Vec<u64> {
        let (unsent, room) = {
            let queue = self.ring.submission();
            (queue.len(), queue.capacity())
        };
        let entries = if unsent == 0 {
            None
        } else {
            Entries::of(self, room)
        };
        let Some(entries) = entries else {
            return Vec::new();
        };
        // Where they end: the queue does not say so, but an entry behind them does.
        let end = match unsent == room {
            true => 0,
            false => {
                let mark = opcode::Nop::new().build().user_data(END);
                if !self.try_push(&[mark]) {
                    return Vec::new();
                }
                let end = (0..room).find(|&at| entries.number(at) == END);
                let end = end.unwrap_or_else(|| unreachable!("it was just put there"));
                entries.clear(end);
                end
            }
        };
        let places: Vec<usize> = (1..=unsent).map(|n| (end + room - n) % room).collect();
        let numbers: Vec<u64> = places.iter().map(|&at| entries.number(at)).collect();
        let mut withdrawn = Vec::new();
        for (&at, &number) in places.iter().zip(&numbers) {
            let is_linked = self.linked.contains_key(&op_id(number));
            let is_alone = is_linked && number & FIRST == 0 && !numbers.contains(&(number | FIRST));
            if !is_cancel(number) && !is_alone {
                entries.clear(at);
                withdrawn.push(number);
            }
        }
        withdrawn
    }
}

/// How long an entry is, and where its number stands.
const ENTRY: usize = 64;
const NUMBER: usize = 32;

/// The entries of a queue, where the kernel reads them.
struct Entries {
    at: *mut u8,
    room: usize,
}

impl Entries {
    /// None if there is no memory even for that: then it is tried again.
    fn of(ring: &Uring, room: usize) -> Option<Entries> {
        // The place of the entries in the file of a ring.
        const ENTRIES_AT: libc::off_t = 0x1000_0000;
        let (access, fd) = (libc::PROT_READ | libc::PROT_WRITE, ring.ring.as_raw_fd());
        let none = std::ptr::null_mut();
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        // SAFETY: a new place, of the size that the queue has.
        let at = unsafe { libc::mmap(none, room * ENTRY, access, flags, fd, ENTRIES_AT) };
        (at != libc::MAP_FAILED).then(|| Entries {
            at: at.cast(),
            room,
        })
    }

    fn number(&self, at: usize) -> u64 {
        assert!(at < self.room);
        // SAFETY: within the entries; aligned, since they are.
        unsafe {
            self.at
                .add(at * ENTRY + NUMBER)
                .cast::<u64>()
                .read_volatile()
        }
    }

    /// An entry that does nothing, whose completion nobody waits for.
    fn clear(&self, at: usize) {
        assert!(at < self.room);
        // SAFETY: within the entries. The kernel reads them only when this thread
        // enters it, and has not taken this one. All zeros does nothing.
        unsafe {
            let entry = self.at.add(at * ENTRY);
            entry.write_bytes(0, ENTRY);
            entry.add(NUMBER).cast::<u64>().write_volatile(CANCEL);
        }
    }
}

impl Drop for Entries {
    fn drop(&mut self) {
        // SAFETY: mapped by us, with this size, and used no more.
        unsafe { libc::munmap(self.at.cast(), self.room * ENTRY) };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::io::Write as _;
    use std::os::fd::AsRawFd;

    use super::super::{Kernel, Request};
    use super::*;
    use crate::io::driver::{Driver, OpId};
    use crate::io::request::Place;

    /// From now on the kernel answers `errno` to every `io_uring_enter` of this thread.
    /// False if that cannot be.
    fn refuse(errno: i32) -> bool {
        let filter = |code: u32, k: u32, jump_true: u8, jump_false: u8| libc::sock_filter {
            code: u16::try_from(code).unwrap(),
            jt: jump_true,
            jf: jump_false,
            k,
        };
        // The number of the call comes first in what a filter sees.
        let mut filters = [
            filter(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
            filter(
                libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
                u32::try_from(libc::SYS_io_uring_enter).unwrap(),
                0,
                1,
            ),
            filter(
                libc::BPF_RET | libc::BPF_K,
                libc::SECCOMP_RET_ERRNO | u32::try_from(errno).unwrap(),
                0,
                0,
            ),
            filter(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
        ];
        let program = libc::sock_fprog {
            len: u16::try_from(filters.len()).unwrap(),
            filter: filters.as_mut_ptr(),
        };
        // SAFETY: numbers; and a program that lives until the call is over.
        unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(
                    libc::PR_SET_SECCOMP,
                    libc::SECCOMP_MODE_FILTER,
                    &raw const program,
                ) == 0
        }
    }

    fn number(index: u32) -> OpId {
        OpId {
            index,
            generation: 1,
        }
    }

    /// A ring that any thread may turn, in turn.
    fn shared() -> Option<Uring> {
        Uring::of(Kernel::Old).ok()
    }

    fn turn_until(ring: &mut Uring, landed: &mut Vec<Landed>, enough: usize) {
        let mut turns = 0;
        while landed.len() < enough {
            // With what is over already it would not wait.
            let mut now = Vec::new();
            ring.turn(Wait::ForGood, &mut now).expect("it goes on");
            landed.append(&mut now);
            turns += 1;
            // Without a pause it would be asked hundreds of thousands of times.
            assert!(turns <= 10 * TRIES, "it spins: {turns}");
        }
    }

    /// What the kernel has refused for a while fails with its error, in the queue and
    /// behind it; what it has taken before goes on, and nothing is answered twice.
    #[test]
    fn io_4_what_the_kernel_refuses_for_want_of_memory_fails() {
        for errno in [libc::ENOMEM, libc::EAGAIN] {
            let Some(mut ring) = shared() else { return };
            let (reader, mut writer) = std::io::pipe().unwrap();
            let mut buf = [0_u8; 1];
            let read = Request::Read {
                fd: reader.as_raw_fd(),
                buf: buf.as_mut_ptr(),
                len: 1,
                place: Place::Here,
            };
            // SAFETY: the buffer lives until the read has ended.
            unsafe { ring.submit(number(0), &read) };
            let mut landed = Vec::new();
            ring.turn(Wait::No, &mut landed).unwrap();
            assert_eq!(landed.len(), 0, "the kernel has it");
            // More than the queue holds, with a cancel among them, which is kept.
            const MANY: u32 = super::super::ENTRIES + 10;
            let refused = std::thread::scope(|threads| {
                let (ring, landed) = (&mut ring, &mut landed);
                let there = threads.spawn(move || {
                    if !refuse(errno) {
                        return false;
                    }
                    for n in 1..=MANY {
                        // SAFETY: it leads nowhere.
                        unsafe { ring.submit(number(n), &Request::Nop) };
                        if n == 5 {
                            ring.cancel(number(7777));
                        }
                    }
                    turn_until(ring, landed, MANY as usize);
                    true
                });
                there.join().unwrap()
            });
            assert!(refused, "the test cannot refuse a call");
            let mut failed = std::mem::take(&mut landed);
            failed.sort_by_key(|landed| landed.id.index);
            let expected: Vec<_> = (1..=MANY).map(|n| (number(n), -errno)).collect();
            let answers: Vec<_> = failed.iter().map(|one| (one.id, one.result)).collect();
            assert_eq!(answers, expected);
            // The kernel takes what comes: the read is still there, and the others not.
            writer.write_all(b"x").unwrap();
            // SAFETY: it leads nowhere.
            unsafe { ring.submit(number(1000), &Request::Nop) };
            turn_until(&mut ring, &mut landed, 2);
            ring.turn(Wait::No, &mut landed).unwrap();
            landed.sort_by_key(|landed| landed.id.index);
            let answers: Vec<_> = landed.iter().map(|one| (one.id, one.result)).collect();
            assert_eq!(answers, [(number(0), 1), (number(1000), 0)]);
            assert_eq!(&buf, b"x");
            assert_eq!(ring.refusals.times, 0, "it has forgotten");
        }
    }

    /// A kernel that takes it after a few tries: nothing fails. A thread that has other
    /// things to do does not rest, and does not ask at every turn.
    #[test]
    fn io_4_what_the_kernel_refuses_for_a_moment_is_tried_again() {
        let Some(mut ring) = shared() else { return };
        let mut landed = Vec::new();
        // SAFETY: it leads nowhere.
        unsafe { ring.submit(number(1), &Request::Nop) };
        std::thread::scope(|threads| {
            let (ring, landed) = (&mut ring, &mut landed);
            threads.spawn(move || {
                assert!(refuse(libc::ENOMEM), "the test cannot refuse a call");
                for _ in 0..4 {
                    ring.turn(Wait::ForGood, landed).unwrap();
                }
                assert_eq!(ring.refusals.times, 4);
                let until = ring.refusals.last.expect("refused").1;
                let mut turns = 0;
                while Instant::now() < until {
                    ring.turn(Wait::No, landed).unwrap();
                    turns += 1;
                }
                assert!(turns > 1 && ring.refusals.times <= 5, "{turns}");
            });
        });
        assert_eq!(landed.len(), 0, "nothing has failed");
        turn_until(&mut ring, &mut landed, 1);
        assert_eq!((landed[0].id, landed[0].result), (number(1), 0));
    }
}
