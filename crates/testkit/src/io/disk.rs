//! Files and directories in memory. There are neither hard nor symbolic links,
//! and no user is refused access.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use super::journal::{DirChange, Journal};
use super::linux::{KEEP_SIZE, PUNCH_HOLE, mode};
use super::power_cut::Unsynced;
use crate::rng::Rng;

/// The longest file.
const LONGEST: u64 = 1 << 32;

/// The longest name and the longest path.
const LONGEST_NAME: usize = 255;
const LONGEST_PATH: usize = 4096;

/// The number of a file or directory.
pub(crate) type Number = u64;

/// The directory at the root.
const ROOT: Number = 1;

/// An error number.
pub(crate) type Errno = i32;

#[derive(Clone)]
pub(crate) enum NodeKind {
    Dir(BTreeMap<Vec<u8>, Number>),
    File(Vec<u8>),
    /// The name of a socket.
    Socket,
}

#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) what: NodeKind,
    /// The number of names.
    pub(crate) links: u32,
    /// How often it is open.
    open: u32,
    pub(crate) mode: u32,
    /// When it was last changed.
    pub(crate) changed: Duration,
    unsynced: Unsynced,
}

/// The disk.
#[derive(Clone)]
pub(crate) struct Disk {
    nodes: BTreeMap<Number, Node>,
    next: Number,
    /// The journal of names.
    journal: Journal,
}

/// A disk that is made when it is first used: a simulation without files has no
/// disk.
#[derive(Default)]
pub(crate) struct LazyDisk(OnceCell<Disk>);

impl From<Disk> for LazyDisk {
    fn from(disk: Disk) -> LazyDisk {
        LazyDisk(OnceCell::from(disk))
    }
}

impl Deref for LazyDisk {
    type Target = Disk;

    fn deref(&self) -> &Disk {
        self.0.get_or_init(Disk::new)
    }
}

impl DerefMut for LazyDisk {
    fn deref_mut(&mut self) -> &mut Disk {
        self.0.get_or_init(Disk::new);
        match self.0.get_mut() {
            Some(disk) => disk,
            None => unreachable!("it was made just now"),
        }
    }
}

impl Node {
    /// The kind of the node and its permissions, as in `st_mode`.
    pub(crate) fn full_mode(&self) -> u32 {
        let kind = match self.what {
            NodeKind::Dir(_) => mode::DIR,
            NodeKind::File(_) => mode::FILE,
            NodeKind::Socket => mode::SOCKET,
        };
        kind | self.mode
    }
}

/// The last part of a path, without slashes behind it.
fn last_part(path: &[u8]) -> &[u8] {
    let mut parts = path.split(|byte| *byte == b'/').rev();
    parts.find(|part| !part.is_empty()).unwrap_or_default()
}

impl Disk {
    /// A disk with the directories that every machine has.
    pub(crate) fn new() -> Disk {
        let mut disk = Disk {
            nodes: BTreeMap::new(),
            next: ROOT,
            journal: Journal::default(),
        };
        disk.make(NodeKind::Dir(BTreeMap::new()), 0o755);
        for dir in ["/tmp", "/etc", "/var", "/home"] {
            let _ = disk.make_dir(dir.as_bytes(), 0o755);
        }
        disk.sync(ROOT);
        disk
    }

    fn make(&mut self, what: NodeKind, mode: u32) -> Number {
        let number = self.next;
        self.next += 1;
        let node = Node {
            what,
            links: 1,
            open: 0,
            mode: mode & 0o7777,
            changed: Duration::ZERO,
            unsynced: Unsynced::default(),
        };
        self.nodes.insert(number, node);
        number
    }

    pub(crate) fn node(&self, number: Number) -> &Node {
        &self.nodes[&number]
    }

    fn dir(&mut self, number: Number) -> Result<&mut BTreeMap<Vec<u8>, Number>, Errno> {
        match &mut self.nodes.get_mut(&number).ok_or(libc::ENOENT)?.what {
            NodeKind::Dir(names) => Ok(names),
            _ => Err(libc::ENOTDIR),
        }
    }

