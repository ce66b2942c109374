//! Drives our node as its user would: `lighter up`, `lighter deploy`, requests to the gate.

use crate::http1::{self, Answer};
use crate::process::{self, Cores, Process};
use anyhow::{Context as _, bail};
use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a start may take until the node is ready.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a single request may take.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A running node.
pub struct Node {
    program: PathBuf,
    data: PathBuf,
    pub process: Process,
    pub gate: SocketAddr,
    pub api: SocketAddr,
    arguments: Vec<String>,
    /// From starting the program to the first good answer of `/readyz`, with the file that commands find the node by.
    pub ready: Duration,
}

impl Node {
    /// Starts a node on the folder `data`, with its defaults, and waits until it is ready.
    pub fn start(program: &Path, data: &Path, cores: Cores) -> anyhow::Result<Self> {
        Self::start_with(program, data, cores, &[])
    }

    /// The same with more arguments of `lighter up`.
    pub fn start_with(program: &Path, data: &Path, cores: Cores, arguments: &[String]) -> anyhow::Result<Self> {
        fs::create_dir_all(data)?;
        let (gate, api) = (process::free_address()?, process::free_address()?);
        let mut command = process::command(program, cores);
        command.arg("up").arg("--data-folder").arg(data).args(["--http", &gate.to_string(), "--api", &api.to_string()]);
        command.args(arguments);
        let begin = Instant::now();
        let mut process = Process::start(command, &data.with_extension("log"))?;
        let place = data.join("node.json");
        let is_ready = || {
            http1::once(api, "GET", "/readyz", b"", READY_TIMEOUT).is_ok_and(|answer| answer.status == 200)
                && place.exists()
        };
        process.wait_until(READY_TIMEOUT, is_ready).context("could not start the node")?;
        let ready = begin.elapsed();
        let (program, data, arguments) = (program.to_owned(), data.to_owned(), arguments.to_owned());
        Ok(Self { program, data, process, gate, api, arguments, ready })
    }

    /// Stops the node and starts it again on the same data.
    pub fn restart(self, cores: Cores) -> anyhow::Result<Self> {
        let (program, data, arguments) = (self.program.clone(), self.data.clone(), self.arguments.clone());
        self.process.stop().context("could not stop the node")?;
        Self::start_with(&program, &data, cores, &arguments)
    }

    /// `lighter deploy` of a project.
    pub fn deploy(&self, project: &Path) -> anyhow::Result<()> {
        let mut command = self.command();
        command.arg("deploy").arg(project);
        process::run_to_end(command).map(drop)
    }

    /// The header that lets a client of the API in.
    pub fn authorization(&self) -> anyhow::Result<String> {
        Ok(format!("authorization: Bearer {}", fs::read_to_string(self.data.join("token"))?.trim()))
    }

    /// What the API says under `path`.
    ///
    /// # Errors
    /// No reply, or one whose status is not 200.
    pub fn ask(&self, path: &str) -> anyhow::Result<serde_json::Value> {
        let headers = [self.authorization()?];
        let answer = http1::once_with(self.api, "GET", path, &headers, b"", REQUEST_TIMEOUT)
            .with_context(|| format!("GET {path} at the API"))?;
        if answer.status != 200 {
            bail!("GET {path} at the API: status {}, {}", answer.status, String::from_utf8_lossy(&answer.body));
        }
        Ok(serde_json::from_slice(&answer.body)?)
    }

    /// `lighter secret set`.
    pub fn set_secret(&self, name: &str, value: &str) -> anyhow::Result<()> {
        let mut command = self.command();
        let mut child = command.args(["secret", "set", name]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        child.stdin.take().context("stdin is a pipe")?.write_all(value.as_bytes())?;
        let status = child.wait()?;
        if !status.success() {
            bail!("lighter secret set {name} failed with {status}");
        }
        Ok(())
    }

    /// The command line, talking to this node.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env("LIGHTER_DATA", &self.data).env_remove("LIGHTER_NODE").env_remove("LIGHTER_TOKEN");
        command
    }

    /// One request to the gate, on a connection of its own.
    ///
    /// # Errors
    /// No reply, or one whose status is not 200.
    pub fn request(&self, method: &str, path: &str, body: &[u8]) -> anyhow::Result<Answer> {
        let what = || format!("{method} {path} at the gate");
        let answer = http1::once(self.gate, method, path, body, REQUEST_TIMEOUT).with_context(what)?;
        if answer.status != 200 {
            bail!("{}: status {}, {}", what(), answer.status, String::from_utf8_lossy(&answer.body));
        }
        Ok(answer)
    }

    /// Units that exist now, as `lighter ps` would count them.
    pub fn units_running(&self) -> anyhow::Result<u64> {
        let mut command = self.command();
        command.args(["ps", "--json"]);
        let units: Vec<serde_json::Value> = serde_json::from_slice(&process::run_to_end(command)?)?;
        Ok(units.len() as u64)
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.gate)
    }
}

/// A folder with a `lighter.toml` and the images it names.
#[derive(Clone)]
pub struct Project {
    folder: PathBuf,
    manifest: String,
}

impl Project {
    pub fn new(folder: PathBuf) -> anyhow::Result<Self> {
        fs::create_dir_all(&folder)?;
        Ok(Self { folder, manifest: String::new() })
    }

    /// Adds the file `NAME.wasm`, for lines of the manifest to name.
    pub fn add_image(&self, name: &str, image: &[u8]) -> anyhow::Result<()> {
        Ok(fs::write(self.folder.join(format!("{name}.wasm")), image)?)
    }

    /// Adds lines of the manifest.
    pub fn add_lines(&mut self, lines: &str) {
        self.manifest += lines;
    }

    /// Adds a function that answers requests at `/NAME`; `settings` are more lines of its table, or tables of its own.
    pub fn add(&mut self, name: &str, image: &[u8], settings: &str) -> anyhow::Result<()> {
        self.add_image(name, image)?;
        self.manifest += &format!("[function.{name}]\nimage = \"{name}.wasm\"\nhttp = \"/{name}\"\n{settings}\n");
        Ok(())
    }

    /// Writes the manifest; the folder can be deployed.
    pub fn folder(&self) -> anyhow::Result<&Path> {
        fs::write(self.folder.join("lighter.toml"), &self.manifest)?;
        Ok(&self.folder)
    }
}

/// The same component with a custom section, so that nothing that goes by hash takes two of them for one.
pub fn variant(component: &[u8], number: u32) -> Vec<u8> {
    const NAME: &[u8] = b"variant";
    let mut bytes = component.to_vec();
    // Section 0: its length, then the length of its name, its name and its content. All lengths fit one byte.
    bytes.extend_from_slice(&[0, 1 + NAME.len() as u8 + 4, NAME.len() as u8]);
    bytes.extend_from_slice(NAME);
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes
}
