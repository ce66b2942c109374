//! `GET /v1/live`: what the dashboard shows, as one stream for all who look.

use crate::support::{Node, wait_for};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Lines, Read};
use std::time::Duration;

/// Places for viewers, as docs/api.md has it.
const VIEWERS: usize = 32;

/// What one viewer reads.
struct Viewer(Lines<BufReader<Box<dyn Read + Send + Sync>>>);

impl Viewer {
    fn look(node: &Node, token: &str, query: &str) -> Result<Self, Value> {
        let config = ureq::Agent::config_builder().http_status_as_error(false);
        // The next line comes within two seconds; the stream as a whole never ends.
        let agent: ureq::Agent = config.timeout_recv_response(Some(Duration::from_secs(60))).build().into();
        let request = agent.get(format!("{}/v1/live{query}", node.api));
        let mut reply = request.header("authorization", format!("Bearer {token}")).call().unwrap();
        if reply.status() != 200 {
            return Err(serde_json::from_str(&reply.body_mut().read_to_string().unwrap()).unwrap());
        }
        assert_eq!(reply.headers()["content-type"], "application/x-ndjson");
        let reader: Box<dyn Read + Send + Sync> = Box::new(reply.into_body().into_reader());
        Ok(Self(BufReader::new(reader).lines()))
    }

    fn of(node: &Node, query: &str) -> Self {
        Self::look(node, &node.token, query).unwrap_or_else(|problem| panic!("{problem}"))
    }

    /// None once the stream has ended.
    fn next(&mut self) -> Option<Value> {
        Some(serde_json::from_str(&self.0.next()?.ok()?).unwrap())
    }

    /// The first line from now on that `wanted` finds something in.
    fn until<T>(&mut self, what: &str, wanted: impl Fn(&Value) -> Option<T>) -> T {
        wait_for(what, || wanted(&self.next().expect("the stream goes on")))
    }
}

