//! Virtual time: the cases of group Q that any host with a virtual clock must
//! pass. Those about the simulation itself are in `tests/simulation.rs`.

use std::time::{Duration, Instant};

use kinfolk_core::{Error, Scope, launch, now, park, scope, sleep, timeout, yield_now};

use kinfolk_testkit::{Lab, Log};

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);

/// Ten sleeps of 450 seconds in all take no real time, and each ends at its
/// exact instant.
/// Also: test-1.
pub async fn case_q01_sleeps_end_at_their_exact_virtual_instant(lab: Lab) {
    let real = Instant::now();
    let mut expected = Duration::ZERO;
    for n in 0..10 {
        sleep(n * 10 * SEC).await.unwrap();
        expected += n * 10 * SEC;
        assert_eq!(lab.elapsed(), expected);
    }
    assert_eq!(expected, 450 * SEC);
    assert!(real.elapsed() < SEC, "{:?}", real.elapsed());
}

/// Ten sleeping tasks, started in one order and due in another, wake in the
/// order of their instants.
/// Also: test-1.
pub async fn case_q01_sleeping_tasks_wake_at_their_own_instants(lab: Lab) {
    let log = Log::new();
    scope(async |s| {
        for n in 0..10_u32 {
            let (lab, log) = (lab.clone(), log.clone());
            let wait = (n * 7 % 10) * 10 * SEC;
            s.launch(async move {
                sleep(wait).await?;
                assert_eq!(lab.elapsed(), wait);
                log.say(wait.as_secs().to_string());
                Ok::<_, Error>(())
            });
        }
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(log.text(), "0 10 20 30 40 50 60 70 80 90");
    assert_eq!(lab.elapsed(), 90 * SEC);
}

/// The clock stands still while anybody has something to do, and while we
/// wait for all to be blocked.
pub async fn test_1_time_jumps_only_when_everything_is_idle(lab: Lab) {
    scope(async |s| {
        let sleeper = s.spawn(async {
            sleep(MS).await?;
            Ok::<_, Error>(now())
        });
        let start = now();
        for _ in 0..500 {
            yield_now().await?;
            assert_eq!(now(), start);
        }
        lab.settle().await;
        lab.settle().await;
        assert_eq!(now(), start);
        assert!(!sleeper.is_ended());
        assert_eq!(sleeper.await?, start + MS);
        Ok(())
    })
    .await
    .unwrap();
}

/// A TimedOut under a virtual clock says so.
pub async fn case_q08_a_timeout_says_that_time_was_virtual(_lab: Lab) {
    let error = timeout(10 * MS, park()).await.unwrap_err();
    let words = error.to_string();
    assert!(words.contains("10ms of virtual time"), "{words}");
    let named = Scope::named("x")
        .timeout(MS)
        .reason("too slow")
        .run_future(park());
    let words = named.await.unwrap_err().to_string();
    assert!(words.contains("virtual time"), "{words}");
    assert!(words.contains("too slow"), "{words}");
}

/// What is due at an instant has run before anything later is.
pub async fn case_q02_what_is_due_runs_before_time_moves_on(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let here = lab.clone();
    let job = launch(async move {
        sleep(15 * MS).await?;
        for n in 0..5 {
            yield_now().await?;
            assert_eq!(here.elapsed(), 15 * MS);
            words.say(n.to_string());
        }
        Ok::<_, Error>(())
    });
    sleep(15 * MS + Duration::from_nanos(1)).await.unwrap();
    assert_eq!(log.text(), "0 1 2 3 4");
    assert!(job.join().await.unwrap().is_completed());
}
