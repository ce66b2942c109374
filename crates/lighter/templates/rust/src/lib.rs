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
        let name = if data.is_empty() { name_in_query(&event)? } else { data.to_owned() };
        let count = store::increment("{{name}}", "greetings", 1).map_err(failure)?;
        Ok(format!("hello, {name}, greeting {count}\n").into_bytes())
    }
}

fn name_in_query(event: &Event) -> Result<String, Failure> {
    let query = event.attributes.iter().find(|(name, _)| name == "httpquery").map_or("", |(_, query)| query);
    let name = query.split('&').find_map(|pair| pair.strip_prefix("name=").filter(|name| !name.is_empty()));
    name.map_or_else(|| Ok("world".to_owned()), decoded)
}

/// What a browser has encoded: `a+b%21` is `a b!`.
fn decoded(text: &str) -> Result<String, Failure> {
    let invalid = || Failure::Invalid("the name in the URL is not percent-encoded UTF-8".to_owned());
    let text = text.replace('+', " ");
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let digits = part.get(..2).ok_or_else(invalid)?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| invalid())?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).map_err(|_| invalid())
}

/// Whether trying again later may help with what the host refused.
fn failure(refused: Error) -> Failure {
    match refused {
        Error::Unavailable(why) => Failure::Retry(why),
        Error::Denied(why) | Error::Invalid(why) => Failure::Fatal(why),
    }
}

export!(Function);
