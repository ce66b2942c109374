//! Mail while nodes and the engine are killed, stopped and wiped, in an order that a seed gives: nothing is lost,
//! nothing doubled, and each sender's events are in order.
//!
//! `LIGHTER_NEMESIS=200` has it last for so many rounds; `LIGHTER_NEMESIS_SEED` repeats one.

use crate::fleet::{ANY, address, done, fleet, heard, start, until};
use crate::fleet_engine::{is_connected, nats_server};
use crate::mail::{data, push, waiting};
use crate::support::Node;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

const NAMES: [&str; 3] = ["server", "meter", "home"];
/// Events that each sender pushes in a round.
const EVENTS: usize = 20;
const ROUNDS: usize = 6;
const SEED: u64 = 81;

fn from_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("it is a number"))
}

struct Town {
    /// The first is the anchor; the last is the home of all queues.
    nodes: BTreeMap<&'static str, Node>,
    data: BTreeMap<&'static str, PathBuf>,
    listen: BTreeMap<&'static str, String>,
    dice: u64,
}

impl Town {
    fn new(folder: &Path, seed: u64) -> Self {
        let data: BTreeMap<_, _> = NAMES.map(|name| (name, folder.join(name))).into();
        let nodes: BTreeMap<_, _> = NAMES.map(|name| (name, start(&data[name], name, ANY, &[]))).into();
        done(&nodes["server"], &["fleet", "new", "campus"]);
        let token = done(&nodes["server"], &["fleet", "invite", "--times", "2"]);
        for name in ["meter", "home"] {
            done(&nodes[name], &["fleet", "join", token.trim()]);
        }
        let listen = NAMES.map(|name| (name, address(&nodes[name]))).into();
        for node in nodes.values() {
            until("a whole fleet", || heard(node) == ["home", "meter", "server"]);
        }
        Self { nodes, data, listen, dice: seed }
    }

    /// A number below `bound`.
    fn throw(&mut self, bound: u64) -> u64 {
        // SplitMix64.
        self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.dice ^ (self.dice >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn start(&mut self, name: &'static str) {
        self.nodes.insert(name, start(&self.data[name], name, &self.listen[name], &[]));
    }

    fn kill(&mut self, name: &str) {
        drop(self.nodes.remove(name).map(Node::kill));
    }

    /// Does one bad thing, and says which.
    fn strike(&mut self) -> String {
        let name = NAMES[self.throw(3) as usize];
        match self.throw(5) {
            0 | 1 => {
                self.kill(name);
                self.start(name);
                format!("{name} is killed")
            }
            2 => {
                let server = &self.nodes["server"];
                let Some(engine) = fleet(server)["engine"]["process"].as_u64() else { return "no engine".to_owned() };
                signal("KILL", engine);
                "the engine is killed".to_owned()
            }
            3 => {
                let process = u64::from(self.nodes[name].pid());
                signal("STOP", process);
                thread::sleep(Duration::from_millis(self.throw(1_500)));
                signal("CONT", process);
                format!("{name} stands still")
            }
            _ => {
                self.kill("server");
                std::fs::remove_dir_all(self.data["server"].join("fleet/js")).ok();
                self.start("server");
                "what the engine keeps is wiped".to_owned()
            }
        }
    }
}

fn signal(which: &str, process: u64) {
    Command::new("kill").args(["-s", which, &process.to_string()]).status().unwrap();
}

#[test]
fn mail_arrives_once_and_in_order_whatever_befalls_nodes_and_engine() {
    if nats_server().is_none() {
        return;
    }
    let rounds = from_environment("LIGHTER_NEMESIS", ROUNDS as u64) as usize;
    let seed = from_environment("LIGHTER_NEMESIS_SEED", SEED);
    let folder = tempfile::tempdir().unwrap();
    let mut town = Town::new(folder.path(), seed);
    let queues = json!({ "queue": { "by-meter": { "home": "home" }, "by-server": { "home": "home" } } });
    for node in town.nodes.values() {
        node.deploy_manifest(queues.clone());
    }
    let mut story = Vec::new();
    for round in 0..rounds {
        let numbers = round * EVENTS..(round + 1) * EVENTS;
        for (sender, queue) in [("meter", "by-meter"), ("server", "by-server")] {
            push(&town.nodes[sender], queue, numbers.clone());
            story.push(town.strike());
        }
    }
    let home = &town.nodes["home"];
    for (sender, queue) in [("meter", "by-meter"), ("server", "by-server")] {
        until("an empty outbox", || waiting(&town.nodes[sender]) == 0 && data(&town.nodes[sender], queue).is_empty());
        assert_eq!(data(home, queue), (0..rounds * EVENTS).collect::<Vec<_>>(), "seed {seed}: {story:?}");
    }
    for node in town.nodes.values() {
        until("a whole fleet", || heard(node) == ["home", "meter", "server"]);
        until("a way to the engine", || is_connected(node));
    }
}
