//! Everything the node counts, as one page for Prometheus. Functions without calls have no histograms, so a node with
//! many of them still has a page of bearable size.

use super::queues::queues;
use super::text::Text;
use super::{Counters, usage};
use crate::events::PAST_BYTES_MAX;
use crate::functions::TableEntry;
use crate::{ClassMemory, Node, clock};
use budget::Purpose;
use problem::Code;
use std::time::Duration;

/// A node that was not heard of for so long counts as silent.
const SILENT_AFTER: Duration = Duration::from_secs(60);

/// What `lighter_memory_bytes` calls the handlings that are remembered.
const PAST_WORD: &str = "handlings";

pub fn page(node: &Node) -> String {
    let mut text = Text::default();
    let table = node.functions.table();
    let entries: Vec<&TableEntry> = table.entries().collect();
    calls(&mut text, &entries);
    latencies(&mut text, &entries);
    limits(&mut text, entries.iter().map(|entry| (entry.live.name().as_str(), &entry.live.identity.counters)));
    refused(&mut text, node);
    queues(&mut text, node, clock::now_ms());
    parts(&mut text, node, entries.len());
    memory(&mut text, node);
    mqtt(&mut text, node);
    fleet(&mut text, node);
    link(&mut text, node);
    mail(&mut text, node);
    process(&mut text, node);
    text.finish()
}

fn calls(text: &mut Text, entries: &[&TableEntry]) {
    text.counter(
        "lighter_calls_total",
        "Calls by how they ended: ok, gone (the caller went away) or the code of the error.",
    );
    for live in entries.iter().map(|entry| &entry.live) {
        let (function, counters) = (live.name().as_str(), &live.identity.counters);
        text.sample(&[("function", function), ("outcome", "ok")], counters.ok_count());
        text.sample(&[("function", function), ("outcome", "gone")], counters.gone_count());
        for (code, count) in counters.failures() {
            text.sample(&[("function", function), ("outcome", &code.to_string())], count);
        }
    }
    type Read = fn(&TableEntry) -> u64;
    let gauges: [(&str, &str, Read); 3] = [
        ("lighter_calls_running", "Calls that run now.", |entry| entry.live.identity.admission.counts().running.into()),
        ("lighter_calls_waiting", "Calls that wait for their turn.", |entry| {
            entry.live.identity.admission.counts().waiting.into()
        }),
        ("lighter_unit_memory_bytes_max", "Most linear memory one unit ended with.", |entry| {
            entry.live.identity.counters.memory_bytes_max()
        }),
    ];
    for (name, help, read) in gauges {
        text.gauge(name, help);
        entries.iter().for_each(|entry| _ = text.sample(&[("function", entry.live.name().as_str())], read(entry)));
    }
    text.counter("lighter_unit_cpu_seconds_total", "CPU time used by units.");
    for live in entries.iter().map(|entry| &entry.live) {
        text.seconds(&[("function", live.name().as_str())], live.identity.counters.cpu());
    }
    text.counter("lighter_reruns_total", "Handlings begun again because others had changed what they had read.");
    for live in entries.iter().map(|entry| &entry.live) {
        text.sample(&[("function", live.name().as_str())], live.identity.counters.rerun_count());
    }
    text.counter("lighter_log_lines_dropped_total", "Log lines dropped because a function wrote too many a second.");
    for live in entries.iter().map(|entry| &entry.live) {
        text.sample(&[("function", live.name().as_str())], live.identity.log.dropped());
    }
    text.counter("lighter_log_bytes_dropped_total", "Bytes of log output dropped: over limits.log_bytes of a call.");
    for live in entries.iter().map(|entry| &entry.live) {
        text.sample(&[("function", live.name().as_str())], live.identity.log.dropped_bytes());
    }
}

