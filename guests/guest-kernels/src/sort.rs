//! The standard library's sort of numbers that look random, as whole numbers and as keys with something to carry.

use crate::random::Random;

const NUMBERS: usize = 20_000;

#[inline(never)]
pub fn run(rounds: u32) -> u64 {
    let mut random = Random::new();
    let mut sum = 0_u64;
    let mut numbers = vec![0_u64; NUMBERS];
    let mut pairs = vec![(0_u32, 0_u32); NUMBERS];
    for _ in 0..rounds {
        for (number, pair) in numbers.iter_mut().zip(&mut pairs) {
            *number = random.next();
            *pair = ((*number >> 40) as u32, *number as u32);
        }
        numbers.sort_unstable();
        pairs.sort_by_key(|pair| pair.0);
        for at in (0..NUMBERS).step_by(97) {
            sum = sum.rotate_left(5) ^ numbers[at] ^ u64::from(pairs[at].1);
        }
    }
    sum
}
