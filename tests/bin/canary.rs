//! Does one thing wrong with the buffer of an operation, on purpose:
//! `scripts/valgrind` must hear it, or its silence means nothing.

use kinfolk_core::Error;
use kinfolk_runtime::Runtime;
use kinfolk_runtime::io::{IoBuf, IoBufMut, pipe};

const ROOM: usize = 4096;

/// A buffer that lies about its memory.
struct Liar {
    at: *mut u8,
    filled: usize,
    /// Says that more is filled than was.
    boasts: bool,
}

impl Liar {
    fn new(boasts: bool) -> Liar {
        let memory = Vec::<u8>::with_capacity(ROOM).leak();
        Liar {
            at: memory.as_mut_ptr(),
            filled: 0,
            boasts,
        }
    }

    fn free(&self) {
        // SAFETY: it comes from such a Vec. That it is used afterwards is the fault.
        drop(unsafe { Vec::from_raw_parts(self.at, 0, ROOM) });
    }
}

// SAFETY: none: that is what this program is for. One thread at a time has it.
unsafe impl Send for Liar {}

// SAFETY: as above.
unsafe impl IoBuf for Liar {
    fn ptr(&self) -> *const u8 {
        self.at
    }

    fn filled(&self) -> usize {
        self.filled
    }
}

// SAFETY: as above.
unsafe impl IoBufMut for Liar {
    fn ptr_mut(&mut self) -> *mut u8 {
        self.at
    }

    fn room(&self) -> usize {
        ROOM
    }

    unsafe fn set_filled(&mut self, bytes: usize) {
        self.filled = if self.boasts { ROOM } else { bytes };
    }
}

async fn read(buf: Liar) -> Result<Liar, Error> {
    let (reader, writer) = pipe()?;
    writer.write("hello").await.0?;
    let (read, buf) = reader.read(buf).await;
    read?;
    Ok(buf)
}

fn main() -> Result<(), Error> {
    let fault = std::env::args().nth(1).unwrap_or_default();
    let buf = Liar::new(fault == "undefined");
    if fault == "freed before" {
        buf.free();
    }
    let rt = Runtime::builder().workers(0).build()?;
    let buf = rt.block_on(read(buf))?;
    if fault == "freed after" {
        buf.free();
    }
    // SAFETY: so much is filled, if the buffer does not lie.
    let bytes = unsafe { std::slice::from_raw_parts(buf.at, buf.filled) };
    let zeros = bytes.iter().filter(|byte| **byte == 0).count();
    println!("{} bytes, {zeros} of them zero", bytes.len());
    match fault.as_str() {
        "leaked" | "freed before" | "freed after" => {}
        _ => buf.free(),
    }
    Ok(())
}
