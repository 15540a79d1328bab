//! The few pieces of protobuf's wire format that a trace needs, and the numbers of the fields
//! of Perfetto's messages: only those that are declared stable, `TrackEvent` and
//! `TrackDescriptor`, and the fields of a packet around them.

/// A message that is being written.
#[derive(Clone, Debug, Default)]
pub(super) struct WireMessage(Vec<u8>);

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;

impl WireMessage {
    pub(super) fn new() -> WireMessage {
        WireMessage::default()
    }

    fn raw(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    pub(super) fn uint(&mut self, field: u64, value: u64) -> &mut WireMessage {
        self.raw(field << 3 | VARINT);
        self.raw(value);
        self
    }

    pub(super) fn fixed(&mut self, field: u64, value: u64) -> &mut WireMessage {
        self.raw(field << 3 | FIXED64);
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(super) fn text(&mut self, field: u64, value: &str) -> &mut WireMessage {
        self.bytes(field, value.as_bytes())
    }

    pub(super) fn message(&mut self, field: u64, value: &WireMessage) -> &mut WireMessage {
        self.bytes(field, &value.0)
    }

    fn bytes(&mut self, field: u64, value: &[u8]) -> &mut WireMessage {
        self.raw(field << 3 | BYTES);
        self.raw(value.len() as u64);
        self.0.extend(value);
        self
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

pub(super) mod trace {
    pub(in crate::perfetto) const PACKET: u64 = 1;
}

pub(super) mod packet {
    pub(in crate::perfetto) const TIMESTAMP: u64 = 8;
    pub(in crate::perfetto) const SEQUENCE: u64 = 10;
    pub(in crate::perfetto) const TRACK_EVENT: u64 = 11;
    pub(in crate::perfetto) const INTERNED: u64 = 12;
    pub(in crate::perfetto) const FLAGS: u64 = 13;
    pub(in crate::perfetto) const PREVIOUS_DROPPED: u64 = 42;
    pub(in crate::perfetto) const DESCRIPTOR: u64 = 60;
    pub(in crate::perfetto) const FIRST: u64 = 87;

    pub(in crate::perfetto) const CLEARED: u64 = 1;
    pub(in crate::perfetto) const NEEDS_STATE: u64 = 2;
}

pub(super) mod descriptor {
    pub(in crate::perfetto) const UUID: u64 = 1;
    pub(in crate::perfetto) const NAME: u64 = 2;
    pub(in crate::perfetto) const PROCESS: u64 = 3;
    pub(in crate::perfetto) const THREAD: u64 = 4;
    pub(in crate::perfetto) const PARENT: u64 = 5;
    pub(in crate::perfetto) const COUNTER: u64 = 8;

    pub(in crate::perfetto) const PROCESS_PID: u64 = 1;
    pub(in crate::perfetto) const PROCESS_NAME: u64 = 6;
    pub(in crate::perfetto) const THREAD_PID: u64 = 1;
    pub(in crate::perfetto) const THREAD_TID: u64 = 2;
    pub(in crate::perfetto) const THREAD_NAME: u64 = 5;
}

pub(super) mod event {
    pub(in crate::perfetto) const ANNOTATION: u64 = 4;
    pub(in crate::perfetto) const TYPE: u64 = 9;
    pub(in crate::perfetto) const NAME_IID: u64 = 10;
    pub(in crate::perfetto) const TRACK: u64 = 11;
    pub(in crate::perfetto) const COUNTER_VALUE: u64 = 30;
    pub(in crate::perfetto) const FLOW: u64 = 47;
    pub(in crate::perfetto) const FLOW_END: u64 = 48;
    pub(in crate::perfetto) const CORRELATION: u64 = 52;

    pub(in crate::perfetto) const BEGIN: u64 = 1;
    pub(in crate::perfetto) const END: u64 = 2;
    pub(in crate::perfetto) const INSTANT: u64 = 3;
    pub(in crate::perfetto) const COUNTER: u64 = 4;

    pub(in crate::perfetto) const ANNOTATION_UINT: u64 = 3;
    pub(in crate::perfetto) const ANNOTATION_TEXT: u64 = 6;
    pub(in crate::perfetto) const ANNOTATION_NAME: u64 = 10;
}

pub(super) mod interned {
    pub(in crate::perfetto) const EVENT_NAMES: u64 = 2;
    pub(in crate::perfetto) const IID: u64 = 1;
    pub(in crate::perfetto) const NAME: u64 = 2;
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn see_4_the_pieces_of_the_wire_format() {
        let mut inner = WireMessage::new();
        inner.uint(1, 300);
        let mut all = WireMessage::new();
        all.message(3, &inner).text(2, "ab").fixed(47, 1);
        let expected = [
            0x1a, 3, 0x08, 0xac, 0x02, // 3: { 1: 300 }
            0x12, 2, b'a', b'b', // 2: "ab"
            0xf9, 0x02, 1, 0, 0, 0, 0, 0, 0, 0, // 47: fixed64 1
        ];
        assert_eq!(all.as_bytes(), expected);
        let mut most = WireMessage::new();
        most.uint(1, u64::MAX);
        assert_eq!(most.as_bytes().len(), 11);
    }
}
