//! An event as the words of a record, and back. A text follows in records of its own.

use std::panic::Location;

use kinfolk_core::{Event, EventKind, JobId, JobKind, JobState, Lane, ReasonKind, WaitKind};

use crate::recorder::ring::{WORDS, Words};

/// How many bytes of a text are kept.
pub(super) const MOST_TEXT: usize = 96;

/// How many of them stand in one record.
const TEXT_IN_ONE: usize = (WORDS - 1) * 8;

/// In the last word, from the bottom: eight bits of tag, eight of a small value, 48 of a place.
const SMALL: u32 = 8;
const PLACE: u32 = 16;

/// The events that may have a text.
const CREATE: u8 = 3;
const CANCEL_REQUEST: u8 = 6;
const WAIT_BEGIN: u8 = 17;

const TEXT: u8 = 255;
/// Whose the records are from here on.
const OWNER: u8 = 254;

/// A place in the code as 48 bits; 0 if it has more, and for none.
fn place(site: Option<&'static Location<'static>>) -> u64 {
    let Some(site) = site else { return 0 };
    let address = std::ptr::from_ref(site).expose_provenance() as u64;
    match address >> (64 - PLACE) {
        0 => address,
        _ => 0,
    }
}

fn site(place: u64) -> Option<&'static Location<'static>> {
    let address = std::ptr::with_exposed_provenance::<Location<'static>>(place as usize);
    // SAFETY: 0, or made by `place` of a `&'static Location` whose provenance it exposed: the
    // records of a ring are read whole (R3 in `ring.rs`), and written by `encode` alone.
    unsafe { address.as_ref() }
}

fn last(tag: u8, small: u8, place: u64) -> u64 {
    u64::from(tag) | u64::from(small) << SMALL | place << PLACE
}

macro_rules! numbered {
    ($to:ident, $from:ident, $type:ident: $($name:ident)*) => {
        /// As a number; 255 for one that was added later.
        fn $to(value: $type) -> u8 {
            let all: &[$type] = &[$($type::$name),*];
            all.iter().position(|one| *one == value).map_or(255, |n| n as u8)
        }

        fn $from(number: u8) -> Option<$type> {
            let all: &[$type] = &[$($type::$name),*];
            all.get(number as usize).copied()
        }
    };
}

numbered!(kind_number, kind_of, JobKind: Root Task Scope Timeout Shield Branch LocalTask Hosted);
numbered!(state_number, state_of, JobState: New Active Completing Cancelling Completed Failed Cancelled);
numbered!(reason_number, reason_of, ReasonKind: Asked Deadline ChildFailed BodyFailed HandleDropped
    ScopeDropped ScopeEnded RaceLost Interrupted Shutdown HostGone Parent);
numbered!(wait_number, wait_of, WaitKind: Foreign Sleep Join Task Scope Children OrCancel Park Pump
    Blocking Completion Custom Io Lock Permit Channel Notify Barrier);

fn id(job: Option<JobId>) -> u64 {
    job.map_or(0, JobId::bits)
}

/// What stands for the first pinned lane; the others follow.
const FIRST_PINNED: u64 = 2;

/// The event without its thread: that is the ring's.
#[inline]
pub(super) fn encode(event: &Event) -> Option<Words> {
    let (other, last) = match event.kind {
        EventKind::PollBegin => (0, last(0, 0, 0)),
        EventKind::PollEnd => (0, last(1, 0, 0)),
        EventKind::Scheduled { by } => (id(by), last(2, 0, 0)),
        EventKind::Create { kind, site, lane } => {
            let lane = match lane {
                Lane::Pool => 0,
                Lane::Main => 1,
                Lane::Pinned(n) => FIRST_PINNED + u64::from(n),
                _ => return None,
            };
            (lane, last(CREATE, kind_number(kind), place(Some(site))))
        }
        EventKind::Attach { parent } => (parent.bits(), last(4, 0, 0)),
        EventKind::State { to } => (0, last(5, state_number(to), 0)),
        EventKind::CancelRequest { reason, site, by } => {
            let small = reason_number(reason);
            (id(by), last(CANCEL_REQUEST, small, place(Some(site))))
        }
        EventKind::WaitRegister => (0, last(7, 0, 0)),
        EventKind::WaitWake => (0, last(8, 0, 0)),
        EventKind::ShieldLifted { site } => (0, last(9, 0, place(Some(site)))),
        EventKind::Finalize { cancelled } => (0, last(10, u8::from(cancelled), 0)),
        EventKind::CancelHop { from } => (from.bits(), last(11, 0, 0)),
        EventKind::CancelHeld { from } => (from.bits(), last(12, 0, 0)),
        EventKind::Told { site } => (0, last(13, 0, place(site))),
        EventKind::GuardEntered { site } => (0, last(14, 0, place(Some(site)))),
        EventKind::GuardLeft => (0, last(15, 0, 0)),
        EventKind::Dropped => (0, last(16, 0, 0)),
        EventKind::WaitBegin { kind, site } => {
            (0, last(WAIT_BEGIN, wait_number(kind), place(site)))
        }
        EventKind::WaitEnd => (0, last(18, 0, 0)),
        _ => return None,
    };
    Some([event.at, event.job.bits(), other, last])
}

