//! Models of the core's protocols, under loom: `scripts/loom`.
//!
//! Each is named after the claim it checks, and the claim stands in `ENDING.md` or `CANCELLING.md`
//! beside the code, or at the head of the file. The whole core runs in them, on the small host below; two
//! threads each.

#![cfg(loom)]

mod branches;
mod cancel;
mod deadlines;
mod end;
mod host;
mod interrupts;
mod kit;
mod patience;
mod timer;
mod watch;
