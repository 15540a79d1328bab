//! Where events go.

use crate::base::observe::event::Event;

/// Takes events. Called on whatever thread the event happened on, never under
/// a lock of ours. One that panics is called no more, and the failure hook gets the
/// panic; nothing else is harmed.
///
/// Several threads may call it at once, but no thread calls it inside a call of a sink:
/// what happens there, because the sink cancels or spawns, is told when that call has
/// returned.
///
/// With no sink installed, emitting costs one look at a field.
pub trait Sink: Send + Sync + 'static {
    /// One event.
    fn event(&self, event: &Event);

    /// Whether it wants the three events of every turn (`Scheduled`,
    /// `PollBegin`, `PollEnd`). Asked once, when the sink is installed.
    fn wants_turns(&self) -> bool {
        false
    }
}
