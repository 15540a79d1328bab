//! Outputs of the main lane that no handle takes: where they are dropped.

use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

use kinfolk_core::{Budget, Error, Main, Pool, Result, Task, on, yield_now};
use kinfolk_runtime::Runtime;
use kinfolk_testkit::guarded;

/// Remembers where it was dropped, and how often.
struct DropsAt(Arc<Mutex<Vec<ThreadId>>>);

impl kinfolk_core::Success for DropsAt {}

impl Drop for DropsAt {
    fn drop(&mut self) {
        self.0.lock().unwrap().push(thread::current().id());
    }
}

/// The same, too large for the cell of its job.
struct Large(
    #[expect(dead_code)] DropsAt,
    #[expect(dead_code)] [u64; 128],
);

impl kinfolk_core::Success for Large {}

fn rt(workers: usize) -> Runtime {
    Runtime::builder().workers(workers).build().unwrap()
}

/// A task of the main lane that has ended with such a value.
fn ended<T>(rt: &Runtime, value: T) -> Task<T>
where
    T: kinfolk_core::Success + Send + 'static,
{
    let task = rt.scope().on(Main).spawn(async move { value });
    while !task.is_ended() {
        rt.pump(Budget::Turns(1)).unwrap();
    }
    task
}

#[test]
fn lane_1_the_output_of_a_dropped_handle_goes_on_its_lane() {
    guarded("an output on its lane", |_| {
        let main = thread::current().id();
        for large in [false, true] {
            let rt = rt(1);
            let dropped = Arc::new(Mutex::new(Vec::new()));
            let value = DropsAt(dropped.clone());
            // A worker drops the handle.
            let got: Result<()> = rt.block_on(async {
                if large {
                    let task = on(Main, async move { Large(value, [0; 128]) });
                    let _ = task.join().await?;
                    on(Pool, async move { drop(task) }).await?;
                } else {
                    let task = on(Main, async move { value });
                    let _ = task.join().await?;
                    on(Pool, async move { drop(task.into_job()) }).await?;
                }
                yield_now().await?;
                Ok::<_, Error>(())
            });
            got.unwrap();
            rt.shutdown(Duration::from_secs(5)).unwrap();
            assert_eq!(*dropped.lock().unwrap(), [main], "large: {large}");
        }
    });
}

#[test]
fn lane_1_an_output_waits_for_the_main_thread() {
    guarded("an output that waits", |_| {
        let main = thread::current().id();
        for workers in [0, 1] {
            let rt = rt(workers);
            let dropped = Arc::new(Mutex::new(Vec::new()));
            let [one, two] = [(); 2].map(|()| ended(&rt, DropsAt(dropped.clone())));
            thread::spawn(move || drop(one)).join().unwrap();
            assert!(dropped.lock().unwrap().is_empty());
            rt.pump(Budget::Turns(9)).unwrap();
            assert_eq!(*dropped.lock().unwrap(), [main]);
            // It is no job: it is neither counted nor seen.
            assert_eq!(rt.counters().living(), 1, "the root");
            assert_eq!(rt.counters().jobs_created, 3);
            // Shutdown waits for it, and the main thread is where it goes.
            thread::spawn(move || drop(two)).join().unwrap();
            let report = rt.shutdown(Duration::from_secs(5)).unwrap();
            assert!(report.is_clean(), "{report}");
            assert_eq!(*dropped.lock().unwrap(), [main, main]);
        }
    });
}

/// The main thread turns its lane no more: the output goes where the handle does.
#[test]
fn lane_1_an_output_whose_root_has_ended_goes_with_its_handle() {
    guarded("an output without a lane", |_| {
        let rt = rt(1);
        let dropped = Arc::new(Mutex::new(Vec::new()));
        let task = ended(&rt, DropsAt(dropped.clone()));
        rt.shutdown(Duration::from_secs(5)).unwrap();
        let there = thread::spawn(move || {
            drop(task);
            thread::current().id()
        });
        assert_eq!([there.join().unwrap()], **dropped.lock().unwrap());
    });
}

/// On the main thread it goes at once, whether or not the lane is turned.
#[test]
fn lane_1_a_handle_dropped_on_the_main_thread_takes_its_output_along() {
    guarded("an output at home", |_| {
        let rt = rt(1);
        let dropped = Arc::new(Mutex::new(Vec::new()));
        drop(ended(&rt, DropsAt(dropped.clone())));
        assert_eq!(*dropped.lock().unwrap(), [thread::current().id()]);
    });
}
