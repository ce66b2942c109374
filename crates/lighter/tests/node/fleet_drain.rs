//! A node of a fleet that is to be switched off while calls come in.

use crate::fleet::{ANY, done, refused, start, until};
use crate::support::{Node, wait_for};
use serde_json::json;
use std::thread;
use std::time::Duration;

fn has_ended(node: &Node) -> bool {
    node.api("GET", "/v1/units", &[]).json().as_array().is_some_and(Vec::is_empty)
}

#[test]
fn a_drained_node_takes_nothing_new_and_says_when_nothing_runs() {
    let folder = tempfile::tempdir().unwrap();
    let [anchor, pi] = ["server-1", "pi-7"].map(|name| start(&folder.path().join(name), name, ANY, &[]));
    assert_eq!(refused(&pi, &["fleet", "drain"]), "L9116");
    done(&anchor, &["fleet", "new", "campus"]);
    done(&pi, &["fleet", "join", done(&anchor, &["fleet", "invite"]).trim()]);
    for node in [&anchor, &pi] {
        node.deploy_one("hello", "hello", json!({}));
    }
    pi.deploy_one("attack", "attack", json!({ "limits": { "time_ms": 4_000, "cpu_ms": 60_000 } }));
    pi.deploy_one("taker", "hello", json!({ "queue": "jobs" }));
    pi.pushed("jobs", "", "before");
    pi.queue_is("jobs", |queue| queue["acked"] == 1);
    until("the same function on both", || {
        let why = done(&pi, &["fleet", "why", "hello", "--json"]);
        why.contains("\"soonest\"") && why.matches("total_ms").count() == 2
    });
    thread::scope(|scope| {
        let runs = scope.spawn(|| pi.call("attack", "loop").code());
        wait_for("a call that runs", || (!has_ended(&pi)).then_some(()));
        assert_eq!(refused(&pi, &["fleet", "drain", "--for", "1s"]), "L9124");
        // New calls run on the other node, or not at all.
        let reply = pi.get("/hello");
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert!(reply.headers["server-timing"].contains("desc=\"server-1\""), "{:?}", reply.headers);
        assert_eq!(pi.get("/attack").code(), "L4010");
        assert_eq!(pi.api("GET", "/readyz", &[]).status, 503);
        done(&pi, &["fleet", "drain"]);
        // Its call is over, and its machine goes in the same moment.
        wait_for("the end of its unit", || has_ended(&pi).then_some(()));
        assert_eq!(runs.join().unwrap(), "L3001", "it had all of its time");
    });
    assert!(done(&pi, &["audit", "--json"]).contains("fleet drain"));
    // The other one does not send its calls there.
    until("word that it takes none", || ["L9120", "L9122"].contains(&anchor.get("/attack").code().as_str()));
    assert_eq!(anchor.get("/hello").status, 200);
    // A queue whose shell had ended got another one, and its events were leased until the node was off.
    pi.pushed("jobs", "", "after");
    thread::sleep(Duration::from_secs(1));
    let jobs = pi.queue("jobs");
    assert_eq!((&jobs["ready"], &jobs["leased"], &jobs["acked"]), (&json!(1), &json!(0), &json!(1)));
    assert_eq!(pi.api("POST", "/v1/queues/jobs/lease", b"{}").code(), "L4010");
}
