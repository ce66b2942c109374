//! The function {{name}}: greets the person named in the data, or in `?name=` of the URL, and counts the greetings.

wit_bindgen::generate!({ path: "wit", world: "function", generate_all });

use exports::lighter::unit::handler::{Event, Failure, Guest};
use lighter::unit::types::Error;
use lighter::unit::{log, store};

struct Function;

impl Guest for Function {
    fn handle(event: Event) -> Result<Vec<u8>, Failure> {
        // Else the message of a panic would be lost: only the trap that follows it would be in the log.
        std::panic::set_hook(Box::new(|panic| log::write(log::Level::Error, &panic.to_string())));

        let data = std::str::from_utf8(&event.data).map_err(|error| Failure::Invalid(error.to_string()))?;
        let name = if data.is_empty() { name_in_query(&event) } else { data };
        let count = store::increment("{{name}}", "greetings", 1).map_err(failure)?;
        Ok(format!("hello, {name}, greeting {count}\n").into_bytes())
    }
}

fn name_in_query(event: &Event) -> &str {
    let query = event.attributes.iter().find(|(name, _)| name == "httpquery").map_or("", |(_, query)| query);
    query.split('&').find_map(|pair| pair.strip_prefix("name=")).unwrap_or("world")
}

/// Whether trying again later may help with what the host refused.
fn failure(refused: Error) -> Failure {
    match refused {
        Error::Unavailable(why) => Failure::Retry(why),
        Error::Denied(why) | Error::Invalid(why) => Failure::Fatal(why),
    }
}

export!(Function);
