//! Who may do what.

use crate::receiver::Receiver;
use crate::support::{Node, PROGRAM, send};
use serde_json::json;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

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

/// `node.json` stays behind when a node is killed: whoever listened at its address next was sent the admin token.
#[test]
fn who_listens_where_a_killed_node_did_is_not_given_the_token() {
    let node = Node::start();
    let (data, api, token) = (node.data.clone(), node.api.clone(), node.token.clone());
    let say = |words: &[&str]| {
        let said = Command::new(PROGRAM)
            .args(words)
            .arg("--data-folder")
            .arg(&data)
            .env_remove("LIGHTER_NODE")
            .output()
            .unwrap();
        (said.status.code().unwrap(), String::from_utf8(said.stderr).unwrap())
    };
    assert_eq!(say(&["ls"]).0, 0);
    let nonce = "ab".repeat(32);
    let proof = send("GET", &format!("{api}/v1/identity?nonce={nonce}"), &[], &[]);
    assert_eq!((proof.status, proof.json()["proof"].as_str().unwrap().len()), (200, 64));
    for bad in ["", "?nonce=", "?nonce=00", &format!("?nonce={}", "AB".repeat(32))] {
        assert_eq!(send("GET", &format!("{api}/v1/identity{bad}"), &[], &[]).code(), "L4009", "{bad:?}");
    }
    let _folder = node.kill();
    // The one answer the impostor has is for another nonce.
    let body = proof.text();
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let listener = std::net::TcpListener::bind(api.strip_prefix("http://").unwrap()).unwrap();
    let impostor = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut heard = vec![0; 4_096];
        let first = stream.read(&mut heard).unwrap();
        heard.truncate(first);
        stream.write_all(answer.as_bytes()).unwrap();
        stream.read_to_end(&mut heard).ok();
        String::from_utf8(heard).unwrap()
    });
    let (code, said) = say(&["ls"]);
    assert!(code == 3 && said.contains("L1109"), "{code} {said}");
    let heard = impostor.join().unwrap();
    assert!(heard.contains("/v1/identity?nonce=") && !heard.contains(&token), "{heard}");
}