fn latencies(text: &mut Text, entries: &[&TableEntry]) {
    text.histogram("lighter_call_seconds", "Time of calls: in the queue, starting a unit, running, and in total.");
    for live in entries.iter().map(|entry| &entry.live) {
        let counters = &live.identity.counters;
        for (part, histogram) in
            [("queue", &counters.queue), ("start", &counters.start), ("run", &counters.run), ("total", &counters.total)]
        {
            let snapshot = histogram.snapshot();
            if snapshot.count > 0 {
                text.distribution(&[("function", live.name().as_str()), ("part", part)], &snapshot);
            }
        }
    }
}

fn limits<'a>(text: &mut Text, functions: impl Iterator<Item = (&'a str, &'a Counters)>) {
    text.counter("lighter_limits_exceeded_total", "Calls that ended at a limit, by its name in the manifest.");
    for (function, counters) in functions {
        for (code, count) in counters.failures() {
            if let Some(limit) = limit_name(code) {
                text.sample(&[("function", function), ("limit", limit)], count);
            }
        }
    }
}

fn refused(text: &mut Text, node: &Node) {
    text.counter(
        "lighter_requests_refused_total",
        "Requests of the gate that reached no function, by the code of the answer.",
    );
    for (code, count) in node.strays.failures() {
        text.sample(&[("code", &code.to_string())], count);
    }
}

/// Only in a node of a fleet.
fn fleet(text: &mut Text, node: &Node) {
    let Ok(status) = node.fleet.status() else { return };
    let link = node.link();
    let [mut reached, mut heard, mut silent] = [0_u64; 3];
    for row in status.rows.iter().filter(|row| !row.is_this_node) {
        let is_reached = link.as_ref().is_some_and(|link| link.neighbour(&row.node).is_some());
        let is_heard = row.heard.is_some_and(|heard| heard < SILENT_AFTER);
        match (is_reached, is_heard) {
            (true, _) => reached += 1,
            (false, true) => heard += 1,
            (false, false) => silent += 1,
        }
    }
    text.gauge(
        "lighter_fleet_nodes",
        "Other nodes of the fleet: calls of this node reach them, they were heard of in the last minute, or neither.",
    );
    for (state, count) in [("reached", reached), ("heard", heard), ("silent", silent)] {
        text.sample(&[("state", state)], count);
    }
    let is_connected = node.engine().is_some_and(|engine| engine.status().is_connected);
    text.gauge("lighter_fleet_engine_connected", "Whether the node is connected to the fleet's engine.")
        .sample(&[], u8::from(is_connected));
}

fn link(text: &mut Text, node: &Node) {
    let Some(link) = node.link() else { return };
    text.counter(
        "lighter_fleet_calls_total",
        "Calls that went to other nodes (way: out) and came from them (in), by what became of them.",
    );
    for (outcome, count) in link.counts().outgoing() {
        text.sample(&[("way", "out"), ("outcome", outcome)], count);
    }
    for (outcome, count) in link.counts().incoming() {
        text.sample(&[("way", "in"), ("outcome", outcome)], count);
    }
}

fn mail(text: &mut Text, node: &Node) {
    let Some(mail) = node.events.mail() else { return };
    let waiting = mail.waiting_in_all();
    text.gauge("lighter_mail_waiting_letters", "Events that wait until the disk of another node has them.");
    text.sample(&[], waiting.letters);
    text.gauge("lighter_mail_waiting_bytes", "Their bytes.").sample(&[], waiting.bytes);
    let totals = mail.totals();
    text.counter("lighter_mail_letters_total", "Events that are on the disk of another node (way: out), or came (in).");
    text.sample(&[("way", "out")], totals.sent).sample(&[("way", "in")], totals.taken);
}

fn limit_name(code: Code) -> Option<&'static str> {
    Some(match code {
        Code::TimeExceeded => "time_ms",
        Code::CpuExceeded => "cpu_ms",
        Code::MemoryExceeded => "memory_bytes",
        Code::TableExceeded => "table_elements",
        Code::StackExceeded => "stack",
        Code::BodyTooLarge => "body_bytes",
        Code::ReplyTooLarge => "reply_bytes",
        Code::ConcurrencyExceeded => "concurrency",
        Code::RateExceeded => "rate_per_second",
        Code::WaitExceeded => "wait_ms",
        Code::NodeFull => "units_max",
        Code::ProcessesExceeded => "processes",
        Code::MemoryFull => "memory_bytes_max",
        _ => return None,
    })
}

