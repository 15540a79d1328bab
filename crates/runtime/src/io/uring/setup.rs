//! Making a ring: with what the kernel offers, and only if it offers what is used.

use std::io;

use io_uring::{IoUring, opcode};

use crate::io::request::Request;

/// How many entries the submission queue has.
const ENTRIES: u32 = 256;

/// How many the completion queue has. What does not fit is kept by the kernel.
const COMPLETIONS: u32 = 4096;

/// What a ring is made with depends on what the kernel knows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kernel {
    /// Since 6.6: entries are taken in order, without a table that says which.
    New,
    /// Since 6.1: what is over is run when it is asked for, on the one thread.
    Fair,
    Old,
}

pub(super) fn ring(kernel: Kernel) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder
        .setup_cqsize(COMPLETIONS)
        .setup_r_disabled()
        .setup_submit_all()
        .dontfork();
    if kernel != Kernel::Old {
        builder
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag();
    }
    if kernel == Kernel::New {
        builder.setup_no_sqarray();
    }
    builder.build(ENTRIES)
}

/// Asks the kernel whether it knows what we use.
pub(super) fn probe(ring: &IoUring) -> io::Result<()> {
    let mut probe = io_uring::Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let cancel = opcode::AsyncCancel::CODE;
    match Request::CODES
        .iter()
        .chain([&cancel])
        .find(|code| !probe.is_supported(**code))
    {
        None => Ok(()),
        Some(code) => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("this kernel's io_uring lacks operation {code}"),
        )),
    }
}