    /// The nodes from the root down to the one that a path names; a missing
    /// last part is returned as a name.
    fn walk(&self, path: &[u8]) -> Result<(Vec<Number>, Option<Vec<u8>>), Errno> {
        if path.is_empty() {
            return Err(libc::ENOENT);
        }
        if path.len() >= LONGEST_PATH {
            return Err(libc::ENAMETOOLONG);
        }
        let mut way = vec![ROOT];
        let parts: Vec<&[u8]> = path
            .split(|byte| *byte == b'/')
            .filter(|part| !part.is_empty() && *part != b".")
            .collect();
        for (at, part) in parts.iter().enumerate() {
            let here = *way.last().unwrap_or(&ROOT);
            let names = match &self.nodes.get(&here).ok_or(libc::ENOENT)?.what {
                NodeKind::Dir(names) => names,
                _ => return Err(libc::ENOTDIR),
            };
            if *part == b".." {
                way.truncate((way.len() - 1).max(1));
                continue;
            }
            if part.len() > LONGEST_NAME {
                return Err(libc::ENAMETOOLONG);
            }
            match names.get(*part) {
                Some(number) => way.push(*number),
                None if at + 1 == parts.len() => return Ok((way, Some(part.to_vec()))),
                None => return Err(libc::ENOENT),
            }
        }
        let last = *way.last().unwrap_or(&ROOT);
        match self.nodes.get(&last).map(|node| &node.what) {
            Some(NodeKind::Dir(_)) => Ok((way, None)),
            _ if path.ends_with(b"/") => Err(libc::ENOTDIR),
            _ => Ok((way, None)),
        }
    }

    /// The node that a path names.
    pub(crate) fn find(&self, path: &[u8]) -> Result<Number, Errno> {
        match self.walk(path)? {
            (way, None) => Ok(*way.last().unwrap_or(&ROOT)),
            (_, Some(_)) => Err(libc::ENOENT),
        }
    }

    /// The directory that has the last part of a path, and that part.
    fn parent(&mut self, path: &[u8]) -> Result<(Number, Vec<u8>), Errno> {
        let (way, missing) = self.walk(path)?;
        if let Some(name) = missing {
            return Ok((*way.last().unwrap_or(&ROOT), name));
        }
        let [.., dir, own] = *way else {
            return Err(libc::EBUSY);
        };
        let name = self
            .dir(dir)?
            .iter()
            .find(|(_, number)| **number == own)
            .map(|(name, _)| name.clone());
        Ok((dir, name.ok_or(libc::ENOENT)?))
    }

    fn name(&mut self, path: &[u8], what: NodeKind, mode: u32) -> Result<Number, Errno> {
        match self.walk(path)? {
            (_, None) => Err(libc::EEXIST),
            (way, Some(name)) => {
                let dir = *way.last().unwrap_or(&ROOT);
                let number = self.make(what, mode);
                self.journal.note([(dir, name.clone(), None)]);
                self.dir(dir)?.insert(name, number);
                Ok(number)
            }
        }
    }

    /// Opens a file; the caller [releases it](Disk::let_go).
    pub(crate) fn open(&mut self, path: &[u8], flags: i32, mode: u32) -> Result<Number, Errno> {
        let has = |flag| flags & flag == flag;
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
        let number = match self.find(path) {
            Ok(_) if has(libc::O_CREAT | libc::O_EXCL) => return Err(libc::EEXIST),
            Ok(number) => number,
            Err(libc::ENOENT) if has(libc::O_CREAT) && path.ends_with(b"/") => {
                return Err(libc::EISDIR);
            }
            Err(libc::ENOENT) if has(libc::O_CREAT) => {
                self.name(path, NodeKind::File(Vec::new()), mode)?
            }
            Err(errno) => return Err(errno),
        };
        let node = self.nodes.get_mut(&number).ok_or(libc::ENOENT)?;
        match &mut node.what {
            NodeKind::Dir(_) if writes => return Err(libc::EISDIR),
            NodeKind::Dir(_) => {}
            NodeKind::Socket => return Err(libc::ENXIO),
            NodeKind::File(_) if has(libc::O_DIRECTORY) => return Err(libc::ENOTDIR),
            NodeKind::File(bytes) => {
                if has(libc::O_TRUNC) && writes {
                    node.unsynced.touch(bytes, 0..bytes.len());
                    node.unsynced.shorten(0);
                    bytes.clear();
                }
            }
        }
        node.open += 1;
        Ok(number)
    }

    /// An open file was closed.
    pub(crate) fn let_go(&mut self, number: Number) {
        if let Some(node) = self.nodes.get_mut(&number) {
            node.open -= 1;
            self.forget(number);
        }
    }

    /// Frees a node that has no name, not even after a power cut, and is not
    /// open.
    fn forget(&mut self, number: Number) {
        if let Some(node) = self.nodes.get(&number)
            && node.links == 0
            && node.open == 0
            && !self.journal.may_bring_back(number)
        {
            self.nodes.remove(&number);
        }
    }

