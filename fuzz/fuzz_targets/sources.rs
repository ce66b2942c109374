//! Whatever an image says of its sources, a trap in it can be told of: in bounded time, in few words, or in none.
#![no_main]

use lighter_fuzz::fuzz_target;
use unit_lines::{Sources, worth_keeping};

/// Far more than there are of one place.
const FRAMES_MAX: usize = 100;

fuzz_target!(|image: &[u8]| {
    let kept = worth_keeping(image);
    assert!(kept.is_empty() || kept == image);
    let sources = Sources::read(image);
    for offset in 0..image.len() as u64 + 1 {
        let found = sources.find(offset);
        assert!(found.len() <= FRAMES_MAX);
        for text in found.iter().flat_map(|found| found.function.iter().chain(found.line.iter().map(|(file, _)| file)))
        {
            assert!(text.len() <= 4 << 10, "a name of {} bytes", text.len());
        }
    }
});
