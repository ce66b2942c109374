//! The command line as it is typed, plain and with `--json`, against a real node; and against one that does not answer.

use crate::events::{attack, counter};
use crate::support::{Node, PROGRAM, fixture, wait_for};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;

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
    command.args(["600", PROGRAM]).args(words);
    command.env_remove("LIGHTER_DATA").env_remove("LIGHTER_NODE").env_remove("LIGHTER_TOKEN");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// In the folder that holds the data folder.
fn lighter(node: &Node, words: &[&str], input: &str) -> Said {
    let mut command = command(words);
    command.env("LIGHTER_DATA", &node.data).current_dir(node.data.parent().unwrap()).stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // Whoever reads no input may have ended already.
    child.stdin.take().unwrap().write_all(input.as_bytes()).ok();
    said(child.wait_with_output().unwrap())
}

fn said(output: Output) -> Said {
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
        0 => {
            let documents = machine.json().len();
            let is_stream = documents == machine.out.lines().count();
            assert!(documents == 1 || documents > 1 && is_stream, "{line}: {}", machine.out);
        }
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
    node.deploy_one("attack", "attack", json!({ "grants": { "stores": ["granted"] }, "units": { "dump": true } }));
    node.deploy(json!({ "idle": { "image": node.upload("hello"), "queue": "work", "units": { "maximum": 0 } } }));
    node.call("attack", "log-flood 2");
    let folder = node.data.parent().unwrap();

    assert!(check(&node, "new {}-new", "", 0).err.contains("wrote a rust function"));
    assert!(folder.join("b-new/lighter.toml").exists());
    fs::create_dir(folder.join("project")).unwrap();
    fs::write(folder.join("project/source.bin"), fixture("hello")).unwrap();
    let manifest = "[function.made]\nimage = \"made.wasm\"\nbuild = \"cp source.bin made.wasm\"\nhttp = \"/made\"\n";
    fs::write(folder.join("project/lighter.toml"), manifest).unwrap();
    assert!(check(&node, "build project", "", 0).out.contains("made.wasm"));
    for line in ["deploy project", "deploy project --build"] {
        assert!(check(&node, line, "", 0).out.contains(&format!("{}/made", node.gate)));
    }
    let deployed = lighter(&node, &["deploy", "project", "--json"], "").json();
    assert_eq!(deployed[0][0]["urls"][0], format!("{}/made", node.gate));
    assert_eq!(node.get("/made").status, 200);

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
    let audit = check(&node, "audit", "", 0);
    assert!(audit.out.contains("token create"), "{}", audit.out);
    check(&node, "secret set {}", "value", 0);
    check(&node, "secret ls", "", 0);
    check(&node, "secret rm {}", "", 0);
    check(&node, "mqtt-password", "password", 0);

    check(&node, "push work --data x", "", 0);
    for line in ["queue ls", "queue peek work", "queue dead work", "queue replay work", "queue purge work"] {
        check(&node, line, "", 0);
    }
    for line in ["queue pause work", "queue resume work", "queue pause", "queue ls", "queue resume"] {
        check(&node, line, "", 0);
    }
    check(&node, "queue pause nothere", "", 5);
    check(&node, "queue replay work 99999999", "", 5);
    for line in ["queue purge work --reason L6003 --dry-run", "queue purge work 5 7", "event", "event --failed -n 5"] {
        check(&node, line, "", 0);
    }
    check(&node, "event nothere", "", 5);
    check(&node, "event --queue nothere", "", 5);

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
    assert_eq!(node.call("attack", "unreachable").code(), "L6001");
    assert_eq!(check(&node, "dump attack", "", 0).out, "attack.coredump\n");
    assert!(fs::read(folder.join("attack.coredump")).unwrap().starts_with(b"\0asm"));
    let looks = lighter(&node, &["top", "--json", "--count", "2", "--interval", "0.1"], "");
    assert_eq!((looks.out.lines().count(), looks.json().len()), (2, 2), "{}", looks.err);
    assert!(looks.json()[1]["functions"].to_string().contains("attack"), "{}", looks.out);
    check(&node, "debug hello --batch --lldb --gdb", "", 2);
    assert!(lighter(&node, &["debug", "hello", "--json"], "").err.contains("L1101"));
    let completions = lighter(&node, &["completions", "bash"], "");
    assert!(completions.status == 0 && completions.out.contains("rollback"));
    assert!(check(&node, "rm {}", "", 0).err.contains("removed a"));
}

/// The lines of a command that goes on, as they come.
fn lines_of(child: &mut Child) -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    lines
}

