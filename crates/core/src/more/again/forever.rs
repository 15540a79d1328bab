//! [`forever`]: round after round, until a failure or a cancellation.

use std::convert::Infallible;
use std::panic::Location;

use crate::base::drop_at_end::DropAtEnd;
use crate::base::error::Result;
use crate::base::outcome::IntoOutcome;
use crate::base::unwind::Contained;
use crate::base::unwind::discard;
use crate::points::point::Checkpoint;
use crate::record::header::Site;

/// Calls `f` again and again, and returns only an error: the failure of a round, or
/// `Cancelled`. Values of the rounds are dropped.
///
/// There is a point before each round: a body that logs every error and goes on, its own
/// `Cancelled` included, is stopped there.
///
/// ```
/// # use kinfolk_core as kinfolk;
/// use kinfolk::{forever, scope};
/// use std::convert::Infallible;
/// # async fn accept() -> kinfolk::Result<u32> { Ok(1) }
/// # async fn talk(client: u32) -> kinfolk::Result<()> { Ok(()) }
///
/// async fn serve() -> kinfolk::Result<Infallible> {
///     scope(async |s| {
///         forever(async || match accept().await {
///             Ok(client) => drop(s.attempt(talk(client)).into_job()),
///             Err(error) => println!("{error}"),
///         })
///         .await
///     })
///     .await
/// }
/// ```
///
/// # Cancellation
/// A *point* before each round.
#[track_caller]
pub fn forever<F, B>(f: F) -> impl Future<Output = Result<Infallible>>
where
    F: FnMut() -> B,
    B: Future<Output: IntoOutcome>,
{
    forever_at(f, Site::of(Location::caller()))
}

async fn forever_at<F, B>(f: F, site: Site) -> Result<Infallible>
where
    F: FnMut() -> B,
    B: Future<Output: IntoOutcome>,
{
    // Dropped after the error has been returned: a panic there would lose it.
    let mut f = Contained::new(f);
    loop {
        Checkpoint::at(site.location()).await?;
        discard(DropAtEnd::new(f()).await.into_result()?);
    }
}
