//! Where events go.

use super::event::Event;

/// Takes events. Called on whatever thread the event happened on, never under
/// a lock of ours; a panic in it is contained and harms nothing else.
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
