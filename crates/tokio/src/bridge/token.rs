//! [`TokenExt`]: a `CancellationToken` of tokio-util cancels a scope, and a scope cancels a
//! token. No task stands in between: either way it is a callback.
//!
//! Neither keeps the other for longer than it must. A scope that ends gives up its place at
//! the token; a token that goes gives up its place at the scope's own one.

use std::collections::BTreeMap;
use std::panic::Location;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};

use kinfolk_core::{HookGuard, JobId, Scope};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Tokens that cancel a [`Scope`], and a token that it cancels.
pub trait TokenExt {
    /// Cancels this scope when `token` is cancelled; at once, if it is already.
    ///
    /// Dropping the guard gives that up; after [`keep`](HookGuard::keep) it lasts until the
    /// scope ends. The scope is cancelled on the thread that cancels the token.
    ///
    /// ```
    /// use kinfolk_core::{Scope, park, scope};
    /// use kinfolk_tokio::{TokenExt, run};
    /// use tokio_util::sync::CancellationToken;
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let token = CancellationToken::new();
    /// let theirs = token.clone();
    /// let waits = run(scope(async move |s: Scope| {
    ///     s.cancel_on(&theirs).keep();
    ///     park().await?;
    ///     Ok(())
    /// }));
    /// let (ended, ()) = tokio::join!(waits, async { token.cancel() });
    /// assert!(ended.is_err());
    /// # kinfolk_tokio::Root::current().shutdown().await.unwrap();
    /// # });
    /// ```
    #[track_caller]
    fn cancel_on(&self, token: &CancellationToken) -> HookGuard;

    /// A token that is cancelled when this scope is cancelled, and when it has ended: for
    /// code that takes a `CancellationToken`.
    ///
    /// Cancelling the token does not cancel the scope. Each call returns a token of its own,
    /// which takes no memory any more once it is dropped.
    fn token(&self) -> CancellationToken;
}

impl TokenExt for Scope {
    #[track_caller]
    fn cancel_on(&self, token: &CancellationToken) -> HookGuard {
        link(self, token, Location::caller()).1
    }

    fn token(&self) -> CancellationToken {
        let id = self.job().id();
        let (own, is_new) = {
            let mut tokens = tokens();
            match tokens.get(&id) {
                Some(own) => (own.clone(), false),
                None => {
                    let own = CancellationToken::new();
                    tokens.insert(id, own.clone());
                    (own, true)
                }
            }
        };
        let token = own.child_token();
        if is_new {
            let told = ScopeToken { id, own };
            // At once, if the scope is cancelled or has ended.
            self.on_cancel(move |_| drop(told)).keep();
        }
        token
    }
}

/// Links `scope` to `token` until the guard goes, or the scope.
fn link(
    scope: &Scope,
    token: &CancellationToken,
    site: &'static Location<'static>,
) -> (Weak<TokenLink>, HookGuard) {
    let link = Arc::new(TokenLink {
        scope: scope.clone(),
        site,
        place: Mutex::new(None),
    });
    if link.listen(token) {
        link.cancel();
    }
    let weak = Arc::downgrade(&link);
    let unlink = Unlinks(link);
    // Called at a cancel and dropped at the end, or with the guard: each unlinks.
    (weak, scope.on_cancel(move |_| drop(unlink)))
}

/// A scope's place at a token.
struct TokenLink {
    scope: Scope,
    site: &'static Location<'static>,
    place: Mutex<Option<Pin<Box<WaitForCancellationFutureOwned>>>>,
}

