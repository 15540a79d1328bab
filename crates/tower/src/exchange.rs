//! [`Exchange`]: where a request's job and the side of its client meet. The job puts the head
//! of the response there, and then the frames of its body, one at a time; the side of the
//! client, which hyper polls and drops, takes them, and says when it is gone.
//!
//! One lock, under which no code of others runs: values and wakers are made before it, and
//! dropped or woken after it.

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use http::response::Parts;
use http_body::{Frame, SizeHint};
use kinfolk_core::BoxError;
use kinfolk_core::host::{Contained, discard, wake};

use crate::answer::LayerAnswer;

/// The beginning of a response.
pub(crate) enum Head {
    /// What the service has answered.
    Service(Box<Parts>, BodyFacts),
    /// The service has failed with an error of its own type.
    Failed(Box<dyn Any + Send>),
    /// The layer answers in its place.
    Ours(LayerAnswer),
}

/// What is known of a body before its first frame.
#[derive(Clone, Copy)]
pub(crate) struct BodyFacts {
    pub(crate) size: u64,
    pub(crate) most: Option<u64>,
    pub(crate) is_over: bool,
    /// No frame is sent: a HEAD request, or a status without a body.
    pub(crate) is_left_out: bool,
}

impl BodyFacts {
    pub(crate) const NOTHING: BodyFacts = BodyFacts {
        size: 0,
        most: Some(0),
        is_over: true,
        is_left_out: false,
    };

    pub(crate) fn hint(&self) -> SizeHint {
        let mut hint = SizeHint::new();
        hint.set_lower(self.size);
        if let Some(most) = self.most {
            hint.set_upper(most.max(self.size));
        }
        hint
    }
}

/// A frame of the body, and whether it is the last.
pub(crate) type NextFrame<D> = (Result<Frame<D>, BoxError>, bool);

/// What the client's side finds when it asks for a frame.
pub(crate) enum FoundFrame<D> {
    Frame(NextFrame<D>),
    /// The body has ended.
    Over,
    /// The body has not ended, and there will be no more.
    Cut(LayerAnswer),
}

/// How a body has ended.
#[derive(Clone, Copy)]
enum EndOfFrames {
    Whole,
    Cut(LayerAnswer),
}

struct State<D> {
    head: Option<Contained<Head>>,
    /// One was put there, whether it was taken or not.
    is_decided: bool,
    frame: Option<Contained<NextFrame<D>>>,
    end: Option<EndOfFrames>,
    client_is_gone: bool,
    client: Option<Waker>,
    /// Of the job: for room, and for the end of the client.
    room: Option<Waker>,
    gone: Option<Waker>,
}

/// Where the two sides of a request meet.
pub(crate) struct Exchange<D>(Mutex<State<D>>);

