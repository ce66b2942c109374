//! What admitting a call costs when there is a place.
//!
//! `cargo run --release -p dispatch --example admit_cost`

use dispatch::{Admission, Limits, NodeTurns, Rate};
use std::time::Duration;
use tokio::time::Instant;

const CALLS: u32 = 1_000_000;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let node = NodeTurns::new(1_000, 0);
    let rate = Rate { per_second: 1_000_000_000, burst: u32::MAX };
    for (name, rate) in [("without a rate", None), ("with a rate", Some(rate))] {
        let limits = Limits { running_max: 100, waiting_max: 0, wait_max: Duration::ZERO, rate };
        let function = Admission::new(limits, &node);
        let now = Instant::now();
        for _ in 0..CALLS {
            drop(function.admit(now).await.expect("there is a place"));
        }
        println!("admit and leave, {name}: {} ns", now.elapsed().as_nanos() / u128::from(CALLS));
    }
}
