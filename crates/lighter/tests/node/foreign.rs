//! Handlers of AWS Lambda and OpenWhisk, as people have them, on a node: begun, deployed, behind HTTP and MQTT.

use crate::mqtt_client::Mqtt;
use crate::process;
use crate::support::{Node, PROGRAM, send};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Of the shape of Lambda's own examples: a module level client, a logger, a proxy response.
const LAMBDA: &str = r#"
import json
import logging
import os

logger = logging.getLogger()
logger.setLevel(logging.INFO)
TABLE = os.environ.get("TABLE", "none")


def lambda_handler(event, context):
    logger.info("request %s", context.aws_request_id)
    if "requestContext" not in event:
        return {"area": event["length"] * event["width"], "table": TABLE}
    name = (event.get("queryStringParameters") or {}).get("name")
    if not name:
        return {"statusCode": 400, "body": json.dumps({"message": "name is missing"})}
    return {
        "statusCode": 200,
        "headers": {"Content-Type": "application/json"},
        "body": json.dumps({"greeting": f"Hello {name}!", "function": context.function_name}),
    }
"#;

/// Of the shape of OpenWhisk's own examples.
const OPENWHISK: &str = r#"
def main(args):
    name = args.get("name", "stranger")
    if name == "nobody":
        return {"error": "nobody is here"}
    return {"greeting": "Hello " + name + "!"}
"#;

fn folder_with(name: &str, file: &str, source: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join(name);
    fs::create_dir(&place).unwrap();
    fs::write(place.join(file), source).unwrap();
    (folder, place)
}

fn run(data: &Path, words: &[&str]) -> Output {
    Command::new(PROGRAM).args(words).env("LIGHTER_DATA", data).output().unwrap()
}

/// What the command said to whoever ran it.
fn said(node: &Node, words: &[&str]) -> String {
    let output = run(&node.data, words);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "lighter {words:?}: {said}");
    said
}

