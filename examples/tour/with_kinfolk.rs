//! The same server with Kinfolk, on the same tokio.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kinfolk::see::ShutdownReport;
use kinfolk::tokio::Root;
use kinfolk::{Error, OrCancel, Scope, cleanup, scope, shield, sleep};
use tokio::io::AsyncReadExt;

use crate::wire::{Books, Conn, Lost, Store, connect};

type Batch = Arc<Mutex<Vec<Vec<u8>>>>;

fn take(batch: &Batch) -> Vec<Vec<u8>> {
    std::mem::take(&mut *batch.lock().expect("nobody panics with it"))
}

/// Reads one record; told in the middle of one, the rest stays in `conn`.
async fn read_record(conn: &mut Conn) -> kinfolk::Result<Vec<u8>> {
    loop {
        if let Some(&length) = conn.rest.first()
            && conn.rest.len() > length as usize
        {
            let record: Vec<u8> = conn.rest.drain(..=length as usize).skip(1).collect();
            conn.whole(&record);
            return Ok(record);
        }
        match conn.stream.read_buf(&mut conn.rest).or_cancel().await?? {
            0 => return Err(Error::msg("the client hung up")),
            n => conn.took(n),
        };
    }
}

async fn handle(mut conn: Conn, store: Store) -> kinfolk::Result<()> {
    let batch = Batch::default();
    let read = scope(async |s| {
        let (shared, writer) = (batch.clone(), store.clone());
        // A service: it lives as long as the reading, and ends after it.
        let flusher = s.spawn_service(async move {
            loop {
                sleep(Duration::from_millis(20)).await?;
                shield(writer.write(take(&shared))).await?;
            }
            #[expect(unreachable_code, reason = "names the error type")]
            Ok::<(), Error>(())
        });
        let _flusher = flusher.into_job();
        loop {
            let record = read_record(&mut conn).await?;
            batch.lock().expect("nobody panics with it").push(record);
        }
        #[expect(unreachable_code, reason = "names the type of the value")]
        Ok(())
    })
    .await;
    // Told or not: what came in is stored, what is half is handed back.
    cleanup(store.write(take(&batch))).await?;
    conn.books
        .accounted
        .fetch_add(conn.rest.len() as u64, SeqCst);
    read
}

pub async fn measure() -> kinfolk::Result<(Lost, ShutdownReport)> {
    let books = Arc::new(Books::default());
    let root = Root::builder()
        .on_failure(Box::new(|_| {}))
        .on_forced(Box::new(|_| {}))
        .build();
    let (clients, store) = (connect(&books), Store::new(&books));
    root.scope().task("server").launch(async move {
        Scope::named("clients")
            .supervisor()
            .run(async |s| {
                for (conn, kicked) in clients {
                    let job = s.task("client").launch(handle(conn, store.clone()));
                    s.task("kicker").launch(async move {
                        sleep(kicked).await?;
                        job.cancel("kicked");
                        Ok::<_, Error>(())
                    });
                }
                s.task("legacy upload")
                    .launch(shield(std::future::pending::<()>()));
                Ok(())
            })
            .await
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let report = root.shutdown_in(Duration::from_millis(500)).await?;
    Ok((books.lost(), report))
}

/// A client is cut off at each point of the server in turn: whatever came off the
/// wire by then is in the store, or handed back.
#[test]
fn a_client_can_be_cut_off_anywhere() {
    use kinfolk::ErrorKind;
    use kinfolk::testkit::cancel_everywhere_then;
    use tokio::io::AsyncWriteExt;

    async fn serve(books: Arc<Books>) -> kinfolk::Result<()> {
        let (conn, mut theirs, sent) = Conn::open(&books);
        let served = scope(async |s| {
            // The client, with pauses in the middle of each record.
            let client = s.spawn_service(async move {
                for n in 0..4 {
                    let record = [n; 9];
                    theirs.write_all(&[9, n, n, n]).await?;
                    sleep(Duration::from_millis(7)).await?;
                    sent.sends(&record);
                    theirs.write_all(&record[3..]).await?;
                }
                Ok::<_, Error>(())
            });
            let _client = client.into_job();
            handle(conn, Store::simulated(&books)).await
        });
        match served.await {
            Err(error) if error.kind() == ErrorKind::Failed => Ok(()), // it hung up
            other => other,
        }
    }

    let books = Arc::new(Mutex::new(Arc::new(Books::default())));
    let seen = books.clone();
    let went = cancel_everywhere_then(
        move || {
            let new = Arc::new(Books::default());
            *books.lock().unwrap() = new.clone();
            serve(new)
        },
        move || {
            let lost = seen.lock().unwrap().lost();
            assert!(lost.is_nothing(), "items, bytes, orphans: {lost}");
        },
    );
    assert_eq!(went.forced, 0, "every wait hears it");
}