impl TokenLink {
    /// Takes a place at `token`. True if it is cancelled already.
    fn listen(self: &Arc<Self>, token: &CancellationToken) -> bool {
        let waker = Waker::from(self.clone());
        let mut place = Box::pin(token.clone().cancelled_owned());
        // The token calls no code of others in a poll, so it may be polled under the lock;
        // a wake on another thread waits here until the place is listed.
        let mut listed = self.lock();
        match place.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(()) => true,
            Poll::Pending => {
                *listed = Some(place);
                false
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Pin<Box<WaitForCancellationFutureOwned>>>> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cancel(&self) {
        let site = self.site;
        let (file, line) = (site.file(), site.line());
        let why = format!("its CancellationToken, linked at {file}:{line}, was cancelled");
        self.scope.cancel(why);
    }
}

impl Wake for TokenLink {
    /// Only by a cancel of the token, which holds no lock of its own meanwhile.
    fn wake(self: Arc<Self>) {
        let place = self.lock().take();
        // None: it was unlinked in this moment.
        if place.is_some() {
            self.cancel();
        }
    }
}

/// Gives the place at the token up when it is dropped. The place has a waker of the link,
/// and the link has the place: without this they would keep each other.
struct Unlinks(Arc<TokenLink>);

impl Drop for Unlinks {
    fn drop(&mut self) {
        let place = self.0.lock().take();
        drop(place);
    }
}

/// The tokens that scopes cancel: one for each scope that was asked for one. What is handed
/// out are children of it.
static TOKENS: Mutex<BTreeMap<JobId, CancellationToken>> = Mutex::new(BTreeMap::new());

fn tokens() -> MutexGuard<'static, BTreeMap<JobId, CancellationToken>> {
    TOKENS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The scope is cancelled or over: so is its token, which is asked for no more.
struct ScopeToken {
    id: JobId,
    own: CancellationToken,
}

impl Drop for ScopeToken {
    fn drop(&mut self) {
        tokens().remove(&self.id);
        self.own.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Root;
    use kinfolk_core::scope;

    /// Whichever of guard, scope and token goes first, the link goes: nothing keeps it, and it
    /// keeps nothing.
    #[tokio::test]
    async fn cancel_8_a_link_to_a_token_is_kept_by_nothing() {
        let root = Root::builder().build();
        let token = CancellationToken::new();
        let run = root.run(scope(async move |s: Scope| {
            let linked = |to: &Scope| link(to, &token, Location::caller());
            let (by_guard, guard) = linked(&s);
            drop(guard);
            assert!(by_guard.upgrade().is_none(), "the guard has gone");
            let mut by_scope = Weak::new();
            let ended = scope(async |inner: Scope| {
                let (weak, guard) = linked(&inner);
                guard.keep();
                assert!(weak.upgrade().is_some());
                by_scope = weak;
                Ok(())
            });
            ended.await?;
            assert!(by_scope.upgrade().is_none(), "the scope has ended");
            let (by_token, guard) = linked(&s);
            guard.keep();
            token.cancel();
            assert!(by_token.upgrade().is_none(), "the token is cancelled");
            assert!(s.cancel_requested());
            let (late, guard) = linked(&s);
            drop(guard);
            assert!(late.upgrade().is_none());
            Ok(())
        }));
        run.await.unwrap();
        assert!(root.shutdown().await.unwrap().is_clean());
    }

    /// The token of a scope is listed while the scope lives.
    #[tokio::test]
    async fn cancel_8_the_token_of_a_scope_goes_with_it() {
        let root = Root::builder().build();
        let run = root.run(async {
            for cancels in [false, true] {
                let mut id = None;
                let ended = scope(async |s: Scope| {
                    id = Some(s.job().id());
                    let token = s.token();
                    assert!(tokens().contains_key(&s.job().id()));
                    if cancels {
                        s.cancel("enough");
                    }
                    assert_eq!(token.is_cancelled(), cancels);
                    Ok(())
                });
                ended.await?;
                let id = id.expect("the scope has run");
                assert!(!tokens().contains_key(&id), "it has ended");
            }
            Ok::<_, kinfolk_core::Error>(())
        });
        run.await.unwrap();
        assert!(root.shutdown().await.unwrap().is_clean());
    }
}
