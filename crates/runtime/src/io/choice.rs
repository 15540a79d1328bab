//! Which driver, found out when there is the first operation.

use std::io;
use std::sync::Arc;

use super::driver::Driver;
use super::readiness::ReadinessDriver;
use super::uring::UringDriver;
use crate::blocking::BlockingPool;

/// Says which driver, where the builder does not.
const VARIABLE: &str = "KINFOLK_IO";

/// Which driver a runtime carries out its i/o with; see
/// [`Builder::io`](crate::Builder::io).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum IoDriver {
    /// What `KINFOLK_IO` in the environment says; without it a ring where one
    /// works, readiness otherwise.
    #[default]
    Best,
    /// io_uring: the system carries out operations by itself, files and sockets
    /// alike. `KINFOLK_IO=uring`.
    Ring,
    /// The system reports when a file is ready; what is not a socket or a pipe is
    /// done by threads that block. `KINFOLK_IO=epoll`.
    Readiness,
}

type Drivers = io::Result<Vec<Box<dyn Driver>>>;

impl IoDriver {
    /// What `KINFOLK_IO` says.
    fn named(name: &str) -> io::Result<IoDriver> {
        match name {
            "" => Ok(IoDriver::Best),
            "uring" => Ok(IoDriver::Ring),
            "epoll" => Ok(IoDriver::Readiness),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{VARIABLE} must be `uring` or `epoll`, not `{name}`"),
            )),
        }
    }

    /// Drivers for so many threads.
    pub(crate) fn make(self, threads: usize, blocking: &Arc<BlockingPool>) -> Drivers {
        let choice = match self {
            IoDriver::Best => {
                let name = std::env::var_os(VARIABLE).unwrap_or_default();
                IoDriver::named(&name.to_string_lossy())?
            }
            demanded => demanded,
        };
        let ring = || UringDriver::make(threads);
        let readiness = || ReadinessDriver::make(threads, blocking);
        match choice {
            // Whatever is wrong with the ring, it can be done without.
            IoDriver::Best => ring().or_else(|_| readiness()),
            IoDriver::Ring => ring().map_err(|error| wanting("io_uring", &error)),
            IoDriver::Readiness => readiness().map_err(|error| wanting("readiness", &error)),
        }
    }
}

fn wanting(name: &str, error: &io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        format!("the requested {name} driver is not available: {error}"),
    )
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_environment_names_a_driver() {
        assert_eq!(IoDriver::named("").expect("none"), IoDriver::Best);
        assert_eq!(IoDriver::named("uring").expect("ring"), IoDriver::Ring);
        assert_eq!(
            IoDriver::named("epoll").expect("epoll"),
            IoDriver::Readiness
        );
        let error = IoDriver::named("kqueue").expect_err("not here");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains("KINFOLK_IO"), "{error}");
    }
}
