//! Another version of the program in its place: real programs, real nodes, real signatures.

use crate::support::{Node, PROGRAM, send, wait_for};
use release::making::{self, Signer};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use tempfile::TempDir;

const VERSION: &str = env!("CARGO_PKG_VERSION");
const PROCESSOR: &str = std::env::consts::ARCH;

/// A folder with a program of its own, a key, and releases.
struct Installed {
    folder: TempDir,
    signer: Signer,
    bytes: Vec<u8>,
}

impl Installed {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("bin")).unwrap();
        let installed = Self { folder, signer: Signer::new(5), bytes: Vec::new() };
        // What debuggers read is four fifths of it.
        let program = installed.program();
        let strip = Command::new("strip").arg("-o").arg(&program).arg(PROGRAM).status();
        if !strip.is_ok_and(|status| status.success()) {
            fs::copy(PROGRAM, &program).unwrap();
        }
        fs::write(installed.path("key.pub"), installed.signer.key()).unwrap();
        let bytes = fs::read(program).unwrap();
        Self { bytes, ..installed }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn program(&self) -> PathBuf {
        self.path("bin/lighter")
    }

    fn data(&self) -> PathBuf {
        self.path("data")
    }

    /// Another build of the same version: nobody reads what stands behind a program's end.
    fn another(&self, build: &str) -> Vec<u8> {
        [&self.bytes, format!("build {build}").as_bytes()].concat()
    }

    /// A program that answers for itself and cannot be a node: it writes where it listens into a folder that is none.
    fn broken(&self) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        let places: Vec<usize> =
            bytes.windows(9).enumerate().filter(|(_, at)| *at == b"node.json").map(|(at, _)| at).collect();
        assert!(!places.is_empty());
        for place in places {
            bytes[place..place + 9].copy_from_slice(b"node.jso/");
        }
        bytes
    }

    fn release(&self, name: &str, version: &str, processor: &str, program: &[u8]) -> String {
        let bytes = making::release(version, processor, program);
        let file = self.path(name);
        fs::write(self.path(&format!("{name}.minisig")), self.signer.sign(&bytes, name)).unwrap();
        fs::write(&file, bytes).unwrap();
        file.to_str().unwrap().to_owned()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.program());
        command.arg("upgrade").args(words).arg("--json").env("LIGHTER_DATA", self.data());
        if !words.contains(&"--rollback") && !words.contains(&"--key") {
            command.arg("--key").arg(self.path("key.pub"));
        }
        command.env_remove("LIGHTER_NODE").env_remove("LIGHTER_TOKEN").stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn upgrade(&self, words: &[&str]) -> (i32, Value) {
        read(&self.command(words).output().unwrap())
    }

    #[track_caller]
    fn refused(&self, words: &[&str], code: &str) -> Value {
        let before = fs::metadata(self.program()).unwrap().ino();
        let (status, said) = self.upgrade(words);
        assert_ne!(status, 0, "{said}");
        assert_eq!(said["code"], code, "{said}");
        assert!(!said["hint"].as_str().unwrap().is_empty(), "{said}");
        assert_eq!(fs::metadata(self.program()).unwrap().ino(), before);
        let mut left = self.names();
        left.retain(|name| name != "lighter.previous");
        assert_eq!(left, ["lighter"]);
        said
    }

    /// What is in the program's folder.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("bin")).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn start(&self) -> Node {
        Node::try_start_by(&mut Command::new(self.program()), &self.data(), &[]).unwrap()
    }

    fn is_installed(&self, program: &[u8]) -> bool {
        fs::read(self.program()).unwrap() == program
    }

    /// Where the node listens now, as it says in its data folder.
    fn api(&self) -> String {
        wait_for("the node", || {
            let place: Value = serde_json::from_slice(&fs::read(self.data().join("node.json")).ok()?).ok()?;
            Some(place["api"].as_str()?.to_owned())
        })
    }
}

fn read(output: &Output) -> (i32, Value) {
    let text = if output.status.success() { &output.stdout } else { &output.stderr };
    let last = text.split(|byte| *byte == b'\n').rfind(|line| !line.is_empty()).unwrap_or_default();
    let said = serde_json::from_slice(text).or_else(|_| serde_json::from_slice(last));
    (output.status.code().unwrap_or(-1), said.unwrap_or_else(|error| panic!("{error}: {output:?}")))
}

