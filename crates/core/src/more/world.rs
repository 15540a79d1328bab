//! The host's own state, lent to tasks of the main lane for the length of a
//! pump: typed, and checked when it is used.

use std::any::{TypeId, type_name};
use std::cell::Cell;

use crate::base::error::{Error, Result};
use crate::base::lane::Lane;
use crate::engine::context;
use crate::engine::tree::{Shared, Tree};

/// What the host lends while it pumps.
#[derive(Clone, Copy)]
struct World {
    value: *mut (),
    type_id: TypeId,
    type_name: &'static str,
    /// The tree whose main lane may use the value. Compared, and alive while
    /// the value is lent.
    tree: *const Shared,
}

/// The state that is lent on this thread.
#[derive(Clone, Copy)]
enum Lent {
    Nothing,
    InUse,
    World(World),
}

std::thread_local! {
    static LENT: Cell<Lent> = const { Cell::new(Lent::Nothing) };
}

/// Restores what was lent before.
struct LentBack(Lent);

impl Drop for LentBack {
    fn drop(&mut self) {
        LENT.set(self.0);
    }
}

impl Tree {
    /// Lends `world` to tasks of the main lane while `pump` runs on this
    /// thread; see [`with_world`](crate::with_world).
    pub fn lend<W: 'static, R>(&self, world: &mut W, pump: impl FnOnce() -> R) -> R {
        lend(self.shared(), world, pump)
    }
}

/// Lends `world` to the main lane of `tree` while `pump` runs on this thread.
fn lend<W: 'static, R>(tree: &Shared, world: &mut W, pump: impl FnOnce() -> R) -> R {
    let lent = World {
        value: std::ptr::from_mut(world).cast(),
        type_id: TypeId::of::<W>(),
        type_name: type_name::<W>(),
        tree: std::ptr::from_ref(tree),
    };
    // Restored before `world` is the caller's again, also by a panic.
    let _back = LentBack(LENT.replace(Lent::World(lent)));
    pump()
}

/// Uses the state that the host lends while it runs turns of the main lane, with
/// `pump_with(&mut world, …)` or another call that ends in `_with`. `f` is a plain function, so
/// that no await happens while it uses the state.
///
/// # Errors
/// Outside such a call, off the main lane, with another type than the host
/// lends, and inside another `with_world`.
pub fn with_world<W: 'static, R>(f: impl FnOnce(&mut W) -> R) -> Result<R> {
    let here = context::with(|cx| {
        let job = cx.current()?;
        // SAFETY: the current job has not ended.
        (job.lane() == Lane::Main).then(|| std::ptr::from_ref(unsafe { job.tree() }))
    });
    let Some(tree) = here else {
        return Err(Error::msg(
            "with_world was called off the main lane: spawn the task there, with `on(Main, …)`",
        ));
    };
    let world = match LENT.get() {
        Lent::World(world) if std::ptr::eq(world.tree, tree) => world,
        Lent::InUse => {
            return Err(Error::msg(
                "with_world was called inside with_world: the host's state is in use already",
            ));
        }
        _ => {
            return Err(Error::msg(
                "with_world was called while the host lends nothing: turn the runtime with \
                 `pump_with(&mut world, …)`; `run_expired_with`, `wait_for_with`, \
                 `block_on_with` and `shutdown_with` lend it too",
            ));
        }
    };
    if world.type_id != TypeId::of::<W>() {
        return Err(Error::msg(format!(
            "with_world asked for a {}, but the host lends a {}",
            type_name::<W>(),
            world.type_name
        )));
    }
    let _back = LentBack(LENT.replace(Lent::InUse));
    // SAFETY: `lend` has the only reference, further down this thread's stack,
    // and leaves it alone until this returns; the type is the same; `InUse`
    // excludes other users.
    Ok(f(unsafe { &mut *world.value.cast::<W>() }))
}
