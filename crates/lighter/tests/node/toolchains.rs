//! Components that the SDKs of other hosts made run as they are: what they reach there by its names is reached here.

use crate::receiver::Receiver;
use crate::support::{Node, Reply, fixture, send};
use crate::workflows::lighter;
use serde_json::json;
use std::fs;

impl Node {
    fn post(&self, path: &str, body: &str) -> Reply {
        send("POST", &format!("{}{path}", self.gate), &[], body.as_bytes())
    }

    fn answers(&self, reply: Reply, status: u16, text: &str) {
        let log = || self.api("GET", "/v1/functions/-/logs", &[]).text();
        assert_eq!((reply.status, reply.text().as_str()), (status, text), "{}", log());
    }

    /// Whether a function has logged such words as a line of such a stream.
    fn logged(&self, stream: &str, words: &str) -> bool {
        let lines = self.api("GET", "/v1/functions/hello/logs?tail=1000", &[]).lines();
        lines.iter().any(|line| line["stream"] == stream && line["message"].as_str().unwrap().contains(words))
    }

    fn stored(&self, key: &str) -> String {
        self.api("GET", &format!("/v1/buckets/default/value?key={key}"), &[]).text()
    }
}

/// A node for each class that runs components, as far as this machine has what that takes.
fn nodes() -> impl Iterator<Item = (Node, &'static str)> {
    #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
    let machines = crate::microvm::start();
    #[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let machines = None;
    [Some((Node::start(), "wasm")), machines.map(|node| (node, "microvm"))].into_iter().flatten()
}

/// Cargo leaves a core module for WASI 0.1, as Spin's template has it; `lighter deploy` makes a component of it.
fn deploy_spin(node: &Node, class: &str, more: &str) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("hello_spin.wasm"), fixture("hello-spin")).unwrap();
    let manifest =
        format!("[function.hello]\nisolation = \"{class}\"\nimage = \"hello_spin.wasm\"\nhttp = \"/*\"\n{more}");
    fs::write(folder.path().join("lighter.toml"), manifest).unwrap();
    lighter(node, &["deploy", folder.path().to_str().unwrap()], "");
}

#[test]
fn what_spins_rust_sdk_makes_reaches_store_variables_environment_and_other_hosts() {
    let receiver = Receiver::start(|_, _| Some("200 OK".to_owned()));
    let host = receiver.url.strip_prefix("http://").unwrap();
    nodes().for_each(|(node, class)| what_spins_rust_sdk_makes(&node, class, &receiver, host));
}

fn what_spins_rust_sdk_makes(node: &Node, class: &str, receiver: &Receiver, host: &str) {
    assert_eq!(node.api("PUT", "/v1/secrets/api_key", b"very secret").status, 204);
    let more = format!(
        r#"
        grants = {{ stores = ["default"], hosts = ["{host}"], secrets = ["api_key"] }}
        config.greeting = "hi"
        environment.REGION = "here"
        "#
    );
    deploy_spin(node, class, &more);

    node.answers(node.post("/hello?name=you", "you"), 200, "hello from Spin: name=you you\n");
    assert!(node.logged("stdout", "POST /hello"));
    assert_eq!(node.get("/nowhere").status, 404, "Spin's router knows its routes");

    node.answers(node.post("/count/visits", ""), 200, "1");
    node.answers(node.post("/count/visits", ""), 200, "2");
    assert_eq!(node.stored("visits"), "2");
    assert_eq!(node.api("PUT", "/v1/buckets/default/value?key=given", b"from outside").status, 204);
    node.answers(node.get("/keys/given"), 200, "from outside");
    node.answers(node.get("/keys"), 200, "given\nvisits");
    assert_eq!(send("DELETE", &format!("{}/keys/visits", node.gate), &[], &[]).status, 200);
    node.answers(node.get("/keys/visits"), 404, "there is none");
    node.answers(node.get("/stores/other"), 403, "access denied");
    assert!(node.logged("node", "grants.stores"), "the log says what would help");

    node.answers(node.get("/variables/greeting"), 200, "hi");
    node.answers(node.get("/variables/api_key"), 200, "very secret");
    assert_eq!(node.get("/variables/other").status, 404, "undefined");
    node.answers(node.get("/environment"), 200, "REGION=here\n");

    node.answers(node.get(&format!("/ask/{host}")), 200, "ok");
    assert_eq!(receiver.next().line, "GET / HTTP/1.1");
    assert_eq!(node.get("/ask/127.0.0.1:1").status, 500, "another host is not granted");
    // In a machine the kernel is asked, and says it in the log of the unit.
    let stream = if class == "microvm" { "log" } else { "node" };
    assert!(node.logged(stream, "grants.hosts"));
}

/// Spin's listing has no pages: it is made of ours, up to a bound.
#[test]
fn spins_listing_of_keys_gives_all_of_many_and_refuses_too_many() {
    nodes().for_each(|(node, class)| spins_listing(&node, class));
}

fn spins_listing(node: &Node, class: &str) {
    deploy_spin(node, class, "grants.stores = [\"default\"]");
    let import = |keys: std::ops::Range<u32>| {
        let lines: String = keys.map(|key| format!("{{\"key\":\"k{key:05}\",\"value\":\"\"}}\n")).collect();
        assert_eq!(node.api("POST", "/v1/buckets/default/import", lines.as_bytes()).status, 200);
    };
    import(0..2_500);
    let listed = node.get("/keys").text();
    assert_eq!((listed.lines().count(), listed.lines().last()), (2_500, Some("k02499")));
    import(2_500..16_001);
    assert_eq!(node.get("/keys").status, 500);
    assert!(node.logged("stderr", "page by page"));
}

#[test]
fn what_wasmclouds_rust_crate_makes_reaches_store_config_and_log() {
    nodes().for_each(|(node, class)| what_wasmclouds_rust_crate_makes(&node, class));
}

fn what_wasmclouds_rust_crate_makes(node: &Node, class: &str) {
    assert_eq!(node.api("PUT", "/v1/secrets/API_KEY", b"very secret").status, 204);
    let grants = json!({ "stores": ["default"], "secrets": ["API_KEY"] });
    let config = json!({ "GREETING": "hi" });
    let more = json!({ "isolation": class, "http": "/*", "grants": grants, "config": config });
    node.deploy_one("hello", "hello-wasmcloud", more);

    node.answers(node.post("/hello", "you"), 200, "hello from wasmCloud: you\n");
    assert!(node.logged("log", "hello: POST /hello"));
    node.answers(node.post("/count/visits", ""), 200, "1");
    node.answers(node.post("/count/visits", ""), 200, "2");
    assert_eq!(node.stored("visits"), "2");
    node.answers(node.get("/keys/visits"), 200, "2");
    node.answers(node.get("/keys/other"), 404, "there is none\n");
    node.answers(node.get("/config/GREETING"), 200, "hi");
    node.answers(node.get("/config/OTHER"), 404, "there is none\n");
    node.answers(node.get("/config"), 200, "API_KEY=very secret\nGREETING=hi\n");
    assert_eq!(node.get("/guid").text().len(), 36);

    node.deploy_one("hello", "hello-wasmcloud", json!({ "isolation": class, "http": "/*" }));
    assert!(node.post("/count/visits", "").status >= 500, "without a grant");
    assert!(node.logged("log", "AccessDenied"));
    assert_eq!(node.stored("visits"), "2");
}
