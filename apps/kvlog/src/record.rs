//! What is in the log: records, one after the other.
//!
//! ```text
//! length u32 │ crc32 u32 │ has a value u8 │ length u32, id │ length u32, key │ value
//!                        └─────────── of these bytes: length and crc32 ──────────┘
//! ```

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

impl Record {
    /// Adds it to the end of a log.
    pub fn append_to(&self, log: &mut Vec<u8>) {
        let head = log.len();
        log.extend([0; 8]);
        log.push(self.value.is_some().into());
        for text in [&self.id, &self.key] {
            log.extend((text.len() as u32).to_le_bytes());
            log.extend(text.as_bytes());
        }
        log.extend(self.value.iter().flatten());
        let (head, body) = log[head..].split_at_mut(8);
        head[..4].copy_from_slice(&(body.len() as u32).to_le_bytes());
        head[4..].copy_from_slice(&crc32(body).to_le_bytes());
    }

    /// Takes one off the beginning; none if there is no whole one.
    fn take_from(log: &mut &[u8]) -> Option<Record> {
        let (len, sum) = (take_u32(log)?, take_u32(log)?);
        let mut body = take(log, len)?;
        if crc32(body) as usize != sum {
            return None;
        }
        // Not even a body of no bytes, whose sum is 0: a disk may leave zeros behind.
        let has_value = take(&mut body, 1)? == [1];
        Some(Record {
            id: take_text(&mut body)?,
            key: take_text(&mut body)?,
            value: has_value.then(|| body.to_vec()),
        })
    }
}

/// The records of a log, and where the last whole one ends: what lies behind it
/// was being written when the power went, and nobody was told that it is there.
pub fn replay(log: &[u8]) -> (Vec<Record>, usize) {
    let (mut records, mut rest, mut end) = (Vec::new(), log, 0);
    while let Some(record) = Record::take_from(&mut rest) {
        records.push(record);
        end = log.len() - rest.len();
    }
    (records, end)
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

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum, byte| {
        (sum >> 8) ^ TABLE[usize::from(sum as u8 ^ byte)]
    })
}

#[test]
fn the_sum_is_the_one_that_everybody_uses() {
    assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
}

#[test]
fn a_record_with_any_byte_changed_is_none() {
    let record = Record {
        id: "7".into(),
        key: "k".into(),
        value: Some(b"value".into()),
    };
    let mut log = Vec::new();
    record.append_to(&mut log);
    assert_eq!(replay(&log), (vec![record], log.len()));
    for at in 0..log.len() {
        log[at] ^= 1;
        assert_eq!(replay(&log), (vec![], 0));
        log[at] ^= 1;
    }
    assert_eq!(replay(&[0; 64]), (vec![], 0));
}
