//! Who may do what.

use crate::receiver::Receiver;
use crate::support::{Node, PROGRAM, send};
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

#[test]
fn the_api_needs_a_token_with_the_right_scope() {
    let node = Node::start();
    let create = |scope: &str| {
        let request = json!({ "name": scope, "scope": scope, "expires_seconds": 3_600 });
        let reply = node.api("POST", "/v1/tokens", request.to_string().as_bytes());
        assert_eq!(reply.status, 201);
        reply.json()["token"].as_str().unwrap().to_owned()
    };
    let (call, deploy) = (create("call"), create("deploy"));
    let code = |token: &str, method: &str, path: &str| {
        let headers = [("authorization", format!("Bearer {token}"))];
        let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        send(method, &format!("{}{path}", node.api), &headers, &[]).code()
    };
    for (token, method, path, expected) in [
        (&call, "GET", "/v1/functions", ""),
        (&call, "GET", "/metrics", ""),
        (&call, "POST", "/v1/deployments", "L4006"),
        (&call, "GET", "/v1/functions/-/logs", "L4006"),
        (&call, "GET", "/v1/tokens", "L4006"),
        (&deploy, "GET", "/v1/functions/-/logs", ""),
        (&deploy, "PUT", "/v1/secrets/A", "L4006"),
        (&deploy, "POST", "/v1/stop", "L4006"),
        (&"lighter_wrong".to_owned(), "GET", "/v1/functions", "L4005"),
    ] {
        assert_eq!(code(token, method, path), expected, "{method} {path}");
    }
    let without = send("GET", &format!("{}/v1/functions", node.api), &[], &[]);
    assert_eq!((without.status, without.code().as_str()), (401, "L4004"));
    assert_eq!(without.headers["www-authenticate"], "Bearer");

    assert_eq!(node.api("DELETE", "/v1/tokens/call", &[]).status, 204);
    assert_eq!(code(&call, "GET", "/v1/functions"), "L4005");
    assert_eq!(node.api("DELETE", "/v1/tokens/call", &[]).code(), "L4013");
    let listed = node.api("GET", "/v1/tokens", &[]).text();
    assert!(listed.contains("\"deploy\"") && !listed.contains(&deploy), "{listed}");
}

#[test]
fn some_paths_are_open_and_others_do_not_exist() {
    let node = Node::start();
    let get = |path: &str| send("GET", &format!("{}{path}", node.api), &[], &[]);
    for path in ["/healthz", "/readyz", "/v1/openapi.json", "/v1/manifest.schema.json"] {
        assert_eq!(get(path).status, 200, "{path}");
    }
    assert_eq!(get("/v2").code(), "L4008");
    assert_eq!(send("PUT", &format!("{}/healthz", node.api), &[], &[]).code(), "L4002");
}

#[test]
fn a_web_page_cannot_use_the_api() {
    let node = Node::start();
    let token = format!("Bearer {}", node.token);
    for header in [("host", "evil.example"), ("origin", "http://evil.example"), ("sec-fetch-site", "cross-site")] {
        let reply = send("GET", &format!("{}/v1/node", node.api), &[("authorization", &token), header], &[]);
        assert_eq!((reply.status, reply.code().as_str()), (421, "L4007"), "{header:?}");
    }
}

#[test]
fn a_route_may_need_a_token_which_the_function_does_not_see() {
    let node = Node::start();
    node.deploy_one("f", "hello", json!({ "http": { "route": "/f", "auth": "token" } }));
    let url = format!("{}/f", node.gate);
    assert_eq!(send("GET", &url, &[], &[]).code(), "L4004");
    assert_eq!(send("GET", &url, &[("authorization", "Bearer x")], &[]).code(), "L4005");
    let token = format!("Bearer {}", node.token);
    assert_eq!(send("GET", &url, &[("authorization", &token)], &[]).text(), "hello, world\n");
}