#[test]
fn a_handler_of_lambda_runs_as_it_is_behind_http_and_mqtt_and_what_is_left_out_is_named() {
    let Some(node) = process::start_with(&["--mqtt", "127.0.0.1:0"]) else { return };
    let (_folder, place) = folder_with("Hello_Fn", "lambda_function.py", LAMBDA);
    let path = place.to_str().unwrap();
    let begun = said(&node, &["new", "--from", "lambda", path]);
    assert!(begun.contains("lambda_function.lambda_handler is function hello-fn"), "{begun}");
    let manifest = fs::read_to_string(place.join("lighter.toml")).unwrap();
    let manifest = manifest.replace("# mqtt = \"sensors/+/co2\"", "mqtt = \"rooms/+/size\"") + "TABLE = \"rooms\"\n";
    fs::write(place.join("lighter.toml"), manifest).unwrap();
    let deployed = said(&node, &["deploy", path]);
    for lack in
        ["lambda_function.py:8: environment", "statusCode is not passed on", "headers of the reply are left out"]
    {
        assert!(deployed.contains("not carried over") && deployed.contains(lack), "{lack}: {deployed}");
    }
    assert_eq!(fs::read_to_string(place.join("lambda_function.py")).unwrap(), LAMBDA, "the handler is as it was");

    let reply = node.get("/hello-fn/greet?name=you");
    assert_eq!(reply.json(), json!({ "greeting": "Hello you!", "function": "hello-fn" }), "{}", reply.text());
    assert_eq!(reply.headers["content-type"], "application/json");
    assert_eq!(node.get("/hello-fn/greet").code(), "L6003", "a 400 is an invalid request");
    let area = json!({ "area": 42, "table": "rooms" });
    assert_eq!(node.call("hello-fn", r#"{"length": 6, "width": 7}"#).json(), area);

    Mqtt::connect(&node.mqtt, "sensor").publish([("rooms/1/size", r#"{"length": 2, "width": 3}"#)]);
    let info = node.queue_is("hello-fn", |info| info["acked"] == 1 || info["dead"] == 1);
    assert_eq!(info["acked"], 1, "{}", node.api("GET", "/v1/queues/hello-fn/events?part=dead", &[]).text());
}

#[test]
fn an_action_of_openwhisk_runs_as_it_is() {
    let Some(node) = process::start_with(&[]) else { return };
    // A name that Python's `import` does not take.
    let (_folder, place) = folder_with("hello", "say-hello.py", OPENWHISK);
    let path = place.to_str().unwrap();
    said(&node, &["new", "--from", "openwhisk", path]);
    assert!(!said(&node, &["deploy", path]).contains("not carried over"));
    assert_eq!(node.get("/hello/x?name=web").json()["greeting"], "Hello web!");
    let kind = [("content-type", "application/json")];
    let posted = send("POST", &format!("{}/hello/x", node.gate), &kind, br#"{"name": "json"}"#);
    assert_eq!(posted.json()["greeting"], "Hello json!");
    assert_eq!(node.call("hello", "{}").json()["greeting"], "Hello stranger!");
    assert_eq!(node.call("hello", r#"{"name": "nobody"}"#).code(), "L6005");
}

#[test]
fn a_handler_that_cannot_be_carried_over_is_refused_with_what_helps() {
    let (folder, place) = folder_with("hello", "app.py", LAMBDA);
    let refused = |words: &[&str]| {
        let output = run(folder.path(), &[&["new", "--from", "lambda", place.to_str().unwrap()], words].concat());
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let of = |place: &Path| {
        let output = run(folder.path(), &["new", "--from", "lambda", place.to_str().unwrap()]);
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let absent = of(&place.join("absent"));
    assert!(absent.contains("L1107") && absent.contains("No such file"), "{absent}");
    let file = of(&place.join("app.py"));
    assert!(file.contains("L1101") && file.contains("name the folder that the handler is in"), "{file}");
    assert!(refused(&["--handler", "no handler"]).contains("L1101"));
    fs::write(place.join("fast.so"), b"\x7fELF").unwrap();
    let native = refused(&[]);
    assert!(native.contains("L2014") && native.contains("requirements.lock"), "{native}");
    fs::remove_file(place.join("fast.so")).unwrap();
    fs::write(place.join("lighter.toml"), "").unwrap();
    assert!(refused(&[]).contains("L1105"), "nothing is written over");
    fs::rename(place.join("app.py"), place.join("app.txt")).unwrap();
    fs::remove_file(place.join("lighter.toml")).unwrap();
    assert!(refused(&[]).contains("L1106"));
}

#[test]
fn a_handler_for_node_js_is_begun_and_what_it_lacks_is_named_before_it_is_built() {
    let source = "const fs = require('fs');\nexports.handler = async (event) => fs.readFileSync(event.file);\n";
    let (folder, place) = folder_with("Reader", "index.js", source);
    let new = || {
        let output = run(folder.path(), &["new", "--from", "lambda", place.to_str().unwrap()]);
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    fs::write(place.join("fast.node"), b"\x7fELF").unwrap();
    let (is_begun, said) = new();
    assert!(!is_begun && said.contains("L2033") && said.contains("fast.node is native code"), "{said}");
    fs::remove_file(place.join("fast.node")).unwrap();
    let (is_begun, said) = new();
    assert!(is_begun && said.contains("index.handler is function reader"), "{said}");
    assert!(said.contains("not carried over (L2033): index.js:1: fs is not here: a unit has no files"), "{said}");
    assert!(said.contains("lighter deploy --build"), "{said}");
    assert_eq!(fs::read_to_string(place.join("index.js")).unwrap(), source, "the handler is as it was");
    for file in ["lighter.toml", "lighter_from/build.mjs", "lighter_from/wit/unit.wit"] {
        assert!(place.join(file).exists(), "{file}");
    }
    // Not built yet: what would be sent is not there.
    let node = Node::start_with(&[]);
    let deployed = run(&node.data, &["deploy", place.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&deployed.stderr).into_owned();
    assert!(!deployed.status.success() && said.contains("L1106") && said.contains("L2033"), "{said}");
}
