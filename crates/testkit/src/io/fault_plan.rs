//! [`FaultPlan`]: faults on any driver.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kinfolk_runtime::io::driver::{Answer, Driver, Notifier, OpId, WaitMode};
use kinfolk_runtime::io::request::{
    ReadArgs, ReadVectoredArgs, RecvArgs, RecvManyArgs, SendArgs, WriteArgs, WriteThenSyncArgs,
    WriteVectoredArgs,
};
use kinfolk_runtime::io::{Offset, Request};
use socket2::{SockRef, Type};

use super::faults::{Fate, Fault, Faults, On, OpKind, on_path};
use super::options::SimIo;
use crate::rng::Rng;

/// How long a cancel is held back that must come too late: a real operation may
/// wait for ever.
const A_WHILE: Duration = Duration::from_millis(1);

struct FaultPlanState {
    faults: Faults,
    rng: Rng,
}

/// Faults on any driver: makes results short and late, answers with errors,
/// holds cancels back. For a runtime on a real kernel:
///
/// ```
/// use kinfolk_runtime::Runtime;
/// use kinfolk_testkit::io::{SimIo, FaultPlan};
///
/// let fault_plan = FaultPlan::new(SimIo::rough(), 7);
/// let rt = Runtime::builder().wrap_io(move |driver| fault_plan.wrap(driver)).build()?;
/// # drop(rt);
/// # Ok::<_, kinfolk_core::Error>(())
/// ```
///
/// Only for drivers of the real kernel: the simulated one has its own faults.
/// Delays are real time here. The faults come from the seed, but the times of
/// operations do not. Clones share the script.
#[derive(Clone)]
pub struct FaultPlan(Arc<Mutex<FaultPlanState>>);

impl FaultPlan {
    /// Faults of this kind.
    pub fn new(options: SimIo, seed: u64) -> FaultPlan {
        FaultPlan(Arc::new(Mutex::new(FaultPlanState {
            faults: options.faults,
            rng: Rng::new(seed),
        })))
    }

    /// Returns the driver with these faults.
    pub fn wrap(&self, driver: Box<dyn Driver>) -> Box<dyn Driver> {
        Box::new(FaultyDriver {
            driver,
            fault_plan: self.clone(),
            fates: HashMap::new(),
            answers: VecDeque::new(),
            cancels: Vec::new(),
        })
    }

    /// Makes `fault` happen to the next operation of that kind.
    pub fn fault(&self, kind: OpKind, fault: Fault) {
        self.faults(kind, 1, fault);
    }

    /// Makes `fault` happen to each of the next `count` operations of that
    /// kind.
    pub fn faults(&self, kind: OpKind, count: u64, fault: Fault) {
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shared.faults.script_many(kind, count, fault);
    }

    fn next(&self, request: &Request) -> (Fate, u64) {
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let FaultPlanState { faults, rng } = &mut *shared;
        let fate = faults.next(OpKind::of(request), on(request), rng);
        (fate, rng.next_u64())
    }
}

impl std::fmt::Debug for FaultPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FaultPlan")
    }
}

/// What a request works on, as far as the request shows.
fn on(request: &Request) -> On {
    match request {
        Request::Recv(RecvArgs { fd, .. })
        | Request::RecvMany(RecvManyArgs { fd, .. })
        | Request::Send(SendArgs { fd, .. }) => {
            // SAFETY: it is open while an operation uses it.
            let fd = unsafe { BorrowedFd::borrow_raw(*fd) };
            match SockRef::from(&fd).r#type() {
                Ok(Type::DGRAM) => On::Datagrams,
                _ => On::Connection,
            }
        }
        Request::RecvMsg(..) | Request::SendMsg(..) => On::Datagrams,
        Request::Read(ReadArgs { offset, .. })
        | Request::Write(WriteArgs { offset, .. })
        | Request::ReadVectored(ReadVectoredArgs { offset, .. })
        | Request::WriteVectored(WriteVectoredArgs { offset, .. }) => match offset {
            Offset::At(_) => On::Disk,
            Offset::Current => On::Pipe,
        },
        Request::WriteThenSync(..) | Request::Sync(..) | Request::SyncRange(..) => On::Disk,
        Request::Accept(..)
        | Request::AcceptMany(..)
        | Request::Connect(..)
        | Request::Shutdown(..) => On::Connection,
        _ => on_path(request),
    }
}

/// The same request for fewer bytes, at least one.
fn shortened(request: &Request, chance: u64) -> Request {
    let mut request = *request;
    if let Request::Read(ReadArgs { len, .. })
    | Request::Write(WriteArgs { len, .. })
    | Request::WriteThenSync(WriteThenSyncArgs { len, .. })
    | Request::Recv(RecvArgs { len, .. })
    | Request::Send(SendArgs { len, .. }) = &mut request
        && *len > 1
    {
        *len = 1 + (chance % u64::from(*len - 1)) as u32;
    }
    request
}

