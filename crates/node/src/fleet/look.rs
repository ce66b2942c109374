//! What is seen of a fleet from here: its nodes as they were last heard, and why a call goes where it goes.

use crate::link::{CallLink, Spread};
use crate::mail::Mail;
use crate::{Node, clock};
use api_types::{
    FleetCopies, FleetForecast, FleetLoad, FleetNode, FleetOther, FleetPlace, FleetPlaces, FleetReason, FleetWhy,
    TokenInfo, identity::Identity,
};
use fleet_agent::table::Record;
use fleet_agent::{Row, Status};
use fleet_link::{Forecast, Neighbour, Way};
use fleet_trust::NodeId;
use problem::{Code, Problem};
use std::collections::BTreeMap;
use std::time::Duration;

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

/// Which nodes have a copy of each function that keeps nothing, as far as this node hears of them.
pub fn copies(node: &Node, link: &CallLink, rows: &[Row]) -> Vec<FleetCopies> {
    let mut copies: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for row in rows {
        let other = (!row.is_this_node).then_some(&row.node);
        for function in link.copies_at(node, other) {
            copies.entry(function).or_default().push(row.node.to_string());
        }
    }
    copies.into_iter().map(|(function, nodes)| FleetCopies { function, nodes }).collect()
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

/// Nodes that a device is told of. Of more, those that were heard of last.
pub const PLACES_MAX: usize = 256;
/// Functions of one node that a device is told of.
const FUNCTIONS_MAX: usize = 256;
/// A node that was not heard of for so long is told to nobody.
const SILENT_AFTER: Duration = Duration::from_secs(30);

/// The nodes whose API a device can reach, with those of their functions that its token is for.
///
/// # Errors
/// [`Code::NoFleet`].
pub fn places(node: &Node, token: &TokenInfo) -> Result<FleetPlaces, Problem> {
    let Status { name, fleet, mut rows, .. } = node.fleet.status()?;
    rows.retain(|row| row.record.api.is_some() && row.heard.is_some_and(|heard| heard < SILENT_AFTER));
    rows.sort_by_key(|row| (!row.is_this_node, row.heard));
    rows.truncate(PLACES_MAX);
    let link = node.link();
    let place = |row: Row| {
        let functions = link.as_ref().map(|link| match row.is_this_node {
            true => link.offered_here(node),
            false => link.offered_by(&row.node),
        });
        let mut functions = functions.unwrap_or_default();
        functions.retain(|function| token.covers_function(function));
        functions.truncate(FUNCTIONS_MAX);
        let heard_ms = row.heard.map_or(0, |heard| heard.as_millis() as u64);
        let (id, this_node, Record { name, api, .. }) = (row.node.to_string(), row.is_this_node, row.record);
        FleetPlace { id, name, this_node, api: api.unwrap_or_default(), heard_ms, functions }
    };
    Ok(FleetPlaces { fleet: name, id: fleet.to_string(), places: rows.into_iter().map(place).collect() })
}

/// Proves to a device that this node knows the fleet's token whose hash begins so: it has not been sent yet.
///
/// # Errors
/// [`Code::NoFleet`]; [`Code::TokenUnknown`]: it does not, or devices are told no address of it.
pub fn proof(node: &Node, nonce: &str, hash_start: &str) -> Result<String, Problem> {
    let status = node.fleet.status()?;
    let api = status.rows.into_iter().next().and_then(|row| row.record.api);
    let hash = node.access.shared_hash(hash_start, clock::now_ms());
    let known = hash.zip(api).map(|(hash, api)| Identity::new(&hash, &api).proof(nonce));
    known.ok_or_else(|| Problem::new(Code::TokenUnknown, "the fleet has no token with such a hash"))
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
        placed: link.deployments().and_then(|deployments| deployments.placed(function, &names)),
    })
}
