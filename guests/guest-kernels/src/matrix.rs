//! The product of two square matrices of doubles, row by row, so that the inner loop goes through memory in order.

const SIDE: usize = 96;

type Matrix = Vec<f64>;

#[inline(never)]
pub fn run(rounds: u32) -> u64 {
    let cell = |add: usize| (0..SIDE * SIDE).map(move |at| ((at * 7 + add) % 31) as f64 / 31.0);
    let (left, mut right): (Matrix, Matrix) = (cell(3).collect(), cell(11).collect());
    for _ in 0..rounds {
        let mut product = multiply(&left, &right);
        // Kept near one, or the numbers would leave the range of doubles.
        product.iter_mut().for_each(|cell| *cell /= SIDE as f64);
        right = product;
    }
    right.iter().fold(0, |sum: u64, cell| sum.wrapping_add(cell.to_bits()))
}

#[inline(never)]
fn multiply(left: &[f64], right: &[f64]) -> Matrix {
    let mut product = vec![0.0; SIDE * SIDE];
    for (to, row) in product.chunks_exact_mut(SIDE).zip(left.chunks_exact(SIDE)) {
        for (factor, from) in row.iter().zip(right.chunks_exact(SIDE)) {
            for (cell, other) in to.iter_mut().zip(from) {
                *cell += factor * other;
            }
        }
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_times_a_matrix_is_the_matrix() {
        let one: Matrix = (0..SIDE * SIDE).map(|at| f64::from(u8::from(at % (SIDE + 1) == 0))).collect();
        let other: Matrix = (0..SIDE * SIDE).map(|at| at as f64).collect();
        assert_eq!(multiply(&one, &other), other);
        assert_eq!(multiply(&other, &one), other);
    }
}
