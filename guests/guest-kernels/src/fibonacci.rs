//! Naive Fibonacci: next to nothing but calls.

/// Some thirty thousand calls a round.
const N: u64 = 21;

#[inline(never)]
pub fn run(rounds: u32) -> u64 {
    // What the optimiser knows of its argument it could compute once.
    (0..rounds).fold(0, |sum: u64, _| sum.wrapping_add(fibonacci(std::hint::black_box(N))))
}

#[inline(never)]
fn fibonacci(n: u64) -> u64 {
    if n < 2 { n } else { fibonacci(n - 1) + fibonacci(n - 2) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbers_are_right() {
        assert_eq!([0, 1, 2, 3, 10, 20].map(super::fibonacci), [0, 1, 1, 2, 55, 6_765]);
    }
}