#[test]
fn logs_are_followed_as_they_are_written() {
    let node = Node::start();
    node.deploy_one("attack", "attack", json!({}));
    node.call("attack", "log-flood 2");
    for json in [&[][..], &["--json"]] {
        let words = [&["logs", "attack", "--follow", "--tail", "1"][..], json].concat();
        let mut follow = command(&words).env("LIGHTER_DATA", &node.data).spawn().unwrap();
        let lines = lines_of(&mut follow);
        let before = lines.recv().unwrap();
        node.call("attack", "log-flood 2");
        for (line, number) in [before, lines.recv().unwrap(), lines.recv().unwrap()].iter().zip([1, 0, 1]) {
            assert!(line.contains(&format!("line {number} of a flood")), "{line}");
            assert!(json.is_empty() || serde_json::from_str::<Value>(line).unwrap()["function"] == "attack", "{line}");
        }
        Command::new("kill").arg(follow.id().to_string()).status().unwrap();
        follow.wait().unwrap();
    }
}

#[test]
fn top_draws_the_functions_until_q_is_pressed() {
    if !Command::new("script").arg("--version").output().is_ok_and(|output| output.status.success()) {
        println!("skipped: script: `lighter top` in a terminal");
        return;
    }
    let node = Node::start();
    node.deploy_one("hello", "hello", json!({}));
    // It ends by itself, should nobody end it.
    let line = format!("stty rows 24 cols 80; exec {PROGRAM} top --count 600");
    let mut script = Command::new("script");
    script.args(["-q", "-e", "-c", &line, "/dev/null"]).env("LIGHTER_DATA", &node.data).env("TERM", "xterm");
    script.env_remove("LIGHTER_NODE").env_remove("LIGHTER_TOKEN").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut top = script.spawn().unwrap();
    let (mut keys, mut screen) = (top.stdin.take().unwrap(), top.stdout.take().unwrap());
    let mut drawn = Vec::new();
    let mut chunk = [0; 4_096];
    while !String::from_utf8_lossy(&drawn).contains("hello") {
        let count = screen.read(&mut chunk).unwrap();
        assert!(count > 0, "it ended: {}", String::from_utf8_lossy(&drawn));
        drawn.extend_from_slice(&chunk[..count]);
    }
    keys.write_all(b"q").unwrap();
    screen.read_to_end(&mut drawn).unwrap();
    assert!(top.wait().unwrap().success(), "{}", String::from_utf8_lossy(&drawn));
}

#[test]
fn up_says_where_it_listens_and_down_what_it_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let up = || {
        let mut up = command(&["up", "--json", "--http", "127.0.0.1:0", "--api", "127.0.0.1:0", "--data-folder"]);
        up.arg(folder.path());
        up
    };
    let mut node = up().spawn().unwrap();
    let mut documents = serde_json::Deserializer::from_reader(node.stdout.take().unwrap()).into_iter::<Value>();
    let place = documents.next().unwrap().unwrap();
    let kept: Value = serde_json::from_slice(&fs::read(folder.path().join("node.json")).unwrap()).unwrap();
    assert_eq!(place, kept);
    let second = said(up().output().unwrap());
    assert_eq!((second.status, second.code().as_str(), second.out.as_str()), (1, "L5001", ""), "{}", second.err);
    let down = said(command(&["down", "--json"]).env("LIGHTER_DATA", folder.path()).output().unwrap());
    assert_eq!(down.json(), [json!({ "stopped": place["api"] })], "{}", down.err);
    assert!(documents.next().is_none(), "one document");
    assert!(node.wait().unwrap().success());
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
    let mut dev = command(&["dev", "--json"]).arg(folder.path()).env("LIGHTER_DATA", &node.data).spawn().unwrap();
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
    // What the function writes is the result, one document a line.
    let lines = lines_of(&mut dev);
    wait_for("a line of the log", || {
        node.call("hello", "log-flood 1");
        lines.try_iter().find(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            line["function"] == "hello" && line["message"].as_str().unwrap().contains("of a flood")
        })
    });
    Command::new("kill").args(["-INT", &dev.id().to_string()]).status().unwrap();
    dev.wait().unwrap();
    assert_eq!(node.api("GET", "/v1/functions/hello", &[]).json()["version"], 2, "it stays deployed");
}

