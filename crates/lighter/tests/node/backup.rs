//! A node backed up while it works, and restored elsewhere: nothing is missing, and nothing is there twice.

use crate::support::{Node, PROGRAM, fixture, hash, send};
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

const EVENTS: u64 = 400;

/// Runs the program; its exit code, and the documents it wrote to both outputs.
fn lighter(data: &Path, words: &[&str]) -> (i32, Value) {
    let mut command = Command::new(PROGRAM);
    command.args(words).arg("--json").env("LIGHTER_DATA", data).env_remove("LIGHTER_NODE").env_remove("LIGHTER_TOKEN");
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = if output.status.success() { &output.stdout } else { &output.stderr };
    let said = serde_json::from_slice(text).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (output.status.code().unwrap(), said)
}

fn deploy_counter(node: &Node) {
    let counter = json!({ "image": node.upload("counter"), "queue": "counts", "grants": { "stores": ["counters"] } });
    let last = node.deploy_manifest(json!({ "function": { "counter": counter } }));
    assert_eq!(last["step"], "done", "{last}");
}

/// What the counter has counted for the key, without counting itself.
fn counted(node: &Node, key: &str) -> u64 {
    let reply = node.api("GET", &format!("/v1/buckets/counters/value?key={key}"), &[]);
    if reply.status == 404 { 0 } else { reply.text().trim().parse().unwrap() }
}

/// Each event counts once. A backup in the middle of the work holds each pushed event either as counted or as waiting.
#[test]
fn a_backup_under_load_restores_to_a_node_that_ends_the_same_work() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("node.backup");
    let file = file.to_str().unwrap();
    let node = Node::start_in(&folder.path().join("data"), &[]);
    deploy_counter(&node);
    let (confirmed, ends) = (AtomicU64::new(0), AtomicBool::new(false));
    let pushed_before = std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..EVENTS {
                let reply = node.push("counts", &format!("id={number}"), "k");
                assert_eq!(reply.status, 201, "{}", reply.text());
                confirmed.fetch_add(1, SeqCst);
            }
            ends.store(true, SeqCst);
        });
        while confirmed.load(SeqCst) < EVENTS / 4 {
            std::thread::yield_now();
        }
        let before = confirmed.load(SeqCst);
        let (status, said) = lighter(&node.data, &["backup", file]);
        assert_eq!(status, 0, "{said}");
        assert_eq!((&said["images"], &said["is_sealed"]), (&json!(1), &json!(false)));
        assert_eq!(said["bytes"].as_u64().unwrap(), fs::metadata(file).unwrap().len());
        before
    });
    assert_eq!(node.drained("counts")["acked"], EVENTS);
    assert_eq!(counted(&node, "k"), EVENTS);
    node.kill();

    let data = folder.path().join("restored");
    let (status, said) = lighter(&data, &["restore", file]);
    assert_eq!(status, 0, "{said}");
    let restored = Node::start_in(&data, &[]);
    restored.drained("counts");
    let counted_then = counted(&restored, "k");
    assert!((pushed_before..=EVENTS).contains(&counted_then), "{counted_then} of at least {pushed_before}");
    // The same events again: those that the backup had are known by their ids no more than before, but count is count.
    assert_eq!(restored.call("counter", "k").text().trim().parse::<u64>().unwrap(), counted_then + 1);
}