/// The event again; none if it was written by a later version of core.
fn decode(record: &Words, owner: RingOwner) -> Option<Event> {
    let [at, job, other, last] = *record;
    let (tag, small) = (last as u8, (last >> SMALL) as u8);
    let at_place = site(last >> PLACE);
    let kind = match tag {
        0 => EventKind::PollBegin,
        1 => EventKind::PollEnd,
        2 => EventKind::Scheduled {
            by: JobId::from_bits(other),
        },
        CREATE => EventKind::Create {
            kind: kind_of(small)?,
            site: at_place?,
            lane: match other {
                0 => Lane::Pool,
                1 => Lane::Main,
                n => Lane::Pinned(u16::try_from(n - FIRST_PINNED).ok()?),
            },
        },
        4 => EventKind::Attach {
            parent: JobId::from_bits(other)?,
        },
        5 => EventKind::State {
            to: state_of(small)?,
        },
        CANCEL_REQUEST => EventKind::CancelRequest {
            reason: reason_of(small)?,
            site: at_place?,
            by: JobId::from_bits(other),
        },
        7 => EventKind::WaitRegister,
        8 => EventKind::WaitWake,
        9 => EventKind::ShieldLifted { site: at_place? },
        10 => EventKind::Finalize {
            cancelled: small != 0,
        },
        11 => EventKind::CancelHop {
            from: JobId::from_bits(other)?,
        },
        12 => EventKind::CancelHeld {
            from: JobId::from_bits(other)?,
        },
        13 => EventKind::Told { site: at_place },
        14 => EventKind::GuardEntered { site: at_place? },
        15 => EventKind::GuardLeft,
        16 => EventKind::Dropped,
        WAIT_BEGIN => EventKind::WaitBegin {
            kind: wait_of(small)?,
            site: at_place,
        },
        18 => EventKind::WaitEnd,
        _ => return None,
    };
    let mut event = Event::new(JobId::from_bits(job)?, at, kind);
    event.thread = owner.thread;
    event.worker = owner.worker;
    Some(event)
}

/// The records of a text, to follow those of its event: as many bytes as are kept, up to the
/// end of a character.
pub(super) fn text_records(text: &str) -> impl Iterator<Item = Words> {
    let mut end = text.len().min(MOST_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.as_bytes()[..end].chunks(TEXT_IN_ONE).map(|part| {
        let mut words = [0, 0, 0, last(TEXT, part.len() as u8, 0)];
        for (n, byte) in part.iter().enumerate() {
            words[n / 8] |= u64::from(*byte) << (8 * (n % 8));
        }
        words
    })
}

/// How many of these records of one ring, from behind, are an event whose text may be on its way:
/// they are written one after the other.
pub(super) fn unfinished(records: &[Words]) -> usize {
    let parts = records.iter().rev().take_while(|r| r[3] as u8 == TEXT);
    let parts: Vec<&Words> = parts.collect();
    let is_short = |part: &&Words| ((part[3] >> SMALL) as u8 as usize) < TEXT_IN_ONE;
    let most = MOST_TEXT.div_ceil(TEXT_IN_ONE);
    if parts.first().is_some_and(is_short) || parts.len() == most {
        return 0;
    }
    let event = records.len().checked_sub(parts.len() + 1);
    match event.map(|event| records[event][3] as u8) {
        Some(CREATE | CANCEL_REQUEST | WAIT_BEGIN) => parts.len() + 1,
        _ => 0,
    }
}

/// Says whose records follow, and whose came before.
pub(super) fn owner_record(owner: RingOwner, before: RingOwner) -> Words {
    let worker = |owner: RingOwner| owner.worker.map_or(0, |worker| u64::from(worker) + 1);
    let workers = worker(owner) | worker(before) << 32;
    [workers, owner.thread, before.thread, last(OWNER, 0, 0)]
}

/// A thread, and which worker it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RingOwner {
    pub(super) thread: u64,
    pub(super) worker: Option<u32>,
}

impl RingOwner {
    pub(super) fn of(event: &Event) -> RingOwner {
        RingOwner {
            thread: event.thread,
            worker: event.worker,
        }
    }
}

