//! Every component among the prebuilt ones runs in each class that runs components, but for those made not to.

use super::stage::{Stage, image, stage_of};
use event::Event;
use handling::{Call, Content, Work};
use manifest::Name;
use problem::{Code, Problem};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Made to be refused, or to fail when they are started.
const MISFITS: [&str; 6] = [
    "core-module.wasm",
    "wrong-world.wasm",
    "unknown-import.wasm",
    "start-calls.wasm",
    "start-loop.wasm",
    "start-trap.wasm",
];

/// `toolchains.rs` runs these: compiling one takes up to a minute.
const LARGE: [&str; 3] = ["hello-go.wasm.xz", "hello-js.wasm.xz", "hello-py.wasm.xz"];

/// For WASI 0.3, which the class `wasm` alone runs: `http03.rs` does.
const WASI03: [&str; 6] = [
    "attack-http03.wasm",
    "echo-http03.wasm",
    "fetch-http03.wasm",
    "hello-http03.wasm",
    "hello-spin03.wasm.xz",
    "kv-http03.wasm",
];

/// A module for WASI 0.1, of which `lighter deploy` makes a component; the tests of the node run that.
const MODULE: &str = "hello-spin.wasm.xz";

/// Says which compiler made the others.
const NOTE: &str = "compiler";

enum Asked {
    /// An event with this data; how the reply begins.
    Event(&'static str, &'static str),
    /// An event with this data; how it fails.
    Fails(&'static str, Code),
    /// Method, path, body; the status of the reply, and how it begins.
    Request(&'static str, &'static str, &'static str, u16, &'static str),
}

const ASKED: [(&str, Asked); 20] = [
    ("arithmetic.wasm", Asked::Event("integer 3", "")),
    ("attack.wasm", Asked::Event("remember", "1")),
    ("attack-http.wasm", Asked::Request("GET", "/", "", 404, "see the source")),
    ("compute.wasm", Asked::Event("fibonacci 1", "10946")),
    ("counter.wasm", Asked::Event("", "1\n")),
    ("drafts-http.wasm", Asked::Request("GET", "/get/a", "", 404, "")),
    ("echo-http.wasm", Asked::Request("POST", "/", "echo", 200, "echo")),
    ("fetch.wasm", Asked::Fails("http://127.0.0.1:1/", Code::UnitFatal)),
    ("fetch-http.wasm", Asked::Request("GET", "/?url=http://127.0.0.1:1/", "", 502, "")),
    ("fibonacci.wasm", Asked::Event("10", "55\n")),
    ("hello.wasm", Asked::Event("you", "hello, you\n")),
    ("hello-http.wasm", Asked::Request("GET", "/", "", 200, "hello")),
    ("hello-wasmcloud.wasm.xz", Asked::Request("POST", "/hello", "you", 200, "hello from wasmCloud: you\n")),
    ("kv-http.wasm", Asked::Request("GET", "/keys/a", "", 404, "there is none")),
    ("md5.wasm", Asked::Event("2", "")),
    ("probe.wasm", Asked::Event("sleep 1", "")),
    ("relay.wasm", Asked::Event("passed on", "")),
    ("sift.wasm", Asked::Event("{\"co2\":1200}", "high")),
    ("start-random.wasm", Asked::Event("", "")),
    ("table-grow.wasm", Asked::Event("", "refused\n")),
];

fn component(name: &str) -> Vec<u8> {
    if name.ends_with(".xz") { super::toolchains::unpacked(name) } else { image(name) }
}

impl Stage {
    async fn event(&self, data: &str) -> Result<Vec<u8>, Problem> {
        let event = Event { kind: "test".into(), attempt: 1, data: data.into(), ..Event::default() };
        let deadline = Instant::now() + Duration::from_secs(60);
        let call = Call { request_id: "test".into(), work: Work::Event(event), deadline, lease: None };
        match self.handler.handle(self.prepared.clone(), call, self.ended.clone()).await?.content {
            Content::Bytes(bytes) => Ok(bytes.to_vec()),
            Content::Http(_) => panic!("a function that takes events replies with bytes"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_prebuilt_component_runs_but_for_those_made_not_to() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../guests/prebuilt");
    let others = [&MISFITS[..], &LARGE[..], &WASI03[..], &[MODULE, NOTE]].concat();
    for file in std::fs::read_dir(folder).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        assert!(
            others.contains(&&*name) || ASKED.iter().any(|(asked, _)| *asked == name),
            "{name}: nobody says how to ask it"
        );
    }
    for (name, asked) in ASKED {
        let stage = stage_of(name, &component(name), |function| {
            function.grants.stores = vec!["default".into(), "counters".into()];
            function.grants.push = vec![Name::try_from("out".to_owned()).unwrap()];
        });
        stage.handler.try_start(&stage.prepared).await.unwrap_or_else(|problem| panic!("{name}: {problem}"));
        match asked {
            Asked::Event(data, begins) => {
                let reply = stage.event(data).await.unwrap_or_else(|problem| panic!("{name}: {problem}"));
                assert!(reply.starts_with(begins.as_bytes()), "{name}: {:?}", String::from_utf8_lossy(&reply));
            }
            Asked::Fails(data, code) => assert_eq!(stage.event(data).await.unwrap_err().code, code, "{name}"),
            Asked::Request(method, path, body, status, begins) => {
                let reply = stage.text(method, path, body).await;
                assert!(reply.0 == status && reply.1.starts_with(begins), "{name}: {reply:?}");
            }
        }
    }
}
