//! The smallest `lighter:unit` function: greets the name in the data, or in `?name=` of an HTTP request.

wit_bindgen::generate!({ world: "lighter:unit/function", path: "../../contracts/wit", generate_all });

use exports::lighter::unit::handler::{Event, Failure, Guest};

#[global_allocator]
static ARENA: guest_arena::Arena = guest_arena::Arena::new();

struct Hello;

impl Guest for Hello {
    fn handle(event: Event) -> Result<Vec<u8>, Failure> {
        let name: &[u8] = match (event.data.as_slice(), name_in_query(&event)) {
            ([], Some(name)) => name.as_bytes(),
            ([], None) => b"world",
            (data, _) => data,
        };
        Ok([b"hello, ", name, b"\n"].concat())
    }
}

/// The value of `name` in the request's query, as it stands there: nothing is percent-decoded.
fn name_in_query(event: &Event) -> Option<&str> {
    let (_, query) = event.attributes.iter().find(|(key, _)| key == "httpquery")?;
    query.split('&').find_map(|pair| pair.strip_prefix("name="))
}

export!(Hello);
