//! The causal trace, on seeds: a small model of random families predicts every hop, every
//! telling and every end of random cancels.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kinfolk_core::{
    Error, Job, JobId, JobState, ReasonKind, Scope, cleanup, current_job, ignore_cancellation,
    park, scope, shield, sleep, spawn,
};
use kinfolk_see::Causes;
use kinfolk_testkit::Sim;

const MS: Duration = Duration::from_millis(1);

/// Numbers from a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % sides
    }
}

/// What a body does once its children are there: it stays, and is told at a `park`.
#[derive(Clone, Debug)]
enum Stay {
    /// Parks at once.
    Plain,
    /// Is in a scope first, which has a body of this sort; then parks.
    InScope(Box<Family>),
    /// Is in a shield first, for so many milliseconds from the start.
    InShield(u64),
    /// Holds a guard for so many milliseconds from the start.
    Guarded(u64),
}

#[derive(Clone, Debug)]
struct Family {
    number: usize,
    children: Vec<Family>,
    stay: Stay,
    /// How long it cleans up, once told.
    cleans: u64,
}

impl Family {
    fn random(dice: &mut Dice, next: &mut usize, deep: u32) -> Family {
        let number = *next;
        *next += 1;
        let many = if deep == 0 { 0 } else { dice.roll(4) };
        let children = (0..many)
            .map(|_| Family::random(dice, next, deep - 1))
            .collect();
        let stay = match dice.roll(6) {
            0 if deep > 0 => Stay::InScope(Box::new(Family::random(dice, next, deep - 1))),
            1 => Stay::InShield(10 * (1 + dice.roll(12))),
            2 => Stay::Guarded(10 * (1 + dice.roll(12))),
            _ => Stay::Plain,
        };
        Family {
            number,
            children,
            stay,
            cleans: 10 * dice.roll(5),
        }
    }

    fn visit<'a>(&'a self, up: Option<usize>, f: &mut impl FnMut(&'a Family, Option<usize>)) {
        f(self, up);
        for child in &self.children {
            child.visit(Some(self.number), f);
        }
        if let Stay::InScope(inner) = &self.stay {
            inner.visit(Some(self.number), f);
        }
    }
}

/// The jobs by number, once they run; and the shields by the number of what is around them.
#[derive(Default)]
struct Names {
    jobs: HashMap<usize, Job>,
    shields: HashMap<usize, JobId>,
}

type Book = Arc<Mutex<Names>>;

fn body(family: Family, book: Book) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send>> {
    Box::pin(async move {
        let me = current_job().unwrap();
        book.lock().unwrap().jobs.insert(family.number, me);
        let home = Scope::current().unwrap();
        for child in family.children {
            home.launch(body(child, book.clone()));
        }
        match family.stay {
            Stay::Plain => {}
            Stay::InScope(inner) => {
                let _ = scope(async |_| body(*inner, book.clone()).await).await;
            }
            Stay::InShield(until) => {
                let book = book.clone();
                let number = family.number;
                let stays = shield(async move {
                    let me = current_job().unwrap().id();
                    book.lock().unwrap().shields.insert(number, me);
                    sleep(until as u32 * MS).await
                });
                stays.await.unwrap();
            }
            Stay::Guarded(until) => {
                let guard = ignore_cancellation().await?;
                sleep(until as u32 * MS).await?;
                drop(guard);
            }
        }
        let told = park().await;
        cleanup(sleep(family.cleans as u32 * MS)).await?;
        told?;
        Ok(())
    })
}

/// What the model says of one job.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fate {
    /// Where the cancel entered, and when it was asked for.
    entered: (usize, u64),
    /// When it took effect here.
    came: u64,
    told: u64,
    ended: u64,
}

/// The model: families, cancels, and what becomes of each job. Milliseconds.
struct Model<'a> {
    families: HashMap<usize, (&'a Family, Option<usize>)>,
    /// When the cancel took effect at each job, and where it entered.
    marks: HashMap<usize, (u64, (usize, u64))>,
}

