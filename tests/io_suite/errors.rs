//! Each error arrives, with the buffer, at the operation that it befell.

use std::io::ErrorKind;

use kinfolk_core::Result;
use kinfolk_runtime::fs::File;
use kinfolk_runtime::io::pipe;
use kinfolk_testkit::io::{Fault, OpKind};

use super::lab::IoLab;

pub async fn io_1_each_error_comes_with_the_buffer(lab: IoLab) -> Result<()> {
    let (reader, writer) = pipe()?;
    let (written, _) = writer.write("abc").await;
    assert!(written? > 0);
    let errors = [
        (Fault::WouldBlock, libc::EAGAIN),
        (Fault::NotTaken, libc::ENOMEM),
        (Fault::Broken, libc::EIO),
        (Fault::Reset, libc::ECONNRESET),
        (Fault::NoSpace, libc::ENOSPC),
        (Fault::TooManyFiles, libc::EMFILE),
    ];
    for (fault, errno) in errors {
        lab.fault(OpKind::Read, fault);
        let (read, buf) = reader.read(lab.quarantine.filled("before")).await;
        assert_eq!(read.expect_err("it fails").raw_os_error(), Some(errno));
        assert_eq!(&*buf, b"before", "nothing was read");
        lab.fault(OpKind::Write, fault);
        let (written, buf) = writer.write(lab.quarantine.filled("lost")).await;
        assert_eq!(written.expect_err("it fails").raw_os_error(), Some(errno));
        assert_eq!(&*buf, b"lost");
    }
    let (read, buf) = reader.read(lab.quarantine.buf(1)).await;
    assert_eq!((read?, &*buf), (1, &b"a"[..]), "nothing was lost");
    // The other end is gone: an error that every driver has.
    drop(reader);
    let (written, buf) = writer.write(lab.quarantine.filled("lost")).await;
    assert_eq!(written.expect_err("it fails").kind(), ErrorKind::BrokenPipe);
    assert_eq!(&*buf, b"lost");
    Ok(())
}

pub async fn io_1_interrupted_it_is_begun_again(lab: IoLab) -> Result<()> {
    let (reader, writer) = pipe()?;
    for _ in 0..3 {
        lab.fault(OpKind::Write, Fault::Interrupted);
        let (written, _) = writer.write(lab.quarantine.filled("a")).await;
        assert_eq!(written?, 1);
        lab.fault(OpKind::Read, Fault::Interrupted);
        let (read, buf) = reader.read(lab.quarantine.buf(1)).await;
        assert_eq!((read?, &*buf), (1, &b"a"[..]));
    }
    let file = File::create(lab.path("a")).await?;
    lab.fault(OpKind::Close, Fault::Interrupted);
    // Closed all the same, once.
    let _ = file.close().await;
    Ok(())
}

pub async fn io_1_a_full_disk_is_an_error_of_one_write(lab: IoLab) -> Result<()> {
    let file = File::create(lab.path("a")).await?;
    let (written, _) = file.write_all_at(lab.quarantine.filled("one"), 0).await;
    written?;
    lab.fault(OpKind::Write, Fault::NoSpace);
    let (written, buf) = file.write_all_at(lab.quarantine.filled("two"), 3).await;
    let error = written.expect_err("the disk is full");
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    assert_eq!(&*buf, b"two");
    lab.fault(OpKind::Sync, Fault::Broken);
    let error = file.sync_all().await.expect_err("it is broken");
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
    let (written, _) = file.write_all_at(lab.quarantine.filled("two"), 3).await;
    written?;
    file.sync_all().await?;
    let (read, buf) = file.read_exact_at(vec![0; 6], 0).await;
    read?;
    assert_eq!(buf, b"onetwo");
    file.close().await?;
    Ok(())
}

pub async fn io_1_too_many_files(lab: IoLab) -> Result<()> {
    lab.fault(OpKind::Open, Fault::TooManyFiles);
    let error = File::create(lab.path("a")).await.expect_err("too many");
    assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
    // A pipe is made without a driver: only a simulated system can refuse it.
    if let Some(kernel) = &lab.kernel {
        kernel.fault(OpKind::Open, Fault::TooManyFiles);
        let error = pipe().expect_err("too many");
        assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
    }
    let missing = File::open(lab.path("missing")).await;
    assert_eq!(missing.expect_err("missing").kind(), ErrorKind::NotFound);
    File::create(lab.path("a")).await?.close().await?;
    Ok(())
}
