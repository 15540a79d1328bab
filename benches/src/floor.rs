//! The floor: an executor for one thread that can do next to nothing. One
//! allocation for each task, a queue, no tree, no wakers: a task that is not
//! done is polled again in its turn.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Futures of the floor are written by hand, so that they can be moved and no
/// unsafe is needed.
pub trait Body: Future + Unpin + 'static {}
impl<F: Future + Unpin + 'static> Body for F {}

#[derive(Default)]
pub struct Floor {
    ready: VecDeque<Rc<dyn Poke>>,
}

/// A task with its result in place.
pub struct Task<F: Body> {
    body: RefCell<F>,
    result: Cell<Option<F::Output>>,
}

trait Poke {
    /// Polls; true when done.
    fn poke(&self) -> bool;
}

impl<F: Body> Poke for Task<F> {
    fn poke(&self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        match Pin::new(&mut *self.body.borrow_mut()).poll(&mut cx) {
            Poll::Ready(result) => {
                self.result.set(Some(result));
                true
            }
            Poll::Pending => false,
        }
    }
}

impl<F: Body> Task<F> {
    pub fn take(&self) -> Option<F::Output> {
        self.result.take()
    }
}

impl Floor {
    pub fn spawn<F: Body>(&mut self, body: F) -> Rc<Task<F>> {
        let task = Rc::new(Task {
            body: RefCell::new(body),
            result: Cell::new(None),
        });
        self.ready.push_back(task.clone());
        task
    }

    /// Polls until all are done.
    pub fn run(&mut self) {
        while let Some(task) = self.ready.pop_front() {
            if !task.poke() {
                self.ready.push_back(task);
            }
        }
    }

    /// Polls everybody once; who is not done stays.
    pub fn turn(&mut self) {
        self.ready.retain(|task| !task.poke());
    }

    pub fn len(&self) -> usize {
        self.ready.len()
    }
}

/// Done when polled once more than `.0` times.
pub struct Yields(pub u32);

impl Future for Yields {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        match self.0.checked_sub(1) {
            Some(left) => {
                self.0 = left;
                Poll::Pending
            }
            None => Poll::Ready(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_floor_task_yields_as_often_as_asked_and_keeps_its_result() {
        let mut floor = Floor::default();
        let slow = floor.spawn(Yields(2));
        let fast = floor.spawn(std::future::ready(7));
        floor.turn();
        assert_eq!((floor.len(), fast.take()), (1, Some(7)));
        floor.turn();
        assert_eq!((floor.len(), slow.take()), (1, None));
        floor.turn();
        assert_eq!((floor.len(), slow.take()), (0, Some(())));
    }

    #[test]
    fn run_ends_when_every_floor_task_is_done() {
        let mut floor = Floor::default();
        let task = floor.spawn(Yields(100));
        floor.run();
        assert_eq!(task.take(), Some(()));
    }
}