struct FaultyDriver {
    driver: Box<dyn Driver>,
    fault_plan: FaultPlan,
    /// The fates of the operations that the driver has.
    fates: HashMap<OpId, Fate>,
    /// Completed, and held back until this time.
    answers: VecDeque<(Instant, Answer)>,
    cancels: Vec<(Instant, OpId)>,
}

impl FaultyDriver {
    fn answer(&mut self, after: Duration, answer: Answer) {
        self.answers.push_back((Instant::now() + after, answer));
    }

    /// A cancel takes effect. The driver does not know of an operation that is
    /// stuck.
    fn end_early(&mut self, id: OpId) {
        match self.fates.get(&id) {
            Some(fate) if fate.stuck => {
                self.fates.remove(&id);
                self.answer(Duration::ZERO, Answer::last(id, -libc::ECANCELED));
            }
            _ => self.driver.cancel(id),
        }
    }

    /// The next moment at which an answer or a cancel is due here.
    fn next_at(&self) -> Option<Instant> {
        let answers = self.answers.iter().map(|(at, _)| *at);
        answers.chain(self.cancels.iter().map(|(at, _)| *at)).min()
    }

    /// Passes on the answers that have been held back long enough.
    fn let_go(&mut self, answers: &mut Vec<Answer>) {
        let now = Instant::now();
        self.answers.retain(|(at, answer)| {
            let due = *at <= now;
            if due {
                answers.push(*answer);
            }
            !due
        });
        for (at, id) in std::mem::take(&mut self.cancels) {
            if at <= now {
                self.end_early(id);
            } else {
                self.cancels.push((at, id));
            }
        }
    }
}

// SAFETY: each submission is collected once, after the last touch of its memory,
// with no more bytes than requested.
unsafe impl Driver for FaultyDriver {
    unsafe fn submit(&mut self, id: OpId, request: &Request) {
        let (mut fate, chance) = self.fault_plan.next(request);
        // Faults that need more than an error in a simulation are plain errors
        // here.
        let errno = match (fate.full, fate.aborted) {
            (true, _) => Some(libc::ENOSPC),
            (_, true) => Some(libc::ECONNABORTED),
            _ => None,
        };
        fate.errno = fate.errno.or(errno);
        // A close that fails has closed the file nevertheless.
        if let Some(errno) = fate.errno
            && OpKind::of(request) != OpKind::Close
        {
            let result = -errno;
            return self.answer(fate.late, Answer::last(id, result));
        }
        self.fates.insert(id, fate);
        if fate.stuck {
            return;
        }
        let request = match fate.short {
            true => shortened(request, chance),
            false => *request,
        };
        // SAFETY: as promised by the caller.
        unsafe { self.driver.submit(id, &request) };
    }

    fn cancel(&mut self, id: OpId) {
        let Some(fate) = self.fates.get(&id) else {
            return;
        };
        let wait = match (fate.slow_cancel, fate.cancel_too_late) {
            (Some(wait), _) => wait,
            (None, true) => A_WHILE,
            (None, false) => return self.end_early(id),
        };
        self.cancels.push((Instant::now() + wait, id));
    }

    fn poll(&mut self, wait: WaitMode, answers: &mut Vec<Answer>) -> io::Result<()> {
        self.let_go(answers);
        let wait = match self.next_at() {
            _ if !answers.is_empty() => WaitMode::No,
            None => wait,
            Some(at) => {
                let left = at.saturating_duration_since(Instant::now());
                match wait {
                    WaitMode::Peek | WaitMode::No => wait,
                    WaitMode::AtMost(most) => WaitMode::AtMost(most.min(left)),
                    WaitMode::Forever => WaitMode::AtMost(left),
                }
            }
        };
        let mut over = Vec::new();
        let turned = self.driver.poll(wait, &mut over);
        for mut over in over {
            let (id, result) = (over.id, over.result);
            // A series that goes on keeps its fate.
            let fate = match over.more {
                true => self.fates.get(&id).copied(),
                false => self.fates.remove(&id),
            };
            let fate = fate.unwrap_or_default();
            if !over.more {
                self.cancels.retain(|(_, other)| *other != id);
            }
            over.result = match fate.errno {
                Some(errno) if result != -libc::ECANCELED => -errno,
                _ => result,
            };
            match fate.late.is_zero() {
                true => answers.push(over),
                false => self.answer(fate.late, over),
            }
        }
        self.let_go(answers);
        turned
    }

    fn notifier(&self) -> Arc<dyn Notifier> {
        self.driver.notifier()
    }

    fn wants_nonblocking(&self) -> bool {
        self.driver.wants_nonblocking()
    }

    fn name(&self) -> &'static str {
        self.driver.name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kinfolk_runtime::io::request::{AcceptManyArgs, NopArgs, OpenArgs};

    #[test]
    fn what_a_request_works_on_shows() {
        let null = std::ptr::null();
        let open = Request::Open(OpenArgs {
            path: null,
            flags: 0,
            mode: 0,
        });
        assert_eq!(on(&open), On::Disk);
        assert_eq!(
            on(&Request::AcceptMany(AcceptManyArgs { fd: -1 })),
            On::Connection
        );
        assert_eq!(on(&Request::Nop(NopArgs)), On::Nothing);
    }
}
