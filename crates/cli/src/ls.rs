//! `lighter ls`: the functions on the node, or every version of them.

use super::stop::Result;
use super::table::Table;
use super::{Session, words};
use api_types::FunctionInfo;
use clap::Args;

/// Hexadecimal digits of a hash that people get to see.
const HASH_DIGITS: usize = 12;

#[derive(Debug, Args)]
pub struct Ls {
    /// Also list the earlier versions that `lighter rollback` can restore
    #[arg(long)]
    versions: bool,
}

impl Ls {
    pub fn run(&self, session: &Session) -> Result {
        let functions: Vec<FunctionInfo> = session.client()?.get("/v1/functions")?;
        if session.out.json {
            return session.out.json(&functions);
        }
        if functions.is_empty() {
            session.out.say("nothing is deployed yet: `lighter new hello && lighter deploy hello --build` begins");
            return Ok(());
        }
        session.out.table(&if self.versions { versions(&functions) } else { overview(&functions) })
    }
}

fn overview(functions: &[FunctionInfo]) -> Table {
    let mut table =
        Table::new(&["FUNCTION", ">VERSION", "CLASS", "CONTRACT", ">UNITS", ">CALLS", ">ERRORS", "QUEUE", "URL"]);
    for function in functions {
        table.row([
            function.name.to_string(),
            function.version.to_string(),
            function.isolation.clone(),
            function.contract.clone(),
            function.units_running.to_string(),
            function.calls.to_string(),
            function.errors.to_string(),
            function.queue.clone().unwrap_or_else(|| "-".to_owned()),
            function.urls.join(" "),
        ]);
    }
    table
}

fn versions(functions: &[FunctionInfo]) -> Table {
    let mut table = Table::new(&["FUNCTION", ">VERSION", "", "DEPLOYED (UTC)", ">SIZE", "IMAGE"]);
    for function in functions {
        for version in &function.versions {
            let current = if version.version == function.version { "current" } else { "" };
            let deployed = words::time(version.deployed_ms);
            table.row([
                function.name.to_string(),
                version.version.to_string(),
                current.to_owned(),
                deployed.split('.').next().unwrap_or_default().to_owned(),
                words::bytes(version.image_bytes),
                version.image.chars().take(HASH_DIGITS).collect(),
            ]);
        }
    }
    table
}

/// What a deployment leaves to say: where the functions can be reached.
pub fn urls(functions: &[FunctionInfo]) -> Table {
    let mut table = Table::new(&["FUNCTION", ">VERSION", "URL"]);
    for function in functions {
        let urls = match (&function.queue, function.urls.is_empty()) {
            (Some(queue), true) => format!("(queue {queue})"),
            (None, true) => format!("(no route: lighter call {})", function.name),
            (_, false) => function.urls.join(" "),
        };
        table.row([function.name.to_string(), function.version.to_string(), urls]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use api_types::VersionInfo;
    use manifest::Function;

    fn hello() -> FunctionInfo {
        let version = |version, image: &str| VersionInfo {
            version,
            image: image.repeat(64),
            image_bytes: 15_000,
            deployed_ms: 1_795_233_259_123,
            function: Function::new("x"),
        };
        FunctionInfo {
            name: "hello".parse().unwrap(),
            version: 1,
            versions: vec![version(2, "b"), version(1, "a")],
            isolation: "wasm".into(),
            contract: "lighter:unit".into(),
            routes: vec!["/hello".into()],
            urls: vec!["http://127.0.0.1:8700/hello".into()],
            queue: None,
            triggers: Vec::new(),
            units_running: 0,
            calls: 7,
            errors: 1,
        }
    }

    #[test]
    fn the_version_in_use_is_marked() {
        assert_eq!(
            versions(&[hello()]).lines(),
            [
                "FUNCTION  VERSION           DEPLOYED (UTC)          SIZE  IMAGE",
                "hello           2           2026-11-21 03:54:19  15.0 kB  bbbbbbbbbbbb",
                "hello           1  current  2026-11-21 03:54:19  15.0 kB  aaaaaaaaaaaa",
            ]
        );
    }

    #[test]
    fn a_function_without_a_route_says_how_to_call_it() {
        let alone = FunctionInfo { urls: Vec::new(), ..hello() };
        let queued = FunctionInfo { queue: Some("readings".into()), ..alone.clone() };
        assert_eq!(
            urls(&[hello(), alone, queued]).lines(),
            [
                "FUNCTION  VERSION  URL",
                "hello           1  http://127.0.0.1:8700/hello",
                "hello           1  (no route: lighter call hello)",
                "hello           1  (queue readings)",
            ]
        );
    }
}