#[test]
fn dev_takes_its_build_along_when_it_is_ended() {
    let node = Node::start();
    let folder = tempfile::tempdir().unwrap();
    // It begins more while it is ended.
    let build = "echo begun; for n in 1 2 3; do (sleep 60; echo survived) & done; wait";
    let manifest = format!("[function.hello]\nimage = \"hello.wasm\"\nbuild = {build:?}\n");
    fs::write(folder.path().join("lighter.toml"), manifest).unwrap();
    // Not by `timeout`, which would tell the whole group.
    let mut dev = Command::new(PROGRAM);
    dev.arg("dev").arg(folder.path()).env("LIGHTER_DATA", &node.data).env_remove("LIGHTER_NODE");
    let mut dev = dev.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(dev.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(said.by_ref().any(|line| line == "begun"));
    Command::new("kill").arg(dev.id().to_string()).status().unwrap();
    // The end of what all of them write to comes when the last of them is gone.
    let rest: Vec<String> = said.collect();
    assert!(!rest.iter().any(|line| line == "survived"), "{rest:?}");
    assert_eq!(dev.wait().unwrap().code(), Some(130));
}

#[test]
fn a_call_of_a_component_is_debugged_with_source_lines() {
    if Command::new("gdb").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("skipped: gdb: a call of a component in the debugger");
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

/// A build command is the manifest's. It was handed the token with which a user deploys.
#[test]
fn a_build_command_is_given_no_token() {
    let folder = tempfile::tempdir().unwrap();
    let line = r"env > seen; printf '\0asm\r\0\01\0' > f.wasm";
    let text = format!("[function.f]\nimage = \"f.wasm\"\nbuild = {line:?}\n");
    fs::write(folder.path().join("lighter.toml"), text).unwrap();
    let mut build = command(&["build"]);
    build.current_dir(folder.path()).env("ANOTHER", "is-there");
    build.env("LIGHTER_TOKEN", "lighter_secret").env("LIGHTERAGE_TOKENS", "http://127.0.0.1:1=lighter_secret");
    build.env("LIGHTERAGE_TOKENS_FILE", "lighter_secret");
    let said = said(build.output().unwrap());
    assert_eq!(said.status, 0, "{}", said.err);
    let seen = fs::read_to_string(folder.path().join("seen")).unwrap();
    assert!(seen.contains("is-there") && !seen.contains("lighter_secret"), "{seen}");
}

#[test]
fn dead_letters_of_a_reason_are_listed_to_the_last() {
    let node = Node::start();
    node.deployed(json!({ "function": { "attack": attack(&node, "hits") } }));
    for data in ["invalid", "fatal"] {
        node.pushed("hits", &format!("id={data}"), data);
    }
    node.drained("hits");
    let listed = lighter(&node, &["queue", "dead", "hits", "--reason", "L6003", "--json"], "").json();
    assert_eq!((listed[0]["events"].as_array().unwrap().len(), &listed[0]["next"]), (1, &Value::Null), "{listed:?}");
    assert!(lighter(&node, &["queue", "dead", "hits", "--reason", "L6003"], "").out.contains("invalid"));
}

#[test]
fn events_of_one_command_have_an_id_each_however_many_requests_they_take() {
    let node = Node::start();
    let mut paused = counter(&node);
    paused["units"] = json!({ "maximum": 0 });
    node.deployed(json!({ "function": { "counter": paused }, "queue": { "counts": { "deduplicate": "1h" } } }));
    let pushed = lighter(&node, &["push", "counts", "--id", "x", "--count", "1001", "-d", "a", "--json"], "").json();
    assert_eq!((pushed[0]["ids"].as_array().unwrap().len(), &pushed[0]["duplicates"]), (1_001, &json!(0)));
    assert_eq!(node.queue("counts")["ready"], 1_001);
}

/// A line was added to a batch that had room for a shorter one, and an event of binary data has a third more as text.
#[test]
fn events_of_a_file_are_pushed_however_large_they_are() {
    let node = Node::start();
    let mut paused = counter(&node);
    paused["units"] = json!({ "maximum": 0 });
    node.deployed(json!({ "function": { "counter": paused } }));
    let event = |id: &str, key: &str, bytes: usize| {
        let mut event = json!({ "specversion": "1.0", "id": id, "source": "/a", "type": "t" });
        event[key] = "QUJD".repeat(bytes / 4).into();
        event.to_string()
    };
    let lines = [event("1", "data", 3_900_000), event("2", "data", 5_500_000), event("3", "data_base64", 10_000_000)];
    fs::write(node.data.parent().unwrap().join("events.jsonl"), lines.join("\n")).unwrap();
    let pushed = lighter(&node, &["push", "counts", "--events", "events.jsonl", "--json"], "");
    assert_eq!((pushed.status, pushed.json()[0]["ids"].clone()), (0, json!(["1", "2", "3"])), "{}", pushed.err);
}
