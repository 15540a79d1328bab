//! Several futures at once, in one task or in many: `all`, `all_settled`, `any`,
//! `race`, `select!`, `for_each_concurrent`, `TaskSet` and `local_scope`.
//!
//! A *branch* is a scope ([`branch`]), polled inside the task that opened it, so
//! it may borrow. Branches come as a tuple ([`tuple`]), all polled at every turn,
//! or from an iterator ([`many`]), each with a waker of its own. [`together`] runs
//! them; the file of each verb decides what the call returns. The scopes
//! themselves are those of [`inline`](crate::surface::inline).

pub(crate) mod all;
pub(crate) mod any;
pub(crate) mod branch;
pub(crate) mod branches;
pub(crate) mod chosen;
pub(crate) mod each;
pub(crate) mod local_scope;
pub(crate) mod many;
pub(crate) mod map;
pub(crate) mod race;
pub(crate) mod select;
pub(crate) mod set_verbs;
pub(crate) mod shared;
#[cfg(feature = "stream")]
pub(crate) mod stream;
pub(crate) mod taken_in;
pub(crate) mod task_set;
pub(crate) mod together;
pub(crate) mod tuple;
pub(crate) mod wake_list;
