//! Triggers of the flight recorder that change the process: alone in its program, since it sets
//! the panic hook.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use kinfolk_core::{Error, ErrorKind, Scope, current_job, spawn, yield_now};
use kinfolk_runtime::Runtime;
use kinfolk_see::Recorder;

/// A panic of a job triggers a file, and so does a future that is dropped by force.
#[test]
fn see_4_a_panic_and_a_forced_drop_are_triggers() {
    let dir = std::env::temp_dir().join(format!("kinfolk-{}-panic", std::process::id()));
    let recorder = Recorder::builder()
        .dir(&dir)
        .debounce(Duration::ZERO)
        .on_forced_drop()
        .build();
    recorder.on_panic();
    let rt = Runtime::builder()
        .workers(2)
        .sink(recorder.clone())
        .on_failure(Box::new(|_| {}))
        .build()
        .unwrap();
    rt.block_on(Scope::build().supervisor().run(async |s| {
        let task = s.spawn(async {
            if current_job().is_some() {
                panic!("it breaks");
            }
            Ok::<_, Error>(())
        });
        assert_eq!(task.await.unwrap_err().kind(), ErrorKind::Panicked);
        Ok(())
    }))
    .unwrap();
    let files = recorder.files().unwrap();
    assert_eq!(files.len(), 1);
    assert!(files[0].to_str().unwrap().contains("panic-"), "{files:?}");
    rt.block_on(async {
        let waits = Arc::new(AtomicBool::new(false));
        let begins = waits.clone();
        let task = spawn(async move {
            begins.store(true, SeqCst);
            std::future::pending::<()>().await
        });
        // One that has not begun is not dropped by force.
        while !waits.load(SeqCst) {
            yield_now().await?;
        }
        task.cancel("it does not hear");
        let _ = task.outcome().await?;
        Ok::<_, Error>(())
    })
    .unwrap();
    let files = recorder.files().unwrap();
    assert!(
        files
            .iter()
            .any(|file| file.to_str().unwrap().contains("forced-drop")),
        "{files:?}"
    );
    drop(rt);
    let _ = std::panic::take_hook();
    fs::remove_dir_all(dir).unwrap();
}