#[test]
fn a_node_that_is_killed_in_the_middle_leaves_no_backup_and_the_older_one_stays() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("node.backup");
    let node = Node::start_in(&folder.path().join("data"), &[]);
    deploy_counter(&node);
    let large = vec![b'x'; 1_000_000];
    for number in 0..40 {
        let reply = node.api("PUT", &format!("/v1/buckets/large/value?key={number}"), &large);
        assert_eq!(reply.status, 204, "{}", reply.text());
    }
    assert_eq!(lighter(&node.data, &["backup", file.to_str().unwrap()]).0, 0);
    let whole = fs::read(&file).unwrap();
    let mut child = Command::new(PROGRAM)
        .args(["backup", file.to_str().unwrap(), "--json", "--data-folder"])
        .arg(&node.data)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let partial = folder.path().join("node.backup.partial");
    // As soon as some of it has come, and long before all has.
    while fs::metadata(&partial).map_or(0, |partial| partial.len()) < 1_000_000 {
        assert!(child.try_wait().unwrap().is_none() || partial.exists(), "it ended before it was looked at");
    }
    let data = node.data.clone();
    node.kill();
    let output = child.wait_with_output().unwrap();
    if output.status.success() {
        // It had all of it before the node was gone; then it is whole.
        println!("the backup was faster than the kill");
    } else {
        let said: Value = serde_json::from_slice(&output.stderr).unwrap();
        assert!(["L5021", "L1102"].contains(&said["code"].as_str().unwrap()), "{said}");
        assert_eq!(fs::read(&file).unwrap(), whole, "the older backup is as it was");
        // What came is named as what it is, before anything is made of it.
        let (status, said) = lighter(&folder.path().join("other"), &["restore", partial.to_str().unwrap()]);
        assert_eq!((status, said["code"].as_str()), (1, Some("L5021")), "{said}");
        assert!(!folder.path().join("other").exists());
    }
    assert_eq!(counted(&Node::start_in(&data, &[]), "k"), 0, "the node starts again");
    assert_eq!(lighter(&folder.path().join("other"), &["restore", file.to_str().unwrap()]).0, 0);
    let restored = Node::start_in(&folder.path().join("other"), &[]);
    assert_eq!(restored.api("GET", "/v1/buckets/large/value?key=39", &[]).body, large);
    assert_eq!(restored.call("counter", "k").text().trim(), "1");
}

#[test]
fn a_restore_that_is_killed_leaves_nothing_to_start_and_is_done_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("node.backup");
    let file = file.to_str().unwrap();
    let node = Node::start_in(&folder.path().join("data"), &[]);
    for number in 0..60 {
        node.api("PUT", &format!("/v1/buckets/large/value?key={number}"), &vec![number; 1_000_000]);
    }
    assert_eq!(lighter(&node.data, &["backup", file]).0, 0);
    let data = folder.path().join("restored");
    let mut killed = 0;
    for round in 0..4_u64 {
        let mut child = Command::new(PROGRAM).args(["restore", file, "--data-folder"]).arg(&data).spawn().unwrap();
        // Each time somewhat later, by what it has done and not by a clock.
        let wanted = 1 + round * 12_000_000;
        while child.try_wait().unwrap().is_none() && size(&data.join("restoring")) < wanted {}
        child.kill().ok();
        if child.wait().unwrap().success() {
            break;
        }
        killed += 1;
        let said = Node::try_start(&data, &[]).err().unwrap();
        assert!(said.contains("L5024"), "{said}");
    }
    assert!(killed > 0, "no restore was killed before its end");
    if !data.join("state").exists() {
        assert_eq!(lighter(&data, &["restore", file]).0, 0);
    }
    let restored = Node::start_in(&data, &[]);
    for number in [0, 31, 59] {
        let reply = restored.api("GET", &format!("/v1/buckets/large/value?key={number}"), &[]);
        assert!(reply.body == vec![number; 1_000_000], "{number}");
    }
}

#[test]
fn a_pipe_is_read_once_and_a_backup_cut_short_leaves_nothing_to_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("node.backup");
    let node = Node::start_in(&folder.path().join("data"), &[]);
    deploy_counter(&node);
    assert_eq!(lighter(&node.data, &["backup", file.to_str().unwrap()]).0, 0);
    let (whole, data) = (fs::read(&file).unwrap(), folder.path().join("restored"));
    let restore = |bytes: &[u8]| {
        let mut command = Command::new(PROGRAM);
        command.args(["restore", "/dev/stdin", "--json", "--data-folder"]).arg(&data);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(bytes).unwrap();
        child.wait_with_output().unwrap()
    };
    let cut = restore(&whole[..whole.len() - 1]);
    assert!(String::from_utf8_lossy(&cut.stderr).contains("L5021"), "{cut:?}");
    let said = Node::try_start(&data, &[]).err().unwrap();
    assert!(said.contains("L5024") && said.contains("restoring"), "{said}");
    let done = restore(&whole);
    assert!(done.status.success(), "{done:?}");
    assert_eq!(Node::start_in(&data, &[]).call("counter", "k").text().trim(), "1");
}

