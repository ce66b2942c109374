//! What the API says about the node and its functions.

use super::Node;
use super::functions::Entry;
use super::metrics::usage;
use crate::api::types::{FunctionInfo, FunctionStats, NodeInfo, UnitInfo, VersionInfo};
use std::time::Instant;

impl Node {
    pub fn info(&self) -> NodeInfo {
        NodeInfo {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            gate: self.gate_url().to_owned(),
            data_folder: self.config.data.display().to_string(),
            isolation: self.functions.loader.kinds.words(),
            functions: self.functions.table().count(),
            units_running: self.functions.units.counts().running as usize,
            units_max: self.config.units_max as usize,
            uptime_seconds: self.started.elapsed().as_secs(),
            rss_bytes: usage().rss_bytes,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            architecture: std::env::consts::ARCH.to_owned(),
            engine: self.functions.loader.kinds.fingerprints(),
        }
    }

    pub fn describe(&self, entry: &Entry) -> FunctionInfo {
        let (live, counters) = (&entry.live, &entry.live.identity.counters);
        let versions = entry.history.versions.iter().map(|version| VersionInfo {
            version: version.version,
            image: version.function.image.clone(),
            image_bytes: version.image_bytes,
            deployed_ms: version.deployed_ms,
            function: (*version.function).clone(),
        });
        let routes = live.function.http.iter().map(|trigger| match &trigger.host {
            Some(host) => format!("{host}{}", trigger.route),
            None => trigger.route.clone(),
        });
        FunctionInfo {
            name: live.name().clone(),
            version: live.version,
            versions: versions.collect(),
            isolation: live.function.isolation.as_str().to_owned(),
            contract: live.contract.as_str().to_owned(),
            routes: routes.collect(),
            urls: live.function.http.iter().map(|trigger| self.url(trigger.host.as_deref(), &trigger.route)).collect(),
            units_running: live.identity.admission.counts().running as usize,
            calls: counters.calls(),
            errors: counters.failed_count(),
        }
    }

    pub fn stats(&self) -> Vec<FunctionStats> {
        let table = self.functions.table();
        let stats = table.entries().map(|entry| {
            let counts = entry.live.identity.admission.counts();
            let (running, waiting) = (u64::from(counts.running), u64::from(counts.waiting));
            entry.live.identity.counters.stats(entry.live.name().as_str(), entry.live.version, running, waiting)
        });
        stats.collect()
    }

    pub fn units(&self) -> Vec<UnitInfo> {
        let (table, now) = (self.functions.table(), Instant::now());
        let mut units = Vec::new();
        for live in table.entries().map(|entry| &entry.live) {
            let Some(prepared) = live.prepared() else { continue };
            units.extend(prepared.units().into_iter().map(|unit| UnitInfo {
                unit: unit.unit,
                function: live.name().to_string(),
                version: live.version,
                isolation: live.function.isolation.as_str().to_owned(),
                request_id: unit.request_id.map(|id| id.to_string()),
                age_ms: u64::try_from(now.saturating_duration_since(unit.since).as_millis()).unwrap_or(u64::MAX),
                calls: unit.calls,
            }));
        }
        units
    }

    /// Where the gate serves a route; the address with the host's name in it where the route wants one.
    fn url(&self, host: Option<&str>, route: &str) -> String {
        let gate = self.gate_url();
        let route = route.strip_suffix('*').unwrap_or(route);
        match (host, gate.split_once("://")) {
            (Some(host), Some((scheme, address))) => {
                let port = address.rsplit_once(':').map_or("", |(_, port)| port);
                format!("{scheme}://{host}:{port}{route}")
            }
            _ => format!("{gate}{route}"),
        }
    }
}
