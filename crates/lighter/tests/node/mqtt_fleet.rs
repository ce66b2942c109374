//! MQTT in a fleet of real nodes: what is published at one reaches subscribers and triggers at all, once.

use crate::fleet::{ANY, address, done, heard, start, until};
use crate::mail::{data, ready, waiting};
use crate::mqtt_client::Mqtt;
use crate::proxy::Proxy;
use crate::support::Node;
use serde_json::{Value, json};
use std::net::TcpListener;
use std::path::Path;

const BROKER: &[&str] = &["--mqtt", "127.0.0.1:0"];

/// Nodes of one fleet, each with a broker; the first is the anchor.
fn campus(folder: &Path, names: &[&str]) -> Vec<Node> {
    let mut nodes: Vec<Node> = Vec::new();
    for name in names {
        let node = start(&folder.join(name), name, ANY, BROKER);
        match nodes.first() {
            None => _ = done(&node, &["fleet", "new", "campus"]),
            Some(anchor) => _ = done(&node, &["fleet", "join", done(anchor, &["fleet", "invite"]).trim()]),
        }
        nodes.push(node);
    }
    let mut all: Vec<&str> = names.to_vec();
    all.sort_unstable();
    for node in &nodes {
        until("a whole fleet", || heard(node) == all);
    }
    nodes
}

/// Waits until a node knows what so many others want.
fn until_wanted(node: &Node, filters: u64) {
    let line = format!("lighter_mqtt_fleet_filters {filters}\n");
    until("what others want", || node.api("GET", "/metrics", &[]).text().contains(&line));
}

/// A function whose trigger puts what it hears into the queue `readings`.
fn listener(node: &Node, filter: &str) -> Value {
    let relay = json!({
        "image": node.upload("relay"), "mqtt": filter, "config": { "to": "readings" },
        "grants": { "push": ["readings"] }, "units": { "maximum": 1 },
    });
    json!({ "function": { "relay": relay }, "queue": { "readings": {} } })
}

fn numbers(topic: &str, range: std::ops::Range<usize>) -> Vec<(String, String)> {
    range.map(|number| (topic.to_owned(), number.to_string())).collect()
}

fn publish(client: &Mqtt, messages: &[(String, String)]) {
    client.publish(messages.iter().map(|(topic, payload)| (topic.as_str(), payload.as_str())));
}

fn expect(client: &Mqtt, messages: &[(String, String)]) {
    for message in messages {
        assert_eq!(&client.next(), message);
    }
}

#[test]
fn what_is_published_at_one_node_is_heard_at_all_once() {
    let folder = tempfile::tempdir().unwrap();
    let nodes = campus(folder.path(), &["one", "two", "three"]);
    let [one, two, three] = &nodes[..] else { panic!("there are three") };
    three.deploy_manifest(listener(three, "sensors/#"));
    let [here, there] = [(one, "here"), (two, "there")].map(|(node, id)| Mqtt::connect(&node.mqtt, id));
    there.subscribe("sensors/+");
    there.subscribe("last/#");
    here.subscribe("sensors/1");
    // Two filters of the second, one of a trigger of the third; and the one of the first.
    until_wanted(one, 3);
    until_wanted(three, 3);
    let messages = numbers("sensors/1", 0..100);
    publish(&here, &messages);
    expect(&there, &messages);
    expect(&here, &messages);
    until("all at the trigger", || ready(three, "readings") == 100);
    assert_eq!(data(three, "readings"), (0..100).collect::<Vec<_>>());

    // From where the trigger is, and with QoS 0; and what nobody wants elsewhere stays.
    let at_three = Mqtt::connect(&three.mqtt, "three");
    publish(&at_three, &[("else/where".into(), "no".into())]);
    publish(&at_three, &numbers("sensors/1", 100..101));
    at_three.say("sensors/1", "101");
    expect(&there, &numbers("sensors/1", 100..102));
    expect(&here, &numbers("sensors/1", 100..102));
    until("both at the trigger", || ready(three, "readings") == 102);
    publish(&here, &[("last/one".into(), "end".into())]);
    assert_eq!(there.next(), ("last/one".into(), "end".into()));
    assert_eq!((there.rest(), here.rest()), (vec![], vec![]), "nothing came twice");
    assert_eq!(data(three, "readings"), (0..102).collect::<Vec<_>>());
}

