//! Files.
//!
//! | | |
//! |---|---|
//! | [`File`] | reading and writing at offsets |
//! | [`OpenOptions`] | how a file is opened |
//! | [`DirectFile`] | the same, past the page cache |
//! | [`Metadata`] | size, kind, permissions and times |
//! | [`read`], [`write()`], [`copy`] | whole files |
//! | [`rename`], [`remove_file`], … | names |
//! | [`create_dir_all`], [`read_dir`], … | directories |
//!
//! # Flush and close on cancel
//!
//! In a job that was told, an operation begins only inside a
//! [`cleanup`](kinfolk_core::cleanup), where a file can be flushed and closed:
//!
//! ```
//! use kinfolk_core::{Error, Result, cleanup, timeout};
//! use kinfolk_runtime::{Runtime, fs::{self, File}};
//! # use std::time::Duration;
//!
//! /// Writes entries until it is told to stop.
//! async fn journal(file: File) -> Result<()> {
//!     let mut at = 0;
//!     let told = loop {
//!         let (written, entry) = file.write_all_at("entry\n", at).await;
//!         match written {
//!             Ok(()) => at += entry.len() as u64,
//!             Err(told) => break told,
//!         }
//!     };
//!     cleanup(async {
//!         let (written, _) = file.write_then_sync("the end\n", at).await;
//!         written?;
//!         file.close().await
//!     })
//!     .await?;
//!     Err(told.into())
//! }
//!
//! # let path = std::env::temp_dir().join(format!("kinfolk-journal-{}", std::process::id()));
//! Runtime::new()?.block_on(async {
//!     let file = File::create(&path).await?;
//!     let stopped = timeout(Duration::from_millis(10), journal(file)).await;
//!     assert!(stopped.is_err());
//!     assert!(fs::read(&path).await?.ends_with(b"the end\n"));
//!     Ok::<_, Error>(())
//! })?;
//! # std::fs::remove_file(&path)?;
//! # Ok::<_, Error>(())
//! ```

mod dir;
mod direct;
mod durable;
mod file;
mod metadata;
mod names;
mod options;
mod room;
mod std_file;
mod vectored;
mod whole;

pub use dir::{DirEntry, ReadDir, create_dir, create_dir_all, read_dir, remove_dir};
pub use direct::DirectFile;
pub use file::File;
pub use metadata::{FileKind, Metadata, metadata, symlink_metadata};
pub use names::{remove_file, rename};
pub use options::OpenOptions;
pub use whole::{copy, read, write};