/// Bytes of all files below.
fn size(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let bytes = |entry: fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => size(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    };
    entries.flatten().map(bytes).sum()
}

#[test]
fn secrets_are_left_out_by_name_or_sealed_and_never_in_the_clear() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let node = Node::start_in(&folder.path().join("data"), &[]);
    assert_eq!(node.api("PUT", "/v1/secrets/API_KEY", b"very secret value").status, 204);
    node.deploy_one("f", "hello-wasmcloud", json!({ "http": "/*", "grants": { "secrets": ["API_KEY"] } }));
    assert_eq!(node.get("/config/API_KEY").text(), "very secret value");
    fs::write(path("passphrase"), "open sesame\n").unwrap();
    fs::write(path("other"), "open barley\n").unwrap();

    let (status, said) = lighter(&node.data, &["backup", &path("plain")]);
    let left_out = ["the secret API_KEY", "the key that ids of results are made with", "the keys of boards"];
    assert_eq!((status, &said["left_out"]), (0, &json!(left_out)));
    let sealing = ["backup", &path("sealed"), "--passphrase-file", &path("passphrase")];
    let (status, said) = lighter(&node.data, &sealing);
    assert_eq!((status, &said["left_out"], &said["is_sealed"]), (0, &json!([]), &json!(true)));
    for file in ["plain", "sealed"] {
        let bytes = fs::read(path(file)).unwrap();
        assert!(!bytes.windows(17).any(|some| some == b"very secret value"), "{file}");
    }
    let local = node.token.clone();
    drop(node);

    let restore = |data: &str, words: &[&str]| lighter(Path::new(&path(data)), &[&["restore"], words].concat());
    for (words, code) in [
        (&[path("sealed").as_str()][..], "L5023"),
        (&[&path("sealed"), "--passphrase-file", &path("other")], "L5023"),
        (&[&path("plain"), "--passphrase-file", &path("passphrase")], "L1101"),
        (&[&path("passphrase")], "L5021"),
        (&[&path("nothing")], "L1107"),
    ] {
        assert_eq!(restore("refused", words).1["code"], code, "{words:?}");
    }
    drop(Node::start_in(Path::new(&path("refused")), &[]));
    assert_eq!(restore("whole", &[&path("sealed"), "--passphrase-file", &path("passphrase")]).0, 0);
    let whole = Node::start_in(Path::new(&path("whole")), &[]);
    assert_eq!(whole.get("/config/API_KEY").text(), "very secret value");
    // The folder's own token is not in a backup: whoever has the file is not let in by it.
    assert_ne!(whole.token, local);
    for (data, words) in [("a", &[path("plain").as_str()][..]), ("b", &[&path("sealed"), "--without-secrets"])] {
        assert_eq!(restore(data, words).0, 0);
        let without = Node::start_in(Path::new(&path(data)), &[]);
        assert_eq!(without.get("/config/API_KEY").status, 404, "{data}");
        assert_eq!(without.api("GET", "/v1/secrets", &[]).json(), json!([]));
    }
}