fn names(rows: &Value, key: &str) -> Vec<String> {
    rows.as_array().unwrap().iter().map(|row| row[key].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_first_line_has_everything_and_the_others_what_has_changed() {
    let node = Node::start();
    node.deploy_one("one", "hello", json!({}));
    node.deploy_one("two", "counter", json!({ "queue": "counts", "grants": { "stores": ["counters"] } }));
    let mut viewer = Viewer::of(&node, "");
    let first = viewer.next().unwrap();
    assert_eq!((&first["whole"], &first["token"]["scope"]), (&json!(true), &json!("admin")));
    assert_eq!(names(&first["functions"], "function"), ["one", "two"]);
    assert_eq!(names(&first["queues"], "name"), ["counts"]);
    assert_eq!(first["functions"][1]["queue"], "counts");
    assert_eq!((first.get("units"), first.get("function")), (None, None), "nobody asked for them");
    assert_eq!(first["node"]["functions"], 2);
    assert_eq!(first["hour"]["every_ms"], 10_000);
    let second = viewer.next().unwrap();
    assert_eq!((&second["whole"], &second["functions"], &second["queues"]), (&json!(false), &json!([]), &json!([])));
    assert!(second.get("node").is_none() && second["now"]["rss_bytes"].as_u64() > Some(0), "{second}");
    node.call("one", "");
    let row = viewer.until("the call", |line| line["functions"].as_array().unwrap().first().cloned());
    assert_eq!((&row["function"], &row["calls"]), (&json!("one"), &json!(1)), "and no other row");
    assert!(row["p50_us"].as_u64().unwrap() > 0, "{row}");
    node.push("counts", "count=3", "a");
    let acked = |line: &Value| line["queues"].as_array().unwrap().iter().find(|row| row["acked"] == 3).cloned();
    let row = viewer.until("the acks", acked);
    assert_eq!((&row["pushed"], &row["handler"]["name"]), (&json!(3), &json!("two")));
    let before = second["deployed"].as_u64().unwrap();
    assert_eq!(node.api("DELETE", "/v1/functions/one", &[]).status, 204);
    let line = viewer.until("the list without it", |line| (line["whole"] == true).then(|| line.clone()));
    assert_eq!(names(&line["functions"], "function"), ["two"]);
    assert!(line["deployed"].as_u64().unwrap() > before);
}

#[test]
fn units_and_one_functions_times_come_when_they_are_asked_for() {
    let node = Node::start();
    node.deploy_one("one", "hello", json!({}));
    for _ in 0..5 {
        assert_eq!(node.call("one", "").status, 200);
    }
    let line = Viewer::of(&node, "?units=true&function=one").next().unwrap();
    assert!(line["units"].is_array(), "{line}");
    let times = &line["function"];
    assert_eq!((&times["calls"], &times["errors"]), (&json!(5), &json!({})));
    let buckets = times["histogram"].as_array().unwrap();
    assert_eq!(buckets.iter().map(|bucket| bucket[1].as_u64().unwrap()).sum::<u64>(), 5, "{buckets:?}");
    assert!(buckets.is_sorted_by_key(|bucket| bucket[0].as_u64().unwrap()), "{buckets:?}");
    for (query, code) in [("?function=nobody", "L2001"), ("?part=all", "L4009")] {
        assert_eq!(Viewer::look(&node, &node.token, query).err().unwrap()["code"], code, "{query}");
    }
}

#[test]
fn a_token_sees_what_it_is_for_and_only_while_it_is_good() {
    let node = Node::start();
    node.deploy_one("one", "hello", json!({ "queue": "mine" }));
    node.deploy_one("two", "hello", json!({ "queue": "others" }));
    let request = json!({ "name": "bound", "scope": "call", "functions": ["one"], "queues": ["mine"] });
    let made = node.api("POST", "/v1/tokens", request.to_string().as_bytes()).json();
    let token = made["token"].as_str().unwrap();
    let mut viewer = Viewer::look(&node, token, "?function=one").unwrap_or_else(|problem| panic!("{problem}"));
    let first = viewer.next().unwrap();
    assert_eq!(names(&first["functions"], "function"), ["one"]);
    assert_eq!(names(&first["queues"], "name"), ["mine"]);
    assert!(first.get("hour").is_none(), "the whole node is not theirs");
    for query in ["?units=true", "?function=two"] {
        assert_eq!(Viewer::look(&node, token, query).err().unwrap()["code"], "L4006", "{query}");
    }
    assert_eq!(node.api("DELETE", "/v1/tokens/bound", &[]).status, 204);
    wait_for("the end of a stream whose token is gone", || viewer.next().is_none().then_some(()));
    assert_eq!(Viewer::look(&node, token, "").err().unwrap()["code"], "L4005");
}

#[test]
fn the_next_viewer_is_refused_until_one_has_left() {
    let node = Node::start();
    let mut viewers: Vec<Viewer> = (0..VIEWERS / 2).map(|_| Viewer::of(&node, "")).collect();
    let refused = Viewer::look(&node, &node.token, "").err().unwrap();
    assert_eq!(refused["code"], "L3007", "half of the places are for others");
    let made = node.api("POST", "/v1/tokens", json!({ "name": "wall", "scope": "look" }).to_string().as_bytes()).json();
    let other = made["token"].as_str().unwrap();
    viewers
        .extend((0..VIEWERS / 2).map(|_| Viewer::look(&node, other, "").unwrap_or_else(|problem| panic!("{problem}"))));
    let refused = Viewer::look(&node, other, "").err().unwrap();
    assert_eq!(refused["code"], "L3007");
    assert!(refused["detail"].as_str().unwrap().contains("32 look at the node already"), "{refused}");
    assert!(viewers.iter_mut().all(|viewer| viewer.next().is_some()));
    viewers.pop();
    wait_for("the place of one who left", || Viewer::look(&node, other, "").ok());
}

#[test]
fn a_node_that_stops_ends_its_streams() {
    let node = Node::start();
    let mut viewer = Viewer::of(&node, "");
    assert!(viewer.next().is_some());
    node.stop();
    assert!(viewer.next().is_none());
}

#[test]
fn what_devices_tell_of_their_decisions_is_shown_and_too_much_is_refused() {
    let node = Node::start();
    let one = json!({ "function": "invert", "place": "local", "predicted_us": 100, "actual_us": 300, "ago_ms": 50 });
    let tell = |count: usize| {
        let report = json!({ "device": "pi", "decisions": vec![one.clone(); count], "left_out": 4 });
        node.api("POST", "/v1/decisions", report.to_string().as_bytes())
    };
    assert_eq!(tell(3).status, 204);
    assert_eq!(tell(101).code(), "L4009");
    let told = node.api("GET", "/v1/decisions", &[]).json();
    assert_eq!((&told["told"], &told["left_out"]), (&json!(3), &json!(4)), "nothing of a report that is refused");
    let kept = &told["decisions"][0];
    assert_eq!((&kept["device"], &kept["actual_us"], &kept["token"]), (&json!("pi"), &json!(300), &json!("local")));
}