/// An event as it was recorded, and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordedEvent {
    /// The event.
    pub event: Event,
    /// The name given to the job of a `Create`, the words given with a `CancelRequest`, the lock
    /// or the channel of a `WaitBegin`; their first 96 bytes.
    pub text: Option<String>,
}

/// The events of these records of one ring. `owner` is whose the last of them are. Texts whose
/// event was overwritten are left out.
pub(super) fn decode_all(records: &[Words], owner: RingOwner) -> Vec<RecordedEvent> {
    let mut found: Vec<RecordedEvent> = Vec::with_capacity(records.len());
    let mut owner = owner;
    let mut text: Vec<Words> = Vec::new();
    // From behind: then each record of an owner says whose the ones before it are.
    for record in records.iter().rev() {
        match record[3] as u8 {
            TEXT => text.push(*record),
            OWNER => {
                let worker = (record[0] >> 32) as u32;
                owner = RingOwner {
                    thread: record[2],
                    worker: worker.checked_sub(1),
                };
                text.clear();
            }
            _ => {
                let text = std::mem::take(&mut text);
                if let Some(event) = decode(record, owner) {
                    found.push(RecordedEvent {
                        event,
                        text: text_of(&text),
                    });
                }
            }
        }
    }
    found.reverse();
    found
}

/// The text of these records, the last part first; none if there are none.
fn text_of(parts: &[Words]) -> Option<String> {
    let mut bytes = Vec::new();
    for part in parts.iter().rev() {
        let long = ((part[3] >> SMALL) as u8 as usize).min(TEXT_IN_ONE);
        let all = part[..3].iter().flat_map(|word| word.to_le_bytes());
        bytes.extend(all.take(long));
    }
    (!parts.is_empty()).then(|| String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn job(number: u64) -> JobId {
        JobId::from_bits(number).expect("not 0")
    }

    #[test]
    fn see_4_every_event_comes_back_from_its_record() {
        let here = Location::caller();
        let all = [
            EventKind::Create {
                kind: JobKind::Hosted,
                site: here,
                lane: Lane::Main,
            },
            EventKind::Create {
                kind: JobKind::Task,
                site: here,
                lane: Lane::Pinned(3),
            },
            EventKind::Attach { parent: job(9) },
            EventKind::State {
                to: JobState::Failed,
            },
            EventKind::CancelRequest {
                reason: ReasonKind::Shutdown,
                site: here,
                by: Some(job(1 << 63)),
            },
            EventKind::WaitRegister,
            EventKind::WaitWake,
            EventKind::ShieldLifted { site: here },
            EventKind::Finalize { cancelled: false },
            EventKind::Finalize { cancelled: true },
            EventKind::CancelHop { from: job(3) },
            EventKind::CancelHeld { from: job(3) },
            EventKind::Told { site: Some(here) },
            EventKind::Told { site: None },
            EventKind::GuardEntered { site: here },
            EventKind::GuardLeft,
            EventKind::Dropped,
            EventKind::WaitBegin {
                kind: WaitKind::Barrier,
                site: Some(here),
            },
            EventKind::WaitEnd,
            EventKind::Scheduled { by: None },
            EventKind::Scheduled { by: Some(job(2)) },
            EventKind::PollBegin,
            EventKind::PollEnd,
        ];
        let (one, two) = (
            RingOwner {
                thread: 3,
                worker: None,
            },
            RingOwner {
                thread: u64::MAX,
                worker: Some(0),
            },
        );
        let mut records = Vec::new();
        let long = "ä".repeat(MOST_TEXT);
        for (at, kind) in all.iter().enumerate() {
            if at == 5 {
                records.push(owner_record(two, one));
            }
            let event = Event::new(job(u64::MAX), u64::MAX - at as u64, *kind);
            records.push(encode(&event).expect("it is known"));
            if at % 4 == 0 {
                records.extend(text_records(&long));
            }
        }
        // What is left of a text whose event was overwritten.
        let lost: Vec<Words> = text_records("lost").collect();
        records.insert(0, lost[0]);
        let back = decode_all(&records, two);
        assert_eq!(back.len(), all.len());
        for (at, (found, kind)) in back.iter().zip(all).enumerate() {
            let owner = if at < 5 { one } else { two };
            assert_eq!(found.event.kind, kind);
            assert_eq!(found.event.job, job(u64::MAX));
            assert_eq!(found.event.at, u64::MAX - at as u64);
            assert_eq!(RingOwner::of(&found.event), owner);
            let text = (at % 4 == 0).then(|| "ä".repeat(MOST_TEXT / 2));
            assert_eq!(found.text, text);
        }
    }
}
