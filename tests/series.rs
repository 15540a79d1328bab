//! Series on the drivers of the system: one operation, many answers.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kinfolk_core::{Error, sleep};
use kinfolk_runtime::Runtime;
use kinfolk_runtime::io::IoDriver;
use kinfolk_runtime::net::{TcpListener, TcpStream};
use kinfolk_testkit::guarded;
use kinfolk_testkit::io::{OpenFiles, Witness};

const HERE: &str = "127.0.0.1:0";

/// What is open is counted: one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// On each driver, with no workers and with two.
fn on_each(name: &'static str, body: impl Fn(Runtime, &Witness, bool) + Send + Sync + 'static) {
    let _alone = alone();
    guarded(name, move |watched| {
        let before = OpenFiles::now();
        for driver in [IoDriver::Ring, IoDriver::Readiness] {
            for workers in [0, 2] {
                let witness = Witness::new();
                let seen = witness.clone();
                let rt = Runtime::builder()
                    .workers(workers)
                    .io(driver)
                    .wrap_io(move |driver| seen.watch(driver))
                    .build()
                    .expect("a runtime");
                watched.watch(rt.tree());
                body(rt, &witness, driver == IoDriver::Ring);
                witness.check();
            }
        }
        before.assert_no_more();
    });
}

/// So many connections, of a thread of their own.
async fn connect(addr: std::net::SocketAddr, count: usize) -> Result<Vec<TcpStream>, Error> {
    let mut streams = Vec::new();
    for _ in 0..count {
        streams.push(TcpStream::connect(addr).await?);
    }
    Ok(streams)
}

#[test]
fn io_5_one_operation_brings_many_connections() {
    on_each("one for many", |rt, witness, ring| {
        rt.block_on(async {
            let listener = TcpListener::bind(HERE).await?;
            let mut incoming = listener.incoming();
            let clients = connect(listener.local_addr()?, 50).await?;
            let before = witness.submitted();
            for _ in 0..50 {
                incoming.next().await.expect("it never ends")?;
            }
            let operations = witness.submitted() - before;
            match ring {
                true => assert!(operations <= 2, "{operations}"),
                // One for each, and the last is not begun before it is wanted.
                false => assert_eq!(operations, 50),
            }
            assert_eq!(witness.partial() > 0, ring);
            drop(clients);
            Ok::<_, Error>(())
        })
        .expect("connections");
    });
}

/// Nobody takes them: the system is told to stop, and told to go on when they
/// were taken.
#[test]
fn io_5_connections_nobody_takes_have_a_bound() {
    on_each("a bound", |rt, witness, ring| {
        rt.block_on(async {
            let listener = TcpListener::bind(HERE).await?;
            let addr = listener.local_addr()?;
            let mut incoming = listener.incoming();
            let mut clients = connect(addr, 1).await?;
            incoming.next().await.expect("it never ends")?;
            assert_eq!(witness.cancels(), 0);
            // One after the other, so that the system has time to hear of it.
            clients.extend(connect(addr, 200).await?);
            while ring && witness.submitted() > witness.completed() {
                sleep(Duration::from_millis(1)).await?;
            }
            assert_eq!(witness.cancels(), u64::from(ring));
            let accepted = witness.partial();
            assert!(accepted < 150, "{accepted}");
            for _ in 0..200 {
                incoming.next().await.expect("it never ends")?;
            }
            clients.extend(connect(addr, 1).await?);
            incoming.next().await.expect("it never ends")?;
            Ok::<_, Error>(())
        })
        .expect("connections");
    });
}

/// The runtime ends with a series under way and connections in the listener.
#[test]
fn shutdown_1_a_series_ends_with_its_runtime() {
    on_each("teardown", |rt, witness, ring| {
        let listener = rt.block_on(async { Ok::<_, Error>(TcpListener::bind(HERE).await?) });
        let listener = listener.expect("a listener");
        let addr = listener.local_addr().expect("an address");
        let mut incoming = listener.incoming();
        let clients = rt.block_on(async {
            let clients = connect(addr, 5).await?;
            incoming.next().await.expect("it never ends")?;
            Ok::<_, Error>(clients)
        });
        assert_eq!(witness.submitted() - witness.completed(), u64::from(ring));
        let report = rt.shutdown(Duration::from_secs(5)).expect("a report");
        assert!(report.stragglers.is_empty(), "{report}");
        witness.check();
        // What was accepted is still there, and then nothing more comes.
        drop(incoming);
        drop((clients, listener));
    });
}
