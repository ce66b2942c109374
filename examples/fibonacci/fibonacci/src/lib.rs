//! The CPU workload, by events: a number published under `fibonacci/ask/WHO` is answered under `fibonacci/answer/WHO`.

wit_bindgen::generate!({ world: "lighter:unit/function", path: "../../../contracts/wit", generate_all });

use exports::lighter::unit::handler::{Event, Failure, Guest};
use lighter::unit::queue::{self, Outgoing};
use lighter::unit::types;

/// Larger ones would take a second and more.
const N_MAX: u64 = 40;

struct Fibonacci;

impl Guest for Fibonacci {
    fn handle(event: Event) -> Result<Vec<u8>, Failure> {
        let text = String::from_utf8_lossy(&event.data);
        let n = text.trim().parse().ok().filter(|n| *n <= N_MAX);
        let n = n.ok_or_else(|| {
            Failure::Invalid(format!("the data is {text:?}, it should be a number from 0 to {N_MAX}"))
        })?;
        let who = event.subject.as_deref().and_then(|topic| topic.split('/').nth(2));
        let who = who.ok_or_else(|| Failure::Invalid("the topic does not say who asks".into()))?;
        let answer = Outgoing {
            type_: "fibonacci.answer".into(),
            subject: Some(who.to_owned()),
            content_type: Some("text/plain".into()),
            attributes: Vec::new(),
            data: format!("{n} {}", fibonacci(n)).into_bytes(),
            delay_ms: None,
            ttl_ms: None,
        };
        queue::push("answers", &answer).map_err(refused)?;
        Ok(Vec::new())
    }
}

/// Naive on purpose: the number of calls is what is measured.
fn fibonacci(n: u64) -> u64 {
    if n < 2 { n } else { fibonacci(n - 1) + fibonacci(n - 2) }
}

fn refused(error: types::Error) -> Failure {
    match error {
        types::Error::Unavailable(why) => Failure::Retry(why),
        types::Error::Denied(why) | types::Error::Invalid(why) => Failure::Fatal(why),
    }
}

export!(Fibonacci);
