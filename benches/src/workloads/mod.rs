//! The workloads, one file each. A file says what is done, lets every
//! contestant do it, and carries the targets of its benches.

mod cancel_tree;
pub mod clients;
mod create;
mod echo;
mod file_read;
mod hand_over;
mod http;
mod is_cancelled;
pub mod memory;
mod ready_point;
mod scope;
mod spawn_join;
mod sync;
mod timer;
mod yields;

use crate::contestant::Group;

/// Everything, in the order of the tables.
pub fn all() -> Vec<Group> {
    let workloads = [
        spawn_join::groups,
        create::groups,
        scope::groups,
        cancel_tree::groups,
        is_cancelled::groups,
        ready_point::groups,
        yields::groups,
        hand_over::groups,
        sync::groups,
        timer::groups,
        file_read::groups,
        echo::groups,
        http::groups,
        memory::groups,
    ];
    workloads.iter().flat_map(|groups| groups()).collect()
}
