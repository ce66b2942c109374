//! `bench events`: queues, MQTT and workflows beside redis, NATS, mosquitto and rumqttd, in one run.

mod clients;
mod contest;
mod growth;
mod mqtt;
mod ours;
mod queue;
mod scale;
mod servers;
mod workloads;

use crate::report::{Bar, Promise};
use crate::run::{self, Options, Part};

const PROMISES: [Promise; 12] = [
    Promise {
        name: "queue_vs_redis_always",
        bar: Bar::AtLeast(2.0),
        says: "pushed, handled and acked a second, 64 in flight, against redis with appendfsync always",
    },
    Promise {
        name: "queue_vs_nats_always",
        bar: Bar::AtLeast(1.0),
        says: "the same, against JetStream with sync_interval always",
    },
    Promise {
        name: "queue_relaxed_vs_redis_everysec",
        bar: Bar::AtLeast(1.0),
        says: "the same with a sync every second, against redis with appendfsync everysec",
    },
    Promise {
        name: "mqtt_handled_vs_mosquitto",
        bar: Bar::AtLeast(1.0),
        says: "QoS 1 published and handled a second, durable, against mosquitto and a native handler",
    },
    Promise {
        name: "mqtt_broker_vs_mosquitto",
        bar: Bar::AtLeast(1.0),
        says: "QoS 1 publisher to subscriber, the worse of 1 and 16 publishers",
    },
    Promise {
        name: "mqtt_broker_vs_rumqttd",
        bar: Bar::AtLeast(1.1),
        says: "the same against rumqttd, the worst of 1 and 16 publishers with 1 and 32 unconfirmed",
    },
    Promise {
        name: "mqtt_connection_kb",
        bar: Bar::AtMost(2.0),
        says: "resident memory of the node for one more idle MQTT connection with a subscription, of 1,000",
    },
    Promise {
        name: "co2_p50_ms",
        bar: Bar::AtMost(5.0),
        says: "one reading through the CO2 workflow on an idle node, MQTT to webhook",
    },
    Promise { name: "co2_p99_ms", bar: Bar::AtMost(20.0), says: "the same" },
    Promise {
        name: "append_flat_ratio",
        bar: Bar::AtMost(1.5),
        says: "time of an append to a queue of 10,000,000 events over that to one of 1,000",
    },
    Promise {
        name: "bytes_per_event",
        bar: Bar::AtMost(2_000.0),
        says: "written to disk for an event pushed, handled and acked",
    },
    Promise {
        name: "rss_10m_events_mb",
        bar: Bar::AtMost(256.0),
        says: "resident memory with a queue of 10,000,000 events",
    },
];

const PARTS: [Part; 8] = [
    (
        "queue",
        queue::measure,
        &["queue_vs_redis_always", "queue_vs_nats_always", "queue_relaxed_vs_redis_everysec", "bytes_per_event"],
    ),
    ("handled", mqtt::handled, &["mqtt_handled_vs_mosquitto"]),
    ("broker", mqtt::broker, &["mqtt_broker_vs_mosquitto", "mqtt_broker_vs_rumqttd"]),
    ("workloads", workloads::measure, &["co2_p50_ms", "co2_p99_ms"]),
    ("units", scale::units, &[]),
    ("connections", scale::connections, &["mqtt_connection_kb"]),
    ("length", growth::queue, &["append_flat_ratio", "rss_10m_events_mb"]),
    ("store", growth::store, &[]),
];

/// Measures everything and prints the report; its last line is one JSON object.
pub fn run(options: &Options) -> anyhow::Result<()> {
    run::run(options, &PROMISES, &PARTS)
}
