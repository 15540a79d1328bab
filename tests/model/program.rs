//! Random programs: a family of tasks, and what each does when.

use proptest::prelude::*;

/// What a task's body runs its work in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrap {
    Nothing,
    Scope,
    Supervisor,
    Timeout(u64),
    Shield,
    Guard,
    /// A scope whose future is dropped at this instant, if it is not over.
    Dropped(u64),
    /// A scope that a lease keeps open until this instant.
    Leased(u64),
    /// The work is the first branch; those of [`Role::Branch`] are the others.
    Together(Verb),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Race,
    All,
    Any,
}

/// What a plan is to its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Task,
    Service,
    /// A service that the parent waits for before its own work. It is ready at
    /// this instant, unless its work is to end before.
    Started(u64),
    /// A branch of the parent's combinator: no task of its own.
    Branch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Value,
    Fail,
    Panic,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenTold {
    /// Returns the Cancelled it was given.
    Cancelled,
    /// Returns a value all the same.
    Late,
    /// Returns an error of its own.
    Fail,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outside {
    Nothing,
    Cancel(u64),
    DropHandle(u64),
    Interrupt(u64),
    /// An interrupt, and later its revocation.
    Revoke(u64, u64),
}

/// What all plans of a program share, and what a work does with it before it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    Nothing,
    /// Takes the lock, and holds it for a while.
    Lock,
    /// Sends the number of its plan.
    Send,
    /// Receives a number.
    Recv,
}

/// A work's [`Use`]: it comes to the lock or the channel after a time of its own, and stays for
/// another.
#[derive(Clone, Copy, Debug)]
pub struct Shared {
    pub what: Use,
    pub comes_after: u64,
    pub stays_for: u64,
}

/// What came of a [`Use`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hand {
    /// It has held the lock until this instant.
    Held(u64),
    Sent(u64),
    /// The value came back, since the job was told or the channel closed.
    Back(u64),
    Received(usize, u64),
    /// The channel was closed and empty.
    Closed(u64),
}

/// The channel of a program has room for so many.
pub fn room(plans: &[Plan]) -> usize {
    plans.len() % 2
}

/// When the channel of a program is closed.
pub const CLOSES: u64 = 12 * UNIT + SLOTS * PLANS as u64;

/// One piece of work: a task's, or a branch's. Times are instants, distinct by
/// construction.
#[derive(Clone, Debug)]
pub struct Plan {
    pub parent: Option<usize>,
    pub role: Role,
    pub wrap: Wrap,
    pub work_until: u64,
    /// Instead of sleeping until then it awaits this child.
    pub awaits: Option<usize>,
    pub end: End,
    pub clean_for: u64,
    pub when_told: WhenTold,
    pub outside: Outside,
    pub shared: Shared,
}

impl Plan {
    /// True if its service says that it is ready before it works.
    pub fn gets_ready(&self) -> bool {
        matches!(self.role, Role::Started(at) if at < self.work_until)
    }
}

/// Nanoseconds. The whole seconds are chosen; the rest tells events apart: up
/// to [`CLEAN`] by what is planned, above it by which works have cleaned up since, have come to
/// the lock or the channel, and have gone from there.
const UNIT: u64 = 1_000_000_000;
const CLEAN: u64 = 64;
/// So many works use the lock or the channel that their bits fit below a revocation's.
const USERS: u32 = 5;
const COMES: u64 = CLEAN << PLANS;
const STAYS: u64 = COMES << USERS;
/// So many plans that their bits and slots fit below a revocation's.
const PLANS: usize = 12;
const SLOTS: u64 = 5;

type Raw = (
    (prop::sample::Index, u8, u8, bool),
    (u64, u8, u64, u8),
    (u8, u64, u8, u64),
);

pub fn programs() -> impl Strategy<Value = Vec<Plan>> {
    let one = (
        (
            any::<prop::sample::Index>(),
            0..12u8,
            0..16u8,
            any::<bool>(),
        ),
        (1..20u64, 0..8u8, 0..6u64, 0..4u8),
        (0..8u8, 1..20u64, 0..8u8, 0..4u64),
    );
    prop::collection::vec(one, 1..=PLANS).prop_map(|raw| make_sound(raw.iter().enumerate()))
}

