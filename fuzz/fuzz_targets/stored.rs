//! Any bytes in the database are refused, or read as what was written: events of queues, their numbers, values, books.
#![no_main]

use lighter_fuzz::fuzz_target;

fuzz_target!(|data: &[u8]| state::fuzzing::stored(data));
