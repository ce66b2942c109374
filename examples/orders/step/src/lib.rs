//! An order goes two ways at once and comes together again: fan-out, fan-in by key, and a branch for what fails.
//!
//! ```text
//!  take ─┬─▶ stock ───┬─▶ gather ─┬─▶ shipped
//!        └─▶ payment ─┘           └─▶ refused
//! ```
//! One component for all four functions: `config.step` says which this is. The subject of every event is the order, so
//! that `gather`, whose queue has `order = "key"`, handles the parts of one order one after the other.

wit_bindgen::generate!({ world: "lighter:unit/function", path: "../../../contracts/wit", generate_all });

use exports::lighter::unit::handler::{Event, Failure, Guest};
use guest_reading::{Reading, Value, json};
use lighter::unit::queue::{self, Outgoing};
use lighter::unit::{config, store, types};

/// Pieces on the shelf, of everything.
const PIECES: u64 = 10;

/// Where parts wait for each other. Its `ttl` ends the wait for one that never comes.
const PARTS: &str = "parts";

/// The parts an order is done with.
const WAYS: [&str; 2] = ["payment", "stock"];

struct Step;

impl Guest for Step {
    fn handle(event: Event) -> Result<Vec<u8>, Failure> {
        match config::get("step").as_deref() {
            Some("take") => take(&event),
            Some("stock") => answer(&event, "stock", |order| Ok(order.whole("pieces", 1, 1_000)? <= PIECES)),
            Some("payment") => answer(&event, "payment", |order| order.boolean("paid")),
            Some("gather") => gather(&event),
            step => Err(Failure::Fatal(format!("config.step is {step:?}"))),
        }
    }
}

/// Fan-out: the same event into two queues, or into none.
fn take(event: &Event) -> Result<Vec<u8>, Failure> {
    // The order's number is the last part of the path, as in /orders/17.
    let path = event.attributes.iter().find(|(key, _)| key == "httppath").map(|(_, path)| path.trim_start_matches('/'));
    let order = Reading::new(path, 1, &event.data).map_err(Failure::Invalid)?;
    order.whole("pieces", 1, 1_000).map_err(Failure::Invalid)?;
    order.boolean("paid").map_err(Failure::Invalid)?;
    for way in WAYS {
        queue::push(way, &outgoing("order.taken", &order.device, event.data.clone())).map_err(refused)?;
    }
    Ok(b"taken\n".to_vec())
}

/// What one way says of the order. That it says no is no failure: the event was handled well.
fn answer(event: &Event, way: &str, good: impl Fn(&Reading) -> Result<bool, String>) -> Result<Vec<u8>, Failure> {
    let order = Reading::new(event.subject.as_deref(), 0, &event.data).map_err(Failure::Invalid)?;
    let part = json!({ "way": way, "good": good(&order).map_err(Failure::Invalid)? });
    queue::push("gather", &outgoing("order.part", &order.device, part.to_string().into())).map_err(refused)?;
    Ok(Vec::new())
}

/// Fan-in: each part is kept under the order's key until all are there. The part that completes it decides.
fn gather(event: &Event) -> Result<Vec<u8>, Failure> {
    let part = Reading::new(event.subject.as_deref(), 0, &event.data).map_err(Failure::Invalid)?;
    let way =
        part.field("way").and_then(|way| way.as_str().ok_or("way is no text".into())).map_err(Failure::Invalid)?;
    let order = &part.device;
    store::set(PARTS, &format!("{order}/{way}"), &event.data).map_err(refused)?;

    let mut all_good = true;
    for way in WAYS {
        let Some(kept) = store::get(PARTS, &format!("{order}/{way}")).map_err(refused)? else {
            return Ok(b"waiting".to_vec());
        };
        all_good &= guest_reading::parsed(&kept).is_some_and(|part| part.get("good") == Some(&Value::Bool(true)));
    }
    for way in WAYS {
        store::delete(PARTS, &format!("{order}/{way}")).map_err(refused)?;
    }
    let (queue, kind) = if all_good { ("shipped", "order.shipped") } else { ("refused", "order.refused") };
    queue::push(queue, &outgoing(kind, order, order.clone().into())).map_err(refused)?;
    Ok(Vec::new())
}

fn outgoing(kind: &str, order: &str, data: Vec<u8>) -> Outgoing {
    Outgoing {
        type_: kind.into(),
        subject: Some(order.to_owned()),
        content_type: None,
        attributes: Vec::new(),
        data,
        delay_ms: None,
        ttl_ms: None,
    }
}

fn refused(error: types::Error) -> Failure {
    match error {
        types::Error::Unavailable(why) => Failure::Retry(why),
        types::Error::Denied(why) | types::Error::Invalid(why) => Failure::Fatal(why),
    }
}

export!(Step);