fn plan(n: usize, raw: &Raw) -> Plan {
    let ((parent, role, wrap, awaits), (work, end, clean, told), (outside, when, uses, stays)) =
        *raw;
    let slot = |seconds: u64, k: u64| seconds * UNIT + SLOTS * n as u64 + k;
    let at = slot(when, 0);
    Plan {
        parent: (n > 0).then(|| parent.index(n)),
        role: match role {
            0..=5 => Role::Task,
            6..=8 => Role::Branch,
            9 => Role::Service,
            _ => Role::Started(slot((work + when) / 3, 3)),
        },
        wrap: match wrap {
            0..=2 => Wrap::Nothing,
            3 | 4 => Wrap::Scope,
            5 => Wrap::Supervisor,
            6 => Wrap::Timeout(slot(work / 2 + when / 2, 1)),
            7 => Wrap::Shield,
            8 => Wrap::Guard,
            9 => Wrap::Dropped(slot(work / 2 + when / 2 + 1, 1)),
            10 => Wrap::Leased(slot(work / 2 + when, 1)),
            11 | 12 => Wrap::Together(Verb::Race),
            13 | 14 => Wrap::Together(Verb::All),
            _ => Wrap::Together(Verb::Any),
        },
        work_until: slot(work, 2),
        // Which one is found out when all are there.
        awaits: awaits.then_some(n),
        end: match end {
            0 | 1 => End::Fail,
            2 => End::Panic,
            _ => End::Value,
        },
        clean_for: clean * UNIT + (CLEAN << n),
        when_told: match told {
            0 => WhenTold::Late,
            1 => WhenTold::Fail,
            _ => WhenTold::Cancelled,
        },
        outside: match outside {
            0 => Outside::Cancel(at),
            1 => Outside::DropHandle(at),
            2 | 3 => Outside::Interrupt(at),
            4 => Outside::Revoke(at, at + (work % 4) * UNIT + 4 * UNIT / 10),
            _ => Outside::Nothing,
        },
        shared: Shared {
            what: match uses {
                0 | 1 => Use::Lock,
                2 | 3 => Use::Send,
                4 | 5 => Use::Recv,
                _ => Use::Nothing,
            },
            comes_after: 0,
            stays_for: stays * UNIT,
        },
    }
}

/// Turns what cannot be into what can.
fn make_sound<'a>(raw: impl Iterator<Item = (usize, &'a Raw)>) -> Vec<Plan> {
    let mut plans: Vec<Plan> = Vec::new();
    let (mut branches, mut started) = (Vec::new(), Vec::new());
    for (n, raw) in raw {
        let mut plan = plan(n, raw);
        let parent = plan.parent.map(|parent| &plans[parent]);
        let count = |of: &[Option<usize>]| of.iter().filter(|p| **p == plan.parent).count();
        let fits = match plan.role {
            Role::Task | Role::Service => parent.is_some(),
            Role::Branch => {
                parent.is_some_and(|parent| matches!(parent.wrap, Wrap::Together(_)))
                    && count(&branches) < 2
            }
            Role::Started(_) => parent.is_some() && count(&started) < 1,
        };
        if !fits {
            plan.role = Role::Task;
        }
        match plan.role {
            Role::Task | Role::Service => {}
            Role::Branch => {
                branches.push(plan.parent);
                plan.outside = Outside::Nothing;
                if let Wrap::Together(_) = plan.wrap {
                    plan.wrap = Wrap::Nothing;
                }
            }
            Role::Started(_) => {
                started.push(plan.parent);
                // Its body runs in a scope already.
                plan.wrap = Wrap::Nothing;
            }
        }
        plans.push(plan);
    }
    for n in 0..plans.len() {
        let child = (n + 1..plans.len())
            .find(|&child| plans[child].parent == Some(n) && plans[child].role == Role::Task);
        plans[n].awaits = plans[n].awaits.and(child);
        let not_ours = plans[n].awaits.into_iter();
        for n in not_ours.chain(matches!(plans[n].role, Role::Started(_)).then_some(n)) {
            // Somebody else has the handle.
            if let Outside::DropHandle(at) = plans[n].outside {
                plans[n].outside = Outside::Cancel(at);
            }
        }
    }
    let mut users = 0;
    for plan in &mut plans {
        match plan.shared.what {
            Use::Nothing => {}
            _ if users == USERS => plan.shared.what = Use::Nothing,
            _ => {
                plan.shared.comes_after = COMES << users;
                plan.shared.stays_for += STAYS << users;
                users += 1;
            }
        }
    }
    plans
}

/// How one task ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    pub state: &'static str,
    pub at: u64,
    /// The failures it carries, the first in time in front.
    pub failures: Vec<usize>,
}
