//! Files on the native runtime, and files of others.

mod io_support;

use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use io_support::{Scratch, on_each, times_open};
use kinfolk_core::{
    Error, Scope, blocking, checkpoint, cleanup, current_job, park, spawn, timeout,
};
use kinfolk_runtime::Runtime;
use kinfolk_runtime::fs::{self, DirectFile, File, FileKind, OpenOptions};
use kinfolk_runtime::io::{Aligned, Interest, IoBuf, Watched};
use kinfolk_runtime::net::TcpStream;
use kinfolk_testkit::guarded;

#[test]
fn io_1_several_buffers_are_written_and_read_at_once() {
    on_each("vectored", async |stage| {
        let file = File::create(stage.path("a")).await?;
        let words = vec![b"one".to_vec(), Vec::new(), b"three".to_vec()];
        let (written, words) = file.write_vectored_at(words, 2).await;
        assert_eq!((written?, words.len()), (8, 3));
        let rooms = vec![Vec::with_capacity(4), vec![9; 6], Vec::with_capacity(9)];
        let (read, parts) = file.read_vectored_at(rooms, 0).await;
        assert_eq!(read?, 10);
        assert_eq!(parts[0], b"\0\0on");
        assert_eq!(parts[1], b"ethree");
        assert!(parts[2].is_empty());
        let (read, parts) = file.read_vectored_at(parts, 10).await;
        assert_eq!(read?, 0);
        assert!(
            parts.iter().all(Vec::is_empty),
            "none was read into: {parts:?}"
        );
        // More than the system takes at once: the rest is for the next time.
        let many = vec![b"x".to_vec(); 2000];
        let (written, _) = file.write_vectored_at(many, 0).await;
        assert_eq!(written?, 1024);
        let (read, fixed) = file.read_vectored_at(vec![[0_u8; 2]; 2], 0).await;
        assert_eq!((read?, fixed), (4, vec![*b"xx"; 2]));
        let (written, bufs) = File::open(stage.path("a"))
            .await?
            .write_vectored_at(vec!["no"], 0)
            .await;
        assert_eq!(written.expect_err("read only").raw_os_error(), Some(9));
        assert_eq!(bufs, ["no"]);
        Ok(())
    });
}

#[test]
fn io_1_what_is_said_to_be_on_the_disk_is_written() {
    on_each("durable", async |stage| {
        let file = File::create(stage.path("a")).await?;
        let (synced, buf) = file.write_then_sync(vec![3_u8; 3_000_000], 5).await;
        synced?;
        assert_eq!(buf.len(), 3_000_000);
        let (synced, _) = file.write_then_sync("", 0).await;
        synced?;
        file.sync_range(0..3_000_005).await?;
        file.sync_range(7..7).await?;
        assert_eq!(file.metadata().await?.len(), 3_000_005);
        // One that is read only, and a disk that is always full.
        let file = File::open(stage.path("a")).await?;
        let (synced, buf) = file.write_then_sync("abc", 0).await;
        assert_eq!(synced.expect_err("read only").raw_os_error(), Some(9));
        assert_eq!(buf, "abc");
        let full = OpenOptions::new().write(true).open("/dev/full").await?;
        let (synced, _) = full.write_then_sync("abc", 0).await;
        assert_eq!(synced.expect_err("full").kind(), ErrorKind::StorageFull);
        Ok(())
    });
}

#[test]
fn io_1_a_file_is_as_long_as_it_is_made() {
    on_each("room", async |stage| {
        let file = File::create(stage.path("a")).await?;
        file.allocate(0, 10_000).await?;
        assert_eq!(file.metadata().await?.len(), 10_000);
        file.set_len(3).await?;
        assert_eq!(file.metadata().await?.len(), 3);
        let read_only = File::open(stage.path("a")).await?;
        assert_eq!(
            read_only.set_len(0).await.expect_err("read only").kind(),
            ErrorKind::InvalidInput
        );
        assert_eq!(fs::read(stage.path("a")).await?, [0; 3]);
        Ok(())
    });
}

