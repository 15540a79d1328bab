//! Every case of the suite, by file. `tests/coverage.rs` checks that none is
//! missing.

/// Calls `$each!` with the name of every case, by module.
#[macro_export]
macro_rules! for_each_case {
    ($each:ident) => {
        $each! {
            tree:
                tree_1_a_scope_lists_only_living_children,
                tree_3_parent_waits_for_all_children,
                tree_3_locals_are_dropped_before_the_outcome_is_visible,
                tree_4_the_waiting_phase_is_not_a_point,
        }
    };
}
