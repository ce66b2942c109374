//! MQTT with QoS 1 beside mosquitto and rumqttd: published and handled, and through the broker alone to a subscriber.

use super::contest::{self, Contestant, IN_FLIGHT, Peer};
use super::ours::{self, Ours};
use super::servers;
use crate::lighter::Node;
use crate::process::{self, Cores, Process};
use crate::report::Figures;
use crate::run::Bench;
use std::net::SocketAddr;

/// Publishers, messages that each of them has unconfirmed at once, and whether the figure beside mosquitto counts it.
const PUBLISHERS: [(u64, u64, bool); 4] = [(1, 1, false), (1, 32, true), (16, 1, true), (16, 32, false)];
/// Shares of a contestant's own highest rate at which its latency is measured.
const SHARES: [f64; 3] = [0.1, 0.5, 0.9];

fn publishers(count: u64) -> Vec<String> {
    vec!["--publishers".to_owned(), count.to_string()]
}

fn broker_of(address: SocketAddr) -> Vec<String> {
    vec!["--mqtt".to_owned(), address.to_string()]
}

/// Published, and handled by a wasm function here, by a native process at mosquitto's.
pub fn handled(bench: &Bench, figures: &mut Figures) -> anyhow::Result<()> {
    let mosquitto = servers::mosquitto(bench)?;
    let broker = process::free_address()?;
    let node = ours::node(bench, "mqtt", IN_FLIGHT, &broker_of(broker))?;
    let theirs = peer("mosquitto and a native handler", &mosquitto.process, mosquitto.address, 1);
    let mine = Ours {
        name: "lighter, durable",
        node: &node,
        client: "mqtt-push",
        to: broker,
        arguments: publishers(1),
        queue: ours::FUNCTION,
    };
    let contestants: [&dyn Contestant; 2] = [&theirs, &mine];
    let standings = contest::side_by_side(&contestants, IN_FLIGHT, bench.pick(2, 4), bench.pick(2.0, 5.0));
    contest::print("MQTT QoS 1 to handled, 64 in flight", &standings);
    contest::latencies(&contestants, &standings, &SHARES, bench.pick(1.5, 5.0));
    let [theirs, mine] = &standings[..] else { unreachable!("there are two contestants") };
    figures.set("mqtt_handled_vs_mosquitto", mine.well()?.ratio_to(theirs.well()?));
    Ok(())
}

/// Publisher to subscriber, the broker alone.
pub fn broker(bench: &Bench, figures: &mut Figures) -> anyhow::Result<()> {
    let mosquitto = servers::mosquitto(bench)?;
    let rumqttd = servers::rumqttd(bench)?;
    let broker = process::free_address()?;
    let data = bench.folder("broker-data");
    let node = Node::start_with(&bench.lighter, &data, Cores::All, &broker_of(broker))?;
    let (mut of_mosquitto, mut of_rumqttd) = (f64::INFINITY, f64::INFINITY);
    for (count, window, counts) in PUBLISHERS {
        let theirs = peer("mosquitto", &mosquitto.process, mosquitto.address, count);
        let others = peer("rumqttd", &rumqttd.process, rumqttd.address, count);
        let mine = peer("lighter", &node.process, broker, count);
        let contestants: [&dyn Contestant; 3] = [&theirs, &others, &mine];
        let standings = contest::side_by_side(&contestants, window, bench.pick(3, 6), bench.pick(1.5, 5.0));
        let title = format!("QoS 1 to one subscriber, publishers: {count}, unconfirmed of each: {window}");
        contest::print(&title, &standings);
        let [theirs, others, mine] = &standings[..] else { unreachable!("there are three contestants") };
        if counts {
            of_mosquitto = of_mosquitto.min(mine.well()?.ratio_to(theirs.well()?));
        }
        of_rumqttd = of_rumqttd.min(mine.well()?.ratio_to(others.well()?));
    }
    figures.set("mqtt_broker_vs_mosquitto", of_mosquitto);
    figures.set("mqtt_broker_vs_rumqttd", of_rumqttd);
    Ok(())
}

fn peer<'a>(name: &'static str, process: &'a Process, address: SocketAddr, count: u64) -> Peer<'a> {
    Peer { name, client: "mqtt", process, address, push: publishers(count), lossy: true }
}
