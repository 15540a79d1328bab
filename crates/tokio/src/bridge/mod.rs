//! Bridges between a job tree and code that knows tokio alone: tasks of tokio's, tokens,
//! futures that need a tokio context.

mod adopt;
#[cfg(feature = "tokio-util")]
mod token;
mod within;

pub use adopt::AdoptExt;
#[cfg(feature = "tokio-util")]
pub use token::TokenExt;
pub use within::{Within, within};
