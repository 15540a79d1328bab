//! Built twice, with `panic = "unwind"` and with `panic = "abort"`: a child panics.

use kinfolk_tests::kinfolk_core::Scope;
use kinfolk_tests::kinfolk_runtime::Runtime;

struct Local;

impl Drop for Local {
    fn drop(&mut self) {
        println!("the child is unwound");
    }
}

fn main() {
    let rt = Runtime::builder().workers(1).build().expect("a runtime");
    let ended = rt.block_on(Scope::build().supervisor().run(async |s| {
        let child = s.spawn(async {
            let _local = Local;
            println!("the child begins");
            if true {
                panic!("in a child");
            }
        });
        Ok(child.await.unwrap_err().kind())
    }));
    println!("the parent goes on: {:?}", ended.unwrap());
}
