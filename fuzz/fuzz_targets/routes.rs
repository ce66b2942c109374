//! The table of routes finds what the rules say when they are read out one by one.
//!
//! An input is lines: method, host, path, then a route a line as `METHOD,… host/path`.
#![no_main]

use gate_http::path::canonical;
use gate_http::{Refusal, RouteTable};
use http::Method;
use lighter_fuzz::fuzz_target;
use manifest::HttpTrigger;

fuzz_target!(|text: &str| {
    let mut lines = text.lines();
    let (Some(method), Some(host), Some(path)) = (lines.next(), lines.next(), lines.next()) else { return };
    let Ok(method) = Method::from_bytes(method.as_bytes()) else { return };
    let host = Some(host).filter(|host| !host.is_empty());
    let triggers: Vec<HttpTrigger> = lines.filter_map(trigger).collect();
    let numbered = triggers.iter().enumerate().map(|(index, trigger)| ("f", trigger, index));
    // Two routes for the same requests: the node refuses them before there is a table.
    let Ok(table) = RouteTable::build(numbered) else { return };
    let found = match table.find(host, path, &method) {
        Ok(route) => Found::Route(route.target),
        Err(Refusal::Malformed(_)) => Found::Malformed,
        Err(Refusal::NotFound) => Found::Nothing,
        Err(Refusal::MethodNotAllowed { .. }) => Found::OtherMethods,
        Err(Refusal::Options { .. }) => Found::Options,
    };
    assert_eq!(found, expected(&triggers, host, path, &method));
});

#[derive(Debug, PartialEq)]
enum Found {
    Route(usize),
    Malformed,
    Nothing,
    OtherMethods,
    Options,
}

fn trigger(line: &str) -> Option<HttpTrigger> {
    let (methods, rest) = line.split_once(' ')?;
    let (host, route) = rest.split_at(rest.find('/')?);
    let mut trigger = HttpTrigger::new(route);
    trigger.host = (!host.is_empty()).then(|| host.to_owned());
    trigger.methods = methods.split(',').filter(|method| !method.is_empty()).map(str::to_owned).collect();
    Some(trigger)
}

fn expected(triggers: &[HttpTrigger], host: Option<&str>, path: &str, method: &Method) -> Found {
    let Ok(path) = canonical(path) else { return Found::Malformed };
    let place = levels(host).into_iter().map(|level| place(triggers, level.as_deref(), &path));
    let Some(place) = place.into_iter().find(|place| !place.is_empty()) else { return Found::Nothing };
    let taking = |method: &str| {
        let takes = |index: &&usize| {
            let methods = &triggers[**index].methods;
            methods.is_empty() || methods.iter().any(|known| known == method)
        };
        place.iter().find(takes).copied()
    };
    let as_get = || if *method == Method::HEAD { taking("GET") } else { None };
    match taking(method.as_str()).or_else(as_get) {
        Some(index) => Found::Route(index),
        None if *method == Method::OPTIONS => Found::Options,
        None => Found::OtherMethods,
    }
}

/// The hosts a route may name for this one: itself, every name above it, none.
fn levels(host: Option<&str>) -> Vec<Option<String>> {
    let mut levels = Vec::new();
    if let Some(host) = host {
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        if host.len() <= 253 {
            let parents = host.match_indices('.').map(|(at, _)| Some(format!("*{}", &host[at..])));
            levels.extend(std::iter::once(Some(host.clone())).chain(parents));
        }
    }
    levels.push(None);
    levels
}

/// The routes of one host with the best path: the exact one, or the longest prefix.
fn place(triggers: &[HttpTrigger], host: Option<&str>, path: &str) -> Vec<usize> {
    let of_host = || triggers.iter().enumerate().filter(|(_, trigger)| trigger.host.as_deref() == host);
    let prefix = |route: &str| route.strip_suffix("/*").map(str::to_owned);
    let with = |wanted: &str| of_host().filter(|(_, t)| t.route == wanted).map(|(index, _)| index).collect::<Vec<_>>();
    if prefix(path).is_none() && !with(path).is_empty() {
        return with(path);
    }
    let below =
        |prefix: &String| path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let longest = of_host().filter_map(|(_, t)| prefix(&t.route)).filter(below).max_by_key(String::len);
    longest.map(|prefix| with(&format!("{prefix}/*"))).unwrap_or_default()
}
