//! Images that are dear to compile: what they cost the node, and whoever deploys beside them.

use crate::support::{Node, fixture, wait_for};
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::PathBuf;

#[test]
fn what_compiles_for_ever_ends_at_its_cpu_time() {
    let node = Node::start_with(&["--compile-cpu-seconds-max", "1"]);
    let last = deploy(&node, "bomb", &bomb(300, 3_000));
    assert_eq!(last["problem"]["code"], "L2019", "{last}");
    assert_eq!(deploy(&node, "hello", &fixture("hello"))["step"], "done");
    assert_eq!(held_bytes(&node), 0);
}

#[test]
fn what_takes_too_much_memory_to_compile_ends_there() {
    let node = Node::start_with(&["--memory-bytes-max", "67108864"]);
    let last = deploy(&node, "bomb", &bomb(300, 3_000));
    assert_eq!(last["problem"]["code"], "L2020", "{last}");
    assert_eq!(deploy(&node, "hello", &fixture("hello"))["step"], "done");
    assert_eq!(held_bytes(&node), 0);
}

#[test]
fn others_deploy_meanwhile_and_it_ends_with_whom_it_is_for() {
    let node = Node::start();
    let client = begin_to_deploy_a_bomb(&node);
    let compiler = wait_for("a compiler", || compilers(&node).pop());
    wait_for("it to be counted", || (held_bytes(&node) > 0).then_some(()));
    assert_eq!(deploy(&node, "hello", &fixture("hello"))["step"], "done");
    assert!(compiler.exists(), "the bomb is still being compiled");
    drop(client);
    wait_for("the end of what nobody waits for", || (!compiler.exists()).then_some(()));
    // The function is free for the next who deploys it.
    wait_for("the function", || (deploy(&node, "bomb", &fixture("hello"))["step"] == "done").then_some(()));
}

#[test]
fn the_compiler_has_no_files_no_sockets_no_secrets_and_no_life_after_the_node() {
    let node = Node::start();
    let _client = begin_to_deploy_a_bomb(&node);
    let compiler = wait_for("a compiler", || compilers(&node).pop());
    let read = |file: &str| fs::read_to_string(compiler.join(file)).unwrap();
    wait_for("the filter", || read("status").contains("Seccomp:\t2").then_some(()));
    assert_eq!(read("environ"), "");
    assert_eq!(read("oom_score_adj").trim(), "1000");
    node.kill();
    wait_for("the end of the compiler", || (!compiler.exists()).then_some(()));
}

/// The last step of the deployment of one function.
fn deploy(node: &Node, name: &str, image: &[u8]) -> Value {
    node.deploy(json!({ name: { "image": node.upload_bytes(image) } }))
}

/// A deployment that takes minutes unless the client goes.
fn begin_to_deploy_a_bomb(node: &Node) -> TcpStream {
    let manifest = json!({ "function": { "bomb": { "image": node.upload_bytes(&bomb(300, 3_000)) } } }).to_string();
    let host = node.api.trim_start_matches("http://");
    let mut client = TcpStream::connect(host).unwrap();
    let (token, length) = (&node.token, manifest.len());
    let head = format!(
        "POST /v1/deployments HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    client.write_all((head + &manifest).as_bytes()).unwrap();
    client
}

/// Where the system tells of each compiler that runs for the node.
fn compilers(node: &Node) -> Vec<PathBuf> {
    let processes = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    let parent = format!("PPid:\t{}\n", node.pid());
    let is_one = |process: &PathBuf| {
        let read = |file: &str| fs::read_to_string(process.join(file)).unwrap_or_default();
        read("cmdline").contains("compile-unit") && read("status").contains(&parent)
    };
    processes.filter(is_one).collect()
}

fn held_bytes(node: &Node) -> u64 {
    let page = node.api("GET", "/metrics", &[]).text();
    let line = page.lines().find_map(|line| line.strip_prefix("lighter_memory_bytes{for=\"compilers\"}"));
    line.expect("the purpose has a line").trim().parse().unwrap()
}

/// `hello` with one function more: loops in loops around locals, all of which live everywhere.
fn bomb(depth: usize, locals_count: usize) -> Vec<u8> {
    const CORE_MODULE: u8 = 1;
    let mut is_first = true;
    rewritten(&fixture("hello"), |number, body| match number {
        CORE_MODULE if std::mem::take(&mut is_first) => with_function(body, &function(depth, locals_count)),
        _ => body.to_vec(),
    })
}

fn with_function(module: &[u8], function: &[u8]) -> Vec<u8> {
    const TYPES: u8 = 1;
    const FUNCTIONS: u8 = 3;
    const CODE: u8 = 10;
    let mut type_index = 0;
    rewritten(module, |number, body| match number {
        TYPES => {
            type_index = read_leb(body).0;
            appended(body, b"\x60\0\0")
        }
        FUNCTIONS => appended(body, &leb(type_index)),
        CODE => appended(body, &[leb(function.len()), function.to_vec()].concat()),
        _ => body.to_vec(),
    })
}

fn function(depth: usize, locals_count: usize) -> Vec<u8> {
    let mut code = [&[1], &*leb(locals_count), &[0x7F], &*[3, 0x40].repeat(depth)].concat();
    for local in 0..locals_count {
        let (next, local) = (leb((local + 1) % locals_count), leb(local));
        // local = next + local
        code.extend([&[0x20], &*next, &[0x20], &*local, &[0x6A, 0x21], &*local].concat());
    }
    for level in 0..depth {
        code.extend([&[0x20], &*leb(level % locals_count), &[0x0D, 0, 0x0B]].concat());
    }
    code.push(0x0B);
    code
}

/// The same component or module, each section as `section` wants it.
fn rewritten(binary: &[u8], mut section: impl FnMut(u8, &[u8]) -> Vec<u8>) -> Vec<u8> {
    let (head, mut rest) = binary.split_at(8);
    let mut written = head.to_vec();
    while let [number, more @ ..] = rest {
        let (bytes, length) = read_leb(more);
        let (body, after) = more[length..].split_at(bytes);
        let body = section(*number, body);
        written.push(*number);
        written.extend(leb(body.len()));
        written.extend(body);
        rest = after;
    }
    written
}

/// A vector with one item more.
fn appended(vector: &[u8], item: &[u8]) -> Vec<u8> {
    let (count, length) = read_leb(vector);
    [&leb(count + 1), &vector[length..], item].concat()
}

fn leb(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// A number and how many bytes it takes.
fn read_leb(bytes: &[u8]) -> (usize, usize) {
    let length = bytes.iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
    let number = bytes[..length].iter().rev().fold(0, |number, byte| number << 7 | usize::from(byte & 0x7F));
    (number, length)
}
