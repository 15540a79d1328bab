//! Does one operation many times, for `scripts/instructions` to count.
//!
//! ```text
//! kinfolk-counts                 the operations: "name times"
//! kinfolk-counts NAME TIMES      does it
//! kinfolk-counts NAME TIMES base does what stands around it, without it
//! kinfolk-counts growth          what must grow in a line: "name size"
//! kinfolk-counts growth NAME SIZE does it once, with so many
//! ```

mod growth;
mod operations;

use kinfolk_runtime::Runtime;
use operations::{ALL, Operation};

fn usage() -> ! {
    eprintln!("usage: kinfolk-counts [NAME TIMES [base] | growth [NAME SIZE]]");
    std::process::exit(2)
}

/// The one place that names the host: one thread, no workers.
fn runtime() -> Runtime {
    Runtime::builder()
        .workers(0)
        .build()
        .expect("the runtime starts")
}

/// Does what is called `name` once, with `size` of it.
fn grow(name: &str, size: &str) {
    let known = growth::ALL.iter().find(|known| known.name == name);
    let (Some(growth), Ok(size)) = (known, size.parse()) else {
        usage()
    };
    let runtime = runtime();
    let body = (growth.body)(size, runtime.tree().clone());
    runtime.block_on(body).expect("it succeeds");
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
        ["growth"] => {
            for growth::Growth { name, size, .. } in growth::ALL {
                println!("{name} {size}");
            }
            return;
        }
        ["growth", name, size] => return grow(name, size),
        [name, times] => (name, times, false),
        [name, times, "base"] => (name, times, true),
        _ => usage(),
    };
    let Some(operation) = ALL.iter().find(|known| known.name == name) else {
        usage()
    };
    let Ok(times) = times.parse() else { usage() };
    let body = if base { operation.base } else { operation.body };
    runtime()
        .block_on(body(times))
        .expect("the operation succeeds");
}
