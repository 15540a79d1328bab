//! How a job ended, and what counts as an outcome of a body.

use crate::base::error::{BoxError, Error, Result};
use crate::base::own;
use crate::base::reason::Reason;

/// How a job ended.
#[derive(Debug, Clone)]
#[must_use]
pub enum Outcome<T = ()> {
    /// The job returned a value.
    Completed(T),
    /// The job failed, or a child whose failure it takes over.
    Failed(Error),
    /// The job was cancelled.
    Cancelled {
        /// Why.
        reason: Reason,
        /// The value that the job returned although it was cancelled, if any.
        late: Option<T>,
    },
}

impl<T> Outcome<T> {
    /// Returns the value of a completed job.
    pub fn completed(self) -> Option<T> {
        match self {
            Outcome::Completed(value) => Some(value),
            _ => None,
        }
    }

    /// Returns the value, also if the job produced it after it was cancelled.
    pub fn into_value(self) -> Option<T> {
        match self {
            Outcome::Completed(value) => Some(value),
            Outcome::Cancelled { late, .. } => late,
            Outcome::Failed(_) => None,
        }
    }

    /// Returns true if the job completed.
    pub fn is_completed(&self) -> bool {
        matches!(self, Outcome::Completed(_))
    }

    /// Returns true if the job failed.
    pub fn is_failed(&self) -> bool {
        matches!(self, Outcome::Failed(_))
    }

    /// Returns true if the job was cancelled.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, Outcome::Cancelled { .. })
    }

    /// Returns the failure of a failed job.
    pub fn error(&self) -> Option<&Error> {
        match self {
            Outcome::Failed(error) => Some(error),
            _ => None,
        }
    }

    /// Returns why the job was cancelled, if it was.
    pub fn reason(&self) -> Option<&Reason> {
        match self {
            Outcome::Cancelled { reason, .. } => Some(reason),
            _ => None,
        }
    }
}

/// A type that a body may return as its value. Implement it for a type of your own in one
/// line: `impl kinfolk::Success for User {}`.
///
/// The trait exists because a body may also return a `Result`, whose `Err` is a failure, and
/// stable Rust cannot express "any type but `Result`".
#[diagnostic::on_unimplemented(
    message = "a body cannot return `{Self}`: it returns a type that implements `kinfolk::Success`, \
               or a `Result` whose error is a `std::error::Error`",
    label = "this body returns `{Self}`",
    note = "for a type of your own, write `impl kinfolk::Success for TheType {{}}`"
)]
pub trait Success {}

/// What a body may return: a [`Success`], or a `Result` with any error.
// The message carries the remedy: the compiler drops the notes where it proposes
// to borrow the future.
#[diagnostic::on_unimplemented(
    message = "a body cannot return `{Self}`: it returns a type that implements `kinfolk::Success`, \
               or a `Result` whose error is a `std::error::Error`",
    label = "this body returns `{Self}`",
    note = "for a type of your own, write `impl kinfolk::Success for TheType {{}}`"
)]
pub trait IntoOutcome {
    /// What a successful body yields.
    type Value;

    /// The value, or the error as ours.
    fn into_result(self) -> Result<Self::Value>;
}

impl<T: Success> IntoOutcome for T {
    type Value = T;

    fn into_result(self) -> Result<T> {
        Ok(self)
    }
}

impl<T, E: Into<BoxError> + 'static> IntoOutcome for std::result::Result<T, E> {
    type Value = T;

    fn into_result(self) -> Result<T> {
        self.map_err(own::from_any)
    }
}

macro_rules! success {
    ($($type:ty),* $(,)?) => {$(impl Success for $type {})*};
}

success!(
    (),
    bool,
    char,
    u8,
    u16,
    u32,
    u64,
    u128,
    usize,
    i8,
    i16,
    i32,
    i64,
    i128,
    isize,
    f32,
    f64,
    String,
    std::time::Duration,
    std::time::Instant,
    std::time::SystemTime,
    std::thread::ThreadId,
    std::path::PathBuf,
    std::ffi::OsString,
    std::net::IpAddr,
    std::net::SocketAddr,
    std::convert::Infallible,
);

impl<T: ?Sized> Success for &T {}
impl<T> Success for Option<T> {}
impl<T> Success for Vec<T> {}
impl<T: ?Sized> Success for Box<T> {}
impl<T: ?Sized> Success for std::rc::Rc<T> {}
impl<T: ?Sized> Success for std::sync::Arc<T> {}
impl<T: ?Sized + ToOwned> Success for std::borrow::Cow<'_, T> {}
impl<T, const N: usize> Success for [T; N] {}
impl<K, V, S> Success for std::collections::HashMap<K, V, S> {}
impl<T, S> Success for std::collections::HashSet<T, S> {}
impl<K, V> Success for std::collections::BTreeMap<K, V> {}
impl<T> Success for std::collections::BTreeSet<T> {}
impl<T> Success for std::collections::VecDeque<T> {}
impl<A> Success for (A,) {}
impl<A, B> Success for (A, B) {}
impl<A, B, C> Success for (A, B, C) {}
impl<A, B, C, D> Success for (A, B, C, D) {}
impl<A, B, C, D, E> Success for (A, B, C, D, E) {}
impl<A, B, C, D, E, F> Success for (A, B, C, D, E, F) {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::id::JobId;
    use crate::base::reason::{ReasonData, ReasonKind};

    fn all() -> [Outcome<u8>; 4] {
        let asked = ReasonData {
            kind: ReasonKind::Asked,
            text: None,
            origin: JobId::new(1, 1),
            culprit: None,
            site: std::panic::Location::caller(),
            at: std::time::Instant::now(),
            by: None,
            delivery: None,
        };
        let reason = Reason::new(std::sync::Arc::new(asked), false);
        [
            Outcome::Completed(7),
            Outcome::Failed(Error::msg("broken")),
            Outcome::Cancelled {
                reason: reason.clone(),
                late: None,
            },
            Outcome::Cancelled {
                reason,
                late: Some(9),
            },
        ]
    }

    /// Each question has one answer for each of the ways to end.
    #[test]
    fn an_outcome_answers_every_question() {
        let ask = |question: fn(&Outcome<u8>) -> bool| all().each_ref().map(question);
        assert_eq!(ask(Outcome::is_completed), [true, false, false, false]);
        assert_eq!(ask(Outcome::is_failed), [false, true, false, false]);
        assert_eq!(ask(Outcome::is_cancelled), [false, false, true, true]);
        assert_eq!(ask(|it| it.error().is_some()), [false, true, false, false]);
        assert_eq!(ask(|it| it.reason().is_some()), [false, false, true, true]);
        assert_eq!(all().map(Outcome::completed), [Some(7), None, None, None]);
        assert_eq!(
            all().map(Outcome::into_value),
            [Some(7), None, None, Some(9)]
        );
    }
}
