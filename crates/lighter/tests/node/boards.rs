//! Boards as a user meets them: booted, listed, called, lost, with the node's store behind them.

use crate::support::{Node, send};
use board_link::Settings;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

struct Board(Child);

impl Board {
    /// Its beacons go where the node of the data folder listens, unless a port is given.
    fn boot(node: &Node, kind: &str, name: &str, beacon_port: Option<u16>) -> Self {
        let mut lighter = Command::new(env!("CARGO_BIN_EXE_lighter"));
        lighter.args(["boot", "--board", kind, "--name", name, "--data-folder"]).arg(&node.data);
        if let Some(port) = beacon_port {
            lighter.args(["--beacon-port", &port.to_string()]);
        }
        Self(lighter.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Board {
    /// As Ctrl-C would: QEMU must end with it.
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-INT", &self.0.id().to_string()]).status();
        let _ = self.0.wait();
    }
}

fn is_installed(program: &str) -> bool {
    let there = std::env::split_paths(&std::env::var_os("PATH").unwrap()).any(|folder| folder.join(program).is_file());
    if !there {
        println!("skipped: qemu: boards on a node: {program} is not installed");
    }
    there
}

/// A UDP port nobody uses.
fn port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn wait_for(node: &Node, name: &str, state: &str) -> Value {
    let since = Instant::now();
    loop {
        let boards = node.api("GET", "/v1/boards", &[]).json();
        let board = boards.as_array().unwrap().iter().find(|board| board["name"] == name);
        if let Some(board) = board.filter(|board| board["state"] == state) {
            return board.clone();
        }
        assert!(since.elapsed() < PATIENCE, "{name} is not {state}: {boards}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn call_on(node: &Node, function: &str, board: &str, data: &str) -> crate::support::Reply {
    let token = format!("Bearer {}", node.token);
    let headers = [("authorization", token.as_str()), ("lighter-board", board)];
    send("POST", &format!("{}/v1/functions/{function}/call", node.api), &headers, data.as_bytes())
}

#[test]
fn functions_run_on_boards_with_the_nodes_store_and_elsewhere_when_one_is_lost() {
    if !is_installed("qemu-system-aarch64") || !is_installed("qemu-system-x86_64") {
        return;
    }
    let beacons = port();
    let node = Node::start_with(&["--boards", "--beacon-port", &beacons.to_string()]);
    node.deploy_one("hello", "hello", json!({ "isolation": "metal" }));
    node.deploy_one("counter", "counter", json!({ "isolation": "metal", "grants": { "stores": ["counters"] } }));
    node.deploy_one("attack", "attack", json!({ "isolation": "metal" }));
    node.deploy_one("hang", "attack", json!({ "isolation": "metal", "limits": { "time_ms": 1_500 } }));
    let reply = node.call("hello", "you");
    assert_eq!((reply.code().as_str(), reply.status), ("L6102", 503), "{}", reply.text());

    let one = Board::boot(&node, "qemu-arm", "one", None);
    let _two = Board::boot(&node, "qemu-x86", "two", None);
    assert_eq!(wait_for(&node, "one", "attested")["architecture"], "aarch64");
    assert_eq!(wait_for(&node, "two", "attested")["architecture"], "x86_64");
    for board in ["one", "two"] {
        assert_eq!(call_on(&node, "hello", board, "you").text(), "hello, you\n", "{board}");
    }
    assert_eq!(call_on(&node, "hello", "three", "").code(), "L6101");

    // Host calls: what boards count is in the node's store, once for each call.
    for count in 1..=4 {
        let reply = node.call("counter", "");
        assert_eq!((reply.status, reply.text()), (200, format!("{count}\n")));
    }

    // What is wrong with a function is told as in every class, and undone.
    for (attack, code) in [("unreachable", "L6001"), ("memory", "L3003"), ("recurse", "L3005"), ("fatal", "L6005")] {
        assert_eq!(call_on(&node, "attack", "one", attack).code(), code, "{attack}");
    }

    // One hangs: the call ends, the board comes back by itself, and is trusted again.
    let since = Instant::now();
    assert_eq!(call_on(&node, "hang", "two", "loop").code(), "L3001");
    let uptime = || Duration::from_millis(wait_for(&node, "two", "attested")["uptime_ms"].as_u64().unwrap());
    while uptime() >= since.elapsed() {
        assert!(since.elapsed() < PATIENCE, "it did not start again");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(call_on(&node, "hello", "two", "again").text(), "hello, again\n");

    // One dies: calls go elsewhere.
    drop(one);
    for _ in 0..4 {
        assert_eq!(node.call("hello", "still").text(), "hello, still\n");
    }
    wait_for(&node, "one", "silent");
    let reply = call_on(&node, "hello", "one", "");
    assert_eq!(reply.code(), "L6102");
    assert!(reply.text().contains("is silent"), "{}", reply.text());
}

#[test]
fn a_board_of_another_node_is_heard_and_gets_no_call() {
    if !is_installed("qemu-system-x86_64") {
        return;
    }
    let beacons = port();
    let (node, other) = (Node::start_with(&["--boards", "--beacon-port", &beacons.to_string()]), Node::start());
    node.deploy_one("hello", "hello", json!({ "isolation": "metal" }));
    let _stranger = Board::boot(&other, "qemu-x86", "stranger", Some(beacons));
    wait_for(&node, "stranger", "unknown");
    let reply = call_on(&node, "hello", "stranger", "");
    assert_eq!(reply.code(), "L6101");
    assert!(reply.text().contains("is not enrolled here"), "{}", reply.text());
}

#[test]
fn a_board_that_is_named_for_a_function_of_another_class_is_refused() {
    let node = Node::start();
    node.deploy_one("hello", "hello", json!({}));
    let reply = call_on(&node, "hello", "shed", "you");
    assert_eq!((reply.code().as_str(), reply.status), ("L4009", 400), "{}", reply.text());
    assert!(reply.text().contains("isolation"), "{}", reply.text());
}

#[test]
fn a_call_whose_board_dies_under_it_ends_on_another() {
    if !is_installed("qemu-system-aarch64") {
        return;
    }
    let beacons = port();
    let node = Node::start_with(&["--boards", "--beacon-port", &beacons.to_string()]);
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = server.local_addr().unwrap().to_string();
    node.deploy_one("fetch", "fetch", json!({ "isolation": "metal", "grants": { "hosts": [host] } }));
    let one = Board::boot(&node, "qemu-arm", "one", None);
    wait_for(&node, "one", "attested");
    std::thread::scope(|scope| {
        let call = scope.spawn(|| node.call("fetch", &format!("http://{host}/")));
        // It runs on the only board there is, and waits for its answer.
        let (mut first, _) = server.accept().unwrap();
        let _two = Board::boot(&node, "qemu-arm", "two", None);
        wait_for(&node, "two", "attested");
        drop(one);
        answer(&mut first, "lost");
        answer(&mut server.accept().unwrap().0, "found");
        let reply = call.join().unwrap();
        assert_eq!((reply.status, reply.text().as_str()), (200, "200\nfound"));
        wait_for(&node, "one", "silent");
    });
}

fn answer(connection: &mut TcpStream, body: &str) {
    let _ = connection.read(&mut [0; 4_096]).unwrap();
    write!(connection, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len()).unwrap();
}

#[test]
fn a_card_is_written_whole_and_the_board_is_enrolled() {
    let node = Node::start();
    let card = node.data.join("card");
    let flash = |name: &str| {
        let mut lighter = Command::new(env!("CARGO_BIN_EXE_lighter"));
        lighter.args(["flash", "--board", "raspi3b", "--name", name, "--address", "10.0.8.2/24", "--data-folder"]);
        let output = lighter.arg(&node.data).arg("--to").arg(&card).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    flash("shed");
    let first = std::fs::read(card.join("kernel8.img")).unwrap();
    assert!(std::fs::read_to_string(card.join("config.txt")).unwrap().contains("arm_64bit=1"));
    assert!(board_names(&node).contains(&"shed".to_owned()));
    // A power cut left the file that was being written; the next flash goes over it.
    std::fs::write(card.join(".new-1"), b"half").unwrap();
    flash("shed");
    let second = std::fs::read(card.join("kernel8.img")).unwrap();
    assert_eq!(first.len(), second.len());
    let differ = first.iter().zip(&second).filter(|(a, b)| a != b).count();
    assert!(differ > 0 && differ < 4_096, "a new identity, the same kernel: {differ} bytes differ");
    assert!(!Path::new(&card).join("image.elf").exists());
}

/// Killed sooner or later, at whatever it does then: what is on the card is the image of before, or a whole new one.
#[test]
fn a_flash_that_is_cut_off_leaves_the_old_image_or_a_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let (data, card) = (folder.path().join("data"), folder.path().join("card"));
    let mut flash = Command::new(env!("CARGO_BIN_EXE_lighter"));
    flash.args(["flash", "--board", "qemu-arm", "--name", "shed", "--data-folder"]).arg(&data).arg("--to").arg(&card);
    let began = Instant::now();
    assert!(flash.output().unwrap().status.success());
    let whole = began.elapsed();
    let image = || std::fs::read(card.join("image.elf")).unwrap();
    let kernel = |bytes: Vec<u8>| board_link::Image::read(bytes).expect("a whole image").kernel();
    let first = kernel(image());
    let (mut before, mut old, mut new) = (image(), 0, 0);
    const CUTS: u32 = 60;
    for cut in 0..CUTS {
        let mut child = flash.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // The last one is let go to its end.
        if cut + 1 < CUTS {
            std::thread::sleep(whole * cut * 2 / CUTS);
            child.kill().unwrap();
        }
        child.wait().unwrap();
        let now = image();
        assert_eq!(now.len(), before.len());
        if now == before {
            old += 1;
        } else {
            // The rest of it is settings, which have a sum of their own.
            assert_eq!(kernel(now.clone()), first);
            let at = board_link::find_settings(&now).unwrap();
            let settings = Settings::read(&now[at..at + board_link::SETTINGS_BYTES]).unwrap();
            assert_eq!(settings.name, "shed");
            new += 1;
        }
        before = now;
    }
    println!("{old} times the old image, {new} times a new one");
    assert!(old > 0 && new > 0);
    assert!(flash.output().unwrap().status.success());
    assert!(image() != before);
}

fn board_names(node: &Node) -> Vec<String> {
    let boards = node.api("GET", "/v1/boards", &[]).json();
    boards.as_array().unwrap().iter().map(|board| board["name"].as_str().unwrap().to_owned()).collect()
}
