//! The nearest name among those that the node knows.

use super::client::{Client, encoded};
use super::stop::{Result, Stop};
use api_types::BucketInfo;
use manifest::{Manifest, Name};
use problem::{Code, Problem};
use serde_json::Value;
use std::collections::BTreeSet;

pub use manifest::nearest::nearest;

/// The path of a function in the API.
///
/// # Errors
/// It cannot be the name of a function; the nearest one is named.
pub fn function_path(client: &Client, name: &str) -> Result<String> {
    match name.parse::<Name>() {
        Ok(name) => Ok(format!("/v1/functions/{}", encoded(name.as_str()))),
        Err(_) => {
            Err(explain(client, name, Stop::new(Code::FunctionUnknown, format!("there is no function {name:?}"))))
        }
    }
}

/// Adds the nearest name to a problem about something the node does not know by `name`: a function, a queue, a board.
pub fn explain(client: &Client, name: &str, stop: Stop) -> Stop {
    let Stop::Problem(problem) = stop else { return stop };
    let Some(path) = listed_at(problem.code) else { return problem.into() };
    // Whoever may not list them still learns that this one is missing.
    let Ok(names) = names(client, path) else { return problem.into() };
    with_nearest(problem, name, &names).into()
}

/// Where the API lists what is unknown.
fn listed_at(code: Code) -> Option<&'static str> {
    Some(match code {
        Code::FunctionUnknown => "/v1/functions",
        Code::QueueUnknown => "/v1/queues",
        Code::BoardUnknown => "/v1/boards",
        Code::SecretUnknown => "/v1/secrets",
        Code::TokenUnknown => "/v1/tokens",
        _ => return None,
    })
}

/// The names in a list of the API, whose items are names or have one.
fn names(client: &Client, path: &str) -> Result<Vec<String>> {
    let items: Vec<Value> = client.get(path)?;
    Ok(items.iter().filter_map(|item| item["name"].as_str().or(item.as_str())).map(str::to_owned).collect())
}

/// Refuses names that a list of the API does not have, before anything is done to one of them.
pub fn check_all(client: &Client, code: Code, wanted: &[String], noun: &str) -> Result {
    let Some(path) = listed_at(code) else { return Ok(()) };
    if let [_] = wanted {
        // The node says the same of one.
        return Ok(());
    }
    known(wanted, &names(client, path)?, code, noun)
}

/// Refuses the first name that is not among the known ones.
pub fn known(wanted: &[String], known: &[String], code: Code, noun: &str) -> Result {
    match wanted.iter().find(|name| !known.contains(name)) {
        None => Ok(()),
        Some(name) => Err(with_nearest(Problem::new(code, format!("there is no {noun} {name:?}")), name, known).into()),
    }
}

/// Refuses a bucket that holds nothing, has no bounds and is granted to no function.
pub fn check_bucket(client: &Client, bucket: &str) -> Result {
    let held: Vec<BucketInfo> = client.get("/v1/buckets")?;
    if held.iter().any(|held| held.name == bucket) {
        return Ok(());
    }
    let deployed: Manifest = client.get("/v1/deployments")?;
    let granted = deployed.function.values().flat_map(|function| function.grants.stores.iter().cloned());
    let all: BTreeSet<String> =
        held.into_iter().map(|held| held.name).chain(granted).chain(deployed.bucket.into_keys()).collect();
    known(&[bucket.to_owned()], &Vec::from_iter(all), Code::BucketUnknown, "bucket")
}

fn with_nearest(problem: Problem, name: &str, names: &[String]) -> Problem {
    if names.iter().any(|known| known == name) {
        return problem;
    }
    match nearest(name, names.iter().map(String::as_str)) {
        Some(near) => problem.with_hint(format!("did you mean {near:?}?")),
        None if names.is_empty() && problem.code == Code::FunctionUnknown => {
            problem.with_hint("nothing is deployed yet: `lighter deploy` does it")
        }
        None => problem,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(code: Code, names: &[&str]) -> String {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        with_nearest(Problem::new(code, "x"), "helo", &names).hint.into_owned()
    }

    #[test]
    fn the_hint_says_what_can_be_done() {
        assert_eq!(hint(Code::FunctionUnknown, &["hello"]), "did you mean \"hello\"?");
        assert!(hint(Code::FunctionUnknown, &[]).contains("lighter deploy"));
        assert!(hint(Code::FunctionUnknown, &["zzz"]).contains("lighter ls"));
        assert_eq!(hint(Code::BoardUnknown, &["hello"]), "did you mean \"hello\"?");
        assert!(hint(Code::SecretUnknown, &[]).contains("lighter secret ls"));
    }

    #[test]
    fn one_unknown_name_refuses_all() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let check = |wanted: &[&str]| known(&names(wanted), &names(&["a", "hello"]), Code::FunctionUnknown, "function");
        check(&["a", "hello"]).unwrap();
        let Err(Stop::Problem(problem)) = check(&["a", "helo"]) else { panic!("helo is unknown") };
        assert_eq!((problem.code, &*problem.hint), (Code::FunctionUnknown, "did you mean \"hello\"?"));
    }
}
