//! The programs we are measured beside: where they are, and how each is started to answer HTTP.

use crate::http1;
use crate::process::{self, Cores, Process};
use anyhow::{Context as _, bail};
use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How long a server may take until it answers.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// What `benchmarks/peers` found.
pub struct Peers {
    found: BTreeMap<String, Peer>,
    cache: PathBuf,
}

struct Peer {
    program: PathBuf,
    /// Its version, or why it is missing.
    note: String,
}

impl Peers {
    /// Reads the lines `NAME <tab> PATH or - <tab> note`.
    pub fn read(list: &Path, cache: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(list).with_context(|| format!("could not read {}", list.display()))?;
        let mut found = BTreeMap::new();
        for line in text.lines() {
            let mut fields = line.splitn(3, '\t');
            let (Some(name), Some(program), Some(note)) = (fields.next(), fields.next(), fields.next()) else {
                bail!("{} has the line {line:?}, which is not NAME PATH NOTE", list.display());
            };
            found.insert(name.to_owned(), Peer { program: program.into(), note: note.to_owned() });
        }
        Ok(Self { found, cache: cache.to_owned() })
    }

    /// The peers that are there, and those that are not, each with its note.
    pub fn notes(&self) -> impl Iterator<Item = (&str, bool, &str)> {
        self.found.iter().map(|(name, peer)| (name.as_str(), peer.program != Path::new("-"), peer.note.as_str()))
    }

    /// Where a peer is.
    ///
    /// # Errors
    /// It is missing; the error says why.
    pub fn program(&self, name: &str) -> anyhow::Result<&Path> {
        match self.found.get(name) {
            Some(peer) if peer.program != Path::new("-") => Ok(&peer.program),
            Some(peer) => bail!("{name} is missing: {}", peer.note),
            None => bail!("{name} is missing: nobody looked for it"),
        }
    }

    /// A bare hyper server whose replies have this body.
    pub fn hyper(&self, body: &str, cores: Cores, work: &Path) -> anyhow::Result<Server> {
        let address = process::free_address()?;
        let mut command = process::command(std::env::current_exe()?, cores);
        command.args(["hyper", &address.to_string(), "--body", body]);
        Server::start("hyper", command, address, work)
    }

    /// `wasmtime serve` of a component compiled ahead of time, with its defaults: the pooling allocator, and for a
    /// `wasi:http` 0.2 component a fresh instance for each request, which is stated all the same.
    pub fn wasmtime_serve(&self, component: &Path, cores: Cores, work: &Path) -> anyhow::Result<Server> {
        let program = self.program("wasmtime")?;
        let compiled = self.compiled(program, component)?;
        let address = process::free_address()?;
        let mut command = process::command(program, cores);
        // `-S cli`: the imports that components from other languages' toolchains have beside those of a proxy.
        command.args(["serve", "-S", "cli", "--allow-precompiled", "--max-instance-reuse-count", "1"]);
        command.args(["--addr", &address.to_string()]).arg(compiled);
        Server::start("wasmtime-serve", command, address, work)
    }

    /// The component as wasmtime compiles it, kept from one run to the next.
    fn compiled(&self, program: &Path, component: &Path) -> anyhow::Result<PathBuf> {
        let bytes = fs::read(component).with_context(|| format!("could not read {}", component.display()))?;
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        // What one version has compiled, another one refuses.
        let version = Command::new(program).arg("--version").output()?.stdout;
        version.hash(&mut hasher);
        let compiled = self.cache.join(format!("{:016x}.cwasm", hasher.finish()));
        if !compiled.exists() {
            let partial = compiled.with_extension("partial");
            let mut command = Command::new(program);
            command.arg("compile").arg("-o").arg(&partial).arg(component);
            process::run_to_end(command)?;
            fs::rename(&partial, &compiled)?;
        }
        Ok(compiled)
    }

    /// workerd with a worker that answers every request with this body.
    pub fn workerd(&self, body: &str, cores: Cores, work: &Path) -> anyhow::Result<Server> {
        let program = self.program("workerd")?;
        let address = process::free_address()?;
        let script = format!(
            "export default {{\n  async fetch() {{\n    return new Response({}, {{ headers: {{ \"content-type\": \"text/plain\" }} }});\n  }},\n}};\n",
            serde_json::to_string(body)?
        );
        let config = format!(
            "using Workerd = import \"/workerd/workerd.capnp\";\n\
             const config :Workerd.Config = (\n  services = [(name = \"hello\", worker = .hello)],\n  \
             sockets = [(name = \"http\", address = \"{address}\", http = (), service = \"hello\")],\n);\n\
             const hello :Workerd.Worker = (\n  modules = [(name = \"hello.js\", esModule = embed \"hello.js\")],\n  \
             compatibilityDate = \"2025-01-01\",\n);\n"
        );
        fs::write(work.join("hello.js"), script)?;
        fs::write(work.join("hello.capnp"), config)?;
        let mut command = process::command(program, cores);
        command.arg("serve").arg(work.join("hello.capnp"));
        Server::start("workerd", command, address, work)
    }
}

/// A peer that answers HTTP.
pub struct Server {
    pub process: Process,
    pub address: SocketAddr,
}

impl Server {
    fn start(name: &str, command: Command, address: SocketAddr, work: &Path) -> anyhow::Result<Self> {
        let mut process = Process::start(command, &work.join(format!("{name}-{}.log", address.port())))?;
        let answers = || http1::once(address, "GET", "/", b"", READY_TIMEOUT).is_ok_and(|answer| answer.status == 200);
        process.wait_until(READY_TIMEOUT, answers).with_context(|| format!("could not start {name}"))?;
        Ok(Self { process, address })
    }

    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }
}