/// It was sent to the place of a result that never came.
#[test]
fn a_call_sent_again_after_a_restore_without_keys_learns_that_its_result_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let node = Node::start_in(&folder.path().join("data"), &[]);
    let grants = json!({ "stores": ["counters"] });
    let route = json!({ "route": "/once", "async": true });
    let once = json!({ "image": node.upload("counter"), "http": route, "grants": grants });
    let manifest = json!({ "function": { "once": once }, "queue": { "once": { "deduplicate": "1h" } } });
    assert_eq!(node.deploy_manifest(manifest)["step"], "done");
    let call = |node: &Node| send("POST", &format!("{}/once", node.gate), &[("idempotency-key", "order-7")], b"k");
    let location = call(&node).headers["location"].clone();
    assert_eq!(call(&node).headers["location"], location);
    node.drained("once");
    fs::write(path("passphrase"), "open sesame\n").unwrap();
    let sealed = [path("sealed"), "--passphrase-file".to_owned(), path("passphrase")];
    for words in [&[path("plain")][..], &sealed] {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        assert_eq!(lighter(&node.data, &[&["backup"], &words[..]].concat()).0, 0);
        let data = folder.path().join(format!("of-{}", words.len()));
        assert_eq!(lighter(&data, &[&["restore"], &words[..]].concat()).0, 0);
        let restored = Node::start_in(&data, &[]);
        let again = call(&restored);
        let expected = if words.len() == 1 { json!([null]) } else { json!([location]) };
        assert_eq!((again.status, &again.json()["results"]), (202, &expected));
        assert_eq!(again.headers.get("location"), Some(&location).filter(|_| words.len() > 1));
        restored.drained("once");
        assert_eq!(counted(&restored, "k"), 1, "it ran once");
    }
}

/// One lost image, were it of an old version, made each later backup fail.
#[test]
fn a_damaged_image_is_left_out_by_name_of_the_next_backup() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("node.backup");
    let node = Node::start_in(&folder.path().join("data"), &[]);
    deploy_counter(&node);
    node.deploy_one("f", "hello-wasmcloud", json!({}));
    let hash = hash(&fixture("hello-wasmcloud"));
    let image = node.data.join(format!("warehouse/images/{}/{hash}.wasm", &hash[..2]));
    fs::remove_file(&image).unwrap();
    fs::write(&image, "something else").unwrap();
    let back_up = || lighter(&node.data, &["backup", file.to_str().unwrap()]);
    let (status, said) = back_up();
    assert_ne!(status, 0, "it is found out while the backup is made: {said}");
    let (status, said) = back_up();
    assert_eq!((status, &said["images"]), (0, &json!(1)), "{said}");
    assert!(said["left_out"].as_array().unwrap().contains(&json!("the image of version 1 of f")), "{said}");
    let data = folder.path().join("restored");
    assert_eq!(lighter(&data, &["restore", file.to_str().unwrap()]).0, 0);
    assert_eq!(Node::start_in(&data, &[]).call("counter", "k").text().trim(), "1");
}

#[test]
fn an_image_above_a_lowered_limit_is_a_reason_to_begin_no_backup() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("node.backup");
    let node = Node::start_in(&folder.path().join("data"), &[]);
    deploy_counter(&node);
    let data = node.data.clone();
    node.kill();
    let node = Node::start_in(&data, &["--image-bytes-max", "1024"]);
    let (status, said) = lighter(&node.data, &["backup", file.to_str().unwrap()]);
    assert_eq!((status, &said["code"]), (1, &json!("L2005")), "{said}");
    assert!(!file.exists());
    assert_eq!(node.call("counter", "k").text().trim(), "1", "what was deployed before goes on");
}

#[test]
fn a_folder_in_use_or_with_data_and_a_backup_of_a_newer_format_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("node.backup");
    let node = Node::start_in(&folder.path().join("data"), &[]);
    assert_eq!(lighter(&node.data, &["backup", file.to_str().unwrap()]).0, 0);
    let (status, said) = lighter(&node.data, &["restore", file.to_str().unwrap()]);
    assert_eq!((status, said["code"].as_str()), (1, Some("L5001")), "{said}");
    let data = node.data.clone();
    node.stop();
    let (_, said) = lighter(&data, &["restore", file.to_str().unwrap()]);
    assert_eq!(said["code"], "L1105", "{said}");
    let bytes = fs::read(&file).unwrap();
    assert!(bytes.starts_with(b"lighter backup 1\n"));
    fs::write(&file, [b"lighter backup 7\n", &bytes[17..]].concat()).unwrap();
    let (_, said) = lighter(&folder.path().join("new"), &["restore", file.to_str().unwrap()]);
    assert_eq!(said["code"], "L5022", "{said}");
    assert!(said["detail"].as_str().unwrap().contains("format 7"), "{said}");
    assert!(!folder.path().join("new").exists(), "it was looked at before anything was made");
}
