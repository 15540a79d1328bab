//! Pipes.

use kinfolk_core::{Result, spawn};
use kinfolk_runtime::io::pipe;

use super::tale::{At, Tale, carried, fill, read, write};

/// Up to so many bytes a write is whole.
const PIPE_BUF: usize = 4096;

pub async fn pipe_write_without_a_reader(_: At) -> Result<Tale> {
    let (reader, writer) = pipe()?;
    let mut tale = Tale::new();
    tale.say("write", write(&writer, "a").await);
    drop(reader);
    tale.say("write", write(&writer, "b").await);
    tale.say("write", write(&writer, "c").await);
    Ok(tale)
}

pub async fn pipe_read_without_a_writer(_: At) -> Result<Tale> {
    let (reader, writer) = pipe()?;
    writer.write_all("left").await.0?;
    drop(writer);
    let mut tale = Tale::new();
    for _ in 0..3 {
        tale.say("read", read(&reader, 16).await);
    }
    Ok(tale)
}

pub async fn pipe_holds_so_much(_: At) -> Result<Tale> {
    let (_reader, writer) = pipe()?;
    let mut tale = Tale::new();
    tale.say("in pages", fill(&writer, PIPE_BUF).await?);
    let (_reader, writer) = pipe()?;
    tale.say("in pieces of 1000", fill(&writer, 1000).await?);
    let (_reader, writer) = pipe()?;
    tale.say("in pieces of 3000", fill(&writer, 3000).await?);
    Ok(tale)
}

pub async fn pipe_small_write_is_whole(_: At) -> Result<Tale> {
    let (reader, writer) = pipe()?;
    let filled = fill(&writer, 1024).await?;
    // Room for some of the next write, and not for all of it.
    let (read_back, _) = reader.read(vec![0; 2048]).await;
    read_back?;
    let waits = spawn(async move { write(&writer, vec![b'y'; PIPE_BUF]).await });
    let mut tale = Tale::new();
    carried().await?;
    let (mut all, mut last) = (Vec::new(), 1);
    while last > 0 {
        let (read, buf) = reader.read(vec![0; PIPE_BUF]).await;
        last = read?;
        all.extend_from_slice(&buf[..last]);
    }
    tale.say("write", waits.await?);
    let whole = all[all.len() - PIPE_BUF..].iter().all(|byte| *byte == b'y');
    tale.say("whole", whole && all.len() == filled - 2048 + PIPE_BUF);
    Ok(tale)
}

pub async fn pipe_large_write_is_taken_in_part(_: At) -> Result<Tale> {
    let (_reader, writer) = pipe()?;
    let mut tale = Tale::new();
    tale.say("write", write(&writer, vec![0; 100_000]).await);
    Ok(tale)
}

pub async fn pipe_room_comes_in_pages(_: At) -> Result<Tale> {
    let (reader, writer) = pipe()?;
    fill(&writer, PIPE_BUF).await?;
    reader.read(vec![0; 100]).await.0?;
    let mut tale = Tale::new();
    tale.say("a part was read", write(&writer, "a").await);
    reader.read(vec![0; PIPE_BUF - 100]).await.0?;
    tale.say("a page was read", write(&writer, "a").await);
    Ok(tale)
}

pub async fn pipe_nothing_is_written(_: At) -> Result<Tale> {
    let (reader, writer) = pipe()?;
    let mut tale = Tale::new();
    tale.say("write", write(&writer, "").await);
    drop(reader);
    tale.say("without a reader", write(&writer, "").await);
    Ok(tale)
}

pub async fn pipe_nothing_is_read(_: At) -> Result<Tale> {
    let (reader, writer) = pipe()?;
    let mut tale = Tale::new();
    tale.say("read", read(&reader, 0).await);
    writer.write_all("bytes").await.0?;
    tale.say("read", read(&reader, 0).await);
    tale.say("read", read(&reader, 8).await);
    Ok(tale)
}

pub async fn pipe_write_that_waits_loses_its_reader(_: At) -> Result<Tale> {
    let (reader, writer) = pipe()?;
    fill(&writer, PIPE_BUF).await?;
    let waits = spawn(async move { write(&writer, "more").await });
    carried().await?;
    drop(reader);
    let mut tale = Tale::new();
    tale.say("write", waits.await?);
    Ok(tale)
}