#[test]
fn what_is_retained_at_one_node_is_there_for_who_subscribes_at_another() {
    let folder = tempfile::tempdir().unwrap();
    let nodes = campus(folder.path(), &["one", "two"]);
    let [one, two] = &nodes[..] else { panic!("there are two") };
    let here = Mqtt::connect(&one.mqtt, "here");
    here.retain("lamp/1", "on");
    let there = Mqtt::connect(&two.mqtt, "there");
    there.subscribe("lamp/+");
    assert_eq!(there.next(), ("lamp/1".into(), "on".into()));
    here.retain("lamp/1", "off");
    assert_eq!(there.next(), ("lamp/1".into(), "off".into()));
    let second = Mqtt::connect(&two.mqtt, "second");
    second.subscribe("lamp/1");
    assert_eq!(second.next(), ("lamp/1".into(), "off".into()));
    // Nobody subscribes there any more: it is forgotten, and what comes later is known when somebody does.
    there.close();
    second.close();
    let retained = |count: u64| {
        let line = format!("lighter_mqtt_retained {count}\n");
        until("what is retained", || two.api("GET", "/metrics", &[]).text().contains(&line));
    };
    retained(0);
    until_wanted(one, 0);
    here.retain("lamp/1", "dim");
    here.retain("lamp/2", "on");
    here.retain("lamp/2", "");
    let there = Mqtt::connect(&two.mqtt, "there");
    there.subscribe("lamp/#");
    assert_eq!(there.next(), ("lamp/1".into(), "dim".into()));
    // What is published there last stays there.
    there.retain("lamp/1", "mine");
    assert_eq!(there.next(), ("lamp/1".into(), "mine".into()));
    retained(1);
    assert_eq!(there.rest(), Vec::<String>::new());
}

#[test]
fn what_is_confirmed_arrives_once_though_nodes_are_killed_and_the_link_is_cut() {
    let folder = tempfile::tempdir().unwrap();
    let [one_data, two_data] = ["one", "two"].map(|name| folder.path().join(name));
    let proxy = Proxy::new();
    let way = proxy.address.to_string();
    let options = [BROKER, &["--fleet-address", &way]].concat();
    let one = start(&one_data, "one", ANY, BROKER);
    done(&one, &["fleet", "new", "campus"]);
    let one_listen = address(&one);
    let two_listen = free();
    proxy.lead(&two_listen);
    let two = start(&two_data, "two", &two_listen, &options);
    done(&two, &["fleet", "join", done(&one, &["fleet", "invite"]).trim()]);
    let there = Mqtt::resume(&two.mqtt, "there");
    there.subscribe("sensors/#");
    until_wanted(&one, 1);
    publish(&Mqtt::connect(&one.mqtt, "here"), &numbers("sensors/1", 0..100));
    expect(&there, &numbers("sensors/1", 0..100));

    proxy.cut();
    publish(&Mqtt::connect(&one.mqtt, "here"), &numbers("sensors/1", 100..200));
    proxy.lead(&two_listen);
    expect(&there, &numbers("sensors/1", 100..200));

    // The second is away; the first is killed as soon as it has confirmed.
    drop(there);
    two.kill();
    publish(&Mqtt::connect(&one.mqtt, "here"), &numbers("sensors/1", 200..300));
    one.kill();
    let one = start(&one_data, "one", &one_listen, BROKER);
    publish(&Mqtt::connect(&one.mqtt, "here"), &numbers("sensors/1", 300..400));
    let two = start(&two_data, "two", &two_listen, &options);
    until("an empty outbox", || waiting(&one) == 0);
    let there = Mqtt::resume(&two.mqtt, "there");
    // What it got shortly before the kill it may get again; of what is new, nothing twice.
    let arrived = || there.next().1.parse::<usize>().unwrap();
    let new: Vec<usize> = std::iter::repeat_with(arrived).filter(|number| *number >= 200).take(200).collect();
    assert_eq!(new, (200..400).collect::<Vec<_>>());
    assert_eq!(there.rest(), Vec::<String>::new());
}

/// An address that is free, and that nobody connects from.
fn free() -> String {
    let listener = TcpListener::bind("127.0.77.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}
