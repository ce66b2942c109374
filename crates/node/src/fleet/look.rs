//! What is seen of a fleet from here: its nodes as they were last heard, and why a call goes where it goes.

use crate::Node;
use crate::link::{CallLink, Spread};
use crate::mail::Mail;
use api_types::{FleetForecast, FleetLoad, FleetNode, FleetOther, FleetReason, FleetWhy};
use fleet_agent::Row;
use fleet_link::{Forecast, Neighbour, Way};
use fleet_trust::NodeId;
use problem::{Code, Problem};
use std::collections::BTreeMap;

/// One node, with what the link knows of it and the mail that waits for it.
pub fn member(node: &Node, (link, mail): (Option<&CallLink>, Option<&Mail>), row: Row) -> FleetNode {
    let Row { node: id, record, is_anchor, is_this_node, heard } = row;
    let functions = link.map(|link| if is_this_node { link.offered_here(node) } else { link.offered_by(&id) });
    FleetNode {
        id: id.to_string(),
        name: record.name,
        address: record.address.map(|address| address.to_string()),
        anchor: is_anchor,
        this_node: is_this_node,
        version: Some(record.version).filter(|version| !version.is_empty()),
        heard_ms: heard.map(|heard| heard.as_millis() as u64),
        mail_waiting: mail.map_or(0, |mail| mail.waiting(&id).letters),
        load: link.and_then(|link| link.neighbour(&id)).map(load),
        functions: functions.unwrap_or_default(),
    }
}

fn load(Neighbour { last_heard, ran }: Neighbour) -> FleetLoad {
    FleetLoad {
        round_trip_ms: last_heard.round_trip * 1e3,
        wait_ms: last_heard.wait * 1e3,
        places: last_heard.places,
        speed: last_heard.speed,
        calls: ran,
    }
}

/// Where a call of a function would run that came in here now with a body of so many bytes, and by what that is
/// decided.
///
/// # Errors
/// [`Code::NoFleet`]; [`Code::FunctionUnknown`]: neither this node nor one that it hears has the function.
pub fn why(node: &Node, function: &str, bytes: u64) -> Result<FleetWhy, Problem> {
    let status = node.fleet.status()?;
    let names: BTreeMap<NodeId, String> = status.rows.iter().map(|row| (row.node, row.record.name.clone())).collect();
    let me = status.rows.first().map(|row| row.node);
    let unknown = || Problem::new(Code::FunctionUnknown, format!("no node that was heard has a function {function:?}"));
    let link = node.link().ok_or_else(unknown)?;
    let Spread { rule, weighed, others } = link.spread(node, function, bytes).ok_or_else(unknown)?;
    let told = |id: Option<NodeId>| -> (String, String) {
        let id = id.or(me);
        let name = id.and_then(|id| names.get(&id).cloned()).unwrap_or_default();
        (id.map(|id| id.to_string()).unwrap_or_default(), name)
    };
    let forecast = |one: &Forecast| {
        let Forecast { node, hop, transfer, wait, run } = *one;
        let [way_ms, body_ms, wait_ms, run_ms] = [hop, transfer, wait, run].map(|seconds| seconds * 1e3);
        let (id, name) = told(node);
        let total_ms = way_ms + body_ms + wait_ms + run_ms;
        FleetForecast { id, name, this_node: node.is_none(), way_ms, body_ms, wait_ms, run_ms, total_ms }
    };
    let other = |(node, reason): (NodeId, FleetReason)| {
        let (id, name) = told(Some(node));
        FleetOther { id, name, reason }
    };
    let runs = match weighed.way {
        Way::Here => me,
        Way::There { node, .. } => Some(node),
        Way::Nowhere => None,
    };
    Ok(FleetWhy {
        function: function.to_owned(),
        rule,
        runs: runs.map(|id| id.to_string()),
        forecasts: weighed.forecasts.iter().map(forecast).collect(),
        others: others.into_iter().map(other).collect(),
    })
}
