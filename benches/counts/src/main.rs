//! Does one operation many times, for `scripts/instructions` to count.
//!
//! ```text
//! kinfolk-counts                 the operations: "name times"
//! kinfolk-counts NAME TIMES      does it
//! kinfolk-counts NAME TIMES base does what stands around it, without it
//! ```

mod operations;

use kinfolk_runtime::Runtime;
use operations::{ALL, Operation};

fn usage() -> ! {
    eprintln!("usage: kinfolk-counts [NAME TIMES [base]]");
    std::process::exit(2)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (name, times, base) = match arguments[..] {
        [] => {
            for Operation { name, times, .. } in ALL {
                println!("{name} {times}");
            }
            return;
        }
        [name, times] => (name, times, false),
        [name, times, "base"] => (name, times, true),
        _ => usage(),
    };
    let Some(operation) = ALL.iter().find(|known| known.name == name) else {
        usage()
    };
    let Ok(times) = times.parse() else { usage() };
    let body = if base { operation.base } else { operation.body };
    // The one place that names the host: one thread, no workers.
    let runtime = Runtime::builder()
        .workers(0)
        .build()
        .expect("the runtime starts");
    runtime
        .block_on(body(times))
        .expect("the operation succeeds");
}
