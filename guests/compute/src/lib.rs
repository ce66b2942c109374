//! One of eight kernels, as its data says: `NAME ROUNDS`. The reply is the kernel's check sum.

wit_bindgen::generate!({ world: "lighter:unit/function", path: "../../contracts/wit", generate_all });

use exports::lighter::unit::handler::{Event, Failure, Guest};

struct Compute;

impl Guest for Compute {
    fn handle(event: Event) -> Result<Vec<u8>, Failure> {
        let data = String::from_utf8_lossy(&event.data);
        let mut words = data.split_whitespace();
        let (name, rounds) = (words.next().unwrap_or(""), words.next().and_then(|rounds| rounds.parse().ok()));
        let Some(rounds) = rounds else { return Err(Failure::Invalid("the data is a kernel and its rounds".into())) };
        match guest_kernels::run(name, rounds) {
            Some(sum) => Ok(sum.to_string().into_bytes()),
            None => Err(Failure::Invalid(format!("the kernels are {}", guest_kernels::NAMES.join(", ")))),
        }
    }
}

export!(Compute);
