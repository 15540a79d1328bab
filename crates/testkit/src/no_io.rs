//! Replaces `io` where there is no runtime, and so no i/o.

pub(crate) mod side {
    use std::any::Any;
    use std::time::Duration;

    use kinfolk_core::IoGauges;

    use crate::clock::VirtualClock;

    /// There is no kernel.
    pub(crate) struct TestKernel;

    #[derive(Default)]
    pub(crate) struct IoOptions(());

    pub(crate) fn rough() -> IoOptions {
        IoOptions(())
    }

    pub(crate) struct SimIoHandle;

    impl SimIoHandle {
        pub(crate) fn as_any(&self) -> Option<&(dyn Any + Send + Sync)> {
            None
        }

        pub(crate) fn gauges(&self) -> Option<IoGauges> {
            None
        }
    }

    pub(crate) struct IoSide;

    pub(crate) fn make(_: IoOptions, _seed: u64, _: &VirtualClock) -> (SimIoHandle, IoSide) {
        (SimIoHandle, IoSide)
    }

    pub(crate) struct Inside;

    impl IoSide {
        pub(crate) fn enter(&self) -> Inside {
            Inside
        }

        pub(crate) fn is_busy(&self) -> bool {
            false
        }

        pub(crate) fn turn(&self) -> usize {
            0
        }

        pub(crate) fn next_at(&self) -> Option<Duration> {
            None
        }

        pub(crate) fn finish(&self, _seed: u64) {}

        pub(crate) fn kernel(&self) -> TestKernel {
            TestKernel
        }
    }
}
