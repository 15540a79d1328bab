//! A kernel in memory, and other tools for tests of i/o.
//!
//! Every [`Sim`](crate::Sim) has one: files, pipes and sockets opened inside it
//! live in memory, the seed decides the order of completions, and faults happen
//! as often as [`SimIo`] says. `sim.io()` gives access from outside.
//!
//! | module | what it is |
//! |---|---|
//! | `options` | [`SimIo`]: the options of a simulated kernel |
//! | `faults` | faults, by rate and by script |
//! | `kernel` | [`SimKernel`]: the operations under way, when each is over |
//! | `op_table` | the operations under way, by their places |
//! | `events` | future events, with their times |
//! | `carry` | carries out each request |
//! | `owners` | the table of open files, which detects a second close |
//! | `disk` | files and directories |
//! | `journal` | names that may not be on the disk yet |
//! | `power_cut` | [`SavedDisk`]: the files that are left when the power goes |
//! | `wires` | streams of bytes: pipes and connections |
//! | `sockets`, `addr` | which socket listens where, and messages |
//! | `network` | the latency between two addresses, and whether the network is cut |
//! | `memory` | the only place that follows the pointers of a request |
//! | `linux` | what only Linux has |
//! | `by_number` | tables by number |
//! | `driver` | the kernel as a driver and as a system |
//! | `side` | the i/o on the side of the simulation |
//! | `audit` | [`Audit`]: counts and checks the traffic of any driver |
//! | `fault_plan` | [`FaultPlan`]: the same faults on any driver |
//! | `quarantine` | [`Quarantine`]: buffers that are watched after their end |
//! | `pages` | [`HeldPages`]: the memory of pools, watched after it was freed |
//! | `open_files` | [`OpenFiles`]: the files that this process has open |

mod addr;
mod audit;
mod by_number;
mod carry;
mod disk;
mod driver;
mod events;
mod fault_plan;
mod faults;
mod journal;
mod kernel;
mod linux;
mod memory;
mod network;
mod op_table;
mod open_files;
mod options;
mod owners;
mod pages;
mod power_cut;
mod quarantine;
pub(crate) mod side;
mod sockets;
mod wires;

pub use audit::Audit;
pub use fault_plan::FaultPlan;
pub use faults::{Fault, OpKind};
pub use kernel::SimKernel;
pub use network::machine_at;
pub use open_files::OpenFiles;
pub use options::SimIo;
pub use pages::HeldPages;
pub use power_cut::SavedDisk;
pub use quarantine::{Quarantine, Quarantined};
