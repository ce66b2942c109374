//! What the metrics say of queues. One that nobody handles or pushes to costs a handful of lines; the number of queues
//! is bounded here, so that a page stays of bearable size.

use super::text::Text;
use crate::Node;
use crate::events::{Numbers, Shell};
use state::QueueCounts;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Queues with lines of their own, those that are handled first. How many were left out is a number too.
const QUEUES_MAX: usize = 1_000;

struct Seen {
    name: String,
    counts: QueueCounts,
    oldest_age_ms: u64,
    shell: Option<Arc<Shell>>,
}

pub fn queues(text: &mut Text, node: &Node, now_ms: u64) {
    let mut names: Vec<(bool, String)> =
        node.events.queues().into_iter().map(|name| (node.events.shell(&name).is_none(), name)).collect();
    names.sort();
    let left_out = names.len().saturating_sub(QUEUES_MAX);
    let state = &node.functions.loader.state;
    let seen: Vec<Seen> = names
        .into_iter()
        .take(QUEUES_MAX)
        .filter_map(|(_, name)| {
            let counts = state.queue(&name).ok()?.counts();
            let oldest_age_ms = counts.oldest_ms.map_or(0, |oldest_ms| now_ms.saturating_sub(oldest_ms));
            Some(Seen { shell: node.events.shell(&name), name, counts, oldest_age_ms })
        })
        .collect();
    depths(text, &seen);
    events(text, &seen);
    handlings(text, &seen);
    text.gauge("lighter_queues_left_out", "Queues that have no lines of their own here, because there are too many.");
    text.sample(&[], left_out);
}

fn depths(text: &mut Text, seen: &[Seen]) {
    text.gauge("lighter_queue_events", "Events in the queue: ready, delayed, leased, dead or in a damaged place.");
    for Seen { name, counts, .. } in seen {
        let parts =
            [("ready", counts.ready), ("delayed", counts.delayed), ("leased", counts.leased), ("dead", counts.dead)];
        let damaged = (counts.damaged > 0).then_some(("damaged", counts.damaged));
        for (part, count) in parts.into_iter().chain(damaged) {
            text.sample(&[("queue", name), ("part", part)], count);
        }
    }
    text.gauge("lighter_queue_bytes", "Bytes of the events in the queue, dead letters left out.");
    seen.iter().for_each(|seen| _ = text.sample(&[("queue", &seen.name)], seen.counts.bytes));
    text.gauge("lighter_queue_oldest_seconds", "For how long the oldest ready event has been ready.");
    for Seen { name, oldest_age_ms, .. } in seen {
        text.seconds(&[("queue", name)], std::time::Duration::from_millis(*oldest_age_ms));
    }
}

fn events(text: &mut Text, seen: &[Seen]) {
    text.counter("lighter_queue_events_total", "What became of events: pushed, acked, retried, died and so on.");
    for Seen { name, counts, .. } in seen {
        let totals = counts.since_start;
        for (what, count) in [
            ("pushed", totals.pushed),
            ("acked", totals.acked),
            ("retried", totals.retried),
            ("died", totals.died),
            ("expired", totals.expired),
            ("duplicate", totals.duplicates),
            ("refused", totals.refused),
            ("lease_ended", totals.leases_ended),
            ("dropped", totals.dropped),
        ] {
            if count > 0 {
                text.sample(&[("queue", name), ("what", what)], count);
            }
        }
    }
}

fn handlings(text: &mut Text, seen: &[Seen]) {
    let shells = || seen.iter().filter_map(|seen| Some((seen.name.as_str(), seen.shell.as_ref()?)));
    text.gauge("lighter_queue_workers", "Workers that take events of the queue now.");
    shells().for_each(|(name, shell)| _ = text.sample(&[("queue", name)], shell.numbers.workers.load(Relaxed)));
    text.gauge("lighter_queue_service_seconds", "Mean time of a handling, the latest counting most.");
    for (name, shell) in shells() {
        if let Some(time) = shell.service_time() {
            text.seconds(&[("queue", name)], time);
        }
    }
    text.counter("lighter_queue_handlings_total", "Handlings by how they ended.");
    type Read = fn(&Numbers) -> u64;
    let reads: [(&str, Read); 5] = [
        ("handled", |numbers| numbers.handled.load(Relaxed)),
        ("retried", |numbers| numbers.retried.load(Relaxed)),
        ("died", |numbers| numbers.died.load(Relaxed)),
        ("postponed", |numbers| numbers.postponed.load(Relaxed)),
        ("lost", |numbers| numbers.lost.load(Relaxed)),
    ];
    for (name, shell) in shells() {
        for (outcome, read) in reads {
            let count = read(&shell.numbers);
            if count > 0 {
                text.sample(&[("queue", name), ("outcome", outcome)], count);
            }
        }
    }
}