#[test]
fn io_5_metadata_is_what_std_says() {
    on_each("metadata", async |stage| {
        let path = stage.path("a");
        let (written, _) = fs::write(&path, "hello").await;
        written?;
        std::os::unix::fs::symlink(&path, stage.path("link"))?;
        let ours = fs::metadata(stage.path("link")).await?;
        let std = std::fs::metadata(&path)?;
        assert_eq!(ours, File::open(&path).await?.metadata().await?);
        assert_eq!((ours.len(), ours.kind()), (5, FileKind::File));
        assert!(ours.is_file() && !ours.is_dir());
        assert_eq!(ours.mode(), std.mode() & 0o7777);
        assert_eq!((ours.user(), ours.group()), (std.uid(), std.gid()));
        assert_eq!((ours.inode(), ours.links()), (std.ino(), std.nlink()));
        assert_eq!(
            ours.device(),
            (libc_major(std.dev()), libc_minor(std.dev()))
        );
        assert_eq!(ours.modified(), std.modified()?);
        assert_eq!(ours.accessed(), std.accessed()?);
        assert_eq!(ours.created(), std.created().ok());
        assert!(ours.changed() >= ours.modified());
        let link = fs::symlink_metadata(stage.path("link")).await?;
        assert!(link.is_link());
        assert!(fs::metadata(&stage.scratch.0).await?.is_dir());
        assert_eq!(
            fs::metadata("/dev/null").await?.kind(),
            FileKind::Other,
            "a device"
        );
        let error = fs::metadata(stage.path("b")).await.expect_err("not there");
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let error = fs::metadata("a\0b").await.expect_err("no path");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        Ok(())
    });
}

/// As glibc counts devices.
fn libc_major(dev: u64) -> u32 {
    (((dev >> 8) & 0xfff) | ((dev >> 32) & !0xfff)) as u32
}

fn libc_minor(dev: u64) -> u32 {
    ((dev & 0xff) | ((dev >> 12) & !0xff)) as u32
}

#[test]
fn io_5_names_and_directories() {
    on_each("names", async |stage| {
        let deep = stage.path("a/b/c");
        let error = fs::create_dir(&deep)
            .await
            .expect_err("nothing to make it in");
        assert_eq!(error.kind(), ErrorKind::NotFound);
        fs::create_dir_all(&deep).await?;
        fs::create_dir_all(&deep).await?;
        let error = fs::create_dir(&deep).await.expect_err("is there");
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        fs::write(deep.join("x"), "1").await.0?;
        fs::write(deep.join("y"), "22").await.0?;
        fs::create_dir(deep.join("z")).await?;
        let error = fs::create_dir_all(deep.join("x")).await;
        assert_eq!(
            error.expect_err("a file is in the way").kind(),
            ErrorKind::AlreadyExists
        );
        let entries = fs::read_dir(&deep).await?;
        assert_eq!(entries.len(), 3);
        let mut found: Vec<_> = entries
            .map(|entry| {
                assert_eq!(entry.path(), deep.join(entry.file_name()));
                (entry.file_name().to_owned(), entry.kind())
            })
            .collect();
        found.sort_by(|a, b| a.0.cmp(&b.0));
        let file = Some(FileKind::File);
        assert_eq!(
            found,
            [
                ("x".into(), file),
                ("y".into(), file),
                ("z".into(), Some(FileKind::Dir))
            ]
        );
        fs::rename(deep.join("x"), deep.join("y")).await?;
        assert_eq!(fs::read(deep.join("y")).await?, b"1");
        let error = fs::remove_dir(&deep).await.expect_err("not empty");
        assert_eq!(error.kind(), ErrorKind::DirectoryNotEmpty);
        fs::remove_file(deep.join("y")).await?;
        fs::remove_dir(deep.join("z")).await?;
        fs::remove_dir(&deep).await?;
        let error = fs::read_dir(&deep).await.expect_err("gone");
        assert_eq!(error.kind(), ErrorKind::NotFound);
        Ok(())
    });
}

#[test]
fn io_5_whole_files() {
    on_each("whole", async |stage| {
        let bytes: Vec<u8> = (0..1_000_003_u32).map(|n| (n % 251) as u8).collect();
        let (a, b) = (stage.path("a"), stage.path("b"));
        let (written, bytes) = fs::write(&a, bytes).await;
        written?;
        std::fs::set_permissions(&a, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        assert_eq!(fs::copy(&a, &b).await?, 1_000_003);
        assert!(fs::read(&b).await? == bytes);
        assert_eq!(fs::metadata(&b).await?.mode(), 0o600);
        let (written, _) = fs::write(&b, "short").await;
        written?;
        assert_eq!(fs::read(&b).await?, b"short", "what was in it is gone");
        // Files that do not say how long they are.
        assert!(!fs::read("/proc/self/status").await?.is_empty());
        let (written, back) = fs::write(stage.path("no/dir"), "kept").await;
        assert_eq!(
            written.expect_err("no such directory").kind(),
            ErrorKind::NotFound
        );
        assert_eq!(back, "kept");
        Ok(())
    });
}

#[test]
fn io_1_direct_io_is_aligned_or_never_begins() {
    on_each("direct", async |stage| {
        let options = OpenOptions::new().read(true).write(true).create(true);
        let file = options.open_direct(stage.path("a")).await?;
        let mut pages: Aligned = Aligned::zeroed(8192);
        pages[4096..].fill(7);
        let (written, pages) = file.write_then_sync(pages, 4096).await;
        written?;
        let part = pages.slice(4096..);
        let (written, part) = file.write_at(part, 0).await;
        assert_eq!(written?, 4096);
        file.sync_data().await?;
        assert_eq!(file.metadata().await?.len(), 12_288);
        let (read, pages) = file.read_at(part.into_inner(), 0).await;
        assert_eq!(read?, 8192);
        assert!(pages[..4096].iter().all(|byte| *byte == 7));
        assert!(pages[4096..].iter().all(|byte| *byte == 0));
        let wrong = |error: std::io::Result<usize>, word: &str| {
            let error = error.expect_err(word);
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains(word), "{error}");
        };
        let (read, pages) = file.read_at(pages, 512).await;
        wrong(read, "offset of 512");
        let (written, part) = file.write_at(pages.slice(..100), 0).await;
        wrong(written, "length of 100");
        let (written, part) = file.write_at(part.into_inner().slice(1..4097), 0).await;
        wrong(written, "address");
        let (read, _) = file.read_at(part, 0).await;
        wrong(read, "address");
        let (synced, _) = file.write_then_sync(Vec::<u8>::new(), 0).await;
        assert_eq!(synced.expect_err("empty").kind(), ErrorKind::InvalidInput);
        assert_eq!(DirectFile::ALIGN, 4096);
        file.allocate(0, 65_536).await?;
        file.close().await?;
        Ok(())
    });
}

