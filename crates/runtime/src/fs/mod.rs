//! Files.
//!
//! | | |
//! |---|---|
//! | [`File`] | reading and writing at offsets |
//! | [`OpenOptions`] | how a file is opened |
//! | [`DirectFile`] | the same, past the cache of the system |
//! | [`Metadata`] | what the system knows of a file |
//! | [`read`], [`write()`], [`copy`] | whole files |
//! | [`rename`], [`remove_file`], … | names |
//! | [`create_dir_all`], [`read_dir`], … | directories |

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