    fn file(&mut self, number: Number) -> Result<&mut Node, Errno> {
        let node = self.nodes.get_mut(&number).ok_or(libc::EBADF)?;
        match node.what {
            NodeKind::File(_) => Ok(node),
            _ => Err(libc::EISDIR),
        }
    }

    pub(crate) fn size(&self, number: Number) -> u64 {
        match &self.node(number).what {
            NodeKind::File(bytes) => bytes.len() as u64,
            NodeKind::Dir(_) => 4096,
            NodeKind::Socket => 0,
        }
    }

    pub(crate) fn read(&mut self, number: Number, at: u64, most: usize) -> Result<Vec<u8>, Errno> {
        let NodeKind::File(bytes) = &self.file(number)?.what else {
            return Err(libc::EISDIR);
        };
        let from = usize::try_from(at).map_or(bytes.len(), |at| at.min(bytes.len()));
        let to = from.saturating_add(most).min(bytes.len());
        Ok(bytes[from..to].to_vec())
    }

    pub(crate) fn write(
        &mut self,
        number: Number,
        at: u64,
        new: &[u8],
        now: Duration,
    ) -> Result<(), Errno> {
        let node = self.file(number)?;
        match at.checked_add(new.len() as u64) {
            Some(end) if end <= LONGEST => {}
            Some(end) if i64::try_from(end).is_ok() => return Err(libc::EFBIG),
            _ => return Err(libc::EINVAL),
        }
        node.changed = now;
        let NodeKind::File(bytes) = &mut node.what else {
            return Err(libc::EISDIR);
        };
        let at = at as usize;
        if new.is_empty() {
            return Ok(());
        }
        node.unsynced
            .touch(bytes, at.min(bytes.len())..at + new.len());
        if bytes.len() < at + new.len() {
            bytes.resize(at + new.len(), 0);
        }
        bytes[at..at + new.len()].copy_from_slice(new);
        Ok(())
    }

    pub(crate) fn set_len(&mut self, number: Number, len: u64) -> Result<(), Errno> {
        if len > LONGEST {
            return Err(libc::EFBIG);
        }
        let node = self.file(number)?;
        let NodeKind::File(bytes) = &mut node.what else {
            return Err(libc::EINVAL);
        };
        let (old, new) = (bytes.len(), len as usize);
        node.unsynced.touch(bytes, old.min(new)..old.max(new));
        if new < old {
            node.unsynced.shorten(new);
        }
        bytes.resize(new, 0);
        Ok(())
    }

    /// The changes of a file are on the disk; for a directory, its names.
    pub(crate) fn sync(&mut self, number: Number) {
        if let Some(node) = self.nodes.get_mut(&number) {
            node.unsynced.sync();
            for named in self.journal.sync(number) {
                self.forget(named);
            }
        }
    }

    /// A sync has failed: some of the changes never reach the disk, and are not
    /// written again. Readers see them until the power goes.
    pub(crate) fn fail_sync(&mut self, number: Number, rng: &mut Rng) {
        if let Some(node) = self.nodes.get_mut(&number) {
            node.unsynced.fail(rng);
        }
    }

    /// The names that were changed and not synced.
    pub(crate) fn take_journal(&mut self) -> Journal {
        std::mem::take(&mut self.journal)
    }

    /// The changes in `lost` never reached the disk, and no file is open any
    /// more; `each` says what is left of a file that was not wholly synced.
    pub(crate) fn restart(
        &mut self,
        lost: Vec<DirChange>,
        mut each: impl FnMut(&mut NodeKind, &Unsynced),
    ) {
        for (dir, name, before) in lost {
            if let Ok(names) = self.dir(dir) {
                match before {
                    Some(number) => names.insert(name, number),
                    None => names.remove(&name),
                };
            }
        }
        self.count_links();
        self.nodes.retain(|_, node| node.links > 0);
        for node in self.nodes.values_mut() {
            node.open = 0;
            each(&mut node.what, &std::mem::take(&mut node.unsynced));
        }
    }

    /// How many names lead to each node, from the root.
    fn count_links(&mut self) {
        let mut links = BTreeMap::from([(ROOT, 1)]);
        let mut dirs = vec![ROOT];
        while let Some(dir) = dirs.pop() {
            if let Some(NodeKind::Dir(names)) = self.nodes.get(&dir).map(|node| &node.what) {
                for number in names.values() {
                    *links.entry(*number).or_insert(0) += 1;
                    dirs.push(*number);
                }
            }
        }
        for (number, node) in &mut self.nodes {
            node.links = links.get(number).copied().unwrap_or(0);
        }
    }

