//! A chain of MD5 digests as long as its data says: the last one, and the nanoseconds it took.

wit_bindgen::generate!({ world: "lighter:unit/function", path: "../../contracts/wit", generate_all });

mod md5;

use exports::lighter::unit::handler::{Event, Failure, Guest};
use lighter::unit::clock;

struct Md5;

impl Guest for Md5 {
    fn handle(event: Event) -> Result<Vec<u8>, Failure> {
        let rounds = str::from_utf8(&event.data).ok().and_then(|data| data.trim().parse().ok());
        let Some(rounds) = rounds else { return Err(Failure::Invalid("the data is a number of rounds".into())) };
        let began = clock::monotonic_ns();
        let digest = md5::chain(rounds);
        let took = clock::monotonic_ns() - began;
        Ok(format!("{} {took}", md5::hex(digest)).into_bytes())
    }
}

export!(Md5);
