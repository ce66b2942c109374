//! The command line as it is typed, plain and with `--json`, against a real node; and against one that does not answer.

use crate::support::{Node, fixture};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};

/// What a command said, and how it ended.
struct Said {
    status: i32,
    out: String,
    err: String,
}

impl Said {
    /// Every JSON document on standard output.
    fn json(&self) -> Vec<Value> {
        let documents: Result<_, _> = serde_json::Deserializer::from_str(&self.out).into_iter().collect();
        documents.unwrap_or_else(|error| panic!("{error} in {:?}", self.out))
    }

    /// The code of the problem on standard error.
    fn code(&self) -> String {
        let last = self.err.lines().last().unwrap_or_default();
        let problem: Value = serde_json::from_str(last).unwrap_or_else(|error| panic!("{error} in {:?}", self.err));
        problem["code"].as_str().unwrap().to_owned()
    }
}

fn command(words: &[&str]) -> Command {
    // What takes longer hangs: a debugger alone reads the program's symbols for minutes on a machine that is busy.
    let mut command = Command::new("timeout");
    command.args(["600", env!("CARGO_BIN_EXE_lighter")]).args(words);
    command.env_remove("LIGHTER_DATA").env_remove("LIGHTER_NODE").env_remove("LIGHTER_TOKEN");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn lighter(node: &Node, words: &[&str], input: &str) -> Said {
    let mut child = command(words).env("LIGHTER_DATA", &node.data).stdin(Stdio::piped()).spawn().unwrap();
    // Whoever reads no input may have ended already.
    child.stdin.take().unwrap().write_all(input.as_bytes()).ok();
    let output = child.wait_with_output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Said { status: output.status.code().unwrap(), out, err }
}

/// Runs a line as it is, then once more with `--json`; `{}` in it stands for a name that is another one each time.
#[track_caller]
fn check(node: &Node, line: &str, input: &str, status: i32) -> Said {
    let words = |name: &str| line.split(' ').map(|word| word.replace("{}", name)).collect::<Vec<_>>();
    let run = |name: &str, json: &[&str]| {
        let words = words(name);
        lighter(node, &[json, &words.iter().map(String::as_str).collect::<Vec<_>>()[..]].concat(), input)
    };
    let plain = run("a", &[]);
    assert_eq!(plain.status, status, "{line}: {}{}", plain.out, plain.err);
    assert!(!plain.out.is_empty() || !plain.err.is_empty(), "{line} says nothing");
    let machine = run("b", &["--json"]);
    assert_eq!(machine.status, status, "{line}: {}{}", machine.out, machine.err);
    match status {
        0 => assert!(!machine.json().is_empty(), "{line}"),
        _ => assert!(machine.code().starts_with('L'), "{line}"),
    }
    plain
}

#[test]
fn every_command_speaks_to_people_and_to_machines() {
    let node = Node::start();
    node.deploy_one("hello", "hello", json!({}));
    node.deploy_one("hello", "hello", json!({ "config": { "x": "1" } }));
    node.deploy_one("hello", "hello", json!({ "config": { "x": "2" } }));
    node.deploy_one("a", "hello", json!({}));
    node.deploy_one("b", "hello", json!({}));
    node.deploy_one("attack", "attack", json!({ "grants": { "stores": ["granted"] } }));
    node.deploy(json!({ "idle": { "image": node.upload("hello"), "queue": "work", "units": { "maximum": 0 } } }));
    node.call("attack", "log-flood 2");

    for line in ["ls", "ls --versions", "stats", "stats hello", "boards", "version", "flow --live", "errors L2001"] {
        check(&node, line, "", 0);
    }
    // No unit lives now, and that is said in words; for machines it is an empty list.
    check(&node, "ps", "", 0);
    let logs = check(&node, "logs attack", "", 0);
    assert!(logs.out.contains(" attack#") && logs.out.contains("line 1 of a flood"), "{}", logs.out);
    check(&node, "call hello --data world", "", 0);
    check(&node, "rollback hello", "", 0);

    check(&node, "token create {}", "", 0);
    check(&node, "token ls", "", 0);
    check(&node, "token rm {}", "", 0);
    check(&node, "secret set {}", "value", 0);
    check(&node, "secret ls", "", 0);
    check(&node, "secret rm {}", "", 0);
    check(&node, "mqtt-password", "password", 0);

    check(&node, "push work --data x", "", 0);
    for line in ["queue ls", "queue peek work", "queue dead work", "queue replay work", "queue purge work"] {
        check(&node, line, "", 0);
    }
    check(&node, "queue replay work 99999999", "", 5);

    check(&node, "store set things {}", "1", 0);
    for line in ["store ls", "store ls things", "store get things a", "store export things"] {
        check(&node, line, "", 0);
    }
    for key in ["17/payment", "a//b/", "..", ".", "/", "ä?x=1&y#%2F"] {
        assert_eq!(lighter(&node, &["store", "set", "things", key], key).status, 0, "{key}");
        assert_eq!(lighter(&node, &["store", "get", "things", key], "").out, key);
    }
    assert!(check(&node, "store get things/more a", "", 1).err.contains("in its name"));
    check(&node, "store import things", "{\"key\":\"c\",\"value\":\"3\"}\n", 0);
    assert!(check(&node, "store delete things {} c", "", 0).err.contains("deleted 2 keys"));
    let lines: String = (0..1_500).map(|number| format!("{{\"key\":\"p{number}\",\"value\":\"1\"}}\n")).collect();
    lighter(&node, &["store", "import", "things"], &lines);
    assert!(lighter(&node, &["store", "delete", "things", "--prefix", "p"], "").err.contains("deleted 1500 keys"));
    assert!(lighter(&node, &["store", "delete", "granted", "k"], "").err.contains("deleted 0 keys"));
    check(&node, "store ls granted", "", 0);

    let dump = check(&node, "dump hello", "", 5);
    assert!(dump.err.contains("L2017") && dump.err.contains("units.dump"), "{}", dump.err);
    check(&node, "debug hello --batch --lldb --gdb", "", 2);
    assert!(lighter(&node, &["debug", "hello", "--json"], "").err.contains("L1101"));
    let completions = lighter(&node, &["completions", "bash"], "");
    assert!(completions.status == 0 && completions.out.contains("rollback"));
    assert!(check(&node, "rm {}", "", 0).err.contains("removed a"));
}

/// What comes after it may use the data folder and the ports.
#[test]
fn a_node_is_gone_when_down_says_so() {
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        let node = Node::start_in(folder.path(), &[]);
        let down = lighter(&node, &["down"], "");
        assert_eq!(down.status, 0, "{}", down.err);
    }
}