fn deploy_counter(node: &Node) {
    let counter = json!({ "image": node.upload("counter"), "queue": "counts", "grants": { "stores": ["counters"] } });
    let last = node.deploy_manifest(json!({ "function": { "counter": counter } }));
    assert_eq!(last["step"], "done", "{last}");
}

/// A request to wherever the node listens now; none while nobody answers.
fn try_send(installed: &Installed, token: &str, method: &str, path: &str, body: &[u8]) -> Option<(u16, String)> {
    let place: Value = serde_json::from_slice(&fs::read(installed.data().join("node.json")).ok()?).ok()?;
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let request = ureq::http::Request::builder()
        .method(method)
        .uri(format!("{}{path}", place["api"].as_str()?))
        .header("authorization", format!("Bearer {token}"));
    let mut reply = agent.run(request.body(body).ok()?).ok()?;
    Some((reply.status().as_u16(), reply.body_mut().read_to_string().ok()?))
}

/// What the counter has counted for the key `k`, without counting itself, once its queue is empty.
fn counted(installed: &Installed, token: &str) -> u64 {
    wait_for("an empty queue", || {
        let (_, said) = try_send(installed, token, "GET", "/v1/queues/counts", &[])?;
        let queue: Value = serde_json::from_str(&said).ok()?;
        ["ready", "delayed", "leased"].iter().all(|part| queue[part] == 0).then_some(())
    });
    let value = try_send(installed, token, "GET", "/v1/buckets/counters/value?key=k", &[]).unwrap();
    if value.0 == 404 { 0 } else { value.1.trim().parse().unwrap() }
}

/// Ends what waits for it, whatever happens before.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Pushes until it is told to end, each event until it is acknowledged or has failed; how many were acknowledged, and
/// how many may have come besides.
fn push(installed: &Installed, token: &str, confirmed: &AtomicU64, ends: &AtomicBool) -> u64 {
    let mut doubtful = 0;
    while !ends.load(SeqCst) {
        match try_send(installed, token, "POST", "/v1/queues/counts/events", b"k") {
            Some((201, _)) => _ = confirmed.fetch_add(1, SeqCst),
            Some(_) => {}
            None => doubtful += 1,
        }
    }
    doubtful
}

#[test]
fn an_upgrade_under_load_loses_no_acknowledged_event_and_keeps_the_process() {
    let installed = Installed::new();
    let node = installed.start();
    deploy_counter(&node);
    let (confirmed, ends) = (AtomicU64::new(0), AtomicBool::new(false));
    let release = installed.release("new.tar.gz", VERSION, PROCESSOR, &installed.another("two"));
    let before = fs::metadata(installed.program()).unwrap();
    let doubtful = std::thread::scope(|scope| {
        let pushing = Ends(&ends);
        let pusher = scope.spawn(|| push(&installed, &node.token, &confirmed, &ends));
        wait_for("events", || (confirmed.load(SeqCst) > 50).then_some(()));
        let upgraded = installed.upgrade(&[&release, "--watch-seconds", "1"]);
        let at_the_end = confirmed.load(SeqCst);
        wait_for("more events", || (confirmed.load(SeqCst) > at_the_end + 20).then_some(()));
        drop(pushing);
        assert_eq!(upgraded, (0, json!({ "version": VERSION, "was": VERSION, "restarted": node.pid() })));
        pusher.join().unwrap()
    });
    let after = fs::metadata(installed.program()).unwrap();
    assert_eq!((after.permissions().mode(), after.uid()), (before.permissions().mode(), before.uid()));
    assert!(installed.is_installed(&installed.another("two")));
    assert_eq!(fs::metadata(format!("/proc/{}/exe", node.pid())).unwrap().ino(), after.ino());
    let (confirmed, counted) = (confirmed.load(SeqCst), counted(&installed, &node.token));
    assert!((confirmed..=confirmed + doubtful).contains(&counted), "{counted} of {confirmed} and {doubtful}");

    // Another node is no reason to change the program of this one, and is not the one to restart.
    // That is noticed before the release is looked at.
    for release in [release.as_str(), "nowhere.tar.gz"] {
        let elsewhere = installed.command(&[release]).env("LIGHTER_NODE", "http://127.0.0.1:9").output();
        assert_eq!(read(&elsewhere.unwrap()).1["code"], "L1101", "{release}");
    }

    // And back, by hand; what was counted stays, and is kept.
    let kept = installed.path("kept");
    let (kept, passphrase) = (kept.to_str().unwrap(), installed.path("passphrase"));
    fs::write(&passphrase, "open sesame\n").unwrap();
    let sealed = ["--backup", kept, "--passphrase-file", passphrase.to_str().unwrap()];
    let back = installed.upgrade(&[&["--rollback", "--watch-seconds", "0"], &sealed[..]].concat());
    assert_eq!(back, (0, json!({ "version": VERSION, "was": VERSION, "restarted": node.pid() })));
    let mut restore = Command::new(PROGRAM);
    restore.args(["restore", kept, "--passphrase-file"]).arg(&passphrase).arg("--data-folder");
    let restored = read(&restore.arg(installed.path("restored")).arg("--json").output().unwrap());
    assert_eq!((restored.0, &restored.1["left_out"]), (0, &json!([])), "all is in the backup: {restored:?}");
    assert!(installed.is_installed(&installed.bytes));
    assert_eq!(self::counted(&installed, &node.token), counted);
    let said = node.said.lock().unwrap().join("\n");
    assert_eq!(said.matches("lighter ready").count(), 3, "{said}");
}