#[test]
fn io_5_files_come_from_std_and_go_there() {
    on_each("std", async |stage| {
        let path = stage.path("a");
        let file = File::from_std(std::fs::File::create_new(&path)?)?;
        let (written, _) = file.write_all_at("abc", 0).await;
        written?;
        let same: OwnedFd = file.as_fd().try_clone_to_owned()?;
        assert_eq!(File::try_from(same)?.metadata().await?.len(), 3);
        let mut file = file.into_std().expect("no operation uses it");
        file.write_all(b"ABCD")?;
        drop(file);
        assert_eq!(std::fs::read(&path)?, b"ABCD");
        assert_eq!(times_open(&path), 0);
        Ok(())
    });
}

#[test]
fn case_j13_a_cancelled_job_touches_no_file() {
    on_each("touches nothing", async |stage| {
        let (dir, file) = (stage.path("dir"), stage.path("file"));
        let (was, stays) = (stage.path("was"), stage.path("stays"));
        std::fs::write(&stays, "stays")?;
        let open = File::open(&stays).await?;
        let task = spawn({
            let (dir, file, stays) = (dir.clone(), file.clone(), stays.clone());
            async move {
                current_job().expect("a job").cancel("enough");
                let told = |result: std::io::Result<()>| {
                    let error = result.expect_err("told");
                    assert_eq!(error.kind(), ErrorKind::Other);
                    assert!(Error::from(error).is_cancelled());
                };
                told(fs::create_dir(&dir).await);
                told(fs::create_dir_all(&dir).await);
                told(fs::rename(&stays, &was).await);
                told(fs::remove_file(&stays).await);
                told(fs::write(&file, "x").await.0);
                told(fs::copy(&stays, &file).await.map(drop));
                told(fs::read_dir("/").await.map(drop));
                told(fs::metadata("/").await.map(drop));
                told(open.set_len(0).await);
                told(open.sync_range(0..1).await);
                told(open.allocate(0, 100).await);
                let (read, bufs) = open.read_vectored_at(vec![vec![5_u8; 3]], 0).await;
                told(read.map(drop));
                assert_eq!(bufs, [[5; 3]], "the buffers come back");
                let (synced, buf) = open.write_then_sync("lost", 0).await;
                told(synced);
                assert_eq!(buf, "lost");
                checkpoint().await
            }
        });
        assert!(task.outcome().await?.is_cancelled());
        assert_eq!(std::fs::read(&stays)?, b"stays");
        assert!(!dir.exists() && !file.exists());
        assert_eq!(times_open(&stays), 0);
        Ok(())
    });
}

#[test]
fn case_j13_what_was_written_is_flushed_and_closed_on_cancel() {
    on_each("flush", async |stage| {
        let path = stage.path("journal");
        let task = Scope::current().expect("a job").task("journal").spawn({
            let path = path.clone();
            async move {
                let file = File::create(&path).await?;
                let (written, _) = file.write_all_at("begun\n", 0).await;
                written?;
                let told = park().await;
                cleanup(async {
                    let (written, _) = file.write_then_sync("ended\n", 6).await;
                    written?;
                    file.close().await?;
                    Ok::<_, Error>(())
                })
                .await?;
                told?;
                Ok::<_, Error>(())
            }
        });
        while std::fs::read(&path).unwrap_or_default() != b"begun\n" {
            kinfolk_core::yield_now().await?;
        }
        task.cancel("enough");
        assert!(task.outcome().await?.is_cancelled());
        assert_eq!(std::fs::read(&path)?, b"begun\nended\n");
        assert_eq!(times_open(&path), 0);
        Ok(())
    });
}

