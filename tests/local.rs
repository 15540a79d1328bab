//! Local scopes beside the conformance suite: children that are not `Send`, and
//! the hook for forced drops.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kinfolk_core::{
    Error, ErrorKind, Result, UnsendScope, local_scope, local_scope_unsend, sleep, yield_now,
};
use kinfolk_runtime::Runtime;
use kinfolk_testkit::{Sim, Tally};

/// handle-8: children that are not `Send` borrow what is not `Sync`.
#[test]
fn handle_8_children_that_are_not_send() {
    async fn pair<'env>(s: &UnsendScope<'env>, sum: &'env Cell<u32>, n: u32) -> Result<Rc<u32>> {
        let child = s.spawn(async move {
            let kept = Rc::new(n);
            yield_now().await?;
            sum.set(sum.get() + *kept);
            Ok::<_, Error>(kept)
        });
        s.task("loose")
            .launch(async move { sum.set(sum.get() + 100) });
        child.await
    }
    let runtime = Runtime::new().unwrap();
    let sum = Cell::new(0);
    let words = RefCell::new(Vec::new());
    let got = runtime.block_on(local_scope_unsend(async |s| {
        let one = pair(&s, &sum, 1).await?;
        let two = pair(&s, &sum, 2).await?;
        s.launch(async { words.borrow_mut().push("end") });
        Ok(*one + *two)
    }));
    assert_eq!(got.unwrap(), 3);
    assert_eq!((sum.get(), words.into_inner()), (203, vec!["end"]));
    let got: Result<()> = runtime.block_on(local_scope_unsend(async |s| {
        let kept = Rc::new("no");
        s.launch(async move { Err::<(), _>(*kept) });
        sleep(Duration::from_secs(3600)).await?;
        Ok(())
    }));
    let error = got.unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string()),
        (ErrorKind::Failed, "no".into())
    );
}

/// handle-8: a task that is dropped by force takes its local children with it:
/// the hook is told of each.
#[test]
fn handle_8_the_forced_hook_is_told_of_local_children() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let hook = told.clone();
    let mut sim = Sim::builder(1)
        .on_forced(move |job| hook.lock().unwrap().push(job.name.clone()))
        .build();
    let tally = Tally::new();
    let inside = tally.clone();
    sim.run(async move {
        let scope = local_scope(async |s| {
            s.task("deaf")
                .launch(inside.count(std::future::pending::<()>()));
            std::future::pending::<()>().await;
            Ok(())
        });
        let mut scope = Box::pin(scope);
        std::future::poll_fn(|cx| {
            assert!(scope.as_mut().poll(cx).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
        drop(scope);
        Ok::<_, Error>(())
    })
    .unwrap();
    assert_eq!(*told.lock().unwrap(), ["deaf"]);
    assert_eq!(tally.drops(), 1);
    assert_eq!(sim.counters().jobs_force_dropped, 1);
    sim.finish();
}
