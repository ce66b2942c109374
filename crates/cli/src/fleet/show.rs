//! `lighter fleet show` and `lighter fleet why`: one node, and why a call goes where it goes.

use super::{ID_CHARS, heard, named};
use crate::Session;
use crate::client::encoded;
use crate::stop::Result;
use crate::table::Table;
use crate::words;
use api_types::{
    FleetForecast, FleetInfo, FleetLoad, FleetNode, FleetPlaced, FleetPlacedNode, FleetReason, FleetRule, FleetWhy,
};

pub fn show(session: &Session, which: &str) -> Result {
    let (out, client) = (session.out, session.client()?);
    let fleet: FleetInfo = client.get("/v1/fleet")?;
    let node = named(&fleet, which)?;
    if out.json {
        return out.json(node);
    }
    out.line(format!("{} of the fleet {}", node.name, fleet.name))?;
    let line = |word: &str, value: String| out.line(format!("  {word:<10} {value}"));
    line("id", node.id.clone())?;
    line("address", node.address.clone().unwrap_or_else(|| "unknown: it was not heard of".to_owned()))?;
    line("anchor", if node.anchor { "yes" } else { "no" }.to_owned())?;
    line("heard", heard(node))?;
    line("version", node.version.clone().unwrap_or_else(|| "-".to_owned()))?;
    match &node.load {
        Some(load) => loaded(load).into_iter().try_for_each(|(word, value)| line(word, value))?,
        None if node.this_node => {}
        None => line("load", "unknown: no report of it has come".to_owned())?,
    }
    let functions: Vec<String> = node.functions.iter().map(|function| with_copies(function, node, &fleet)).collect();
    line("functions", if functions.is_empty() { "-".to_owned() } else { functions.join(", ") })
}

/// A function of a node, and the number of its copies if it is stateless.
fn with_copies(function: &str, node: &FleetNode, fleet: &FleetInfo) -> String {
    let copies = fleet.copies.iter().find(|copies| copies.function == function && copies.nodes.contains(&node.id));
    match copies.map(|copies| copies.nodes.len()) {
        None => function.to_owned(),
        Some(1) => format!("{function} (the one copy)"),
        Some(count) => format!("{function} (one of {count} copies)"),
    }
}

fn loaded(load: &FleetLoad) -> [(&'static str, String); 4] {
    [
        ("way", format!("{} there and back", ms(load.round_trip_ms))),
        ("wait", format!("{} until a call begins", ms(load.wait_ms))),
        ("places", format!("{} calls at once, at {:.2} of the usual speed", load.places, load.speed)),
        ("calls", format!("{} from here ran there", load.calls)),
    ]
}

pub fn why(session: &Session, function: &str, bytes: u64) -> Result {
    let (out, client) = (session.out, session.client()?);
    let why: FleetWhy = client.get(&format!("/v1/fleet/why/{}?bytes={bytes}", encoded(function)))?;
    if out.json {
        return out.json(&why);
    }
    let runs = why.forecasts.iter().find(|forecast| Some(&forecast.id) == why.runs.as_ref());
    let place = match runs {
        Some(forecast) if forecast.this_node => "would run here".to_owned(),
        Some(forecast) => format!("would run at {}", forecast.name),
        None if why.runs.is_some() => "would run here".to_owned(),
        None => "would run nowhere: no node that has the function was heard".to_owned(),
    };
    out.line(format!("a call of {} that comes in here now {place}", why.function))?;
    out.line(format!("  {}", reason(why.rule)))?;
    if !why.forecasts.is_empty() {
        out.table(&table(&why))?;
    }
    for other in &why.others {
        out.line(format!("  {} ({}): {}", other.name, short(&other.id), passed_by(other.reason)))?;
    }
    why.placed.iter().flat_map(placed).try_for_each(|line| out.line(format!("  {line}")))
}

/// Where the fleet has put it, and by what.
fn placed(placed: &FleetPlaced) -> Vec<String> {
    let FleetPlaced { deployment, terms, near, within_ms, copies, scaled, warm, keeps, nodes } = placed;
    let from = near.as_ref().map(|near| format!(" from {near}")).unwrap_or_default();
    let node = |node: &FleetPlacedNode| match node.round_trip_ms {
        Some(way_ms) => format!("{} ({}{from})", node.name, ms(way_ms)),
        None => node.name.clone(),
    };
    let at = match nodes {
        Some(nodes) => format!("at {}", nodes.iter().map(node).collect::<Vec<_>>().join(", ")),
        None => "at all nodes that fit".to_owned(),
    };
    let where_ = (!terms.is_empty()).then(|| format!("where {}", terms.join(" and ")));
    let near = near.as_ref().map(|near| format!("near {near}"));
    let within = within_ms.map(|within_ms| format!("within {within_ms} ms"));
    let copies = copies.as_ref().map(|copies| format!("copies {copies}"));
    let warm = (*warm > 0).then(|| format!("warm {warm}"));
    let keeps = (!keeps.is_empty()).then(|| format!("one node, because it keeps something in {}", keeps.join(", ")));
    let terms: Vec<String> = [where_, near, within, copies, warm, keeps].into_iter().flatten().collect();
    let scaled = scaled.as_ref().map(|why| format!("as many as that, because {why}"));
    let mut lines = vec![format!("the deployment {deployment} has it {at}")];
    if !terms.is_empty() {
        lines.push(format!("by its place: {}", terms.join(", ")));
    }
    lines.extend(scaled);
    lines
}

fn reason(rule: FleetRule) -> &'static str {
    match rule {
        FleetRule::NoRoute => "it has no route that is answered at once, so its work stays where it comes in",
        FleetRule::KeepsHere => "it may use buckets or queues, and they are here",
        FleetRule::OnlyHere => "no other node that was heard has the very same function",
        FleetRule::Soonest => "it keeps nothing and other nodes have it too: it runs where it is to end soonest",
        FleetRule::SoonestElsewhere => {
            "it is not here: it runs at that of the nodes with it where it is to end soonest"
        }
        FleetRule::KeepsElsewhere => "it is not here and may use buckets or queues: all callers go to the same node",
    }
}

