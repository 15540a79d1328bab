//! Shows what a tree of jobs does: records of its events, traces, findings and text.
