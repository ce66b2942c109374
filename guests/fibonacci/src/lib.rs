//! The CPU workload: the n-th Fibonacci number, computed the slow way, where n is the data as text.

wit_bindgen::generate!({ world: "lighter:unit/function", path: "../../contracts/wit", generate_all });

use exports::lighter::unit::handler::{Event, Failure, Guest};

/// The largest n whose number fits 64 bits. Far below it the time limit of the function is what ends the call.
const N_MAX: u64 = 93;

struct Fibonacci;

impl Guest for Fibonacci {
    fn handle(event: Event) -> Result<Vec<u8>, Failure> {
        let text = str::from_utf8(&event.data).unwrap_or("").trim();
        let n = text.parse().ok().filter(|n| *n <= N_MAX);
        let n = n.ok_or_else(|| Failure::Invalid("the data is a number from 0 to 93".into()))?;
        Ok((fibonacci(n).to_string() + "\n").into_bytes())
    }
}

/// Naive on purpose: the number of calls is what is measured.
fn fibonacci(n: u64) -> u64 {
    if n < 2 { n } else { fibonacci(n - 1) + fibonacci(n - 2) }
}

export!(Fibonacci);