fn passed_by(reason: FleetReason) -> &'static str {
    match reason {
        FleetReason::Different => "has another function of this name: manifest or image differ",
        FleetReason::Keeps => "has it too, with buckets or queues of its own",
        FleetReason::NotHeard => "has it too, and cannot be reached",
    }
}

fn table(why: &FleetWhy) -> Table {
    let mut table = Table::new(&["NODE", "WAY", "BODY", "WAIT", "RUN", "TOTAL", ""]);
    for forecast in &why.forecasts {
        let FleetForecast { id, name, this_node, way_ms, body_ms, wait_ms, run_ms, total_ms } = forecast;
        let mark = if Some(id) == why.runs.as_ref() { "◀" } else { "" };
        let [way, body] = [way_ms, body_ms].map(|value| if *this_node { "-".to_owned() } else { ms(*value) });
        table.row([name.clone(), way, body, ms(*wait_ms), ms(*run_ms), ms(*total_ms), mark.to_owned()]);
    }
    table
}

/// `0 µs` is a measured value here.
pub fn ms(value: f64) -> String {
    if value <= 0.0 { "0 ms".to_owned() } else { words::microseconds(value * 1e3) }
}

fn short(id: &str) -> String {
    id.chars().take(ID_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forecast(id: &str, this_node: bool, wait_ms: f64) -> FleetForecast {
        let (name, id) = (format!("pi-{id}"), id.to_owned());
        FleetForecast {
            id,
            name,
            this_node,
            way_ms: 0.4,
            body_ms: 0.0,
            wait_ms,
            run_ms: 12.0,
            total_ms: 12.4 + wait_ms,
        }
    }

    #[test]
    fn the_table_has_every_term_and_marks_where_it_runs() {
        let why = FleetWhy {
            function: "plate".to_owned(),
            rule: FleetRule::Soonest,
            runs: Some("8".to_owned()),
            forecasts: vec![forecast("8", false, 0.0), forecast("7", true, 80.0)],
            others: Vec::new(),
            placed: None,
        };
        let lines: Vec<String> = table(&why).lines().iter().map(|line| line.trim_end().to_owned()).collect();
        assert_eq!(lines[1], "pi-8  400 µs  0 ms  0 ms     12.0 ms  12.4 ms  ◀");
        assert_eq!(lines[2], "pi-7  -       -     80.0 ms  12.0 ms  92.4 ms");
    }

    #[test]
    fn it_is_said_where_the_fleet_has_it_and_by_what() {
        let node = |name: &str, round_trip_ms| {
            let (id, name) = (String::new(), name.to_owned());
            FleetPlacedNode { id, name, round_trip_ms }
        };
        let mut one = FleetPlaced {
            deployment: "app".to_owned(),
            terms: vec!["!battery".to_owned(), "wasm".to_owned()],
            near: Some("site=harbour".to_owned()),
            within_ms: Some(20),
            copies: Some("2".to_owned()),
            scaled: Some("2 were used to 80 %".to_owned()),
            warm: 3,
            keeps: Vec::new(),
            nodes: Some(vec![node("pi-7", Some(0.0)), node("pi-8", Some(0.4)), node("pi-9", None)]),
        };
        let there = "the deployment app has it at pi-7 (0 ms from site=harbour), pi-8 (400 µs from site=harbour), pi-9";
        let terms = "by its place: where !battery and wasm, near site=harbour, within 20 ms, copies 2, warm 3";
        assert_eq!(placed(&one), [there, terms, "as many as that, because 2 were used to 80 %"]);
        (one.terms, one.near, one.within_ms, one.copies, one.nodes) = (Vec::new(), None, None, None, None);
        (one.scaled, one.warm) = (None, 0);
        assert_eq!(placed(&one), ["the deployment app has it at all nodes that fit"]);
        one.keeps = vec!["bucket s".to_owned()];
        assert_eq!(placed(&one)[1], "by its place: one node, because it keeps something in bucket s");
    }
}
