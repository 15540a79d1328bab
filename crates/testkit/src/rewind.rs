//! The recording of a run that fails. Green runs have no recorder: a failed run is repeated
//! before it is reported, and the second run is recorded.

use std::fs::{self, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use kinfolk_core::{Interests, Sink};
use kinfolk_see::{Recorder, Recording};

/// The memory of a recorder: a 64th of it, 4 MiB, is for the simulation's
/// thread.
const BYTES: usize = 64 * (4 << 20);

/// The same where each run has a recorder, on several threads: 1 MiB for each of them.
#[cfg(any(feature = "runtime", feature = "tokio"))]
const BYTES_OF_THREADS: usize = 64 << 20;

/// How many recordings a folder has at the most; the oldest go.
const MOST_RECORDINGS: usize = 100;

/// The longest name of a file, without the endings of the files of one recording.
const LONGEST_NAME: usize = 150;

/// Records one run.
#[derive(Clone)]
pub(crate) struct Tape {
    recorder: Arc<Recorder>,
    kept: Arc<Mutex<Option<Recording>>>,
}

impl Tape {
    pub(crate) fn new() -> Tape {
        Tape::of_bytes(BYTES)
    }

    /// Records one run on real threads, which no second run repeats; none if no recordings are
    /// to be written.
    #[cfg(any(feature = "runtime", feature = "tokio"))]
    pub(crate) fn of_threads() -> Option<Tape> {
        folder().map(|_| Tape::of_bytes(BYTES_OF_THREADS))
    }

    fn of_bytes(bytes: usize) -> Tape {
        let recorder = Recorder::builder()
            .bytes(bytes)
            // Virtual time: an hour is a moment.
            .age(Duration::MAX)
            .interests(Interests::ALL)
            .build();
        Tape {
            recorder,
            kept: Arc::default(),
        }
    }

    pub(crate) fn sink(&self) -> Arc<dyn Sink> {
        self.recorder.clone()
    }

    /// Ends the recording when the answer is dropped: the drop of an unfinished simulation is
    /// not part of the run.
    pub(crate) fn until_dropped(&self) -> TapeEnd {
        TapeEnd(self.clone())
    }

    fn kept(&self) -> MutexGuard<'_, Option<Recording>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self) {
        let mut kept = self.kept();
        if kept.is_none() {
            *kept = Some(self.recorder.recording());
        }
    }

    /// Writes the recording as text and as a trace of Perfetto, and replaces an earlier one of
    /// that name. `words` say how the run failed. Returns a line for the message of the
    /// failure, which names the files; none if nothing was recorded, or if recordings are
    /// turned off.
    pub(crate) fn write(&self, name: &str, words: &str) -> Option<String> {
        self.end();
        let kept = self.kept();
        let recording = kept.as_ref().filter(|kept| !kept.events.is_empty())?;
        let folder = folder()?;
        let name = file_name(name);
        let written = write_files(&folder, &name, recording, words);
        let path = folder.join(&name);
        Some(match written {
            Ok(()) => format!(
                "recorded: {}.txt, and {name}.pftrace beside it, which https://ui.perfetto.dev opens",
                path.display()
            ),
            Err(error) => format!(
                "its recording could not be written to {}: {error}",
                folder.display()
            ),
        })
    }
}

/// Ends a recording when it is dropped.
pub(crate) struct TapeEnd(Tape);

impl Drop for TapeEnd {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Returns true if runs that fail are to leave a recording.
pub(crate) fn is_wanted() -> bool {
    folder().is_some()
}

/// Where recordings go: the folder that the environment names, none if that is empty; without
/// it `kinfolk` in cargo's folder for what it builds, or in that for temporary files.
fn folder() -> Option<PathBuf> {
    match std::env::var_os("KINFOLK_RECORDINGS") {
        Some(named) if named.is_empty() => None,
        Some(named) => Some(named.into()),
        None => {
            let exe = std::env::current_exe().unwrap_or_default();
            let mut above = exe.ancestors();
            let target = above.find(|dir| dir.join("CACHEDIR.TAG").is_file());
            let around = target.map_or_else(std::env::temp_dir, Path::to_path_buf);
            Some(around.join("kinfolk"))
        }
    }
}

/// The name of the test program and of the run, in letters that every file system
/// accepts.
fn file_name(run: &str) -> String {
    let exe = std::env::current_exe().unwrap_or_default();
    let exe = exe.file_stem().unwrap_or_default().to_string_lossy();
    // Cargo adds a dash and sixteen digits.
    let is_hash = |hash: &str| hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit());
    let exe = match exe.rsplit_once('-') {
        Some((name, hash)) if is_hash(hash) => name,
        _ => &exe,
    };
    let plain = |c: char| match c.is_ascii_alphanumeric() || c == '_' {
        true => c,
        false => '-',
    };
    let all = format!("{exe}-{run}");
    // The end of the name has the seed.
    let skipped = all.chars().count().saturating_sub(LONGEST_NAME);
    all.chars().skip(skipped).map(plain).collect()
}

