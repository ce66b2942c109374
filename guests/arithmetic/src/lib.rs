//! Three kernels that only compute: the data is `integer`, `float` or `memory`, and how many rounds.

wit_bindgen::generate!({ world: "lighter:unit/function", path: "../../contracts/wit", generate_all });

use exports::lighter::unit::handler::{Event, Failure, Guest};

/// Words of the table that `memory` walks through: more than a second-level cache holds.
const TABLE_WORDS: usize = 1 << 20;

struct Arithmetic;

impl Guest for Arithmetic {
    fn handle(event: Event) -> Result<Vec<u8>, Failure> {
        let data = String::from_utf8_lossy(&event.data);
        let mut words = data.split_whitespace();
        let (kernel, rounds) = (words.next(), words.next().and_then(|rounds| rounds.parse().ok()));
        let Some(rounds) = rounds else { return Err(Failure::Invalid("the data is a kernel and its rounds".into())) };
        match kernel {
            Some("integer") => Ok(integer(rounds).to_string().into_bytes()),
            Some("float") => Ok(float(rounds).to_string().into_bytes()),
            Some("memory") => Ok(memory(rounds).to_string().into_bytes()),
            _ => Err(Failure::Invalid("the kernels are integer, float and memory".into())),
        }
    }
}

/// Steps of Collatz sequences, each from a pseudo-random number.
fn integer(rounds: u64) -> u64 {
    let (mut seed, mut steps) = (88_172_645_463_325_252_u64, 0);
    for _ in 0..rounds {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        let mut number = seed >> 40 | 1;
        while number != 1 {
            number = if number % 2 == 0 { number / 2 } else { 3 * number + 1 };
            steps += 1;
        }
    }
    steps
}

/// Iterations of the Mandelbrot set over a grid of so many rows.
fn float(rounds: u64) -> u64 {
    let mut inside = 0;
    for row in 0..rounds {
        for column in 0..rounds {
            let (x, y) = (column as f64 / rounds as f64 * 3.0 - 2.0, row as f64 / rounds as f64 * 2.0 - 1.0);
            let (mut re, mut im, mut turns) = (0.0_f64, 0.0_f64, 0);
            while re * re + im * im <= 4.0 && turns < 200 {
                (re, im) = (re * re - im * im + x, 2.0 * re * im + y);
                turns += 1;
            }
            inside += turns;
        }
    }
    inside
}

/// Reads and writes a table in an order no prefetcher knows, then once in order.
fn memory(rounds: u64) -> u64 {
    let mut table: Vec<u32> = (0..TABLE_WORDS as u32).collect();
    let (mut at, mut sum) = (1_usize, 0_u64);
    for _ in 0..rounds {
        at = at.wrapping_mul(1_664_525).wrapping_add(1_013_904_223) % TABLE_WORDS;
        table[at] = table[at].wrapping_add(at as u32);
        sum = sum.wrapping_add(u64::from(table[at]));
    }
    table.iter().fold(sum, |sum, word| sum.wrapping_add(u64::from(*word)))
}

export!(Arithmetic);
