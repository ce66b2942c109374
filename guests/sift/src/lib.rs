//! Reads a sensor's message and says whether the air is bad: the least that a handler of events does.

mod reading;

wit_bindgen::generate!({ world: "lighter:unit/function", path: "../../contracts/wit", generate_all });

use exports::lighter::unit::handler::{Event, Failure, Guest};

#[global_allocator]
static ARENA: guest_arena::Arena = guest_arena::Arena::new();

struct Sift;

impl Guest for Sift {
    fn handle(event: Event) -> Result<Vec<u8>, Failure> {
        match reading::is_high(&event.data) {
            Some(true) => Ok(b"high".to_vec()),
            Some(false) => Ok(b"low".to_vec()),
            None => Err(Failure::Invalid("there is no reading".into())),
        }
    }
}

export!(Sift);