#[test]
fn a_wrong_address_is_told_for_what_it_is() {
    let node = Node::start();
    let gate = lighter(&node, &["--node", &node.gate, "ls"], "");
    assert!(gate.status == 3 && gate.err.contains("8701"), "{}", gate.err);
    let tls = lighter(&node, &["--node", &node.api.replace("http", "https"), "ls"], "");
    assert!(tls.status == 3 && tls.err.contains("http://"), "{}", tls.err);
    // Running, but without the file that says where.
    fs::remove_file(node.data.join("node.json")).unwrap();
    let lost = lighter(&node, &["ls"], "");
    assert!(lost.status == 3 && lost.err.contains(&format!("process {}", node.pid())), "{}", lost.err);
}

#[test]
fn a_slip_names_what_was_meant_and_does_nothing() {
    let node = Node::start();
    node.deploy_one("hello", "hello", json!({ "grants": { "stores": ["counters"] } }));
    lighter(&node, &["secret", "set", "SMTP_PASSWORD"], "x");
    lighter(&node, &["token", "create", "builder"], "");
    for (line, status, meant) in [
        ("call helo -d x", 5, "did you mean \"hello\"?"),
        ("rm hello helo", 5, "did you mean \"hello\"?"),
        ("dump helo", 5, "did you mean \"hello\"?"),
        ("secret rm SMTP_PASWORD", 5, "did you mean \"SMTP_PASSWORD\"?"),
        ("token rm bilder", 5, "did you mean \"builder\"?"),
        ("store ls countrs", 5, "did you mean \"counters\"?"),
        ("store get countrs k", 5, "did you mean \"counters\"?"),
        ("store export countrs", 5, "did you mean \"counters\"?"),
        ("store delete countrs k", 5, "did you mean \"counters\"?"),
        ("call hello -d x --on shed", 1, "drop --on"),
        ("deplyo", 2, "'deploy'"),
        ("call", 2, "<NAME>"),
    ] {
        let said = check(&node, line, "", status);
        assert!(said.err.contains(meant), "{line}: {}", said.err);
        assert!(!said.err.contains("has what the function wrote"), "{line}: no unit ran: {}", said.err);
    }
    let usage = lighter(&node, &["call"], "");
    assert!(!usage.err.contains("--data-folder"), "it is not needed: {}", usage.err);
    assert_eq!(lighter(&node, &["--json", "deplyo"], "").code(), "L1101");
    assert_eq!(lighter(&node, &["call", "hello", "-d", "x"], "").status, 0, "nothing was removed");
    let empty = lighter(&node, &["mqtt-password"], "");
    assert!(empty.status == 2 && empty.err.contains("lighter mqtt-password"), "{}", empty.err);
}