    /// The contents of a file.
    pub(crate) fn get(&self, path: &[u8]) -> Option<Vec<u8>> {
        let number = self.find(path).ok()?;
        match &self.node(number).what {
            NodeKind::File(bytes) => Some(bytes.clone()),
            _ => None,
        }
    }

    /// The names in a directory, each with its kind.
    pub(crate) fn list(&mut self, path: &[u8]) -> Result<Vec<(Vec<u8>, u32)>, Errno> {
        let number = self.find(path)?;
        match &self.node(number).what {
            NodeKind::Dir(names) => Ok(names
                .iter()
                .map(|(name, number)| (name.clone(), self.node(*number).full_mode()))
                .collect()),
            _ => Err(libc::ENOTDIR),
        }
    }

    /// Allocates room for a part of a file.
    pub(crate) fn allocate(
        &mut self,
        number: Number,
        mode: i32,
        at: u64,
        len: u64,
    ) -> Result<(), Errno> {
        let node = self.file(number)?;
        let NodeKind::File(bytes) = &mut node.what else {
            return Err(libc::EISDIR);
        };
        let end = at.checked_add(len).filter(|end| *end <= LONGEST);
        let end = end.ok_or(libc::EFBIG)? as usize;
        let keeps = mode & KEEP_SIZE != 0;
        if mode & PUNCH_HOLE != 0 {
            let end = end.min(bytes.len());
            if (at as usize) < end {
                node.unsynced.touch(bytes, at as usize..end);
                bytes[at as usize..end].fill(0);
            }
        } else if !keeps && bytes.len() < end {
            node.unsynced.touch(bytes, bytes.len()..end);
            bytes.resize(end, 0);
        }
        Ok(())
    }

    pub(crate) fn make_dir(&mut self, path: &[u8], mode: u32) -> Result<(), Errno> {
        self.name(path, NodeKind::Dir(BTreeMap::new()), mode)
            .map(drop)
    }

    /// Gives a socket a name on the disk.
    pub(crate) fn name_socket(&mut self, path: &[u8]) -> Result<Number, Errno> {
        match self.name(path, NodeKind::Socket, 0o755) {
            Err(libc::EEXIST) => Err(libc::EADDRINUSE),
            made => made,
        }
    }

    pub(crate) fn unlink(&mut self, path: &[u8], dir: bool) -> Result<(), Errno> {
        match last_part(path) {
            b"." if dir => return Err(libc::EINVAL),
            b".." if dir => return Err(libc::ENOTEMPTY),
            _ => {}
        }
        let number = self.find(path)?;
        match (&self.node(number).what, dir) {
            (NodeKind::Dir(_), false) => return Err(libc::EISDIR),
            (NodeKind::Dir(names), true) if !names.is_empty() => return Err(libc::ENOTEMPTY),
            (NodeKind::Dir(_), true) | (_, false) => {}
            (_, true) => return Err(libc::ENOTDIR),
        }
        let (parent, name) = self.parent(path)?;
        self.dir(parent)?.remove(&name);
        self.journal.note([(parent, name, Some(number))]);
        self.unname(number);
        Ok(())
    }

    fn unname(&mut self, number: Number) {
        if let Some(node) = self.nodes.get_mut(&number) {
            node.links -= 1;
        }
        self.forget(number);
    }

    pub(crate) fn rename(&mut self, from: &[u8], to: &[u8]) -> Result<(), Errno> {
        if [from, to]
            .map(last_part)
            .iter()
            .any(|part| [&b"."[..], b".."].contains(part))
        {
            return Err(libc::EBUSY);
        }
        let number = self.find(from)?;
        let is_dir = matches!(self.node(number).what, NodeKind::Dir(_));
        let (way, _) = self.walk(to)?;
        if is_dir && way.contains(&number) && self.find(to) != Ok(number) {
            return Err(libc::EINVAL);
        }
        let replaced = match self.find(to) {
            Ok(same) if same == number => return Ok(()),
            Ok(other) => match (&self.node(other).what, is_dir) {
                (NodeKind::Dir(names), true) if !names.is_empty() => return Err(libc::ENOTEMPTY),
                (NodeKind::Dir(_), false) => return Err(libc::EISDIR),
                (NodeKind::File(_) | NodeKind::Socket, true) => return Err(libc::ENOTDIR),
                _ => Some(other),
            },
            Err(libc::ENOENT) if !is_dir && to.ends_with(b"/") => return Err(libc::ENOTDIR),
            Err(libc::ENOENT) => None,
            Err(errno) => return Err(errno),
        };
        let (old, old_name) = self.parent(from)?;
        let (new, new_name) = self.parent(to)?;
        self.dir(old)?.remove(&old_name);
        self.dir(new)?.insert(new_name.clone(), number);
        let gone = (old, old_name, Some(number));
        self.journal.note([gone, (new, new_name, replaced)]);
        if let Some(other) = replaced {
            self.unname(other);
        }
        Ok(())
    }

