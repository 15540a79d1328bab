//! No byte is lost, none comes twice, and what was awaited in order stays so.

use std::sync::{Arc, Mutex};

use kinfolk_core::{Error, Result, checkpoint, race, scope, spawn, yield_now};
use kinfolk_runtime::fs::{File, OpenOptions};
use kinfolk_runtime::io::{PipeReader, PipeWriter, pipe};

use super::lab::IoLab;

/// Writes all of it, in portions.
async fn write_all(lab: &IoLab, writer: &PipeWriter, bytes: &[u8]) -> Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let portion = &rest[..rest.len().min(100)];
        let (written, buf) = writer.write(lab.quarantine.filled(portion)).await;
        assert_eq!(&*buf, portion, "the buffer came back as it was");
        rest = &rest[written?..];
    }
    Ok(())
}

/// Reads to the end.
async fn read_all(lab: &IoLab, reader: &PipeReader) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let (read, buf) = reader.read(lab.quarantine.buf(64)).await;
        match read? {
            0 => return Ok(all),
            bytes => {
                assert_eq!(bytes, buf.len());
                all.extend_from_slice(&buf);
            }
        }
    }
}

fn numbered(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|n| (n % 251) as u8).collect()
}

pub async fn io_1_a_file_is_written_and_read(lab: IoLab) -> Result<()> {
    let bytes = numbered(10_000);
    let file = File::create(lab.path("a")).await?;
    let (written, buf) = file.write_all_at(lab.quarantine.filled(&bytes), 0).await;
    written?;
    assert_eq!(&*buf, bytes);
    file.sync_data().await?;
    file.close().await?;
    let file = File::open(lab.path("a")).await?;
    let (read, buf) = file.read_exact_at(vec![0; 10_000], 0).await;
    read?;
    assert_eq!(buf, bytes);
    let (read, buf) = file.read_at(lab.quarantine.buf(10), 10_000).await;
    assert_eq!((read?, buf.len()), (0, 0));
    let (written, _) = file.write_at("x", 0).await;
    assert!(written.is_err(), "it was opened to be read");
    file.close().await?;
    Ok(())
}

pub async fn io_1_a_pipe_carries_bytes_in_order(lab: IoLab) -> Result<()> {
    let bytes = numbered(3_000);
    let (reader, writer) = pipe()?;
    let (sent, lab_two) = (bytes.clone(), lab.clone());
    let task = spawn(async move { write_all(&lab_two, &writer, &sent).await });
    assert_eq!(read_all(&lab, &reader).await?, bytes);
    task.await?;
    Ok(())
}

pub async fn io_1_appended_records_stay_in_order(lab: IoLab) -> Result<()> {
    let path = lab.path("log");
    let log = OpenOptions::new()
        .append(true)
        .create(true)
        .open(&path)
        .await?;
    let log = Arc::new(log);
    // Three writers, each of which awaits one record after the other.
    scope(async |s| {
        for who in 0..3_u8 {
            let (log, lab) = (log.clone(), lab.clone());
            s.launch(async move {
                for n in 0..20_u8 {
                    let (written, _) = log.write_at(lab.quarantine.filled([who, n]), 0).await;
                    // Half a record: the other half is nobody's.
                    assert!(written? > 0);
                }
                Ok::<_, Error>(())
            });
        }
        Ok::<_, Error>(())
    })
    .await?;
    drop(log);
    let file = File::open(&path).await?;
    let mut bytes = Vec::new();
    loop {
        let (read, buf) = file.read_at(vec![0; 512], bytes.len() as u64).await;
        match read? {
            0 => break,
            count => bytes.extend_from_slice(&buf[..count]),
        }
    }
    // Where all records are whole, those of each writer are in order.
    if bytes.len() == 120 {
        for who in 0..3 {
            let own = bytes.chunks(2).filter(|record| record[0] == who);
            let numbers: Vec<u8> = own.map(|record| record[1]).collect();
            assert_eq!(numbers, (0..20).collect::<Vec<u8>>());
        }
    }
    Ok(())
}

pub async fn io_1_two_readers_of_one_pipe_lose_no_byte(lab: IoLab) -> Result<()> {
    let (reader, writer) = pipe()?;
    let reader = Arc::new(reader);
    let seen: Arc<Mutex<Vec<u8>>> = Arc::default();
    let read_on = |lab: IoLab, reader: Arc<PipeReader>, seen: Arc<Mutex<Vec<u8>>>| async move {
        loop {
            let (read, buf) = reader.read(lab.quarantine.buf(3)).await;
            // A result though it was told counts too.
            if read? == 0 {
                return Ok::<_, Error>(());
            }
            seen.lock().expect("the bytes").extend_from_slice(&buf);
        }
    };
    let cut = spawn(read_on(lab.clone(), reader.clone(), seen.clone()));
    let stays = spawn(read_on(lab.clone(), reader, seen.clone()));
    let bytes = numbered(60);
    write_all(&lab, &writer, &bytes[..20]).await?;
    yield_now().await?;
    cut.cancel("enough");
    write_all(&lab, &writer, &bytes[20..]).await?;
    drop(writer);
    let _ = cut.outcome().await?;
    stays.await?;
    let mut seen = std::mem::take(&mut *seen.lock().expect("the bytes"));
    seen.sort_unstable();
    assert_eq!(seen, bytes);
    Ok(())
}

pub async fn io_1_a_race_of_two_reads_loses_no_byte(lab: IoLab) -> Result<()> {
    let pipes = [pipe()?, pipe()?];
    let bytes = numbered(20);
    let mut seen = [Vec::new(), Vec::new()];
    let writers = {
        let lab = lab.clone();
        let bytes = bytes.clone();
        let [(one, a), (two, b)] = pipes;
        let task = spawn(async move {
            for byte in bytes {
                write_all(&lab, &a, &[byte]).await?;
                checkpoint().await?;
                write_all(&lab, &b, &[byte]).await?;
            }
            Ok::<_, Error>(())
        });
        (task, [one, two])
    };
    let (task, readers) = writers;
    while seen[0].len() < 20 || seen[1].len() < 20 {
        let late = Mutex::new(Vec::new());
        let read = async |which: usize| {
            let (read, buf) = readers[which].read(lab.quarantine.buf(4)).await;
            read?;
            Ok::<_, Error>((which, buf.to_vec()))
        };
        let won = race((read(0), read(1)))
            .late(|value| late.lock().expect("the late ones").push(value))
            .await;
        let late = late.into_inner().expect("the late ones");
        let mut ended = [0, 0];
        for (which, bytes) in won.into_iter().chain(late) {
            ended[which] = bytes.len();
            seen[which].extend(bytes);
        }
        let open = [0, 1].map(|which| seen[which].len() < 20);
        if open.contains(&false) && open.contains(&true) && ended != [0, 0] {
            // One is empty for good: the other alone.
            let which = usize::from(open[1]);
            let (_, rest) = read(which).await?;
            seen[which].extend(rest);
        }
    }
    assert_eq!(seen, [bytes.clone(), bytes]);
    task.await?;
    Ok(())
}