#[test]
fn io_5_a_file_of_others_is_waited_for() {
    on_each("watched", async |stage| {
        let (ours, mut theirs) = UnixStream::pair()?;
        let watched = Arc::new(Watched::new(ours)?);
        let both = Interest::READABLE | Interest::WRITABLE;
        let ready = watched.ready(both).await?;
        assert!(ready.is_writable() && !ready.is_readable() && !ready.is_closed());
        let task = Scope::current().expect("a job").task("watcher").spawn({
            let watched = watched.clone();
            async move { watched.ready(Interest::READABLE).await }
        });
        stage.until_io("watcher").await?;
        theirs.write_all(b"x")?;
        assert!(task.await?.is_readable());
        // It takes nothing: it is still there, for this one too.
        assert!(watched.ready(Interest::READABLE).await?.is_readable());
        let mut byte = [0];
        (&**watched).read_exact(&mut byte)?;
        assert_eq!(&byte, b"x");
        // Told while it waits.
        let task = Scope::current().expect("a job").task("told").spawn({
            let watched = watched.clone();
            async move { watched.ready(Interest::READABLE).await }
        });
        stage.until_io("told").await?;
        task.cancel("enough");
        assert!(task.outcome().await?.is_cancelled());
        let late = timeout(Duration::from_millis(1), watched.ready(Interest::READABLE)).await;
        assert!(late.is_err(), "{late:?}");
        drop(theirs);
        let ready = watched.ready(Interest::READABLE).await?;
        assert!(ready.is_readable() && ready.is_closed());
        let mut watched = Arc::into_inner(watched).expect("nobody else");
        let file = loop {
            match watched.into_inner() {
                Ok(file) => break file,
                // The one that was given up ends soon.
                Err(back) => watched = back,
            }
            kinfolk_core::yield_now().await?;
        };
        drop(file);
        Ok(())
    });
}

#[test]
fn io_is_refused_outside_every_job() {
    let (ours, _theirs) = UnixStream::pair().expect("a pair");
    let error = Watched::new(ours).expect_err("no job");
    assert!(error.to_string().contains("outside any job"), "{error}");
    let file = std::fs::File::open("/dev/null").expect("a file");
    let error = File::from_std(file).expect_err("no job");
    assert!(error.to_string().contains("outside any job"), "{error}");
}

/// A file may say that it is longer than any memory.
#[test]
fn io_5_a_file_that_is_too_long_to_be_read_is_an_error() {
    let overcommit = std::fs::read_to_string("/proc/sys/vm/overcommit_memory");
    if overcommit.is_ok_and(|how| how.trim() == "1") {
        return; // There is no such length.
    }
    on_each("giant", async |stage| {
        let path = stage.path("sparse");
        let file = std::fs::File::create(&path)?;
        // As long as the file system can.
        let mut lengths = (40..=62).rev().map(|bits| (1_u64 << bits) - 1);
        assert!(lengths.any(|len| file.set_len(len).is_ok()));
        let error = fs::read(&path).await.expect_err("too long");
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        Ok(())
    });
}

/// Blocking calls of users may have all of their threads for as long as they like.
#[test]
fn io_5_what_the_runtime_blocks_for_does_not_wait_for_users() {
    guarded("own_calls", |watched| {
        let rt = Runtime::builder().workers(1).blocking_threads(1).build();
        let rt = rt.expect("a runtime");
        watched.watch(rt.tree());
        let scratch = Scratch::new();
        let (path, listener) = (
            scratch.path("a"),
            std::net::TcpListener::bind("127.0.0.1:0"),
        );
        let port = listener
            .as_ref()
            .expect("a port")
            .local_addr()
            .expect("an address")
            .port();
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let ran = rt.block_on(async {
            let user = spawn(async { blocking(move |_| wait.recv().is_err()).await });
            let limit = Duration::from_secs(20);
            let ours = timeout(limit, async {
                let file = File::create(&path).await?;
                file.set_len(5).await?;
                assert_eq!(file.metadata().await?.len(), 5);
                assert_eq!(fs::read_dir(&scratch.0).await?.count(), 1);
                TcpStream::connect(("localhost", port)).await?;
                TcpStream::connect(format!("localhost:{port}")).await?;
                Ok::<_, Error>(())
            });
            let ours = ours.await;
            drop(go);
            assert!(user.await?, "it was there all the time");
            ours
        });
        ran.expect("they do not wait");
    });
}
