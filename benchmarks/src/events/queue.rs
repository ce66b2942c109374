//! Push, handle, ack: our queue beside redis and JetStream, durable before anything is confirmed, and relaxed.

use super::contest::{self, Contestant, IN_FLIGHT, Peer};
use super::ours::{self, Ours};
use super::servers::{self, Durable};
use crate::report::Figures;
use crate::run::Bench;

/// Events of one request where they are batched: two such requests are in flight.
const BATCH: u64 = 32;
/// Shares of a contestant's own highest rate at which its latency is measured.
const SHARES: [f64; 3] = [0.1, 0.5, 0.9];

pub fn measure(bench: &Bench, figures: &mut Figures) -> anyhow::Result<()> {
    for durable in [Durable::Always, Durable::Relaxed] {
        let (redis_server, nats_server) = (servers::redis(bench, durable)?, servers::nats(bench, durable)?);
        let (name, arguments) = match durable {
            Durable::Always => ("queue-always", vec![]),
            Durable::Relaxed => ("queue-relaxed", vec!["--sync-every-ms".to_owned(), "1000".to_owned()]),
        };
        let node = ours::node(bench, name, IN_FLIGHT, &arguments)?;
        let [redis, nats] =
            [("redis", "redis", &redis_server), ("JetStream", "nats", &nats_server)].map(|(name, client, server)| {
                let (process, address) = (&server.process, server.address);
                Peer { name, client, process, address, push: Vec::new(), lossy: false }
            });
        let single = Ours::by_http("lighter, one event a request", &node, ours::FUNCTION, 1)?;
        let batched = Ours::by_http("lighter, 32 events a request", &node, ours::FUNCTION, BATCH)?;
        let together = Ours::by_http("the same, handled together", &node, ours::TOGETHER, BATCH)?;
        let contestants: [&dyn Contestant; 5] = [&redis, &nats, &single, &batched, &together];
        let standings = contest::side_by_side(&contestants, IN_FLIGHT, bench.pick(2, 4), bench.pick(2.0, 5.0));
        contest::print("Pushed, handled and acked, 64 in flight at either end", &standings);
        let [redis, nats, single, _, best] = &standings[..] else { unreachable!("there are five contestants") };
        match durable {
            Durable::Always => {
                figures.set("queue_vs_redis_always", best.well()?.ratio_to(redis.well()?));
                figures.set("queue_vs_nats_always", best.well()?.ratio_to(nats.well()?));
                figures.set("bytes_per_event", single.well()?.written());
                contest::latencies(&contestants, &standings, &SHARES, bench.pick(1.5, 5.0));
            }
            Durable::Relaxed => {
                figures.set("queue_relaxed_vs_redis_everysec", best.well()?.ratio_to(redis.well()?));
            }
        }
    }
    Ok(())
}