fn write_files(folder: &Path, name: &str, recording: &Recording, words: &str) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    write_file(folder, &format!("{name}.txt"), |out| {
        writeln!(out, "{}\n", words.trim_start())?;
        recording.write_text(out)
    })?;
    write_file(folder, &format!("{name}.pftrace"), |out| {
        recording.write_perfetto(out)
    })?;
    remove_oldest(folder);
    Ok(())
}

/// Writes a file under another name first: a reader sees the whole new file, or the old one.
fn write_file(
    folder: &Path,
    name: &str,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    // Two threads of one program may write the same recording.
    static WRITTEN: AtomicUsize = AtomicUsize::new(0);
    let number = WRITTEN.fetch_add(1, Relaxed);
    let unfinished = folder.join(format!("{name}.{}-{number}", std::process::id()));
    let _ = fs::remove_file(&unfinished);
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&unfinished)?;
    let mut out = BufWriter::new(file);
    let written = write(&mut out).and_then(|()| out.flush());
    drop(out);
    let written = written.and_then(|()| fs::rename(&unfinished, folder.join(name)));
    if written.is_err() {
        let _ = fs::remove_file(&unfinished);
    }
    written
}

/// Keeps the latest recordings, and removes the others. A recording is a text and a trace of
/// one name: a text without a trace belongs to the program, and stays. If the folder cannot
/// be read, all files stay.
fn remove_oldest(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    let recorded = |path: PathBuf| {
        let is_trace = path.extension().is_some_and(|ending| ending == "pftrace");
        let text = path.with_extension("txt");
        let written = fs::metadata(&text).and_then(|text| text.modified());
        (is_trace && text.is_file()).then_some((written.ok()?, path, text))
    };
    let mut all: Vec<(SystemTime, PathBuf, PathBuf)> = entries
        .filter_map(|entry| recorded(entry.ok()?.path()))
        .collect();
    let many = all.len().saturating_sub(MOST_RECORDINGS);
    all.sort();
    for (_, trace, text) in all.into_iter().take(many) {
        // Another test may have removed the files.
        let _ = (fs::remove_file(trace), fs::remove_file(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("kinfolk-{}-{name}", std::process::id()))
    }

    #[test]
    fn test_2_names_of_recordings_do_nothing_and_keep_their_seed() {
        let name = file_name("../a\x1b \u{202e}b-17");
        assert!(name.ends_with("----a---b-17"), "{name}");
        assert!(!name.contains(std::path::is_separator));
        let long = file_name(&format!("{}-17", "x".repeat(1000)));
        assert!(long.len() == LONGEST_NAME && long.ends_with("x-17"));
    }

    #[test]
    fn test_2_old_recordings_go_and_other_files_stay() {
        let folder = place("rewind");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("notes.md"), "mine").unwrap();
        let put = |n: usize| {
            let old = SystemTime::UNIX_EPOCH + Duration::from_secs(n as u64);
            for ending in ["txt", "pftrace"] {
                let file = fs::File::create(folder.join(format!("{n}.{ending}"))).unwrap();
                file.set_modified(old).unwrap();
            }
        };
        (10..MOST_RECORDINGS + 13).for_each(put);
        // Older than all recordings, and no recordings: one has no trace, one has
        // no text.
        let theirs = (0..10).map(|n| match n % 2 {
            0 => format!("{n}.txt"),
            _ => format!("{n}.pftrace"),
        });
        let theirs: Vec<_> = theirs.collect();
        for name in &theirs {
            let file = fs::File::create(folder.join(name)).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        }
        remove_oldest(&folder);
        let left = |name: &str| folder.join(name).exists();
        assert!(theirs.iter().all(|name| left(name)) && left("notes.md"));
        assert!(!left("10.txt") && !left("12.txt") && left("13.txt") && left("13.pftrace"));
        assert_eq!(
            fs::read_dir(&folder).unwrap().count(),
            2 * MOST_RECORDINGS + theirs.len() + 1
        );
        fs::remove_dir_all(folder).unwrap();
    }
}