fn parts(text: &mut Text, node: &Node, functions: usize) {
    let loader = &node.functions.loader;
    text.gauge("lighter_functions", "Functions that are deployed.").sample(&[], functions);
    text.gauge("lighter_functions_loaded", "Functions that are ready to start units.")
        .sample(&[], loader.loaded_count());
    text.gauge("lighter_units_running", "Units that serve a call.").sample(&[], node.functions.units.counts().running);
    text.gauge("lighter_units_max", "Units that may run at once.").sample(&[], node.config.units_max);
    text.gauge("lighter_request_bodies_bytes", "Request bodies in memory.").sample(&[], node.bodies.used_bytes());
    text.histogram("lighter_compile_seconds", "Time to compile an image.")
        .distribution(&[], &loader.compile_time.snapshot());
    text.counter("lighter_artefacts_rebuilt_total", "Artefacts compiled again because they were missing or unfit.");
    text.sample(&[], loader.rebuilt.load(std::sync::atomic::Ordering::Relaxed));

    let stored = loader.warehouse.usage();
    text.gauge("lighter_warehouse_bytes", "Bytes on disk.");
    text.sample(&[("what", "images")], stored.images_bytes).sample(&[("what", "artefacts")], stored.artefacts_bytes);
    text.gauge("lighter_warehouse_files", "Files on disk.");
    text.sample(&[("what", "images")], stored.images).sample(&[("what", "artefacts")], stored.artefacts);

    let state = loader.state.statistics();
    text.counter("lighter_state_commits_total", "Commits that wrote something.").sample(&[], state.commits);
    text.counter("lighter_state_conflicts_total", "Commits refused because of a conflict.")
        .sample(&[], state.conflicts);
    text.counter("lighter_state_syncs_total", "Times the disk was made to keep what was written.")
        .sample(&[], state.syncs);
    text.counter("lighter_state_sync_seconds_total", "Time the disk took for it.").seconds(&[], state.sync_time);
    text.gauge("lighter_state_disk_bytes", "Space the state takes on disk.").sample(&[], state.disk_bytes);
    text.gauge("lighter_state_disk_full", "Whether writes are refused for want of space.")
        .sample(&[], u8::from(state.disk_full));
    text.gauge("lighter_state_tables_damaged", "Tables of the state with a damaged place.")
        .sample(&[], state.tables_damaged);
    text.gauge("lighter_state_stopped", "Whether writes are refused until a restart.")
        .sample(&[], u8::from(state.stopped));
}

/// Some classes have the kernel count their units, in a control group of their own: these are not in the budget.
fn memory(text: &mut Text, node: &Node) {
    let budget = &node.budget;
    let counted: Vec<ClassMemory> =
        node.functions.loader.classes.iter().filter_map(|offered| offered.class.memory()).collect();
    text.gauge("lighter_memory_bytes", "Memory the node holds for others, by what it is for.");
    for purpose in Purpose::ALL {
        text.sample(&[("for", purpose.word())], budget.used_bytes(purpose));
    }
    counted.iter().for_each(|units| _ = text.sample(&[("for", units.word)], units.bytes));
    text.sample(&[("for", PAST_WORD)], node.events.past.bytes());
    text.gauge("lighter_memory_bytes_max", "The most it may hold, of each and of all.");
    for purpose in Purpose::ALL {
        text.sample(&[("for", purpose.word())], budget.part_bytes(purpose));
    }
    counted.iter().for_each(|units| _ = text.sample(&[("for", units.word)], units.bytes_max));
    text.sample(&[("for", PAST_WORD)], PAST_BYTES_MAX);
    text.sample(&[("for", "all")], budget.bytes_max());
    text.counter("lighter_memory_refused_total", "What was refused because the memory for it was used up.");
    for purpose in Purpose::ALL {
        text.sample(&[("for", purpose.word())], budget.refused_count(purpose));
    }
}

