//! What opening an artefact costs, the first time in a process (hashed) and after that.
//!
//! `cargo run --release -p warehouse --example open_cost`

use std::error::Error;
use std::time::{Duration, Instant};
use warehouse::{Config, ImageHash, Warehouse};

const ROUNDS: usize = 31;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let root = folder.path().join("data");
    let image = ImageHash::of(b"image");
    println!("{:>12} {:>14} {:>14}", "bytes", "first p50", "again p50");
    for bytes in [300_000, 1_000_000, 40_000_000] {
        let artefact: Vec<u8> = (0..bytes).map(|i: u32| (i ^ (i >> 7)) as u8).collect();
        Warehouse::open(&root, Config::default())?.shelf("wasm", "f1")?.put(&image, &artefact)?;
        let (mut first, mut again) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let shelf = Warehouse::open(&root, Config::default())?.shelf("wasm", "f1")?;
            for (times, hashed) in [(&mut first, true), (&mut again, false)] {
                let start = Instant::now();
                let artefact = shelf.open(&image)?.ok_or("the artefact is gone")?;
                times.push(start.elapsed());
                assert_eq!(artefact.hashed_now, hashed);
            }
        }
        println!("{bytes:>12} {:>14?} {:>14?}", median(&mut first), median(&mut again));
    }
    Ok(())
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
