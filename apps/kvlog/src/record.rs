//! What is in the log: eight bytes that say what it is, then records, one after
//! the other.
//!
//! ```text
//! length u32 │ crc32 u32 │ synced u64 │ has a value u8 │ length u32, id │ length u32, key │ value
//!                        └───────────────── of these bytes: length and crc32 ─────────────────┘
//! ```
//!
//! The sum is also of the place where the record lies, so that the bytes of another
//! log, stored as a value in this one, are not taken for records. `synced` says where
//! the batch of the record begins: all before that was on the disk when the record
//! was written, and was acknowledged.

/// What a log begins with.
pub const BEGINNING: [u8; 8] = *b"kvlog 2\n";

/// The longest record, without its length and sum.
pub const LONGEST: usize = 2 << 20;

/// Length and sum.
const HEAD: usize = 8;

/// The shortest record, without its length and sum.
const SHORTEST: usize = 8 + 1 + 4 + 4;

/// A change, and the request that it was made by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The client's name for the request. None is in the log twice.
    pub id: String,
    /// What is changed.
    pub key: String,
    /// To what; none if it is deleted.
    pub value: Option<Vec<u8>>,
}

/// What lies at a place of the log.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// A record.
    Whole {
        /// It.
        record: Record,
        /// How many bytes it has.
        len: usize,
        /// Where its batch begins.
        synced: u64,
    },
    /// So many bytes must be there, to tell.
    Needs(usize),
    /// No record.
    Bad,
}

impl Record {
    /// How many bytes it has in the log, without its length and sum.
    pub fn size(&self) -> usize {
        let value = self.value.as_ref().map_or(0, Vec::len);
        SHORTEST + self.id.len() + self.key.len() + value
    }

    /// Adds it to a batch that will lie at `synced`.
    pub fn append_to(&self, batch: &mut Vec<u8>, synced: u64) {
        let start = batch.len();
        batch.extend([0; HEAD]);
        batch.extend(synced.to_le_bytes());
        batch.push(self.value.is_some().into());
        for text in [&self.id, &self.key] {
            batch.extend((text.len() as u32).to_le_bytes());
            batch.extend(text.as_bytes());
        }
        batch.extend(self.value.iter().flatten());
        let (head, body) = batch[start..].split_at_mut(HEAD);
        let sum = crc32(synced + start as u64, body);
        head[..4].copy_from_slice(&(body.len() as u32).to_le_bytes());
        head[4..].copy_from_slice(&sum.to_le_bytes());
    }

    /// What lies at `at`, where a log has these bytes.
    pub fn read(bytes: &[u8], at: u64) -> Found {
        let mut rest = bytes;
        let (Some(len), Some(sum)) = (take_u32(&mut rest), take_u32(&mut rest)) else {
            return Found::Needs(HEAD);
        };
        // Not even a record of no bytes, whose sum is 0: a disk may leave zeros behind.
        if !(SHORTEST..=LONGEST).contains(&len) {
            return Found::Bad;
        }
        let Some(body) = rest.get(..len) else {
            return Found::Needs(HEAD + len);
        };
        match Record::parse(body) {
            Some((record, synced)) if synced <= at && crc32(at, body) as usize == sum => {
                let len = HEAD + len;
                Found::Whole {
                    record,
                    len,
                    synced,
                }
            }
            _ => Found::Bad,
        }
    }

    fn parse(mut body: &[u8]) -> Option<(Record, u64)> {
        let synced = u64::from_le_bytes(take(&mut body, 8)?.try_into().ok()?);
        let has_value = match take(&mut body, 1)? {
            [0] => false,
            [1] => true,
            _ => return None,
        };
        let record = Record {
            id: take_text(&mut body)?,
            key: take_text(&mut body)?,
            value: has_value.then(|| body.to_vec()),
        };
        Some((record, synced))
    }
}

fn take<'a>(from: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, rest) = from.split_at_checked(len)?;
    *from = rest;
    Some(taken)
}

fn take_u32(from: &mut &[u8]) -> Option<usize> {
    let bytes = take(from, 4)?.try_into().ok()?;
    Some(u32::from_le_bytes(bytes) as usize)
}

fn take_text(from: &mut &[u8]) -> Option<String> {
    let len = take_u32(from)?;
    String::from_utf8(take(from, len)?.to_vec()).ok()
}

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut n = 0;
    while n < 256 {
        let (mut sum, mut bit) = (n as u32, 0);
        while bit < 8 {
            sum = (sum >> 1) ^ (0xEDB8_8320 * (sum & 1));
            bit += 1;
        }
        table[n] = sum;
        n += 1;
    }
    table
};

/// Of a place, and the bytes that lie there.
fn crc32(at: u64, bytes: &[u8]) -> u32 {
    !add(add(!0, &at.to_le_bytes()), bytes)
}

fn add(sum: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(sum, |sum, byte| {
        (sum >> 8) ^ TABLE[usize::from(sum as u8 ^ byte)]
    })
}

#[test]
fn the_sum_is_the_one_that_everybody_uses() {
    assert_eq!(!add(!0, b"123456789"), 0xCBF4_3926);
}

#[test]
fn a_record_with_any_byte_changed_is_none() {
    let record = Record {
        id: "7".into(),
        key: "k".into(),
        value: Some(b"value".into()),
    };
    let (mut log, synced) = (Vec::new(), 8);
    record.append_to(&mut log, synced);
    let len = log.len();
    let whole = Found::Whole {
        record,
        len,
        synced,
    };
    assert_eq!(Record::read(&log, 8), whole);
    assert_eq!(Record::read(&log, 9), Found::Bad, "it lies elsewhere");
    assert_eq!(Record::read(&log[..len - 1], 8), Found::Needs(len));
    for at in 0..len {
        log[at] ^= 1;
        assert!(!matches!(Record::read(&log, 8), Found::Whole { .. }));
        log[at] ^= 1;
    }
    assert_eq!(Record::read(&[0; 64], 8), Found::Bad);
}
