//! What the API says about the node and its functions.

use super::events::{Duty, Numbers};
use super::functions::{Table, TableEntry};
use super::metrics::rss_bytes;
use super::{Node, clock};
use api_types::{
    BucketInfo, FunctionInfo, FunctionStats, HandlerInfo, NodeInfo, QueueInfo, QueuedStats, UnitInfo, VersionInfo,
};
use manifest::Function;
use problem::Problem;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

impl Node {
    /// Waits for what has to be tried out first, such as which protections this system refuses.
    pub async fn info(&self) -> NodeInfo {
        let mut info = NodeInfo {
            python: None,
            missing_protections: Vec::new(),
            token: None,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            gate: self.gate_url().to_owned(),
            queues_paused: self.events.pauses.reason(),
            data_folder: self.config.data.display().to_string(),
            isolation: self.functions.loader.classes.words(),
            functions: self.functions.table().count(),
            units_running: self.functions.units.counts().running as usize,
            units_max: self.config.units_max as usize,
            uptime_seconds: self.started.elapsed().as_secs(),
            rss_bytes: rss_bytes(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            architecture: std::env::consts::ARCH.to_owned(),
            engine: self.functions.loader.classes.fingerprints(),
        };
        for offered in self.functions.loader.classes.iter() {
            offered.class.describe(&mut info).await;
        }
        info
    }

    pub fn describe(&self, entry: &TableEntry) -> FunctionInfo {
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
            queue: live.function.handles(live.name()).map(ToString::to_string),
            triggers: triggers(&live.function),
            units_running: live.identity.admission.counts().running as usize,
            calls: counters.calls(),
            errors: counters.failed_count(),
        }
    }

    /// A queue, whether or not anything is deployed for it.
    pub fn describe_queue(&self, name: &str) -> Result<QueueInfo, Problem> {
        let table = self.functions.table();
        let counts = self.functions.loader.state.queue(name)?.counts();
        let since_start = counts.since_start;
        let now_ms = clock::now_ms();
        Ok(QueueInfo {
            name: name.to_owned(),
            paused: self.events.pauses.is_paused(name),
            handler: self.events.duty(name).map(|duty| self.describe_duty(&table, name, &duty)),
            ready: counts.ready,
            delayed: counts.delayed,
            leased: counts.leased,
            damaged: counts.damaged,
            dead: counts.dead,
            bytes: counts.bytes,
            oldest_age_ms: counts.oldest_ms.map(|oldest_ms| now_ms.saturating_sub(oldest_ms)),
            pushed: since_start.pushed,
            acked: since_start.acked,
            retried: since_start.retried,
            died: since_start.died,
            expired: since_start.expired,
            duplicates: since_start.duplicates,
            refused: since_start.refused,
            leases_ended: since_start.leases_ended,
            dropped: since_start.dropped,
            configuration: table.parts().queues.get(name).map(|part| (*part.what).clone()).unwrap_or_default(),
        })
    }

    /// The buckets that hold something or have bounds; the node's own are left out.
    pub fn describe_buckets(&self) -> Vec<BucketInfo> {
        let (table, state) = (self.functions.table(), &self.functions.loader.state);
        let bounds = &table.parts().buckets;
        let mut names: BTreeSet<String> = state.buckets().into_iter().map(|(name, _)| name).collect();
        names.extend(bounds.keys().cloned());
        let describe = |name: String| {
            let counts = state.bucket_counts(&name);
            let bounds = bounds.get(&name).map(|part| (*part.what).clone()).unwrap_or_default();
            BucketInfo { name, keys: counts.keys, bytes: counts.bytes, bounds }
        };
        names.into_iter().filter(|name| !name.starts_with('.')).map(describe).collect()
    }

    fn queued(&self, queue: &str) -> Option<QueuedStats> {
        let counts = self.functions.loader.state.queue(queue).ok()?.counts();
        let now_ms = clock::now_ms();
        Some(QueuedStats {
            queue: queue.to_owned(),
            waiting: counts.ready + counts.delayed,
            dead: counts.dead,
            workers: self.events.shell(queue).map_or(0, |shell| shell.numbers.workers.load(Relaxed)),
            oldest_age_ms: counts.oldest_ms.map(|oldest_ms| now_ms.saturating_sub(oldest_ms)),
        })
    }

    fn describe_duty(&self, table: &Table, queue: &str, duty: &Duty) -> HandlerInfo {
        let shell = self.events.shell(queue);
        let number = |read: fn(&Numbers) -> u64| shell.as_ref().map_or(0, |shell| read(&shell.numbers));
        let (kind, name, ended) = match duty {
            Duty::Handle(handler) => (handler.kind(), handler.name().as_str(), table.parts().ended.get(handler.name())),
            Duty::Send(_, home) => ("node", home.as_str(), None),
        };
        let ended = ended.map(|ended| ended.reason.clone());
        HandlerInfo {
            kind: kind.to_owned(),
            name: name.to_owned(),
            workers: number(|numbers| numbers.workers.load(Relaxed).into()) as u32,
            workers_max: match &ended {
                Some(_) => 0,
                None => shell.as_ref().map_or(0, |shell| shell.consumer().workers_max()),
            },
            postponed: number(|numbers| numbers.postponed.load(Relaxed)),
            lost: number(|numbers| numbers.lost.load(Relaxed)),
            service_us: shell.as_ref().and_then(|shell| shell.service_time()).map(|time| time.as_micros() as u64),
            ended,
        }
    }

    pub fn stats(&self) -> Vec<FunctionStats> {
        self.functions.table().entries().map(|entry| self.stats_of(entry)).collect()
    }

    pub fn stats_of(&self, entry: &TableEntry) -> FunctionStats {
        let live = &entry.live;
        let counts = live.identity.admission.counts();
        let (running, waiting) = (u64::from(counts.running), u64::from(counts.waiting));
        FunctionStats {
            queue: live.function.handles(live.name()).and_then(|queue| self.queued(queue.as_str())),
            ..live.identity.counters.stats(live.name().as_str(), live.version, running, waiting)
        }
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

/// What makes events for the function, as the manifest names it.
fn triggers(function: &Function) -> Vec<String> {
    let mqtt = function.mqtt.iter().map(|trigger| format!("mqtt {}", trigger.topic));
    let every = function.every.iter().map(|trigger| format!("every {}", trigger.period));
    let cron = function.cron.iter().map(|trigger| format!("cron {}", trigger.schedule));
    mqtt.chain(every).chain(cron).collect()
}
