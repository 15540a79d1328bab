// error: E0308
// with: kinfolk
use kinfolk::sync::{Acquirable, Mutex};

pub fn two(mutex: &Mutex<Vec<u32>>) {
    let _one = mutex.try_lock();
    let _another = Acquirable::finish(mutex, Ok(()));
}
