//! Starts nodes and talks to them.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Nothing here takes longer unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_lighter");

pub struct Node {
    process: Child,
    pub data: PathBuf,
    pub api: String,
    pub gate: String,
    /// Address of the MQTT gate; empty without `--mqtt`.
    pub mqtt: String,
    pub token: String,
    /// What it has written to standard error so far, line by line.
    pub said: Arc<Mutex<Vec<String>>>,
    /// Last, so that the folder outlives the process.
    _folder: Option<TempDir>,
}

pub struct Reply {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {:?}", self.text()))
    }

    /// `L2001`; empty if it is no problem.
    pub fn code(&self) -> String {
        match self.headers.get("content-type").map(String::as_str) {
            Some("application/problem+json") => self.json()["code"].as_str().unwrap().to_owned(),
            _ => String::new(),
        }
    }

    /// The documents of a stream.
    pub fn lines(&self) -> Vec<Value> {
        self.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Node {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    pub fn start_with(options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut node = Self::start_in(&folder.path().join("data"), options);
        node._folder = Some(folder);
        node
    }

    pub fn start_in(data: &Path, options: &[&str]) -> Self {
        Self::try_start(data, options).unwrap_or_else(|said| panic!("the node did not start: {said}"))
    }

    /// What it said if it did not become ready.
    pub fn try_start(data: &Path, options: &[&str]) -> Result<Self, String> {
        Self::try_start_by(&mut Command::new(PROGRAM), data, options)
    }

    /// Started by another program, which becomes this one: the command up to its name.
    pub fn try_start_by(program: &mut Command, data: &Path, options: &[&str]) -> Result<Self, String> {
        let mut process = program
            .args(["up", "--api", "127.0.0.1:0", "--data-folder"])
            .arg(data)
            .args(options)
            .args(if options.contains(&"--http") { &[][..] } else { &["--http", "127.0.0.1:0"] })
            .args(if options.contains(&"--log") { &[][..] } else { &["--log", "warn"] })
            .env_remove("LIGHTER_DATA")
            .env_remove("LIGHTER_LOG")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(process.stderr.take().unwrap());
        let said = Arc::<Mutex<Vec<String>>>::default();
        let (sender, receiver) = mpsc::channel();
        let heard = said.clone();
        std::thread::spawn(move || {
            // Reads to the end, so that the node never waits for us.
            for line in stderr.lines().map_while(Result::ok) {
                let is_ready = line.contains("lighter ready");
                heard.lock().unwrap().push(line);
                if is_ready {
                    sender.send(()).ok();
                }
            }
        });
        if receiver.recv_timeout(PATIENCE).is_ok() {
            let place: Value = serde_json::from_slice(&fs::read(data.join("node.json")).unwrap()).unwrap();
            let word = |key: &str| place[key].as_str().unwrap().to_owned();
            let token = fs::read_to_string(data.join("token")).unwrap().trim().to_owned();
            let (api, gate) = (word("api"), word("gate"));
            let mqtt = place["mqtt"].as_str().unwrap_or_default().to_owned();
            return Ok(Self { process, data: data.to_owned(), api, gate, mqtt, token, said, _folder: None });
        }
        process.kill().ok();
        process.wait().ok();
        let said = said.lock().unwrap().join("\n");
        Err(said)
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// As a power cut would, as far as this process is concerned.
    pub fn kill(mut self) -> Option<TempDir> {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self._folder.take()
    }

    /// Asks it to end, and waits until it has.
    pub fn stop(mut self) -> Option<TempDir> {
        assert_eq!(self.api("POST", "/v1/stop", &[]).status, 202);
        assert!(self.process.wait().unwrap().success());
        self._folder.take()
    }

    /// Waits until the process has ended by itself.
    pub fn wait(&mut self) -> bool {
        self.process.wait().unwrap().success()
    }

    pub fn api(&self, method: &str, path: &str, body: &[u8]) -> Reply {
        let token = format!("Bearer {}", self.token);
        send(method, &format!("{}{path}", self.api), &[("authorization", &token)], body)
    }

    pub fn get(&self, path: &str) -> Reply {
        send("GET", &format!("{}{path}", self.gate), &[], &[])
    }

    /// Uploads a fixture and returns its hash.
    pub fn upload(&self, image: &str) -> String {
        self.upload_bytes(&fixture(image))
    }

    pub fn upload_bytes(&self, bytes: &[u8]) -> String {
        let hash = hash(bytes);
        let reply = self.api("PUT", &format!("/v1/images/{hash}"), bytes);
        assert_eq!(reply.status, 201, "{}", reply.text());
        hash
    }

    /// Memory of its own that it has now.
    pub fn rss_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let kilobytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        kilobytes.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    /// Deploys `{name: function}` and returns the last step.
    pub fn deploy(&self, functions: Value) -> Value {
        self.deploy_manifest(json!({ "function": functions }))
    }

    /// Deploys a whole manifest and returns the last step.
    pub fn deploy_manifest(&self, manifest: Value) -> Value {
        let reply = self.api("POST", "/v1/deployments", manifest.to_string().as_bytes());
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.lines().pop().unwrap()
    }

    /// Deploys one fixture under a route of its name.
    pub fn deploy_one(&self, name: &str, image: &str, more: Value) {
        let mut function = json!({ "image": self.upload(image), "http": format!("/{name}") });
        for (key, value) in more.as_object().unwrap() {
            function[key] = value.clone();
        }
        let last = self.deploy(json!({ name: function }));
        assert_eq!(last["step"], "done", "{last}");
    }

    pub fn call(&self, function: &str, data: &str) -> Reply {
        self.api("POST", &format!("/v1/functions/{function}/call"), data.as_bytes())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// Asks until the answer is there; `what` it is to be is said when it never comes.
#[track_caller]
pub fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        match ask() {
            Some(answer) => return answer,
            None => assert!(since.elapsed() < PATIENCE, "{what} did not come"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn send(method: &str, url: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
    let agent: ureq::Agent =
        ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(PATIENCE)).build().into();
    let mut request = ureq::http::Request::builder().method(method).uri(url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut reply = agent.run(request.body(body).unwrap()).unwrap_or_else(|error| panic!("{method} {url}: {error}"));
    let text = |value: &ureq::http::HeaderValue| value.to_str().unwrap().to_owned();
    Reply {
        status: reply.status().as_u16(),
        headers: reply.headers().iter().map(|(name, value)| (name.to_string(), text(value))).collect(),
        body: reply.body_mut().read_to_vec().unwrap(),
    }
}

pub fn fixture(image: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../guests/prebuilt/{image}.wasm"));
    let read = |path: &Path| fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let packed = path.with_extension("wasm.xz");
    if !packed.exists() {
        return read(&path);
    }
    let mut image = Vec::new();
    lzma_rust2::XzReader::new(&read(&packed)[..], false).read_to_end(&mut image).unwrap();
    image
}

pub fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
