//! A data folder that cannot be written to: reads go on, writes say why, and nothing acknowledged is lost.

use crate::support::{Node, PROGRAM, Reply, fixture, hash, send};
use rustix::fs::statvfs;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::json;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// Free bytes below which a node refuses writes.
const RESERVE_BYTES: u64 = 64 << 20;

/// A file system of a fixed size, mounted where only the process that holds it and the node see it, and gone with them.
struct SmallDisk {
    holder: Child,
    path: PathBuf,
    _folder: TempDir,
}

impl SmallDisk {
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let script = "mount -t tmpfs -o size=112m none \"$0\" && echo mounted && exec cat";
        let mut unshare = Command::new("unshare");
        unshare.args(["-rm", "sh", "-c", script]).arg(folder.path());
        let mut holder = unshare.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let above = Path::new("/proc").join(holder.id().to_string()).join("root");
        let path = above.join(folder.path().strip_prefix("/").unwrap());
        let disk = Self { holder, path, _folder: folder };
        (line == "mounted\n").then_some(disk)
    }

    fn start(&self) -> Node {
        let mut program = Command::new("nsenter");
        program.args([
            "--target",
            &self.holder.id().to_string(),
            "--user",
            "--mount",
            "--preserve-credentials",
            PROGRAM,
        ]);
        Node::try_start_by(&mut program, &self.path.join("data"), &[]).unwrap_or_else(|said| panic!("{said}"))
    }

    fn bytes_free(&self) -> u64 {
        let space = statvfs(&self.path).unwrap();
        space.f_bavail * space.f_frsize
    }

    /// Leaves about so many bytes free.
    fn fill(&self, bytes_left: u64) {
        let mut filler = File::options().append(true).create(true).open(self.path.join("filler")).unwrap();
        while self.bytes_free() > bytes_left && filler.write_all(&[0; 64 << 10]).is_ok() {}
    }

    fn make_room(&self) {
        fs::remove_file(self.path.join("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        self.holder.kill().ok();
        self.holder.wait().ok();
    }
}

/// A node with something to read and something that writes.
fn prepare(node: &Node) {
    node.deploy_one("hello", "hello", json!({}));
    node.deploy_one("counter", "counter", json!({ "grants": { "stores": ["counters"] } }));
    node.deploy_one("attack", "attack", json!({ "grants": { "stores": ["attack"] } }));
    let queues = json!({ "log": {}, "once": { "deduplicate": "1d" } });
    assert_eq!(node.deploy_manifest(json!({ "queue": queues }))["step"], "done");
}

/// An event that the queue `once` takes once.
fn push_once(node: &Node) -> Reply {
    let token = format!("Bearer {}", node.token);
    let event = [("ce-specversion", "1.0"), ("ce-id", "X"), ("ce-source", "/c"), ("ce-type", "t")];
    let headers: Vec<_> = event.into_iter().chain([("authorization", token.as_str())]).collect();
    send("POST", &format!("{}/v1/queues/once/events", node.api), &headers, b"x")
}

/// The next number, or the problem.
fn count(node: &Node) -> Result<u64, Reply> {
    let reply = node.call("counter", "");
    if reply.status == 200 { Ok(reply.text().trim().parse().unwrap()) } else { Err(reply) }
}

#[track_caller]
fn is_refused(reply: &Reply, status: u16, code: &str) {
    let problem = reply.json();
    assert_eq!((reply.status, &problem["code"]), (status, &json!(code)), "{problem}");
    assert!(!problem["hint"].as_str().unwrap_or_default().is_empty(), "{problem}");
}

/// Everything that writes says the same, and what only reads does not notice.
#[track_caller]
fn only_reads(node: &Node, counted: u64, status: u16, code: &str) {
    is_refused(&count(node).unwrap_err(), status, code);
    is_refused(&node.api("POST", "/v1/queues/log/events", b"x"), status, code);
    is_refused(&node.api("PUT", "/v1/secrets/KEY", b"x"), status, code);
    let last = node.deploy(json!({ "hello": { "image": hash(&fixture("hello")), "config": { "new": "yes" } } }));
    assert_eq!((&last["step"], &last["problem"]["code"]), (&json!("failed"), &json!(code)), "{last}");
    assert!(last["problem"]["hint"].is_string(), "{last}");
    assert_eq!(node.get("/hello").text(), "hello, world\n");
    assert_eq!(node.api("GET", "/v1/functions/hello", &[]).json()["version"], 1);
    assert_eq!(node.api("GET", "/v1/buckets/counters/value?key=calls", &[]).text(), counted.to_string());
    assert_eq!(node.api("GET", "/healthz", &[]).status, 200);
}

#[track_caller]
fn metrics_say(node: &Node, lines: &[&str]) {
    let metrics = node.api("GET", "/metrics", &[]).text();
    for line in lines {
        assert!(metrics.lines().any(|have| have == *line), "{line} is not in {metrics}");
    }
}

#[test]
fn a_full_disk_stops_writes_and_nothing_else_and_loses_nothing() {
    let Some(disk) = SmallDisk::mount() else {
        println!("skipped: mount: a full disk: no file system of a fixed size can be mounted");
        return;
    };
    let node = disk.start();
    prepare(&node);
    assert_eq!(count(&node).ok(), Some(1));

    // Too little: what would be written is refused before anything happens, and taken again once there is room.
    disk.fill(RESERVE_BYTES / 2);
    let mut counted = 1;
    while let Ok(number) = count(&node) {
        counted = number;
        assert!(counted < 10, "the node never noticed");
    }
    only_reads(&node, counted, 507, "L5003");
    assert_eq!(node.api("GET", "/readyz", &[]).text(), "ok\n");
    metrics_say(&node, &["lighter_state_disk_full 1", "lighter_state_stopped 0"]);
    disk.make_room();
    counted += 1;
    assert_eq!(count(&node).ok(), Some(counted));
    metrics_say(&node, &["lighter_state_disk_full 0", "lighter_state_stopped 0"]);

    // Nothing left in the middle of a write: nobody knows what of it reached the disk.
    disk.fill(0);
    is_refused(&node.call("attack", "store-flood 8"), 507, "L5003");
    only_reads(&node, counted, 507, "L5003");
    is_refused(&node.api("GET", "/readyz", &[]), 507, "L5003");
    metrics_say(&node, &["lighter_state_disk_full 1", "lighter_state_stopped 1"]);
    let image = fixture("fibonacci");
    is_refused(&node.api("PUT", &format!("/v1/images/{}", hash(&image)), &image), 507, "L5003");
    disk.make_room();
    is_refused(&count(&node).unwrap_err(), 507, "L5003");
    node.stop();

    let node = disk.start();
    assert_eq!(node.api("GET", "/readyz", &[]).text(), "ok\n");
    assert_eq!(count(&node).ok(), Some(counted + 1));
    node.deploy_one("hello", "fibonacci", json!({}));
    assert_eq!(node.api("GET", "/v1/functions/hello", &[]).json()["version"], 2);
}

#[test]
fn a_disk_that_fails_stops_writes_until_the_node_is_started_again() {
    let folder = tempfile::tempdir().unwrap();
    // A limit on the size of files stands for the disk: a write beyond it fails, where the signal is ignored.
    let mut program = Command::new("sh");
    program.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\"", PROGRAM]);
    let node = Node::try_start_by(&mut program, folder.path(), &[]).unwrap_or_else(|said| panic!("{said}"));
    prepare(&node);
    assert_eq!(count(&node).ok(), Some(1));
    let pid = Pid::from_raw(node.pid().try_into().unwrap());
    let unlimited = prlimit(pid, Resource::Fsize, Rlimit { current: Some(1), maximum: None });
    let Ok(unlimited) = unlimited else {
        println!("skipped: root: a disk that fails: this user may not limit another process");
        return;
    };
    // Once the second one was told 201: a duplicate pushes nothing, and waited for nothing.
    is_refused(&push_once(&node), 500, "L5004");
    is_refused(&push_once(&node), 500, "L5004");
    is_refused(&count(&node).unwrap_err(), 500, "L5004");
    only_reads(&node, 1, 500, "L5004");
    is_refused(&node.api("GET", "/readyz", &[]), 500, "L5004");
    metrics_say(&node, &["lighter_state_disk_full 0", "lighter_state_stopped 1"]);
    prlimit(pid, Resource::Fsize, unlimited).unwrap();
    is_refused(&count(&node).unwrap_err(), 500, "L5004");
    node.stop();

    let node = Node::start_in(folder.path(), &[]);
    assert_eq!(node.api("GET", "/readyz", &[]).text(), "ok\n");
    // Of the first one that failed nobody knows whether it reached the disk; it was not acknowledged.
    let counted = count(&node).ok();
    assert!([Some(2), Some(3)].contains(&counted), "{counted:?}");
}
