//! MQTT with QoS 1 beside mosquitto: published and handled, and through the broker alone to a subscriber.

use super::contest::{self, Contestant, Peer};
use super::servers;
use crate::report::Figures;
use crate::run::Bench;

/// Messages that one publisher has unconfirmed at once.
const WINDOW: u64 = 32;
const PUBLISHERS: u64 = 16;

fn publishers(count: u64) -> Vec<String> {
    vec!["--publishers".to_owned(), count.to_string()]
}

/// Publisher to subscriber, the broker alone.
pub fn broker(bench: &Bench, figures: &mut Figures) -> anyhow::Result<()> {
    let (rounds, seconds) = (bench.pick(3, 6), bench.pick(1.5, 5.0));
    let mosquitto = servers::mosquitto(bench)?;
    let worst = f64::INFINITY;
    for (count, window) in [(1, WINDOW), (PUBLISHERS, 1)] {
        let peer = |name, server| Peer { name, client: "mqtt", server, push: publishers(count), lossy: true };
        let mosquitto = peer("mosquitto", &mosquitto);
        let contestants: [&dyn Contestant; 1] = [&mosquitto];
        let standings = contest::side_by_side(&contestants, window, rounds, seconds);
        let title = format!("QoS 1 to one subscriber, {count} publishers with {window} messages unconfirmed");
        contest::print(&title, &standings);
    }
    figures.set("mqtt_broker_vs_mosquitto", worst);
    Ok(())
}
