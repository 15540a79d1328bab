// with: kinfolk
use kinfolk::sync::{Acquirable, Acquire, Mutex};

pub fn one<L: Acquirable>(wait: Acquire<L>) -> impl Future<Output = L::Output> {
    wait
}

pub async fn two(mutex: &Mutex<Vec<u32>>) {
    let _one = mutex.try_lock();
    let _another = one(mutex.lock()).await;
}