#[test]
fn what_is_kept_is_for_the_owner_alone() {
    let node = Node::start();
    let mode = |name: &str| fs::metadata(node.data.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!([mode(""), mode("token"), mode("node.json")], [0o700, 0o600, 0o600]);
    assert_eq!(node.api("PUT", "/v1/secrets/API_KEY", b"very secret").status, 204);
    assert_eq!(node.api("PUT", "/v1/secrets/bad-name", b"x").code(), "L4009");
    assert_eq!(node.api("GET", "/v1/secrets", &[]).json(), json!(["API_KEY"]));
    assert_eq!(node.api("DELETE", "/v1/secrets/API_KEY", &[]).status, 204);
    assert_eq!(node.api("DELETE", "/v1/secrets/API_KEY", &[]).code(), "L4014");
}

#[test]
fn a_unit_sees_the_environment_and_the_secrets_that_its_manifest_grants_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let mut program = Command::new(PROGRAM);
    program.env("OF_THE_NODE", "not for units");
    let node = Node::try_start_by(&mut program, &folder.path().join("data"), &[]).unwrap();
    for (name, value) in [("GRANTED", "very secret"), ("WITHHELD", "not for it")] {
        assert_eq!(node.api("PUT", &format!("/v1/secrets/{name}"), value.as_bytes()).status, 204);
    }
    let sees = |path: &str| node.get(path).text();
    let (environment, grants) = (json!({ "REGION": "here", "EMPTY": "" }), json!({ "secrets": ["GRANTED"] }));
    node.deploy_one("f", "hello-wasmcloud", json!({ "http": "/*", "environment": environment, "grants": grants }));
    assert_eq!(sees("/environment"), "EMPTY=\nREGION=here\n");
    assert_eq!(sees("/config"), "GRANTED=very secret\n");
    assert_eq!(sees("/config/GRANTED"), "very secret");
    assert_eq!(node.get("/config/WITHHELD").status, 404);
    let described = node.api("GET", "/v1/functions/f", &[]).text();
    assert!(described.contains("GRANTED") && !described.contains("very secret"), "{described}");

    node.deploy_one("f", "hello-wasmcloud", json!({ "http": "/*" }));
    assert_eq!((sees("/environment"), sees("/config")), (String::new(), String::new()));
    assert_eq!(node.get("/config/GRANTED").status, 404);
}

#[test]
fn beyond_this_machine_a_certificate_is_needed_or_an_explicit_word_and_then_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let said = Node::try_start(&data, &["--http", "0.0.0.0:0"]).err().unwrap();
    assert!(said.contains("L9005"), "{said}");
    assert!(!data.exists(), "nothing is made before everything is checked");

    let node = Node::start_in(&data, &["--http", "0.0.0.0:0", "--insecure-listen"]);
    node.deploy_one("f", "hello", json!({}));
    node.deploy_one("open", "hello", json!({ "http": { "route": "/open", "auth": "none" } }));
    assert_eq!(node.get("/f").code(), "L4004");
    assert_eq!(node.get("/open").status, 200);
}

#[test]
fn a_configuration_that_is_not_right_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let said = Node::try_start(folder.path(), &["--config", "/nowhere/node.toml"]).err().unwrap();
    assert!(said.contains("L9003"), "{said}");
    let file = folder.path().join("node.toml");
    fs::write(&file, "tls_cret = \"x\"").unwrap();
    let said = Node::try_start(folder.path(), &["--config", file.to_str().unwrap()]).err().unwrap();
    assert!(said.contains("L9003") && said.contains("tls_cert"), "{said}");
}

#[test]
fn a_token_file_that_is_lost_is_made_anew_and_the_old_token_ends() {
    let node = Node::start();
    let (data, old) = (node.data.clone(), node.token.clone());
    let folder = node.stop();
    fs::remove_file(data.join("token")).unwrap();
    let node = Node::start_in(&data, &[]);
    assert_ne!(node.token, old);
    assert_eq!(node.api("GET", "/v1/node", &[]).status, 200);
    let headers = [("authorization", format!("Bearer {old}"))];
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    assert_eq!(send("GET", &format!("{}/v1/node", node.api), &headers, &[]).code(), "L4005");
    drop((node, folder));
}

#[test]
fn the_gate_speaks_tls_and_the_api_on_this_machine_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let file = |name: &str, text: String| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (certificate, key) = (file("cert.pem", made.cert.pem()), file("key.pem", made.signing_key.serialize_pem()));
    let data = folder.path().join("data");
    let said = Node::try_start(&data, &["--tls-cert", &certificate]).err().unwrap();
    assert!(said.contains("L9003"), "{said}");
    let node = Node::start_in(&data, &["--tls-cert", &certificate, "--tls-key", &key]);
    node.deploy_one("hello", "hello", json!({}));
    assert!(node.gate.starts_with("https://") && node.api.starts_with("http://"));
    let tls = ureq::tls::TlsConfig::builder().disable_verification(true).build();
    let agent: ureq::Agent = ureq::Agent::config_builder().tls_config(tls).build().into();
    let reply = agent.get(format!("{}/hello", node.gate)).call().unwrap().body_mut().read_to_string().unwrap();
    assert_eq!(reply, "hello, world\n");
}

#[test]
fn a_callers_request_id_does_not_choose_the_key_of_what_a_function_sends() {
    let receiver = Receiver::start(|_, _| Some("200 OK".to_owned()));
    let host = receiver.url.strip_prefix("http://").unwrap();
    let node = Node::start();
    node.deploy_one("fetch", "fetch", json!({ "grants": { "hosts": [host] } }));
    let keys = [0, 1].map(|_| {
        let headers = [("x-request-id", "chosen")];
        let reply = send("POST", &format!("{}/fetch", node.gate), &headers, receiver.url.as_bytes());
        assert_eq!((reply.status, reply.headers["x-request-id"].as_str()), (200, "chosen"), "{}", reply.text());
        receiver.next().header("idempotency-key").to_owned()
    });
    assert!(keys[0] != keys[1] && keys.iter().all(|key| key.len() > 16 && !key.contains("chosen")), "{keys:?}");
}
