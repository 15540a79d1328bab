//! The disk after the power goes: all synced data, and of the rest whatever had
//! reached the disk.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::Path;

use super::disk::{Disk, NodeKind};
use crate::rng::Rng;

/// The unit of a disk's write: all of it, or nothing.
const SECTOR: usize = 512;

/// The changes of a file since it was synced.
#[derive(Clone, Default)]
pub(crate) struct Unsynced {
    /// The old bytes of the sectors that were changed. Short at the end of the
    /// file.
    before: BTreeMap<usize, Vec<u8>>,
    /// How long the file was, once it has been changed.
    len: Option<usize>,
    /// The least length of the file since then, if it was truncated: a truncate reaches
    /// the disk before or without the writes that follow it.
    shortest: Option<usize>,
    /// The sectors whose new bytes are lost, because a sync failed, as they are on the
    /// disk. A sync does not write them, unless the file was written there again.
    given_up: BTreeMap<usize, Vec<u8>>,
    /// The length that a sync leaves on the disk, if it is not that of the file: a
    /// sync failed, and the new length is lost too.
    given_up_len: Option<usize>,
}

impl Unsynced {
    /// These bytes of a file are about to change, to be added or to be removed.
    pub(crate) fn touch(&mut self, bytes: &[u8], range: Range<usize>) {
        self.len
            .get_or_insert(self.given_up_len.unwrap_or(bytes.len()));
        if let Some(len) = self.given_up_len
            && !range.is_empty()
        {
            // Sectors go to the disk as a whole, and the length with them.
            let reaches = range.end.div_ceil(SECTOR) * SECTOR;
            self.given_up_len = (reaches < bytes.len()).then_some(len.max(reaches));
        }
        for sector in range.start / SECTOR..range.end.div_ceil(SECTOR) {
            let of = |at: usize| bytes.len().min(at * SECTOR);
            let given_up = self.given_up.remove(&sector);
            let old = || given_up.unwrap_or_else(|| bytes[of(sector)..of(sector + 1)].to_vec());
            self.before.entry(sector).or_insert_with(old);
        }
    }

    /// The file is about to be truncated to `len`.
    pub(crate) fn shorten(&mut self, len: usize) {
        self.shortest = Some(self.shortest.map_or(len, |shortest| shortest.min(len)));
    }

    /// The file was synced.
    pub(crate) fn sync(&mut self) {
        self.before.clear();
        self.len = None;
        self.shortest = None;
    }

    /// A sync has failed. Like Linux, the system regards the data that it could
    /// not write as written, so that it does not write it later; some of it may
    /// have been written.
    pub(crate) fn fail(&mut self, rng: &mut Rng) {
        self.shortest = None;
        for (sector, before) in std::mem::take(&mut self.before) {
            if rng.chance(0.5) {
                self.given_up.insert(sector, before);
            }
        }
        if let Some(before) = self.len.take()
            && rng.chance(0.5)
        {
            self.given_up_len = Some(before);
        }
    }

    /// The rest of a file: of each changed sector the old or the new bytes, and as its
    /// length the old one, the new one, the shortest since the last sync or any in between.
    fn cut(&self, bytes: &mut Vec<u8>, rng: &mut Rng) {
        let new = self.given_up_len.unwrap_or(bytes.len());
        let old = self.len.unwrap_or(new);
        let shortest = self.shortest.unwrap_or(old);
        let (least, most) = (old.min(new).min(shortest), old.max(new));
        let len = match rng.below(4) {
            0 => old,
            1 => new,
            2 => least,
            _ => least + rng.below(most - least + 1),
        };
        bytes.resize(most.max(bytes.len()), 0);
        for (sector, before) in &self.before {
            if rng.chance(0.5) {
                put_back(bytes, *sector, before);
            }
        }
        for (sector, before) in &self.given_up {
            put_back(bytes, *sector, before);
        }
        bytes.truncate(len);
    }
}

/// Restores a sector of a file; bytes beyond the old length are zero.
fn put_back(bytes: &mut [u8], sector: usize, before: &[u8]) {
    let at = bytes.len().min(sector * SECTOR);
    let end = bytes.len().min(at + SECTOR);
    let kept = before.len().min(end - at);
    bytes[at..end].fill(0);
    bytes[at..at + kept].copy_from_slice(&before[..kept]);
}

/// A disk after a power cut, from
/// [`SimKernel::power_cut`](super::SimKernel::power_cut); for
/// [`SimIo::on_disk`](super::SimIo::on_disk).
#[derive(Clone)]
pub struct SavedDisk(Disk);