#[test]
fn a_program_that_cannot_be_a_node_is_taken_back_and_the_node_runs_again() {
    let installed = Installed::new();
    let node = installed.start();
    deploy_counter(&node);
    assert_eq!(node.push("counts", "id=1", "k").status, 201);
    let release = installed.release("broken.tar.gz", VERSION, PROCESSOR, &installed.broken());
    let said = installed.refused_but_tried(&[&release]);
    assert_eq!(said["code"], "L1116", "{said}");
    assert!(said["detail"].as_str().unwrap().contains("the node runs with it"), "{said}");
    assert!(installed.is_installed(&installed.bytes));
    assert_eq!(installed.names(), ["lighter", "lighter.previous"]);
    assert_eq!(fs::read(installed.path("bin/lighter.previous")).unwrap(), installed.bytes);
    assert_eq!(counted(&installed, &node.token), 1);
    // It was started by the command line, and writes where it wrote before.
    wait_for("its words", || {
        let said = node.said.lock().unwrap().join("\n");
        (said.matches("lighter ready").count() == 2).then_some(())
    });
    let authorization = format!("Bearer {}", node.token);
    let stopped = send("POST", &format!("{}/v1/stop", installed.api()), &[("authorization", &authorization)], &[]);
    assert_eq!(stopped.status, 202);
    wait_for("its end", || (!installed.data().join("node.json").exists()).then_some(()));
}

/// It was lost: the way back took the name of the program before for the one in its place.
#[test]
fn after_an_upgrade_that_was_taken_back_one_can_still_go_back_to_the_program_before() {
    let installed = Installed::new();
    let node = installed.start();
    let good = installed.release("new.tar.gz", VERSION, PROCESSOR, &installed.another("two"));
    assert_eq!(installed.upgrade(&[&good, "--watch-seconds", "0"]).0, 0);
    let broken = installed.release("broken.tar.gz", VERSION, PROCESSOR, &installed.broken());
    assert_eq!(installed.refused_but_tried(&[&broken])["code"], "L1116");
    assert!(installed.is_installed(&installed.another("two")));
    assert_eq!(installed.names(), ["lighter", "lighter.previous"]);
    assert_eq!(installed.upgrade(&["--rollback", "--watch-seconds", "0"]).0, 0);
    assert!(installed.is_installed(&installed.bytes));
    assert_eq!(installed.names(), ["lighter", "lighter.previous"]);
    assert_eq!(node.stop_where_it_is(&installed.api()), 202);
}