fn mqtt(text: &mut Text, node: &Node) {
    if node.events.mail().is_some() {
        let far = &node.gate_node.far;
        text.gauge("lighter_mqtt_fleet_filters", "Topic filters of clients and triggers at other nodes of the fleet.")
            .sample(&[], far.filters() as u64);
        text.counter(
            "lighter_mqtt_fleet_dropped_total",
            "MQTT messages that found no room on their way to other nodes.",
        )
        .sample(&[], far.dropped());
    }
    let Some((broker, bridge)) = node.mqtt.get().map(|mqtt| mqtt.counts()) else { return };
    if let Some(counts) = broker {
        let gauges = [
            ("lighter_mqtt_connections", "Connections of MQTT clients.", counts.connections),
            ("lighter_mqtt_sessions", "MQTT sessions, with and without a connection.", counts.sessions),
            ("lighter_mqtt_subscriptions", "Subscriptions of all MQTT sessions.", counts.subscriptions),
            ("lighter_mqtt_retained", "Retained messages.", counts.retained),
            ("lighter_mqtt_retained_bytes", "Bytes of retained messages.", counts.retained_bytes),
            ("lighter_mqtt_queued_bytes", "Bytes of messages that wait in MQTT sessions.", counts.queued_bytes),
        ];
        for (name, help, value) in gauges {
            text.gauge(name, help).sample(&[], value);
        }
        let name = "lighter_mqtt_messages_total";
        text.counter(
            name,
            "MQTT messages: received, sent, dropped for a full session or a slow client, refused, expired.",
        );
        for (what, count) in counts.since_start() {
            text.sample(&[("what", what)], count);
        }
    }
    if let Some(counts) = bridge {
        text.gauge("lighter_mqtt_bridge_connected", "Whether the bridge is connected.")
            .sample(&[], u8::from(counts.is_connected));
        text.counter("lighter_mqtt_bridge_connects_total", "Times the bridge connected.").sample(&[], counts.connects);
        text.counter("lighter_mqtt_bridge_messages_total", "Messages over the bridge.");
        text.sample(&[("what", "received")], counts.received).sample(&[("what", "published")], counts.published);
    }
}

fn process(text: &mut Text, node: &Node) {
    let usage = usage();
    let info = [("version", env!("CARGO_PKG_VERSION")), ("architecture", std::env::consts::ARCH)];
    text.gauge("lighter_build_info", "The node's version.").sample(&info, 1);
    text.gauge("lighter_uptime_seconds", "Time since the start.").seconds(&[], node.started.elapsed());
    text.counter("process_cpu_seconds_total", "CPU time used.").seconds(&[], usage.cpu);
    text.gauge("process_resident_memory_bytes", "Memory in RAM.").sample(&[], usage.rss_bytes);
    text.gauge("process_open_fds", "Open files.").sample(&[], usage.open_files);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_limit_a_call_can_end_at_is_counted_under_a_name_of_its_own() {
        let codes = || Code::ALL.iter().copied().filter(|code| (3_000..4_000).contains(&(*code as u16)));
        let counters = Counters::default();
        codes().chain([Code::UnitTrapped]).for_each(|code| counters.refused(code));
        let mut text = Text::default();
        limits(&mut text, [("f", &counters)].into_iter());
        let page = text.finish();
        let counted: BTreeSet<&str> = page.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(counted.len(), codes().count(), "{page}");
        let documents = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/limits.md");
        let documents = std::fs::read_to_string(documents).unwrap();
        for code in codes() {
            let limit = limit_name(code).unwrap();
            let line = format!("lighter_limits_exceeded_total{{function=\"f\",limit=\"{limit}\"}} 1");
            assert!(counted.contains(line.as_str()), "{code}: {page}");
            let row = documents.lines().any(|line| line.starts_with(&format!("| `{limit}` | {code}")));
            assert!(row, "docs/limits.md does not say that {limit} counts {code}");
        }
    }
}
