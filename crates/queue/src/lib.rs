//! The queues that Kinfolk's schedulers keep turns in. The native runtime brings them
//! in by path.
