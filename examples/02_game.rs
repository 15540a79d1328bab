//! A game that owns its main loop: sixty frames a second, without a window.
//!
//! Everything of Kinfolk that touches the game runs on the main thread, inside
//! `pump_with`, and only there; heavy work goes to the pool and comes back. It
//! ends after two seconds and shows how long its frames took.

use std::time::{Duration, Instant};

use kinfolk::frame::{Budget, next_pump, with_world};
use kinfolk::runtime::{HostClock, Runtime};
use kinfolk::{Main, Pool, Result, on, park, scope};

const FRAME: Duration = Duration::from_nanos(1_000_000_000 / 60);
const FRAMES: usize = 120;

/// The game's own state. No lock: only the main thread touches it.
#[derive(Default)]
struct World {
    frame: usize,
    enemies: Vec<f32>,
    paths_found: u32,
    shots: u32,
}

impl World {
    fn new() -> World {
        World {
            enemies: vec![0.0; 8],
            ..World::default()
        }
    }
}

/// An enemy: thinks on the pool, moves on the main thread, once in each frame.
async fn enemy(id: usize) -> Result<()> {
    loop {
        let step = on(Pool, async move { find_path(id) }).await?;
        with_world(|world: &mut World| {
            world.enemies[id] += step;
            world.paths_found += 1;
        })?;
        next_pump().await?; // the next frame, never this one
    }
}

fn find_path(id: usize) -> f32 {
    (0..2_000).fold(id as f32, |x, n| (x + n as f32).sin())
}

/// A shot, on the main thread.
async fn shoot() -> Result<()> {
    with_world(|world: &mut World| world.shots += 1)
}

/// One family: the level. Cancelling it ends everything in it.
async fn level() -> Result<()> {
    scope(async |s| {
        for id in 0..8 {
            s.on(Main).named(format!("enemy {id}")).launch(enemy(id));
        }
        // Every 100 ms of the game's time, which is not the wall's: while the
        // game is paused it does not shoot.
        let turret = s.timer("turret").on(Main);
        turret.interval(Duration::from_millis(100), shoot)?.keep();
        park().await?; // until the level is over
        Ok(())
    })
    .await
}

fn main() -> Result<()> {
    let clock = HostClock::new();
    let rt = Runtime::builder()
        .workers(1)
        .clock(clock.shared())
        .build()?;
    let mut world = World::new();

    let level = rt.scope().task("level").on(Main).spawn(level());

    let mut histogram = [0_usize; 6];
    let mut next = Instant::now();
    for frame in 0..FRAMES {
        let began = Instant::now();
        world.frame = frame;
        match frame {
            40 => clock.pause(),       // the player opened the menu
            70 => clock.resume(),      // and closed it
            90 => clock.set_rate(0.5), // slow motion
            _ => {}
        }
        // A quarter of the frame for tasks; what does not fit waits.
        rt.pump_with(&mut world, Budget::Time(FRAME / 4))?;
        if frame == FRAMES / 2 {
            println!("in the middle of frame {frame}:\n{}", rt.snapshot());
        }
        let bucket = began.elapsed().as_micros() as usize;
        histogram[[50, 100, 250, 500, 1000].partition_point(|limit| *limit <= bucket)] += 1;
        next += FRAME;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }

    level.cancel("the level is over");
    let ended = rt.wait_for(level.outcome())??;
    println!(
        "the level ended: {}",
        if ended.is_cancelled() {
            "cancelled"
        } else {
            "otherwise"
        }
    );
    println!(
        "{} frames, {} paths found on the pool, {} shots in {:.1} s of game time",
        world.frame + 1,
        world.paths_found,
        world.shots,
        world.shots as f32 / 10.0
    );
    println!("time in the pump, by frame:");
    let names = [
        "< 50 µs",
        "< 100 µs",
        "< 250 µs",
        "< 500 µs",
        "< 1 ms",
        "more",
    ];
    for (name, count) in names.iter().zip(histogram) {
        println!("  {name:>8} {count:>4} {}", "#".repeat(count.div_ceil(2)));
    }
    let report = rt.shutdown(Duration::from_secs(1))?;
    println!("{report}");
    Ok(())
}

/// The level is over in its first frame, in its second and so on, each time on
/// another schedule: nothing of it is left in the frame after.
#[test]
fn a_level_can_end_in_any_frame() {
    use kinfolk::testkit::Sim;

    for last in 0..40 {
        let (mut sim, mut world) = (Sim::seeded(last), World::new());
        let level = sim.root().task("level").on(Main).spawn(level());
        for frame in 0..last as u32 {
            sim.run_expired_with(&mut world, sim.start() + frame * FRAME);
            assert!(!level.is_ended());
            let shots = 1 + (frame * FRAME).as_millis() / 100;
            assert_eq!(u128::from(world.shots), shots);
        }
        level.cancel("the level is over");
        while !level.is_ended() {
            sim.pump_with(&mut world, Budget::Time(FRAME));
        }
        drop(level);
        sim.assert_nothing_left();
        sim.finish();
    }
}