impl Installed {
    fn refused_but_tried(&self, words: &[&str]) -> Value {
        let (status, said) = self.upgrade(words);
        assert_eq!(status, 1, "{said}");
        said
    }
}

#[test]
fn an_upgrade_that_is_killed_leaves_a_program_that_starts() {
    let installed = Installed::new();
    let release = installed.release("new.tar.gz", VERSION, PROCESSOR, &installed.another("two"));
    let beside = installed.path("bin/lighter.new");
    let mut killed = 0;
    for round in 0..8_u64 {
        let mut child: Child = installed.command(&[&release]).spawn().unwrap();
        // Each time after more has been done: bytes of the next program, then the moments around the swap.
        let wanted = 1 + round * installed.bytes.len() as u64 / 6;
        let is_there =
            || fs::metadata(&beside).is_ok_and(|found| found.len() >= wanted.min(installed.bytes.len() as u64));
        while child.try_wait().unwrap().is_none() && !is_there() {}
        if round > 5 {
            while child.try_wait().unwrap().is_none() && beside.exists() {}
        }
        child.kill().ok();
        killed += u32::from(!child.wait().unwrap().success());
        assert!(installed.is_installed(&installed.bytes) || installed.is_installed(&installed.another("two")));
        let version = Command::new(installed.program()).args(["version", "--json"]).output().unwrap();
        assert!(version.status.success(), "{version:?}");
    }
    assert!(killed > 0, "no upgrade was killed before its end");
    let node = installed.start();
    assert_eq!(installed.upgrade(&[&release, "--watch-seconds", "0"]).0, 0);
    assert!(installed.is_installed(&installed.another("two")));
    assert_eq!(node.stop_where_it_is(&installed.api()), 202);
}

impl Node {
    fn stop_where_it_is(&self, api: &str) -> u16 {
        let authorization = format!("Bearer {}", self.token);
        send("POST", &format!("{api}/v1/stop"), &[("authorization", &authorization)], &[]).status
    }
}

/// The kernel calls a process by the file that was run: after the restart that is no longer the link.
#[test]
fn a_node_that_was_started_by_a_link_is_upgraded() {
    let installed = Installed::new();
    let file = installed.path("bin/lighter-of-today");
    fs::rename(installed.program(), &file).unwrap();
    symlink(&file, installed.program()).unwrap();
    let node = installed.start();
    let release = installed.release("new.tar.gz", VERSION, PROCESSOR, &installed.another("two"));
    let (status, said) = installed.upgrade(&[&release, "--watch-seconds", "1"]);
    assert_eq!(status, 0, "{said}");
    assert!(installed.is_installed(&installed.another("two")));
    assert_eq!(node.stop_where_it_is(&installed.api()), 202);
}

#[test]
fn an_upgrade_whose_terminal_goes_away_is_watched_and_taken_back_all_the_same() {
    let installed = Installed::new();
    let node = installed.start();
    let broken = installed.broken();
    let release = installed.release("broken.tar.gz", VERSION, PROCESSOR, &broken);
    let child = installed.command(&[&release]).spawn().unwrap();
    wait_for("the swap", || installed.is_installed(&broken).then_some(()));
    kill_process(Pid::from_child(&child), Signal::HUP).unwrap();
    let (status, said) = read(&child.wait_with_output().unwrap());
    assert_eq!((status, &said["code"]), (1, &json!("L1116")), "{said}");
    assert!(installed.is_installed(&installed.bytes));
    assert_eq!(node.stop_where_it_is(&installed.api()), 202);
}

