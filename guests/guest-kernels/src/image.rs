//! A filter over a grey picture: each point is blurred with its eight neighbours, then sharpened against the blur.
//!
//! It averages and saturates, byte by byte, as one does for vector instructions: compilers take sixteen points at once.

/// With an edge of one point at each side.
const WIDTH: usize = 512 + 2;
const HEIGHT: usize = 128;

#[inline(never)]
pub fn run(rounds: u32) -> u64 {
    let mut picture: Vec<u8> = (0..WIDTH * HEIGHT).map(|at| ((at * 31) ^ (at >> 5)) as u8).collect();
    let mut filtered = picture.clone();
    let mut columns = [0; WIDTH];
    for _ in 0..rounds {
        for row in 1..HEIGHT - 1 {
            let rows = &picture[(row - 1) * WIDTH..(row + 2) * WIDTH];
            filter(rows, &mut columns, &mut filtered[row * WIDTH..(row + 1) * WIDTH]);
        }
        std::mem::swap(&mut picture, &mut filtered);
    }
    picture.iter().fold(0, |sum: u64, point| sum.wrapping_mul(31).wrapping_add(u64::from(*point)))
}

/// Filters the middle one of three rows; its two ends stay as they are in `to`.
#[inline(never)]
fn filter(rows: &[u8], columns: &mut [u8; WIDTH], to: &mut [u8]) {
    let (above, rest) = rows.split_at(WIDTH);
    let (middle, below) = rest.split_at(WIDTH);
    for (column, ((above, point), below)) in columns.iter_mut().zip(above.iter().zip(middle).zip(below)) {
        *column = average(average(*above, *below), *point);
    }
    let around = columns.iter().zip(&columns[1..]).zip(&columns[2..]);
    for ((filtered, point), ((left, column), right)) in to[1..WIDTH - 1].iter_mut().zip(&middle[1..]).zip(around) {
        let blurred = average(average(*left, *right), *column);
        let (above, below) = (point.saturating_sub(blurred), blurred.saturating_sub(*point));
        *filtered = point.saturating_add(above).saturating_sub(below);
    }
}

/// Half of the sum, rounded up.
const fn average(one: u8, other: u8) -> u8 {
    ((one as u16 + other as u16 + 1) / 2) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_of_one_grey_stays_and_edges_are_sharpened() {
        let (mut columns, mut to) = ([0; WIDTH], [0; WIDTH]);
        filter(&[90; 3 * WIDTH], &mut columns, &mut to);
        assert!(to[1..WIDTH - 1].iter().all(|point| *point == 90) && to[0] == 0);
        let step: Vec<u8> = (0..3 * WIDTH).map(|at| if at % WIDTH < 100 { 50 } else { 150 }).collect();
        filter(&step, &mut columns, &mut to);
        assert_eq!(to[97..103], [50, 50, 25, 175, 150, 150]);
    }
}