impl<'a> Model<'a> {
    fn new(root: &'a Family) -> Model<'a> {
        let mut families = HashMap::new();
        root.visit(None, &mut |family, up| {
            families.insert(family.number, (family, up));
        });
        Model {
            families,
            marks: HashMap::new(),
        }
    }

    /// A cancel of `number` at `at`, all earlier ones known.
    fn cancel(&mut self, number: usize, at: u64) {
        let knows = self.marks.get(&number).is_some_and(|(came, _)| *came <= at);
        // One that a guard holds back and that has been asked for is not asked again.
        if knows || self.ended(number).is_some_and(|end| end < at) {
            return;
        }
        self.mark(number, at, (number, at));
    }

    fn mark(&mut self, number: usize, at: u64, entered: (usize, u64)) {
        let (family, _) = self.families[&number];
        let at = match family.stay {
            Stay::Guarded(until) => at.max(until),
            _ => at,
        };
        if self
            .marks
            .get(&number)
            .is_some_and(|(before, _)| *before <= at)
        {
            return;
        }
        self.marks.insert(number, (at, entered));
        for child in &family.children {
            self.mark(child.number, at, entered);
        }
        if let Stay::InScope(inner) = &family.stay {
            self.mark(inner.number, at, entered);
        }
    }

    /// When the point of its body tells it.
    fn told(&self, number: usize) -> Option<u64> {
        let (family, _) = self.families[&number];
        let (came, _) = *self.marks.get(&number)?;
        Some(match &family.stay {
            Stay::Plain => came,
            Stay::InShield(until) | Stay::Guarded(until) => came.max(*until),
            Stay::InScope(inner) => came.max(self.ended(inner.number)?),
        })
    }

    fn ended(&self, number: usize) -> Option<u64> {
        let (family, _) = self.families[&number];
        let mut end = self.told(number)? + family.cleans;
        for child in &family.children {
            end = end.max(self.ended(child.number)?);
        }
        Some(end)
    }

    fn fate(&self, number: usize) -> Option<Fate> {
        let (came, entered) = *self.marks.get(&number)?;
        Some(Fate {
            entered,
            came,
            told: self.told(number)?,
            ended: self.ended(number)?,
        })
    }

    /// From where the cancel entered down to `number`.
    fn way(&self, number: usize) -> Vec<usize> {
        let (_, (entered, _)) = self.marks[&number];
        let mut way = vec![number];
        while way[way.len() - 1] != entered {
            let (_, up) = self.families[&way[way.len() - 1]];
            way.push(up.expect("the cancel entered above"));
        }
        way.reverse();
        way
    }
}

fn nanos(millis: u64) -> u64 {
    millis * 1_000_000
}

fn seeds() -> u64 {
    let given = std::env::var("KINFOLK_SEEDS").ok();
    given.and_then(|seeds| seeds.parse().ok()).unwrap_or(200)
}

#[test]
fn see_5_a_model_predicts_every_hop_telling_and_end() {
    let mut cancelled = 0;
    for seed in 0..seeds() {
        let mut dice = Dice(seed);
        for _ in 0..5 {
            dice.roll(2);
        }
        let mut count = 0;
        let family = Family::random(&mut dice, &mut count, 3);
        // At odd milliseconds: nothing else happens there.
        let mut cancels: Vec<(u64, usize)> = (0..=dice.roll(3))
            .map(|nth| {
                (
                    1 + nth * 26 + 2 * dice.roll(12),
                    dice.roll(count as u64) as usize,
                )
            })
            .collect();
        // Last of all the whole family, so that all of it ends.
        cancels.push((401, 0));

        let causes = Causes::new();
        let book = Book::default();
        let mut sim = Sim::builder(seed)
            .sink(causes.clone())
            .on_failure(|_| {})
            .build();
        let (made, names, plan) = (family.clone(), book.clone(), cancels.clone());
        let me = sim
            .run(async move {
                let start = kinfolk_core::now();
                let task = spawn(body(made, names.clone()));
                for (at, target) in plan {
                    kinfolk_core::sleep_until(start + at as u32 * MS).await?;
                    let job = names.lock().unwrap().jobs.get(&target).cloned();
                    job.expect("it has run").cancel(format!("cancel {at}"));
                }
                assert!(task.outcome().await?.is_cancelled());
                Ok::<_, Error>(current_job().unwrap().id())
            })
            .unwrap();

        let mut model = Model::new(&family);
        for (at, target) in &cancels {
            model.cancel(*target, *at);
        }
        let book = book.lock().unwrap();
        for (number, job) in &book.jobs {
            let words = format!("seed {seed}, family {number}, {family:#?}, {cancels:?}");
            let fate = model.fate(*number).unwrap_or_else(|| panic!("{words}"));
            let trace = causes.why_cancelled(job.id()).expect(&words);
            let way = model.way(*number);
            let id = |number: &usize| book.jobs[number].id();
            assert_eq!(trace.entry.job.id, id(&fate.entered.0), "{words}\n{trace}");
            assert_eq!(trace.entry.at, nanos(fate.entered.1), "{words}\n{trace}");
            assert_eq!(trace.entry.reason, ReasonKind::Asked);
            assert_eq!(trace.entry.text, Some(format!("cancel {}", fate.entered.1)));
            assert_eq!(trace.entry.by.as_ref().map(|by| by.id), Some(me));
            assert_eq!(trace.entry.site.file(), file!());
            let hops: Vec<_> = trace
                .hops
                .iter()
                .map(|hop| (hop.from, hop.to.id, hop.at))
                .collect();
            let expected: Vec<_> = way
                .windows(2)
                .map(|pair| (id(&pair[0]), id(&pair[1]), nanos(model.marks[&pair[1]].0)))
                .collect();
            assert_eq!(hops, expected, "{words}\n{trace}");
            let (told, site) = trace.job.told.expect(&words);
            assert_eq!(told, nanos(fate.told), "{words}\n{trace}");
            assert_eq!(site.expect("a park").file(), file!());
            let ended = Some((nanos(fate.ended), JobState::Cancelled));
            assert_eq!(trace.job.ended, ended, "{words}\n{trace}");
            cancelled += 1;
        }
        // A shield holds back what comes while it is there.
        for (number, shield) in &book.shields {
            let (family, _) = model.families[number];
            let Stay::InShield(until) = family.stay else {
                panic!("no shield in {number}");
            };
            let came = model.marks[number].0;
            assert!(
                causes.why_cancelled(*shield).is_none(),
                "a shield is not cancelled"
            );
            let waterfall = causes.waterfall(book.jobs[number].id());
            let held = waterfall.and_then(|all| {
                let row = all.rows.into_iter().find(|row| row.job.id == *shield)?;
                row.held
            });
            let entered = model.marks[number].1.0 == *number;
            assert_eq!(held.is_some(), came < until && entered, "seed {seed}");
        }
        drop(book);
        sim.finish();
    }
    assert!(cancelled > 500, "{cancelled} jobs were cancelled");
}