impl SavedDisk {
    /// The power goes.
    pub(crate) fn of(disk: &Disk, seed: u64) -> SavedDisk {
        let mut rng = Rng::new(seed ^ 0x70_6f77_6572);
        let mut left = disk.clone();
        let lost = left.take_journal().cut(&mut rng);
        left.restart(lost, |what, unsynced| {
            if let NodeKind::File(bytes) = what {
                unsynced.cut(bytes, &mut rng);
            }
        });
        SavedDisk(left)
    }

    pub(crate) fn into_disk(self) -> Disk {
        self.0
    }

    /// The contents of a file; none if there is no such file.
    pub fn get(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        self.0.get(path.as_ref().as_os_str().as_encoded_bytes())
    }
}

impl fmt::Debug for SavedDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SavedDisk({} files)", self.0.files().len())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::*;

    /// The contents of `/a` after cuts with many seeds.
    fn left(disk: &Disk) -> BTreeSet<Vec<u8>> {
        let saved = (0..200).map(|seed| SavedDisk::of(disk, seed));
        saved
            .map(|saved| saved.get("/a").expect("a file"))
            .collect()
    }

    #[test]
    fn what_is_synced_is_left_and_the_rest_in_whole_sectors() {
        let mut disk = Disk::new();
        let flags = libc::O_CREAT | libc::O_RDWR;
        let file = disk.open(b"/a", flags, 0o644).unwrap();
        sync_dir(&mut disk, b"/");
        disk.write(file, 0, &[1; 2 * SECTOR], Duration::ZERO)
            .unwrap();
        assert!(left(&disk).contains(&Vec::new()), "nothing was synced");
        disk.sync(file);
        assert_eq!(left(&disk), [vec![1; 2 * SECTOR]].into());

        // In both sectors, and twice.
        disk.write(file, 500, &[2; 100], Duration::ZERO).unwrap();
        disk.write(file, 500, &[3; 100], Duration::ZERO).unwrap();
        let first = [vec![1; 500], vec![3; 12]].concat();
        let second = [vec![3; 88], vec![1; SECTOR - 88]].concat();
        let whole = vec![1; SECTOR];
        let expected: BTreeSet<_> = [
            [whole.clone(), whole.clone()],
            [first.clone(), whole.clone()],
            [whole.clone(), second.clone()],
            [first, second],
        ]
        .map(|sectors| sectors.concat())
        .into();
        assert_eq!(left(&disk), expected);
    }

    #[test]
    fn a_length_that_was_not_synced_is_the_old_or_the_new_or_between() {
        let mut disk = Disk::new();
        let flags = libc::O_CREAT | libc::O_RDWR;
        let file = disk.open(b"/a", flags, 0o644).unwrap();
        sync_dir(&mut disk, b"/");
        disk.write(file, 0, b"abcd", Duration::ZERO).unwrap();
        disk.sync(file);
        disk.set_len(file, 2).unwrap();
        let words = |all: &[&str]| -> BTreeSet<Vec<u8>> {
            all.iter().map(|words| words.as_bytes().to_vec()).collect()
        };
        let lengths = ["abcd", "abc", "ab\0\0", "ab\0", "ab"];
        assert_eq!(left(&disk), words(&lengths));
        disk.sync(file);
        disk.write(file, 2, b"xy", Duration::ZERO).unwrap();
        let lengths = ["ab", "ab\0", "ab\0\0", "abx", "abxy"];
        assert_eq!(left(&disk), words(&lengths));
        // Truncated and written again.
        disk.sync(file);
        let again = disk.open(b"/a", flags | libc::O_TRUNC, 0o644).unwrap();
        assert_eq!(again, file);
        assert!(left(&disk).contains(&b"abxy"[..]));
    }

    /// A file that is rewritten in place may be found empty, or half written.
    #[test]
    fn a_power_cut_shows_the_empty_file_between_a_truncate_and_a_write() {
        let mut disk = Disk::new();
        let flags = libc::O_CREAT | libc::O_RDWR;
        let file = disk.open(b"/a", flags, 0o644).unwrap();
        sync_dir(&mut disk, b"/");
        disk.write(file, 0, b"old", Duration::ZERO).unwrap();
        disk.sync(file);
        disk.open(b"/a", flags | libc::O_TRUNC, 0o644).unwrap();
        disk.write(file, 0, b"new", Duration::ZERO).unwrap();
        let left = left(&disk);
        for there in ["", "n", "o", "old", "new"] {
            assert!(left.contains(there.as_bytes()), "{there:?} in {left:?}");
        }
        disk.sync(file);
        assert_eq!(self::left(&disk), [b"new".to_vec()].into());
    }

    #[test]
    fn what_a_failed_sync_gives_up_no_later_sync_saves() {
        let mut disk = Disk::new();
        let flags = libc::O_CREAT | libc::O_RDWR;
        let file = disk.open(b"/a", flags, 0o644).unwrap();
        sync_dir(&mut disk, b"/");
        disk.write(file, 0, &[1; SECTOR], Duration::ZERO).unwrap();
        disk.sync(file);
        let mut lost = 0;
        for seed in 0..20 {
            let mut disk = disk.clone();
            disk.write(file, 0, &[2; SECTOR], Duration::ZERO).unwrap();
            disk.fail_sync(file, &mut Rng::new(seed));
            disk.sync(file);
            let now = disk.get(b"/a").unwrap();
            assert_eq!(now, [2; SECTOR], "whoever reads sees it");
            let left = left(&disk);
            assert_eq!(left.len(), 1, "this is not about luck");
            lost += usize::from(left.contains(&vec![1; SECTOR]));
            // Written again, it is safe.
            disk.write(file, 0, &[3; SECTOR], Duration::ZERO).unwrap();
            disk.sync(file);
            let saved = SavedDisk::of(&disk, seed).get("/a").unwrap();
            assert_eq!(saved, [3; SECTOR]);
        }
        assert!((5..15).contains(&lost), "{lost}");
    }

    /// The lengths of `/a` that cuts may leave after `change` was applied to four
    /// synced bytes, the sync after it failed, and the next one succeeded.
    fn lengths_after_a_failed_sync(
        change: impl Fn(&mut Disk, u64),
        after: impl Fn(&mut Disk, u64),
    ) -> BTreeSet<usize> {
        let mut disk = Disk::new();
        let flags = libc::O_CREAT | libc::O_RDWR;
        let file = disk.open(b"/a", flags, 0o644).unwrap();
        sync_dir(&mut disk, b"/");
        disk.write(file, 0, b"abcd", Duration::ZERO).unwrap();
        disk.sync(file);
        let mut lengths = BTreeSet::new();
        for seed in 0..40 {
            let mut disk = disk.clone();
            change(&mut disk, file);
            disk.fail_sync(file, &mut Rng::new(seed));
            after(&mut disk, file);
            disk.sync(file);
            let left: BTreeSet<usize> = left(&disk).iter().map(Vec::len).collect();
            assert_eq!(left.len(), 1, "this is not about luck");
            lengths.extend(left);
        }
        lengths
    }

    #[test]
    fn a_length_that_a_failed_sync_gives_up_no_later_sync_saves() {
        let append = |disk: &mut Disk, file| disk.write(file, 4, b"ef", Duration::ZERO).unwrap();
        let nothing = |_: &mut Disk, _| {};
        assert_eq!(lengths_after_a_failed_sync(append, nothing), [4, 6].into());
        let shorten = |disk: &mut Disk, file| disk.set_len(file, 2).unwrap();
        assert_eq!(lengths_after_a_failed_sync(shorten, nothing), [2, 4].into());
        let cut_off = |disk: &mut Disk, _| {
            let flags = libc::O_RDWR | libc::O_TRUNC;
            disk.open(b"/a", flags, 0o644).unwrap();
        };
        assert_eq!(lengths_after_a_failed_sync(cut_off, nothing), [0, 4].into());
        let make_room = |disk: &mut Disk, file| disk.allocate(file, 0, 0, 9).unwrap();
        assert_eq!(
            lengths_after_a_failed_sync(make_room, nothing),
            [4, 9].into()
        );
        // Data that is written again is safe, and so is a change that makes the file
        // still longer.
        assert_eq!(lengths_after_a_failed_sync(append, append), [6].into());
        let longer = |disk: &mut Disk, file| disk.set_len(file, 8).unwrap();
        assert_eq!(lengths_after_a_failed_sync(append, longer), [8].into());
    }

    #[test]
    fn a_length_is_saved_as_far_as_it_was_written_again() {
        let append = |disk: &mut Disk, file| {
            let many = [7; 3 * SECTOR];
            disk.write(file, 4, &many, Duration::ZERO).unwrap();
        };
        let all = 3 * SECTOR + 4;
        let before = |disk: &mut Disk, file| disk.write(file, 0, b"x", Duration::ZERO).unwrap();
        // The first sector reaches the disk as a whole.
        let left = lengths_after_a_failed_sync(append, before);
        assert_eq!(left, [SECTOR, all].into());
        let same = |disk: &mut Disk, file| disk.set_len(file, all as u64).unwrap();
        assert_eq!(lengths_after_a_failed_sync(append, same), [4, all].into());
        let fails_again = |disk: &mut Disk, file| {
            before(disk, file);
            disk.fail_sync(file, &mut Rng::new(3));
        };
        let left = lengths_after_a_failed_sync(append, fails_again);
        assert!(left.is_subset(&[4, SECTOR, all].into()), "{left:?}");
    }

    #[test]
    fn names_are_saved_by_the_next_sync_of_their_directory() {
        let mut disk = Disk::new();
        make(&mut disk, b"/tmp/a");
        let dir = disk.find(b"/tmp").unwrap();
        disk.fail_sync(dir, &mut Rng::new(1));
        assert_eq!(names(&disk), set(["", "/tmp/a"]), "not synced");
        disk.sync(dir);
        assert_eq!(names(&disk), set(["/tmp/a"]));
        disk.rename(b"/tmp/a", b"/tmp/b").unwrap();
        disk.fail_sync(dir, &mut Rng::new(1));
        assert_eq!(names(&disk), set(["/tmp/a", "/tmp/b"]), "not synced");
        disk.sync(dir);
        assert_eq!(names(&disk), set(["/tmp/b"]));
    }

    fn sync_dir(disk: &mut Disk, path: &[u8]) {
        let dir = disk.find(path).unwrap();
        disk.sync(dir);
    }

    /// The files that are left after cuts with many seeds.
    fn names(disk: &Disk) -> BTreeSet<String> {
        let saved = (0..200).map(|seed| SavedDisk::of(disk, seed).0.files());
        saved
            .map(|files| String::from_utf8(files.join(&b' ')).unwrap())
            .collect()
    }

    fn make(disk: &mut Disk, path: &[u8]) {
        let flags = libc::O_CREAT | libc::O_RDWR;
        let file = disk.open(path, flags, 0o644).unwrap();
        disk.write(file, 0, path, Duration::ZERO).unwrap();
        disk.sync(file);
        disk.let_go(file);
    }

    fn set<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
        names.map(String::from).into()
    }

    #[test]
    fn a_name_is_left_if_its_directory_was_synced() {
        let mut disk = Disk::new();
        make(&mut disk, b"/tmp/a");
        assert_eq!(names(&disk), set(["", "/tmp/a"]));
        sync_dir(&mut disk, b"/tmp");
        assert_eq!(names(&disk), set(["/tmp/a"]));
        // The first few of the changes in a directory.
        make(&mut disk, b"/tmp/b");
        disk.unlink(b"/tmp/a", false).unwrap();
        assert_eq!(names(&disk), set(["/tmp/a", "/tmp/a /tmp/b", "/tmp/b"]));
        let back = (0..200).map(|seed| SavedDisk::of(&disk, seed).get("/tmp/a"));
        assert!(back.flatten().all(|bytes| bytes == b"/tmp/a"), "all of it");
        sync_dir(&mut disk, b"/tmp");
        assert_eq!(names(&disk), set(["/tmp/b"]));
    }

    #[test]
    fn a_directory_is_left_if_the_one_above_was_synced() {
        let mut disk = Disk::new();
        disk.make_dir(b"/tmp/d", 0o755).unwrap();
        make(&mut disk, b"/tmp/d/a");
        sync_dir(&mut disk, b"/tmp/d");
        assert_eq!(names(&disk), set(["", "/tmp/d/a"]));
        sync_dir(&mut disk, b"/tmp");
        assert_eq!(names(&disk), set(["/tmp/d/a"]));
    }

    #[test]
    fn a_rename_is_there_or_not() {
        let mut disk = Disk::new();
        for path in [b"/tmp/a", b"/tmp/b", b"/etc/c"] {
            make(&mut disk, path);
        }
        sync_dir(&mut disk, b"/tmp");
        sync_dir(&mut disk, b"/etc");
        disk.rename(b"/tmp/a", b"/tmp/b").unwrap();
        assert_eq!(names(&disk), set(["/etc/c /tmp/a /tmp/b", "/etc/c /tmp/b"]));
        // The changes behind it in the other directory are lost with it.
        disk.rename(b"/tmp/b", b"/etc/b").unwrap();
        disk.unlink(b"/etc/c", false).unwrap();
        let all = [
            "/etc/c /tmp/a /tmp/b",
            "/etc/c /tmp/b",
            "/etc/b /etc/c",
            "/etc/b",
        ];
        assert_eq!(names(&disk), set(all));
        // And the changes before it are kept with it.
        sync_dir(&mut disk, b"/etc");
        assert_eq!(names(&disk), set(["/etc/b"]));
        let left = SavedDisk::of(&disk, 1).get("/etc/b");
        assert_eq!(left.as_deref(), Some(&b"/tmp/a"[..]));
    }
}