#[test]
fn a_node_that_does_not_answer_is_waited_for_in_words() {
    // It takes connections and never reads one.
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", mute.local_addr().unwrap());
    let lines = [
        "ls",
        "ps",
        "stats",
        "rm hello",
        "boards",
        "token ls",
        "secret ls",
        "queue ls",
        "store ls",
        "store export x",
        "logs",
        "version",
        "flow --live",
        "rollback x",
        "dump x",
        "down",
    ];
    let start = |line: &&str| {
        let words: Vec<&str> = ["--node", &url].into_iter().chain(line.split(' ')).collect();
        (line.to_string(), command(&words).spawn().unwrap())
    };
    let children: Vec<_> = lines.iter().map(start).collect();
    for (line, mut child) in children {
        let mut said = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut said).unwrap();
        // `timeout` passes it on.
        Command::new("kill").arg(child.id().to_string()).status().unwrap();
        child.wait().unwrap();
        assert!(
            said.starts_with(&format!("waiting for {url}")) || line == "rollback x" && !said.is_empty(),
            "{line}: {said:?}"
        );
    }
}

#[test]
fn an_image_that_nothing_builds_says_so() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("lighter.toml"), "[function.f]\nimage = \"f.wasm\"\n").unwrap();
    let output = command(&["build"]).arg(folder.path()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("L1106") && said.contains("build = \"COMMAND\" in [function.f]"), "{said}");
}

#[test]
fn dev_builds_and_deploys_and_waits_for_a_change() {
    let node = Node::start();
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source.bin");
    fs::write(&source, fixture("hello")).unwrap();
    let manifest = "[function.hello]\nimage = \"hello.wasm\"\nbuild = \"cp source.bin hello.wasm\"\n";
    fs::write(folder.path().join("lighter.toml"), manifest).unwrap();
    let mut dev = command(&["dev"]).arg(folder.path()).env("LIGHTER_DATA", &node.data).spawn().unwrap();
    let mut said = BufReader::new(dev.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut until = |words: &str| {
        let mut all = Vec::new();
        for line in said.by_ref() {
            all.push(line);
            if all.last().unwrap().contains(words) {
                return;
            }
        }
        panic!("{words:?} was never said: {all:?}");
    };
    until("hello version 1 runs");
    until("waiting for a change");
    assert_eq!(node.call("hello", "world").status, 200);
    fs::write(&source, fixture("attack")).unwrap();
    until("hello version 2 runs");
    Command::new("kill").args(["-INT", &dev.id().to_string()]).status().unwrap();
    dev.wait().unwrap();
    assert_eq!(node.api("GET", "/v1/functions/hello", &[]).json()["version"], 2, "it stays deployed");
}

#[test]
fn a_call_of_a_component_is_debugged_with_source_lines() {
    if Command::new("gdb").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("SKIPPED: gdb is not installed");
        return;
    }
    let node = Node::start();
    node.deploy_one("attack", "attack", json!({}));
    let words = ["debug", "attack", "--gdb", "--batch", "--data", "log-flood 1", "--break", "attack::flood_log"];
    let said = lighter(&node, &words, "");
    let all = said.out + &said.err;
    assert!(all.contains("attack::flood_log") && all.contains("at attack/src/lib.rs:"), "{all}");
    assert_eq!(said.status, 0, "{all}");
}
