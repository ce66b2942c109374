//! Components of WASI 0.3 on a node, beside those of 0.2.

use crate::support::{Node, fixture, send};
use serde_json::json;

#[test]
fn components_of_both_series_serve_side_by_side_and_after_a_restart() {
    let node = Node::start();
    node.deploy_one("old", "hello-http", json!({}));
    node.deploy_one("new", "hello-http03", json!({}));
    node.deploy_one("echo", "echo-http03", json!({ "http": ["/echo", "/pass", "/head"] }));
    let asks = |node: &Node| {
        for name in ["old", "new", "old", "new"] {
            let reply = send("GET", &format!("{}/{name}", node.gate), &[], b"");
            assert_eq!((reply.status, reply.text()), (200, "hello, world\n".into()), "{name}");
        }
        let large = vec![b'x'; 1 << 20];
        for path in ["echo", "pass"] {
            let reply = send("POST", &format!("{}/{path}", node.gate), &[], &large);
            assert!(reply.status == 200 && reply.text().len() == large.len(), "{path}: {}", reply.status);
        }
        let reply = send("GET", &format!("{}/head?a=b", node.gate), &[("x-own", "1")], b"");
        assert!(reply.text().starts_with("GET /head?a=b\nauthority: 127.0.0.1:"), "{}", reply.text());
        assert!(reply.text().contains("\nx-own: 1\n") && reply.text().contains("\nx-request-id: "), "{}", reply.text());
    };
    asks(&node);
    let data = node.data.clone();
    let _folder = node.kill();
    let node = Node::start_in(&data, &[]);
    asks(&node);
    node.stop();
}

#[test]
fn its_limits_bind_and_its_neighbours_do_not_care() {
    let node = Node::start();
    let routes = json!(["/trap", "/error", "/yield", "/keep/*"]);
    node.deploy_one("attack", "attack-http03", json!({ "http": routes, "limits": { "cpu_ms": 2_000 } }));
    node.deploy_one("hello", "hello-http03", json!({ "http": "/hello" }));
    for (path, code) in [("trap", "L6001"), ("error", "L6006"), ("yield", "L3002"), ("keep/timers", "L6001")] {
        let reply = send("GET", &format!("{}/{path}", node.gate), &[], b"");
        assert_eq!(reply.code(), code, "{path}: {}", reply.text());
        assert_eq!(send("GET", &format!("{}/hello", node.gate), &[], b"").text(), "hello, world\n");
    }
    node.stop();
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let node = Node::start();
    let mut image = fixture("hello-http03");
    let version = b"wasi:http/types@0.3.2";
    let at = image.windows(version.len()).position(|window| window == version).unwrap();
    image[at..at + version.len()].copy_from_slice(b"wasi:http/types@0.4.0");
    let refused = node.deploy(json!({ "later": { "image": node.upload_bytes(&image) } }));
    assert_eq!(refused["problem"]["code"], "L2008", "{refused}");
    assert!(refused["problem"]["detail"].as_str().unwrap().contains("wasi:http/types@0.4.0"), "{refused}");
    // The other class knows of 0.2 alone.
    let machine = json!({ "image": node.upload("hello-http03"), "isolation": "microvm" });
    let refused = node.deploy(json!({ "machine": machine }));
    assert!(["L2007", "L6010"].contains(&refused["problem"]["code"].as_str().unwrap()), "{refused}");
    node.stop();
}