#[test]
fn what_is_not_to_be_installed_is_refused_by_its_code_and_changes_nothing() {
    let installed = Installed::new();
    let good = installed.release("good.tar.gz", VERSION, PROCESSOR, &installed.bytes);
    let other = if PROCESSOR == "x86_64" { "aarch64" } else { "x86_64" };
    let copy = |name: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = fs::read(&good).unwrap();
        change(&mut bytes);
        fs::write(installed.path(name), bytes).unwrap();
        installed.path(name).to_str().unwrap().to_owned()
    };
    let with_signature = |name: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let file = copy(name, change);
        let bytes = fs::read(&file).unwrap();
        fs::write(format!("{file}.minisig"), installed.signer.sign(&bytes, name)).unwrap();
        file
    };
    installed.refused(&[&copy("unsigned.tar.gz", &|_| {})], "L1110");
    let changed = copy("changed.tar.gz", &|bytes| bytes[5_000] ^= 1);
    fs::copy(format!("{good}.minisig"), format!("{changed}.minisig")).unwrap();
    installed.refused(&[&changed], "L1111");
    let other_key = installed.path("other.pub");
    fs::write(&other_key, Signer::new(6).key()).unwrap();
    installed.refused(&[&good, "--key", other_key.to_str().unwrap()], "L1111");
    installed.refused(&[&good, "--key", &good], "L1107");
    installed.refused(&[&with_signature("short.tar.gz", &|bytes| bytes.truncate(bytes.len() / 2))], "L1112");
    installed.refused(&[&with_signature("none.tar.gz", &|bytes| *bytes = b"no release".to_vec())], "L1112");
    installed.refused(&[&installed.release("other.tar.gz", VERSION, other, &installed.bytes)], "L1113");
    let mut of_other = installed.bytes.clone();
    of_other[18] = if PROCESSOR == "x86_64" { 183 } else { 62 };
    installed.refused(&[&installed.release("elf.tar.gz", VERSION, PROCESSOR, &of_other)], "L1113");
    let script = installed.release("script.tar.gz", VERSION, PROCESSOR, b"#!/bin/sh\nexit 0\n");
    installed.refused(&[&script], "L1113");
    let older = installed.release("older.tar.gz", "0.0.9", PROCESSOR, &installed.bytes);
    installed.refused(&[&older], "L1114");
    // Its name says so, and its program does not.
    installed.refused(&[&older, "--allow-older"], "L1112");
    installed.refused(&[&installed.release("newer.tar.gz", "9.0.0", PROCESSOR, &installed.bytes)], "L1112");
    installed.refused(&["--rollback"], "L1117");
    installed.refused(&["nowhere.tar.gz"], "L1107");
    installed.refused(&["http://127.0.0.1:9/nowhere.tar.gz"], "L1107");

    let (status, said) = installed.upgrade(&["--check", &good]);
    assert_eq!((status, &said["version"], &said["changes_format"]), (0, &json!(VERSION), &json!(false)), "{said}");
    assert_eq!(said["sha256"], crate::support::hash(&fs::read(&good).unwrap()));
    assert!(installed.is_installed(&installed.bytes) && !installed.path("bin/lighter.previous").exists());
}

#[test]
fn a_release_comes_over_http_and_a_node_of_another_program_is_left_alone() {
    let installed = Installed::new();
    let release = installed.release("new.tar.gz", VERSION, PROCESSOR, &installed.another("two"));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/new.tar.gz", listener.local_addr().unwrap());
    let folder = installed.folder.path().to_owned();
    std::thread::spawn(move || serve(&listener, &folder));
    assert_eq!(installed.upgrade(&["--check", &url]).0, 0);
    let (status, said) = installed.upgrade(&[&url]);
    assert_eq!((status, said), (0, json!({ "version": VERSION, "was": VERSION, "restarted": null })));
    assert!(installed.is_installed(&installed.another("two")));
    let missing = url.replace("new", "missing");
    assert_eq!(installed.refused(&[&missing], "L1110")["code"], "L1110");

    let node = Node::start_in(&installed.data(), &[]);
    let said = installed.refused(&[&release], "L1101");
    assert!(said["detail"].as_str().unwrap().contains("the node runs"), "{said}");
    assert_eq!(node.api("GET", "/readyz", &[]).status, 200);
}

/// Gives out the files of a folder.
fn serve(listener: &std::net::TcpListener, folder: &Path) {
    use std::io::{BufRead, BufReader, Write};
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
        let first = lines.next().unwrap_or_default();
        while lines.next().is_some_and(|line| !line.is_empty()) {}
        let name = first.split(' ').nth(1).unwrap_or("/").trim_start_matches('/').to_owned();
        let (status, body) = match fs::read(folder.join(name)) {
            Ok(body) => ("200 OK", body),
            Err(_) => ("404 Not Found", Vec::new()),
        };
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body)).ok();
    }
}
