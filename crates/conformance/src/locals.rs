//! Locals: values that a part of the tree has in common.

use std::sync::{Arc, Weak};
use std::time::Duration;

use kinfolk_core::{
    Error, Local, Result, all, current_job, detach, launch, local_scope, scope, sleep, spawn,
    timeout, yield_now,
};

use kinfolk_testkit::{Lab, Log};

const MS: Duration = Duration::from_millis(1);

static USER: Local<String> = Local::new();
static NUMBER: Local<u32> = Local::new();

fn user() -> String {
    USER.with(|user| user.map_or("nobody", String::as_str).to_string())
}

async fn ask() -> String {
    user()
}

/// handle-10: what is below a scope with a local sees it, however it came there:
/// children of every sort, their children, timers, branches, local children.
pub async fn handle_10_what_is_below_inherits(lab: Lab) {
    assert_eq!((user(), NUMBER.get()), ("nobody".into(), None));
    let log = Log::new();
    let said = log.clone();
    let got = USER.scope("ada".into(), async {
        assert_eq!(user(), "ada");
        yield_now().await?;
        assert_eq!(user(), "ada");
        assert_eq!(spawn(ask()).await?, "ada");
        assert_eq!(spawn(async { spawn(ask()).await }).await?, "ada");
        scope(async |s| {
            assert_eq!(s.spawn_now(ask()).await?, "ada");
            assert_eq!(s.spawn_lazy(ask()).await?, "ada");
            assert_eq!(s.spawn_service(ask()).await?, "ada");
            assert_eq!(s.spawn_atomic(ask()).await?, "ada");
            let word = said.clone();
            s.delay(MS, async move || word.say(format!("timer:{}", user())))
                .keep();
            sleep(2 * MS).await?;
            Ok(())
        })
        .await?;
        assert_eq!(timeout(MS, ask()).await?, "ada");
        assert_eq!(all((ask(), ask())).await?, ("ada".into(), "ada".into()));
        local_scope(async |s| {
            assert_eq!(s.spawn(ask()).await?, "ada");
            Ok(())
        })
        .await?;
        launch(async move { said.say(user()) });
        Ok::<_, Error>(5)
    });
    assert_eq!(got.await.unwrap(), 5);
    assert_eq!(user(), "nobody");
    assert_eq!(log.text(), "timer:ada ada");
    assert_eq!(lab.elapsed(), 2 * MS);
}

/// handle-10: an inner scope sets another value for what is below it; other
/// locals are seen through it.
pub async fn handle_10_an_inner_value_hides_the_outer(_lab: Lab) {
    let got = USER.scope("ada".into(), async {
        NUMBER
            .scope(7, async {
                let inner = USER.scope("bob".into(), async {
                    spawn(async { (user(), NUMBER.get()) }).await
                });
                assert_eq!(inner.await?, ("bob".into(), Some(7)));
                assert_eq!(user(), "ada");
                Ok::<_, Error>(())
            })
            .await?;
        assert_eq!(NUMBER.get(), None);
        Ok::<_, Error>(())
    });
    got.await.unwrap();
    // A local that is not a static is one of its own.
    let (one, two) = (Local::<u32>::new(), Local::<u32>::new());
    let got = one.scope(1, async { (one.get(), two.get()) });
    assert_eq!(got.await.unwrap(), (Some(1), None));
}

/// handle-10: what counts is where a child is spawned into: one of an outer scope
/// sees what that scope sees, a detached job sees nothing.
pub async fn handle_10_detached_jobs_inherit_none(_lab: Lab) {
    let log = Log::new();
    let got = scope(async |outer| {
        USER.scope("ada".into(), async {
            assert_eq!(outer.spawn(ask()).await?, "nobody");
            let said = log.clone();
            let free = detach(async move { said.say(user()) });
            let _ = free.join().await?;
            Ok::<_, Error>(())
        })
        .await
    });
    got.await.unwrap();
    assert_eq!(log.text(), "nobody");
}

/// handle-10: values are seen by the tasks they are for, side by side, and by
/// nobody else.
pub async fn handle_10_side_by_side(lab: Lab) {
    let ask_after = |n: u32| {
        NUMBER.scope(n, async move {
            sleep(n * MS).await?;
            spawn(async { NUMBER.get() }).await
        })
    };
    let got = all([3, 1, 2].map(ask_after)).await.unwrap();
    assert_eq!(got, [Some(3), Some(1), Some(2)]);
    assert_eq!(lab.elapsed(), 3 * MS);
}

/// handle-10: a value goes with its scope, whoever still looks at the job: when it
/// ends, when it is cancelled, and when it is dropped half-way.
pub async fn handle_10_a_value_goes_with_its_scope(lab: Lab) {
    static HELD: Local<Arc<()>> = Local::new();
    fn value() -> (Arc<()>, Weak<()>) {
        let value = Arc::new(());
        let weak = Arc::downgrade(&value);
        (value, weak)
    }
    let (held, weak) = value();
    let got = HELD.scope(held, async {
        assert!(HELD.with(|held| held.is_some()));
        current_job()
    });
    let job = got.await.unwrap().unwrap();
    assert!(job.is_ended() && weak.upgrade().is_none());

    let (held, weak) = value();
    let task = spawn(HELD.scope(held, async {
        spawn(async {
            let told: Result<()> = sleep(MS).await.map_err(Error::from);
            // There to the last: also for who cleans up.
            assert!(HELD.get().is_some());
            told
        })
        .await
    }));
    lab.settle().await;
    task.cancel("");
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert!(weak.upgrade().is_none());

    let (held, weak) = value();
    drop(HELD.scope(held, sleep(MS)));
    assert!(weak.upgrade().is_none());
    let (held, weak) = value();
    let mut job = None;
    let mut begun = Box::pin(HELD.scope(held, async {
        job = current_job();
        sleep(MS).await
    }));
    std::future::poll_fn(|cx| {
        assert!(begun.as_mut().poll(cx).is_pending());
        std::task::Poll::Ready(())
    })
    .await;
    drop(begun);
    assert!(job.expect("it has begun").is_ended());
    assert!(weak.upgrade().is_none());
}
