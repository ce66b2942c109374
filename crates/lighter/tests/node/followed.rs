//! Events followed through their handlings, and dead letters that are chosen to go.

use crate::support::{Node, send};
use serde_json::{Value, json};

/// Passes events of the queue `in` on to `hits`, where `attack` does to each what its data says.
fn start() -> Node {
    let node = Node::start();
    let relay = json!({
        "image": node.upload("relay"), "queue": "in", "config": { "to": "hits" }, "grants": { "push": ["hits"] },
    });
    let attack = json!({
        "image": node.upload("attack"), "queue": "hits",
        "retry": { "attempts": 2, "pause": "10ms", "pause_max": "20ms" },
    });
    let last = node.deploy(json!({ "relay": relay, "attack": attack }));
    assert_eq!(last["step"], "done", "{last}");
    node
}

fn push(node: &Node, queue: &str, id: &str, data: &str) {
    assert_eq!(node.push(queue, &format!("id={id}"), data).status, 201);
}

fn handlings(node: &Node, query: &str) -> Vec<Value> {
    let reply = node.api("GET", &format!("/v1/events?{query}"), &[]);
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json().as_array().unwrap().clone()
}

#[test]
fn an_event_is_followed_through_its_tries_and_what_it_set_off() {
    let node = start();
    push(&node, "in", "mine", "unreachable");
    push(&node, "in", "other", "invalid");
    node.drained("in");
    node.drained("hits");
    let trail = handlings(&node, "id=mine");
    let told: Vec<_> = trail.iter().map(|one| json!([one["queue"], one["attempt"], one["outcome"]])).collect();
    assert_eq!(told, [json!(["in", 1, "done"]), json!(["hits", 1, "retry"]), json!(["hits", 2, "dead"])]);
    let (first, last) = (&trail[0], &trail[2]);
    assert_eq!(
        (&first["function"], &first["version"], &first["source"]),
        (&json!("relay"), &json!(1), &json!("/v1/queues/in"))
    );
    assert_eq!((&last["function"], &last["pushed_by"]), (&json!("attack"), &json!("mine")));
    assert!(last["reason"].as_str().unwrap().starts_with("L6001"), "{last}");
    assert!(trail[1]["again_ms"].as_u64() >= trail[1]["began_ms"].as_u64(), "{trail:?}");
    assert!(first["run_us"].as_u64().unwrap() <= first["total_us"].as_u64().unwrap(), "{first}");
    // From what it set off it is found too, without what comes before.
    let child = last["id"].as_str().unwrap();
    assert_eq!(handlings(&node, &format!("id={child}")).len(), 2);
    assert!(trail.iter().all(|one| one.get("data").is_none()), "no event's data is shown");
    let failed = handlings(&node, "failed=true&queue=hits");
    assert_eq!(failed.len(), 3, "two tries of one, and one that is invalid at once: {failed:?}");
    assert!(failed.is_sorted_by(|one, next| one["began_ms"].as_u64() >= next["began_ms"].as_u64()));
    assert_eq!(handlings(&node, "limit=1").len(), 1);
    for (query, code) in
        [("id=nobody", "L7006"), ("queue=none", "L7001"), ("limit=0", "L4009"), ("id=a&limit=1", "L4009")]
    {
        assert_eq!(node.api("GET", &format!("/v1/events?{query}"), &[]).code(), code, "{query}");
    }
    let page =
        send("GET", &format!("{}/metrics", node.api), &[("authorization", &format!("Bearer {}", node.token))], &[]);
    let line = |name: &str| {
        let start = format!("{name}{{for=\"handlings\"}} ");
        page.text().lines().find_map(|line| line.strip_prefix(&start)?.parse::<u64>().ok()).unwrap()
    };
    assert!((1..=line("lighter_memory_bytes_max")).contains(&line("lighter_memory_bytes")));
}

#[test]
fn dead_letters_are_chosen_to_go_by_reason_or_number() {
    let node = start();
    for (id, data) in [("a", "invalid"), ("b", "fatal"), ("c", "invalid"), ("d", "fatal")] {
        push(&node, "hits", id, data);
    }
    node.drained("hits");
    let purge = |query: &str| node.api("DELETE", &format!("/v1/queues/hits/events?{query}"), &[]).json();
    assert_eq!(purge("part=dead&reason=L6003&dry_run=true")["removed"], 2);
    assert_eq!(node.queue("hits")["dead"], 4, "a dry run changes nothing");
    assert_eq!(purge("part=dead&reason=L6003")["removed"], 2);
    let left = node.api("GET", "/v1/queues/hits/events?part=dead", &[]).json();
    let letters = left["events"].as_array().unwrap();
    assert!(letters.iter().all(|letter| letter["reason"].as_str().unwrap().starts_with("L6005")), "{left}");
    let number = letters[0]["sequence"].as_u64().unwrap();
    assert_eq!(purge(&format!("part=dead&sequences={number},99999"))["removed"], 1);
    assert_eq!(node.queue("hits")["dead"], 1);
    for query in ["part=ready&reason=x", "sequences=1", "part=dead&sequences=x", "part=dead&sequences="] {
        assert_eq!(purge(query)["code"], "L4009", "{query}");
    }
}
