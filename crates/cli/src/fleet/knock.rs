//! `lighter fleet join` without an invitation, and `lighter fleet admit`: a person carries digits between the two.

use super::super::client::json;
use super::super::stop::{Result, Stop};
use super::super::table::Table;
use super::super::{Session, words};
use super::{ID_CHARS, say_joined};
use api_types::{FleetDigits, FleetInfo, FleetKnock, FleetKnocking, FleetShown};
use problem::Code;
use std::io::{self, BufRead};

/// Bytes of an answer. A longer one does not count as yes.
const ANSWER_BYTES_MAX: u64 = 64;

/// On the new node.
pub fn join(session: &Session, at: Option<String>) -> Result {
    let (out, client) = (session.out, session.client()?);
    let shown: FleetShown = client.post("/v1/fleet/knock", &FleetKnock { at })?;
    let FleetShown { fleet, anchor, name, digits, seconds } = &shown;
    if out.json {
        out.json(&shown)?;
    } else {
        let fleet = fleet.as_deref().map_or_else(String::new, |fleet| format!("the fleet {fleet}, "));
        out.say(format!("{}an anchor at {anchor}", words::harmless(&fleet)));
        out.raw(format!("{digits}\n").as_bytes())?;
        let minutes = seconds / 60;
        out.say(format!("type these digits on the anchor, within {minutes} minutes:  lighter fleet admit {digits}"));
        out.say(format!("did it say that it has let in {name}? Type yes; anything else joins nothing"));
    }
    if !is_yes(io::stdin().lock())? {
        return Err(Stop::new(Code::NotAdmitted, "nobody said that the anchor took the digits: nothing was joined"));
    }
    let request = client.request("POST", "/v1/fleet/knock/confirm");
    let confirmed = FleetDigits { digits: digits.clone() };
    let fleet: FleetInfo = client.read(client.succeeded(client.exchange(request, json(&confirmed))?)?)?;
    say_joined(session, &fleet)
}

/// On the anchor: who waits.
pub fn list(session: &Session) -> Result {
    let (out, client) = (session.out, session.client()?);
    let waiting: Vec<FleetKnocking> = client.get("/v1/fleet/knocking")?;
    if out.json {
        return out.json(&waiting);
    }
    if waiting.is_empty() {
        out.say("no node waits to be let in: on a new one, lighter fleet join");
        return Ok(());
    }
    out.table(&table(&waiting))?;
    out.say("let one in by the digits that it shows:  lighter fleet admit DIGITS");
    Ok(())
}

/// On the anchor: the one with these digits.
pub fn admit(session: &Session, digits: String) -> Result {
    let (out, client) = (session.out, session.client()?);
    let admitted: FleetKnocking = client.post("/v1/fleet/admit", &FleetDigits { digits })?;
    if out.json {
        return out.json(&admitted);
    }
    out.say(format!("let in {}; say so on the node itself: it waits for that", words::harmless(&admitted.name)));
    Ok(())
}

fn table(waiting: &[FleetKnocking]) -> Table {
    let mut table = Table::new(&["ID", "NAME"]);
    for one in waiting {
        table.row([one.id.chars().take(ID_CHARS).collect(), one.name.clone()]);
    }
    table
}

/// Whether the next line is a yes.
fn is_yes(from: impl BufRead) -> Result<bool> {
    let mut answer = String::new();
    let read = from.take(ANSWER_BYTES_MAX).read_line(&mut answer);
    read.map_err(|error| Stop::new(Code::FileUnusable, format!("standard input: {error}")))?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "yes" | "y"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_yes_is_yes() {
        for (text, is) in
            [("yes\n", true), ("Y\nno\n", true), ("", false), ("\n", false), ("no\n", false), ("yesterday", false)]
        {
            assert_eq!(is_yes(text.as_bytes()).unwrap(), is, "{text:?}");
        }
        let long = format!("{}yes\n", " ".repeat(ANSWER_BYTES_MAX as usize));
        assert!(!is_yes(long.as_bytes()).unwrap());
    }
}
