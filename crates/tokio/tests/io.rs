//! `Reader` and `Writer`: what is told or dropped half-way loses no byte.

use std::time::Duration;

use kinfolk_core::{Error, ErrorKind, Scope, cleanup, scope, spawn, timeout};
use kinfolk_tokio::Root;
use kinfolk_tokio::io::{Reader, Writer};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

const MS: Duration = Duration::from_millis(1);

/// io-7: told after each byte of a part, a read loses none of them.
#[tokio::test(start_paused = true)]
async fn io_7_a_told_read_exact_keeps_what_came() {
    let root = Root::builder().build();
    let run = root.run(async {
        let (ours, mut theirs) = duplex(64);
        let mut reader = Reader::new(ours);
        for came in 0..6 {
            let told = timeout(MS, reader.read_exact(6)).await.unwrap_err();
            assert_eq!(told.kind(), ErrorKind::TimedOut);
            assert_eq!(reader.kept(), &b"abcdef"[..came]);
            theirs.write_all(&b"abcdef"[came..=came]).await?;
        }
        theirs.write_all(b"gh").await?;
        assert_eq!(reader.read_exact(6).await?, b"abcdef");
        assert!(reader.kept().is_empty(), "it reads no further");
        // What was read for a longer part is there for a shorter one.
        drop(timeout(MS, reader.read_exact(9)).await);
        assert_eq!(reader.read_exact(1).await?, b"g");
        let mut rest = [0; 1];
        reader.read_exact(0).await?;
        AsyncReadExt::read_exact(&mut reader, &mut rest).await?;
        assert_eq!(&rest, b"h");
        Ok::<_, Error>(())
    });
    run.await.unwrap();
    assert!(root.shutdown().await.unwrap().is_clean());
}

/// io-7: so it is when the future is dropped; and what came before the end of the stream is
/// there after the error.
#[tokio::test(start_paused = true)]
async fn io_7_a_dropped_read_exact_keeps_what_came() {
    let (ours, mut theirs) = duplex(64);
    let mut reader = Reader::new(ours);
    theirs.write_all(b"abc").await.unwrap();
    let gone = tokio::time::timeout(MS, reader.read_exact(4)).await;
    assert!(gone.is_err());
    drop(theirs);
    let ended = reader.read_exact(4).await.unwrap_err();
    let ended = ended
        .downcast_ref::<std::io::Error>()
        .expect("an io::Error");
    assert_eq!(ended.kind(), std::io::ErrorKind::UnexpectedEof);
    assert_eq!(reader.into_parts().1, b"abc");
}

/// io-7: a length that a peer makes up takes no memory.
#[tokio::test]
async fn io_7_a_huge_part_takes_memory_as_it_comes() {
    let (ours, mut theirs) = duplex(64);
    let mut reader = Reader::new(ours);
    theirs.write_all(b"abc").await.unwrap();
    drop(theirs);
    assert!(reader.read_exact(usize::MAX).await.is_err());
    let (_, kept) = reader.into_parts();
    assert!(kept.capacity() <= 128 * 1024, "{}", kept.capacity());
}

/// cancel-3: a job that is told reads and takes nothing more.
#[tokio::test]
async fn cancel_3_a_told_job_reads_and_writes_nothing() {
    let root = Root::builder().build();
    let run = root.run(scope(async |s: Scope| {
        let (ours, mut theirs) = duplex(64);
        let (read, write) = tokio::io::split(ours);
        let (mut reader, mut writer) = (Reader::new(read), Writer::new(write));
        theirs.write_all(b"abcd").await?;
        s.cancel("enough");
        assert!(reader.read_exact(4).await.is_err());
        assert!(writer.write_all(b"efgh").await.is_err());
        assert!(writer.unwritten().is_empty(), "it has taken none");
        assert!(writer.flush().await.is_err());
        let read = cleanup(async { reader.read_exact(4).await }).await;
        assert_eq!(read?, b"abcd");
        Ok(())
    }));
    run.await.unwrap();
    assert!(root.shutdown().await.unwrap().is_clean());
}

/// io-7: a told write has taken none of its bytes; what was taken before is written by a
/// flush in the clean-up, each byte once.
#[tokio::test(start_paused = true)]
async fn io_7_a_told_write_all_takes_nothing_and_a_flush_goes_on() {
    let root = Root::builder().build();
    let (ours, mut theirs) = duplex(4);
    let run = root.scope().spawn(async move {
        let mut writer = Writer::new(ours);
        writer.write_all(b"abcdefgh").await?;
        assert_eq!(writer.unwritten(), b"efgh");
        let told = timeout(MS, writer.write_all(b"never")).await.unwrap_err();
        assert_eq!(told.kind(), ErrorKind::TimedOut);
        assert_eq!(writer.unwritten(), b"efgh");
        let told = timeout(MS, writer.flush()).await.unwrap_err();
        assert_eq!(told.kind(), ErrorKind::TimedOut);
        let reads = spawn(async move {
            let mut all = String::new();
            theirs.read_to_string(&mut all).await?;
            Ok::<_, Error>(all)
        });
        cleanup(writer.flush()).await?;
        assert!(writer.unwritten().is_empty());
        writer.shutdown().await?;
        reads.await
    });
    assert_eq!(run.await.unwrap(), "abcdefgh");
    assert!(root.shutdown().await.unwrap().is_clean());
}

/// io-7: a stream that fails keeps what was not written, and says so once.
#[tokio::test]
async fn io_7_a_failed_write_is_an_error_of_its_call() {
    let (ours, theirs) = duplex(4);
    drop(theirs);
    let mut writer = Writer::new(ours);
    assert!(writer.write_all(b"abc").await.is_err());
    assert_eq!(writer.unwritten(), b"abc");
    assert!(writer.flush().await.is_err());
}
