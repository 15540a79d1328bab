//! What arrives at a recorder of the crate `metrics`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kinfolk_core::{Error, cleanup, park, sleep, spawn};
use kinfolk_see::Measures;
use kinfolk_testkit::Sim;
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata,
    SharedString, Unit,
};

const MS: Duration = Duration::from_millis(1);

/// Values by name and labels.
#[derive(Clone, Default)]
struct Board(Arc<Mutex<BTreeMap<String, Vec<f64>>>>);

struct Cell(Board, String);

impl Cell {
    fn add(&self, value: f64) {
        let mut board = self.0.0.lock().unwrap();
        board.entry(self.1.clone()).or_default().push(value);
    }
}

impl CounterFn for Cell {
    fn increment(&self, value: u64) {
        self.add(value as f64);
    }

    fn absolute(&self, _: u64) {}
}

impl GaugeFn for Cell {
    fn increment(&self, value: f64) {
        self.add(value);
    }

    fn decrement(&self, value: f64) {
        self.add(-value);
    }

    fn set(&self, _: f64) {}
}

impl HistogramFn for Cell {
    fn record(&self, value: f64) {
        self.add(value);
    }
}

impl Board {
    fn cell(&self, key: &Key) -> Arc<Cell> {
        let labels = key.labels().map(|label| format!(" {}", label.value()));
        let name = key.name().to_string() + &labels.collect::<String>();
        Arc::new(Cell(self.clone(), name))
    }

    fn values(&self, name: &str) -> Vec<f64> {
        self.0
            .lock()
            .unwrap()
            .get(name)
            .cloned()
            .unwrap_or_default()
    }
}

impl metrics::Recorder for Board {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.cell(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.cell(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.cell(key))
    }
}

#[test]
fn see_4_jobs_polls_waits_and_stops_are_measured() {
    let board = Board::default();
    let line = metrics::with_local_recorder(&board, || {
        let mut sim = Sim::builder(1).sink(Measures::new()).build();
        let line = sim.run(async {
            let line = line!() + 1;
            let task = spawn(async {
                let told = park().await;
                cleanup(sleep(7 * MS)).await?;
                told?;
                Ok::<_, Error>(())
            });
            sleep(3 * MS).await?;
            task.cancel("enough");
            let _ = task.outcome().await?;
            Ok::<_, Error>(line)
        });
        sim.finish();
        line.unwrap()
    });
    assert_eq!(board.values("kinfolk_cancel_to_end_seconds task"), [0.007]);
    assert_eq!(board.values("kinfolk_wait_seconds park"), [0.003]);
    assert_eq!(
        board
            .values("kinfolk_wait_seconds sleep")
            .iter()
            .sum::<f64>(),
        0.010
    );
    assert_eq!(
        board.values(&format!("kinfolk_poll_seconds {}:{line}", file!())),
        [0.0; 3]
    );
    // The task, and the root at the end.
    assert_eq!(board.values("kinfolk_jobs_ended_total cancelled"), [1.0; 2]);
    assert_eq!(board.values("kinfolk_cancels_total asked").len(), 1);
    let living = board.values("kinfolk_jobs_living");
    let made = living.iter().filter(|change| **change > 0.0).count();
    assert_eq!(living.iter().sum::<f64>(), 0.0, "{made} were made");
    assert!(board.values("kinfolk_queue_seconds").len() > 4);
}
