//! What files and directories can do beside reading and writing.

use std::io::ErrorKind;

use kinfolk_core::Result;
use kinfolk_runtime::fs::{self, File, FileKind};

use super::lab::IoLab;

pub async fn io_5_names_are_given_changed_and_taken_away(lab: IoLab) -> Result<()> {
    let dir = lab.path("dir");
    fs::create_dir_all(dir.join("deep")).await?;
    let twice = fs::create_dir(&dir).await.expect_err("it is there");
    assert_eq!(twice.kind(), ErrorKind::AlreadyExists);
    fs::write(dir.join("a"), "words").await.0?;
    fs::rename(dir.join("a"), dir.join("deep/b")).await?;
    let gone = fs::metadata(dir.join("a")).await.expect_err("it moved");
    assert_eq!(gone.kind(), ErrorKind::NotFound);
    let about = fs::metadata(dir.join("deep/b")).await?;
    assert_eq!((about.len(), about.is_file()), (5, true));
    assert!(fs::metadata(&dir).await?.is_dir());
    let listed = fs::read_dir(&dir).await?;
    let names: Vec<_> = listed
        .map(|entry| (entry.file_name().to_os_string(), entry.kind()))
        .collect();
    assert_eq!(names, [("deep".into(), Some(FileKind::Dir))]);
    assert_eq!(fs::copy(dir.join("deep/b"), dir.join("c")).await?, 5);
    assert_eq!(fs::read(dir.join("c")).await?, b"words");
    let full = fs::remove_dir(dir.join("deep")).await;
    assert_eq!(
        full.expect_err("not empty").kind(),
        ErrorKind::DirectoryNotEmpty
    );
    fs::remove_file(dir.join("deep/b")).await?;
    fs::remove_dir(dir.join("deep")).await?;
    fs::remove_file(dir.join("c")).await?;
    fs::remove_dir(&dir).await?;
    let gone = fs::read_dir(&dir).await.expect_err("it is gone");
    assert_eq!(gone.kind(), ErrorKind::NotFound);
    Ok(())
}

pub async fn io_5_a_file_in_several_pieces(lab: IoLab) -> Result<()> {
    let file = File::create(lab.path("pieces")).await?;
    let pieces = || vec![lab.quarantine.filled("one "), lab.quarantine.filled("two")];
    let mut written = 0;
    // Fewer than all may be written: then all of them again.
    while written < 7 {
        let (result, bufs) = file.write_vectored_at(pieces(), 0).await;
        assert_eq!(bufs.len(), 2, "the buffers came back");
        written = result?;
    }
    let mut read = 0;
    while read < 7 {
        let room = vec![lab.quarantine.buf(3), lab.quarantine.buf(8)];
        let (result, bufs) = file.read_vectored_at(room, 0).await;
        read = result?;
        let bytes: Vec<u8> = bufs.iter().flat_map(|buf| buf.to_vec()).collect();
        assert_eq!(bytes, b"one two"[..read]);
    }
    file.close().await?;
    Ok(())
}

pub async fn io_5_a_file_is_written_to_the_disk_and_cut(lab: IoLab) -> Result<()> {
    let file = File::create(lab.path("safe")).await?;
    let buf = lab.quarantine.filled("some words");
    let (written, buf) = file.write_then_sync(buf, 0).await;
    written?;
    assert_eq!(&*buf, b"some words");
    file.set_len(4).await?;
    assert_eq!(file.metadata().await?.len(), 4);
    file.set_len(6).await?;
    let (read, bytes) = file.read_exact_at(vec![1; 6], 0).await;
    read?;
    assert_eq!(bytes, b"some\0\0");
    file.close().await?;
    Ok(())
}

/// A hole reads as zeros, and the file stays as long as it is, also where the hole reaches
/// beyond the end.
pub async fn io_5_a_hole_is_punched(lab: IoLab) -> Result<()> {
    let path = lab.path("hole");
    let file = File::create(&path).await?;
    file.write_all_at("words and more", 0).await.0?;
    file.punch_hole(2, 4).await?;
    assert_eq!(fs::read(&path).await?, b"wo\0\0\0\0and more");
    file.punch_hole(10, 100).await?;
    assert_eq!(fs::read(&path).await?, b"wo\0\0\0\0and \0\0\0\0");
    let none = file.punch_hole(3, 0).await.expect_err("of no length");
    assert_eq!(none.kind(), ErrorKind::InvalidInput);
    let read_only = File::open(&path).await?;
    let refused = read_only.punch_hole(0, 1).await.expect_err("read only");
    assert_eq!(refused.raw_os_error(), Some(libc::EBADF));
    Ok(())
}
