//! Kinfolk's sockets behind the traits of other libraries: `AsyncRead` and `AsyncWrite` of
//! futures-io and tokio, and what hyper needs to run.
//!
//! Programs use this crate through the facade, `kinfolk`, where it stands in `kinfolk::net`.
//!
//! | module | feature | what it is |
//! |---|---|---|
//! | `polled` | any of them | [`Polled`]: a stream whose reads and writes take borrowed buffers |
//! | `futures_io` | `futures-io` | its traits of futures-io |
//! | `tokio_io` | `tokio-io` | its traits of tokio |
//! | [`hyper`](mod@hyper) | `hyper` | its traits of hyper, an executor, a timer, and `serve` |

// What the library says goes through `host::say`: no print of ours may block or panic.
#![deny(clippy::print_stderr, clippy::print_stdout, clippy::dbg_macro)]
// The links of this page lead to what all features make.
#![cfg_attr(
    not(all(feature = "futures-io", feature = "tokio-io", feature = "hyper")),
    allow(rustdoc::broken_intra_doc_links)
)]

#[cfg(feature = "futures-io")]
mod futures_io;
#[cfg(feature = "hyper")]
pub mod hyper;
#[cfg(any(feature = "futures-io", feature = "tokio-io", feature = "hyper"))]
mod polled;
#[cfg(feature = "tokio-io")]
mod tokio_io;

#[doc(inline)]
pub use kinfolk_runtime::net::by_hand::Streaming;
#[cfg(any(feature = "futures-io", feature = "tokio-io", feature = "hyper"))]
pub use polled::Polled;
