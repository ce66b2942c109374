//! Push, handle, ack: our queue beside redis and JetStream, durable before anything is confirmed, and relaxed.

use super::contest::{self, Contestant, IN_FLIGHT, Peer};
use super::servers::{self, Durable};
use crate::report::Figures;
use crate::run::Bench;

/// Shares of a contestant's own highest rate at which its latency is measured.
const SHARES: [f64; 3] = [0.1, 0.5, 0.9];

pub fn measure(bench: &Bench, figures: &mut Figures) -> anyhow::Result<()> {
    for durable in [Durable::Always, Durable::Relaxed] {
        let (redis_server, nats_server) = (servers::redis(bench, durable)?, servers::nats(bench, durable)?);
        let redis = Peer { name: "redis", client: "redis", server: &redis_server, push: Vec::new(), lossy: false };
        let nats = Peer { name: "JetStream", client: "nats", server: &nats_server, push: Vec::new(), lossy: false };
        let contestants: [&dyn Contestant; 2] = [&redis, &nats];
        let standings = contest::side_by_side(&contestants, IN_FLIGHT, bench.pick(2, 4), bench.pick(2.0, 5.0));
        contest::print("Pushed, handled and acked, 64 in flight at either end", &standings);
        contest::latencies(&contestants, &standings, &SHARES, bench.pick(1.5, 5.0));
    }
    let _ = figures;
    Ok(())
}