/// Nobody could say afterwards who had deployed, and who had tried to get in.
#[test]
fn who_did_what_is_kept_across_a_restart_without_secrets_and_failed_logins_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let node = Node::start_in(&data, &[]);
    let request = json!({ "name": "ci", "scope": "deploy" }).to_string();
    let created = node.api("POST", "/v1/tokens", request.as_bytes()).json();
    let ci = format!("Bearer {}", created["token"].as_str().unwrap());
    node.deploy_one("f", "hello", json!({ "queue": "q" }));
    node.deploy_one("f", "hello", json!({ "queue": "q", "http": "/g" }));
    let by_ci = |method: &str, path: &str, body: &[u8]| {
        send(method, &format!("{}{path}", node.api), &[("authorization", &ci)], body)
    };
    assert_eq!(by_ci("POST", "/v1/functions/f/rollback", b"{}").status, 200);
    assert_eq!(by_ci("POST", "/v1/functions/f/rollback", br#"{ "version": 99 }"#).code(), "L2002");
    assert_eq!(by_ci("DELETE", "/v1/queues/q/events", b"").status, 200);
    assert_eq!(by_ci("POST", "/v1/pause", br#"{ "queues": ["q"] }"#).status, 200);
    assert_eq!(by_ci("DELETE", "/v1/functions/f", b"").status, 204);
    assert_eq!(by_ci("GET", "/v1/audit", b"").code(), "L4006");
    assert_eq!(node.api("PUT", "/v1/secrets/KEY", b"very secret").status, 204);
    assert_eq!(node.api("DELETE", "/v1/tokens/ci", b"").status, 204);
    for _ in 0..3 {
        assert_eq!(by_ci("GET", "/v1/node", b"").code(), "L4005");
    }
    node.kill();

    let node = Node::start_in(&data, &[]);
    assert_eq!(by_wrong(&node), "L4005");
    let reply = node.api("GET", "/v1/audit", &[]);
    assert!(!reply.text().contains("very secret") && !reply.text().contains(&ci[7..]), "{}", reply.text());
    let entries = reply.json();
    let entries = entries.as_array().unwrap();
    let word = |entry: &serde_json::Value, key: &str| entry[key].as_str().unwrap_or("-").to_owned();
    let said: Vec<String> = entries
        .iter()
        .filter(|entry| entry["action"] != "login")
        .map(|entry| ["token", "action", "target", "outcome"].map(|key| word(entry, key)).join(" "))
        .collect();
    assert_eq!(
        said,
        [
            "local token create ci done",
            "local deploy f done",
            "local deploy f done",
            "ci rollback f done",
            "ci rollback f L2002",
            "ci queue purge q done",
            "ci queue pause q done",
            "ci rm f done",
            "local secret set KEY done",
            "local token rm ci done",
        ]
    );
    assert!(entries.iter().all(|entry| word(entry, "peer").starts_with("127.0.0.1")), "{entries:?}");
    let failed: u64 =
        entries.iter().filter(|entry| entry["action"] == "login").map(|entry| entry["count"].as_u64().unwrap()).sum();
    assert!(failed >= 1, "{entries:?}");
    let said = Command::new(PROGRAM).args(["audit", "-n", "100", "--data-folder"]).arg(&data).output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    assert!(said.contains("rollback") && said.contains("L2002"), "{said}");
}

fn by_wrong(node: &Node) -> String {
    send("GET", &format!("{}/v1/node", node.api), &[("authorization", "Bearer x")], &[]).code()
}

#[test]
fn a_token_that_is_bound_calls_its_functions_and_pushes_to_its_queues_and_sees_no_others() {
    let node = Node::start();
    for name in ["f", "g"] {
        let route = json!({ "route": format!("/{name}"), "auth": "token" });
        node.deploy_one(name, "hello", json!({ "http": route, "queue": format!("{name}-queue") }));
    }
    let create = |request: serde_json::Value| node.api("POST", "/v1/tokens", request.to_string().as_bytes());
    assert_eq!(create(json!({ "name": "x", "scope": "deploy", "functions": ["f"] })).code(), "L4009");
    let created = create(json!({ "name": "bound", "scope": "call", "functions": ["f"], "queues": ["g-queue"] })).json();
    let token = format!("Bearer {}", created["token"].as_str().unwrap());
    let days = (created["info"]["expires_ms"].as_u64().unwrap() - created["info"]["created_ms"].as_u64().unwrap())
        / 86_400_000;
    assert_eq!(days, 90);
    let ask = |method: &str, path: &str| {
        let reply = send(method, &format!("{}{path}", node.api), &[("authorization", &token)], b"");
        if reply.code().is_empty() { reply.status.to_string() } else { reply.code() }
    };
    for (method, path, outcome) in [
        ("POST", "/v1/functions/f/call", "200"),
        ("POST", "/v1/functions/g/call", "L4006"),
        ("POST", "/v1/functions/f/events", "201"),
        ("POST", "/v1/functions/g/events", "L4006"),
        ("POST", "/v1/queues/g-queue/events", "201"),
        ("POST", "/v1/queues/f-queue/events", "L4006"),
        ("GET", "/v1/functions/f", "200"),
        ("GET", "/v1/functions/g", "L4006"),
        ("GET", "/v1/functions/nothere", "L4006"),
        ("GET", "/v1/queues/f-queue", "L4006"),
        ("GET", "/v1/units", "L4006"),
        ("GET", "/metrics", "L4006"),
        ("GET", "/v1/node", "200"),
        ("GET", "/v1/tokens", "L4006"),
    ] {
        assert_eq!(ask(method, path), outcome, "{method} {path}");
    }
    let names = |path: &str, key: &str| {
        let listed = send("GET", &format!("{}{path}", node.api), &[("authorization", &token)], &[]).json();
        listed.as_array().unwrap().iter().map(|one| one[key].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(
        (names("/v1/functions", "name"), names("/v1/queues", "name")),
        (vec!["f".to_owned()], vec!["g-queue".to_owned()])
    );
    assert_eq!(names("/v1/stats", "function"), ["f"]);
    let at_gate = |path: &str| send("GET", &format!("{}{path}", node.gate), &[("authorization", &token)], &[]);
    assert_eq!((at_gate("/f").status, at_gate("/g").code().as_str()), (200, "L4006"));
}

/// A proxy in front may look at the last one, and the node at the first.
#[test]
fn two_tokens_in_one_request_are_none() {
    let node = Node::start();
    let token = format!("Bearer {}", node.token);
    let url = format!("{}/v1/node", node.api);
    assert_eq!(send("GET", &url, &[("authorization", &token), ("authorization", &token)], &[]).code(), "L4005");
}

#[test]
fn the_audit_can_be_followed() {
    let node = Node::start();
    let mut command = Command::new(PROGRAM);
    command.args(["audit", "-n", "1", "--follow", "--json", "--data-folder"]).arg(&node.data);
    let mut follower = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    // A follower that is not there yet looks back for the last one.
    let secret = |name: &str| assert_eq!(node.api("PUT", &format!("/v1/secrets/{name}"), b"very secret").status, 204);
    let mut next = || serde_json::from_str::<serde_json::Value>(&lines.next().unwrap().unwrap()).unwrap();
    secret("ONE");
    assert_eq!(next()["target"], "ONE");
    for name in ["TWO", "THREE"] {
        secret(name);
        assert_eq!(next()["target"], name);
    }
    drop(node);
    assert!(!follower.wait().unwrap().success());
}

/// Every endpoint with the least scope that may use it. `open`: no token is needed.
const SCOPES: &str = "
    open   GET /healthz
    open   GET /readyz
    look   GET /metrics
    open   GET /v1/identity
    look   GET /v1/node
    look   GET /v1/units
    look   GET /v1/stats
    look   GET /v1/live
    admin  POST /v1/stop
    admin  POST /v1/restart
    admin  POST /v1/backup
    open   GET /v1/openapi.json
    open   GET /v1/manifest.schema.json
    look   GET /v1/functions
    look   GET /v1/functions/{name}
    deploy DELETE /v1/functions/{name}
    deploy POST /v1/functions/{name}/rollback
    call   POST /v1/functions/{name}/call
    deploy GET /v1/functions/{name}/logs
    deploy GET /v1/functions/{name}/dump
    deploy POST /v1/functions/{name}/units/{unit}/attach
    call   POST /v1/functions/{name}/events
    look   GET /v1/flow
    look   GET /v1/decisions
    call   POST /v1/decisions
    deploy GET /v1/deployments
    deploy POST /v1/deployments
    deploy GET /v1/events
    look   GET /v1/queues
    deploy POST /v1/pause
    deploy POST /v1/resume
    look   GET /v1/queues/{name}
    deploy DELETE /v1/queues/{name}
    call   POST /v1/queues/{name}/events
    deploy GET /v1/queues/{name}/events
    deploy DELETE /v1/queues/{name}/events
    deploy POST /v1/queues/{name}/replay
    work   POST /v1/queues/{name}/lease
    work   POST /v1/queues/{name}/renew
    work   POST /v1/queues/{name}/ack
    work   POST /v1/queues/{name}/fail
    deploy DELETE /v1/sinks/{name}
    admin  GET /v1/mqtt/sessions
    admin  DELETE /v1/mqtt/sessions
    deploy GET /v1/buckets
    deploy GET /v1/buckets/{bucket}/keys
    deploy GET /v1/buckets/{bucket}/value
    deploy PUT /v1/buckets/{bucket}/value
    deploy DELETE /v1/buckets/{bucket}/value
    deploy POST /v1/buckets/{bucket}/delete
    deploy GET /v1/buckets/{bucket}/export
    deploy POST /v1/buckets/{bucket}/import
    deploy HEAD /v1/images/{sha256}
    deploy GET /v1/images/{sha256}
    deploy PUT /v1/images/{sha256}
    admin  GET /v1/audit
    admin  GET /v1/tokens
    admin  POST /v1/tokens
    admin  DELETE /v1/tokens/{name}
    admin  GET /v1/secrets
    admin  PUT /v1/secrets/{name}
    admin  DELETE /v1/secrets/{name}
    look   GET /v1/boards
    look   GET /v1/fleet
    admin  POST /v1/fleet
    look   GET /v1/fleet/why/{function}
    admin  POST /v1/fleet/join
    admin  POST /v1/fleet/knock
    admin  POST /v1/fleet/knock/confirm
    admin  GET /v1/fleet/knocking
    admin  POST /v1/fleet/admit
    admin  POST /v1/fleet/drain
    admin  POST /v1/fleet/leave
    admin  POST /v1/fleet/invitations
    admin  POST /v1/fleet/anchors
    admin  DELETE /v1/fleet/anchors/{node}
    admin  DELETE /v1/fleet/nodes/{node}
    look   GET /v1/fleet/deployments
    deploy POST /v1/fleet/orders
    look   GET /v1/fleet/places
    admin  GET /v1/fleet/tokens
    admin  POST /v1/fleet/tokens
    admin  DELETE /v1/fleet/tokens/{name}
    look   GET /v1/fleet/deployers
    admin  POST /v1/fleet/deployers
    admin  DELETE /v1/fleet/deployers/{name}
";

#[test]
fn each_endpoint_takes_its_scope_and_no_less() {
    const ORDER: [&str; 4] = ["look", "call", "deploy", "admin"];
    let node = Node::start();
    let token = |scope: &str| {
        let request = json!({ "name": format!("of-{scope}"), "scope": scope });
        let made = node.api("POST", "/v1/tokens", request.to_string().as_bytes()).json();
        format!("Bearer {}", made["token"].as_str().unwrap())
    };
    let tokens = ORDER.map(token);
    let table: Vec<(&str, &str, &str)> = SCOPES
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?, words.next()?, words.next()?))
        })
        .collect();
    let document = node.api("GET", "/v1/openapi.json", &[]).json();
    let mut described: Vec<(String, &str)> = document["paths"]
        .as_object()
        .unwrap()
        .iter()
        .flat_map(|(path, methods)| {
            methods.as_object().unwrap().keys().map(|method| (method.to_uppercase(), path.as_str()))
        })
        .collect();
    let mut listed: Vec<(String, &str)> = table.iter().map(|(_, method, path)| (method.to_string(), *path)).collect();
    described.sort();
    listed.sort();
    assert_eq!(described, listed, "every endpoint stands in the table, and no other");
    for (least, method, path) in &table {
        let parts = ["{name}", "{node}", "{bucket}", "{unit}"];
        let url = parts.iter().fold(path.to_string(), |url, part| url.replace(part, "nobody"));
        let url = url.replace("{sha256}", &"0".repeat(64));
        // It would never end.
        let url = if url == "/v1/live" { url + "?function=nobody" } else { url };
        // `work` stands beside `call`: of the others, those that may deploy may take events as well.
        let least = if *least == "work" { "deploy" } else { least };
        let needed = ORDER.iter().position(|scope| *scope == least);
        let without = send(method, &format!("{}{url}", node.api), &[], &[]);
        assert_eq!(without.status == 401, needed.is_some(), "{method} {path} without a token");
        for (place, token) in tokens.iter().enumerate() {
            let enough = needed.is_none_or(|needed| place >= needed);
            // It would end the node that the others are tried on.
            if enough && ["/v1/stop", "/v1/restart"].contains(path) {
                continue;
            }
            let reply = send(method, &format!("{}{url}", node.api), &[("authorization", token)], &[]);
            // A HEAD has no body that could hold a code.
            assert_eq!(reply.status == 403, !enough, "{method} {path} with the scope {}", ORDER[place]);
        }
    }
}