impl<D> Exchange<D> {
    pub(crate) fn new() -> Arc<Exchange<D>> {
        Arc::new(Exchange(Mutex::new(State {
            head: None,
            is_decided: false,
            frame: None,
            end: None,
            client_is_gone: false,
            client: None,
            room: None,
            gone: None,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State<D>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The side of the job.
impl<D> Exchange<D> {
    /// Decides the response, if that was not done before. True if this call has.
    pub(crate) fn decide(&self, head: Head) -> bool {
        let mut head = Some(Contained::new(head));
        let mut state = self.state();
        let decides = !state.is_decided;
        if decides {
            state.is_decided = true;
            if !state.client_is_gone {
                state.head = head.take();
            }
        }
        let waker = state.client.take();
        drop(state);
        drop(head);
        wake_all([waker]);
        decides
    }

    /// Decides the response, or else ends its body, before its end if it has not ended.
    pub(crate) fn cut(&self, answer: LayerAnswer) {
        if self.decide(Head::Ours(answer)) {
            return;
        }
        let mut state = self.state();
        state.end.get_or_insert(EndOfFrames::Cut(answer));
        let wakers = [state.client.take(), state.room.take()];
        drop(state);
        wake_all(wakers);
    }

    /// The body has ended.
    pub(crate) fn end(&self) {
        let mut state = self.state();
        state.end.get_or_insert(EndOfFrames::Whole);
        let wakers = [state.client.take(), state.room.take()];
        drop(state);
        wake_all(wakers);
    }

    /// Ready when there is room for a frame; false if no more are wanted.
    pub(crate) fn poll_room(&self, cx: &mut Context<'_>) -> Poll<bool> {
        let waker = cx.waker().clone();
        let mut state = self.state();
        if state.client_is_gone || state.end.is_some() {
            drop(state);
            return Poll::Ready(false);
        }
        if state.frame.is_none() {
            drop(state);
            return Poll::Ready(true);
        }
        let old = state.room.replace(waker);
        drop(state);
        drop(old);
        Poll::Pending
    }

    /// Ready when no frame is wanted any more.
    pub(crate) fn poll_unwanted(&self, cx: &mut Context<'_>) -> Poll<()> {
        let waker = cx.waker().clone();
        let mut state = self.state();
        if state.client_is_gone || state.end.is_some() {
            drop(state);
            return Poll::Ready(());
        }
        let old = state.room.replace(waker);
        drop(state);
        drop(old);
        Poll::Pending
    }

    /// Puts a frame where there is room.
    pub(crate) fn put(&self, frame: NextFrame<D>) {
        let mut frame = Some(Contained::new(frame));
        let mut state = self.state();
        if !state.client_is_gone && state.end.is_none() && state.frame.is_none() {
            state.frame = frame.take();
        }
        let waker = state.client.take();
        drop(state);
        drop(frame);
        wake_all([waker]);
    }

    /// Ready when the client is gone and has not had all.
    pub(crate) fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        let waker = cx.waker().clone();
        let mut state = self.state();
        if state.client_is_gone {
            drop(state);
            return Poll::Ready(());
        }
        let old = state.gone.replace(waker);
        drop(state);
        drop(old);
        Poll::Pending
    }
}

/// The side of the client.
impl<D> Exchange<D> {
    pub(crate) fn poll_head(&self, cx: &mut Context<'_>) -> Poll<Head> {
        let waker = cx.waker().clone();
        let mut state = self.state();
        if let Some(head) = state.head.take() {
            drop(state);
            return Poll::Ready(head.into_inner());
        }
        let old = state.client.replace(waker);
        drop(state);
        drop(old);
        Poll::Pending
    }

    pub(crate) fn poll_frame(&self, cx: &mut Context<'_>) -> Poll<FoundFrame<D>> {
        let waker = cx.waker().clone();
        let mut state = self.state();
        if let Some(frame) = state.frame.take() {
            let room = state.room.take();
            drop(state);
            wake_all([room]);
            return Poll::Ready(FoundFrame::Frame(frame.into_inner()));
        }
        let end = state.end;
        let old = match end {
            Some(_) => None,
            None => state.client.replace(waker),
        };
        drop(state);
        drop(old);
        match end {
            Some(EndOfFrames::Whole) => Poll::Ready(FoundFrame::Over),
            Some(EndOfFrames::Cut(answer)) => Poll::Ready(FoundFrame::Cut(answer)),
            None => Poll::Pending,
        }
    }

    /// The client has not had all, and takes no more.
    pub(crate) fn leave(&self) {
        let mut state = self.state();
        state.client_is_gone = true;
        let (head, frame) = (state.head.take(), state.frame.take());
        let old = state.client.take();
        let wakers = [state.room.take(), state.gone.take()];
        drop(state);
        wake_all(wakers);
        discard((head, frame, old));
    }
}

fn wake_all<const N: usize>(wakers: [Option<Waker>; N]) {
    for waker in wakers.into_iter().flatten() {
        wake(waker);
    }
}
