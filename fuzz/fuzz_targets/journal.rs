//! Any bytes are a journal up to some byte, and a mark of what is synced or none; sound batches are never passed over.
#![no_main]

use lighter_fuzz::fuzz_target;
use state::fuzzing;

fuzz_target!(|data: &[u8]| {
    fuzzing::journal(data);
    let sound = fuzzing::journal_with_sound_checksums(data);
    let batches = fuzzing::journal(&sound);
    assert_eq!(batches > 0, sound.len() >= 26, "the first batch is sound if there is room for one");
    // One byte of it changed: no more batches than before, and none of those before the change lost.
    if let (Some(&place), false) = (data.last(), sound.is_empty()) {
        let mut changed = sound.clone();
        let at = usize::from(place) * 16 % changed.len();
        changed[at] ^= 1 << (place % 8);
        assert!(fuzzing::journal(&changed) >= fuzzing::journal(&sound[..at]));
    }
    fuzzing::mark(data);
});