    /// The paths of all files below a directory.
    pub(crate) fn files(&self) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        let mut dirs = vec![(Vec::new(), ROOT)];
        while let Some((path, dir)) = dirs.pop() {
            let NodeKind::Dir(names) = &self.node(dir).what else {
                continue;
            };
            for (name, number) in names {
                let path = [&path[..], b"/", name].concat();
                match self.node(*number).what {
                    NodeKind::Dir(_) => dirs.push((path, *number)),
                    _ => found.push(path),
                }
            }
        }
        found.sort();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CREATE: i32 = libc::O_CREAT | libc::O_RDWR;

    #[test]
    fn a_file_lives_as_long_as_it_has_a_name_or_is_open() {
        let mut disk = Disk::new();
        let file = disk.open(b"/tmp/a", CREATE, 0o644).unwrap();
        disk.write(file, 3, b"abc", Duration::ZERO).unwrap();
        disk.unlink(b"/tmp/a", false).unwrap();
        assert_eq!(disk.read(file, 0, 10).unwrap(), b"\0\0\0abc");
        assert_eq!(disk.open(b"/tmp/a", libc::O_RDONLY, 0), Err(libc::ENOENT));
        disk.let_go(file);
        // Unless the power goes.
        assert!(disk.read(file, 0, 10).is_ok());
        let dir = disk.find(b"/tmp").unwrap();
        disk.sync(dir);
        assert_eq!(disk.read(file, 0, 10), Err(libc::EBADF));
    }

    #[test]
    fn names_move() {
        let mut disk = Disk::new();
        let a = disk.open(b"/tmp/a", CREATE, 0o644).unwrap();
        let b = disk.open(b"/tmp/./x/../b", CREATE, 0o644);
        assert_eq!(b, Err(libc::ENOENT), "a way through nothing");
        let b = disk.open(b"/tmp/../tmp/b", CREATE, 0o644).unwrap();
        assert_ne!(a, b);
        disk.rename(b"/tmp/a", b"/tmp/b").unwrap();
        assert_eq!(disk.find(b"/tmp/b"), Ok(a));
        assert_eq!(disk.find(b"/tmp/a"), Err(libc::ENOENT));
        disk.make_dir(b"/tmp/d", 0o755).unwrap();
        disk.rename(b"/tmp/b", b"/tmp/d/b").unwrap();
        assert_eq!(disk.unlink(b"/tmp/d", true), Err(libc::ENOTEMPTY));
        assert_eq!(disk.rename(b"/tmp/d", b"/tmp/d/e"), Err(libc::EINVAL));
        assert_eq!(disk.unlink(b"/tmp/d", false), Err(libc::EISDIR));
        assert_eq!(disk.files(), [b"/tmp/d/b".to_vec()]);
        disk.unlink(b"/tmp/d/b", false).unwrap();
        disk.unlink(b"/tmp/d", true).unwrap();
        assert_eq!(disk.open(b"/tmp/d/b", CREATE, 0), Err(libc::ENOENT));
        assert_eq!(disk.open(b"/tmp", CREATE, 0), Err(libc::EISDIR));
    }

    #[test]
    fn room_is_made_and_holes_are_cut() {
        let mut disk = Disk::new();
        let file = disk.open(b"/a", CREATE, 0o644).unwrap();
        disk.allocate(file, 0, 0, 8).unwrap();
        assert_eq!(disk.size(file), 8);
        disk.allocate(file, KEEP_SIZE, 0, 100).unwrap();
        assert_eq!(disk.size(file), 8);
        disk.write(file, 0, b"abcdefgh", Duration::ZERO).unwrap();
        let hole = KEEP_SIZE | PUNCH_HOLE;
        disk.allocate(file, hole, 2, 4).unwrap();
        assert_eq!(disk.read(file, 0, 100).unwrap(), b"ab\0\0\0\0gh");
        assert_eq!(
            disk.write(file, 1 << 40, b"x", Duration::ZERO),
            Err(libc::EFBIG)
        );
    }
}
