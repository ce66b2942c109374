//! What is seen of a fleet of real nodes: who is there, how far and how busy; why a call goes where it goes; its trace.

use crate::fleet::{ANY, done, fleet, refused, start, until};
use crate::receiver::Receiver;
use crate::support::{Node, send};
use serde_json::{Value, json};
use std::path::Path;

/// An anchor and one more node.
fn two(folder: &Path, options: &[&str]) -> [Node; 2] {
    let [anchor, pi] = ["server-1", "pi-7"].map(|name| start(&folder.join(name), name, ANY, options));
    done(&anchor, &["fleet", "new", "campus"]);
    done(&pi, &["fleet", "join", done(&anchor, &["fleet", "invite"]).trim()]);
    [anchor, pi]
}

fn why(node: &Node, function: &str) -> Value {
    serde_json::from_str(&done(node, &["fleet", "why", function, "--json"])).unwrap()
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect()
}

#[test]
fn it_is_said_where_a_call_would_run_and_why() {
    let folder = tempfile::tempdir().unwrap();
    let [anchor, pi] = two(folder.path(), &[]);
    assert_eq!(refused(&anchor, &["fleet", "why", "hello"]), "L2001");
    pi.deploy_one("hello", "hello", json!({}));
    until("a call of the other node's function", || anchor.get("/hello").status == 200);
    let there = why(&anchor, "hello");
    assert_eq!((&there["rule"], names(&there["forecasts"])), (&json!("soonest_elsewhere"), vec!["pi-7"]), "{there}");
    let term = |word: &str| there["forecasts"][0][word].as_f64().unwrap();
    let sum = ["way_ms", "body_ms", "wait_ms", "run_ms"].map(term).iter().sum::<f64>();
    assert!(term("way_ms") > 0.0 && term("run_ms") > 0.0 && (term("total_ms") - sum).abs() < 1e-6, "{there}");
    let said = done(&anchor, &["fleet", "why", "hello"]);
    assert!(said.starts_with("a call of hello that comes in here now would run at pi-7\n"), "{said}");
    assert!(said.contains("NODE ") && said.contains(" ◀"), "{said}");

    // The very same one here too: both are weighed.
    anchor.deploy_one("hello", "hello", json!({}));
    until("both nodes", || names(&why(&anchor, "hello")["forecasts"]).len() == 2);
    assert_eq!(why(&anchor, "hello")["rule"], "soonest");
    let copies = fleet(&anchor)["copies"].clone();
    assert_eq!(
        (&copies[0]["function"], copies[0]["nodes"].as_array().unwrap().len()),
        (&json!("hello"), 2),
        "{copies}"
    );
    let said = done(&anchor, &["fleet"]);
    assert!(said.ends_with("\n\nFUNCTION  COPIES  NODES\nhello          2  server-1, pi-7\n"), "{said}");
    assert!(done(&anchor, &["fleet", "show", "pi-7"]).contains("hello (one of 2 copies)"));
    // Another one of the same name, and one that keeps something.
    anchor.deploy_one("hello", "hello", json!({ "limits": { "time_ms": 900 } }));
    until("word that they differ", || why(&anchor, "hello")["others"][0]["reason"] == "different");
    let grants = json!({ "grants": { "stores": ["counters"] } });
    for node in [&anchor, &pi] {
        node.deploy_one("keeps", "hello", grants.clone());
    }
    assert_eq!(why(&anchor, "keeps")["rule"], "keeps_here");
    assert_eq!(fleet(&anchor)["copies"].as_array().unwrap().len(), 1, "what keeps something is no copy");
    assert!(done(&anchor, &["fleet", "why", "keeps"]).contains("would run here\n"));
}

#[test]
fn each_node_is_shown_as_it_was_last_heard() {
    let folder = tempfile::tempdir().unwrap();
    let [anchor, pi] = two(folder.path(), &[]);
    pi.deploy_one("hello", "hello", json!({}));
    until("a call of the other node's function", || anchor.get("/hello").status == 200);
    let map = done(&anchor, &["fleet", "map", "--json", "--count", "1", "--interval", "0.1"]);
    let map: Value = serde_json::from_str(&map).unwrap();
    assert_eq!(names(&map["nodes"]), ["server-1", "pi-7"]);
    let far = &map["nodes"][1];
    assert_eq!((&far["functions"], &far["load"]["calls"]), (&json!(["hello"]), &json!(1)), "{far}");
    assert!(far["load"]["round_trip_ms"].as_f64().unwrap() > 0.0 && map["nodes"][0]["load"].is_null());
    let shown = done(&anchor, &["fleet", "show", "pi-7"]);
    assert!(shown.starts_with("pi-7 of the fleet campus\n") && shown.contains("1 from here ran there"), "{shown}");
    assert!(done(&anchor, &["fleet", "show", &far["id"].as_str().unwrap()[..6]]).contains(far["id"].as_str().unwrap()));
    assert_eq!(refused(&anchor, &["fleet", "show", "pi-70"]), "L9119");
    let metrics = || String::from_utf8(anchor.api("GET", "/metrics", &[]).body).unwrap();
    let counted =
        |state: &str, count: u32| metrics().contains(&format!("lighter_fleet_nodes{{state=\"{state}\"}} {count}\n"));
    assert!(counted("reached", 1) && counted("silent", 0), "{}", metrics());
    pi.kill();
    until("a node that is away", || fleet(&anchor)["nodes"][1]["load"].is_null());
    assert!(counted("reached", 0), "{}", metrics());
    assert!(done(&anchor, &["fleet", "show", "pi-7"]).contains("no report of it has come"));
}

#[test]
fn a_trace_goes_on_over_the_hop() {
    let receiver = Receiver::start(|_, _| Some("200 OK".to_owned()));
    let folder = tempfile::tempdir().unwrap();
    let [anchor, pi] = two(folder.path(), &["--otlp", &receiver.url]);
    pi.deploy_one("hello", "hello", json!({}));
    let untraced = [("traceparent", "00-0af7651916cd43dd8448eb211c80319d-b7ad6b7169203331-00")];
    let call = |headers: &[(&str, &str)]| send("GET", &format!("{}/hello", anchor.gate), headers, &[]).status;
    until("a call of the other node's function", || call(&untraced) == 200);
    assert_eq!(call(&[("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")]), 200);
    // Each sends what it has before it ends.
    [anchor, pi].into_iter().for_each(|node| drop(node.stop()));
    let sent: Vec<Vec<u8>> = receiver.rest().into_iter().map(|request| request.body).collect();
    let holds = |body: &[u8], part: &[u8]| body.windows(part.len()).any(|window| window == part);
    let trace = [0x0a, 0xf7, 0x65, 0x19, 0x16, 0xcd, 0x43, 0xdd, 0x84, 0x48, 0xeb, 0x21, 0x1c, 0x80, 0x31, 0x9c];
    let of_trace: Vec<&Vec<u8>> = sent.iter().filter(|body| holds(body, &trace)).collect();
    let [hop, ran] = [&b"hop hello"[..], b"faas.version"].map(|word| of_trace.iter().any(|body| holds(body, word)));
    assert!(hop && ran, "{} posts of {}", of_trace.len(), sent.len());
    assert!(of_trace.iter().any(|body| holds(body, b"server.address") && holds(body, b"pi-7")));
    let caller = [0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31];
    let below_the_caller = of_trace.iter().filter(|body| holds(body, &caller)).count();
    assert_eq!(below_the_caller, 1, "what ran stands below the hop, and the hop below the caller");
}
