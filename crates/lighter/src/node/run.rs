//! The life of a node: open, restore, listen, say so, wait, drain, end.

use super::access::Access;
use super::body::BodyRoom;
use super::config::{Config, LogFormat, TlsFiles};
use super::events::{Events, SinkKinds};
use super::functions::{Functions, Loader};
use super::ids::Ids;
use super::log::Logs;
use super::metrics::Counters;
use super::mqtt::{Mqtt, MqttSinks};
use super::registry::Kinds;
use super::results::ResultIds;
use super::sinks::Webhooks;
use super::traces::Traces;
use super::{Guard, Node, clock, gate, timers};
use crate::api;
use crate::api::types::{Scope, TokenRequest};
use gate_http::{Certificates, Gate, Listener};
use problem::{Code, Problem};
use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::{Value, json};
use state::State;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tracing_subscriber::EnvFilter;
use warehouse::Warehouse;

/// How often idle functions, idle units and overlong logs are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(5);

/// Connections of the API at once. The next one waits in the listen backlog.
const API_CONNECTIONS_MAX: u32 = 256;

/// How long threads that still work may take once everything is drained.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Name of the token in the data folder.
const LOCAL_TOKEN: &str = "local";

/// Runs a node until it is stopped. `ready` is told where it listens, once it does: what `node.json` holds.
///
/// # Errors
/// It could not start; nothing was changed but in its data folder.
pub fn run(config: Config, ready: impl FnOnce(&Value)) -> Result<(), Problem> {
    let started = Instant::now();
    start_log(&config)?;
    raise_file_limit();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .map_err(|error| Problem::new(Code::Internal, format!("the runtime cannot start: {error}")))?;
    let ended = runtime.block_on(live(config, started, ready));
    runtime.shutdown_timeout(LAST_WORDS);
    ended
}

async fn live(config: Config, started: Instant, ready: impl FnOnce(&Value)) -> Result<(), Problem> {
    let mut signals = Signals::new()?;
    make_folder(&config.data)?;
    let mqtt_sinks = Arc::new(MqttSinks::new(config.mqtt.is_some()));
    let node = open(config, started, mqtt_sinks.clone()).await?;
    let data = node.config.data.clone();

    let certificates = node.config.tls.as_ref().map(load).transpose()?;
    let gate_listener = Listener::bind(node.config.http, certificates.clone())?;
    let api_listener = Listener::bind(node.config.api, node.config.api_tls().and(certificates.clone()))?;
    let gate_url = url(gate_listener.address(), certificates.is_some());
    let api_url = url(api_listener.address(), node.config.api_tls().is_some());
    node.gate_url.set(gate_url.clone()).ok();
    write_token(&node, &data).await?;

    let guard = Guard::new(api_listener.address(), node.config.api_names.clone());
    let router = api::router(node.clone(), guard);
    let api_config = gate_http::Config { connections_max: API_CONNECTIONS_MAX, ..gate_http::Config::default() };
    let api = Gate::start(vec![api_listener], api_config, Arc::new(gate::Api { router }))?;
    let functions = Arc::new(gate::Functions { node: node.clone() });
    let gate = Gate::start(vec![gate_listener], gate_http::Config::default(), functions)?;
    start_mqtt(&node, certificates.as_deref(), &mqtt_sinks)?;
    let mqtt = node.mqtt.get().and_then(|mqtt| mqtt.addresses.iter().find(|(_, is_tls)| !is_tls));
    let beacons = node.config.beacon_port;
    let mqtt = mqtt.map(|(address, _)| *address);
    // Where the command line finds this node.
    let place =
        json!({ "api": api_url, "gate": gate_url, "mqtt": mqtt, "beacons": beacons, "pid": std::process::id() });
    replace_file(&data.join("node.json"), format!("{place}\n").as_bytes())?;
    let sweeper = tokio::spawn(sweep(node.clone()));
    let events = tokio::spawn(node.events.clone().run());
    let timers = tokio::spawn(timers::run(node.events.clone()));
    say_ready(&node, &gate_url, &api_url);
    ready(&place);
    tokio::spawn(warm_up(node.clone()));

    tokio::select! {
        () = node.stop_wanted() => {}
        () = signals.next() => node.stop(),
    }
    let say = |words: &str| say(node.config.log_format, words);
    let seconds = node.config.drain.as_secs();
    say(&format!("lighter is stopping: running calls have {seconds} s to end; once more to end at once"));
    node.logs.close();
    let drain = async {
        let at_most = node.config.drain;
        // Clients are told before what they publish would find nobody to keep it.
        if let Some(mqtt) = node.mqtt.get() {
            mqtt.drain().await;
        }
        tokio::join!(gate.drain(at_most), api.drain(at_most), node.events.drain(at_most))
    };
    let drained = tokio::select! {
        (gate, api, handlings) = drain => {
            if handlings > 0 {
                say(&format!("lighter gave up {handlings} queues whose handlings had not ended in time; their events are handled after the next start"));
            }
            gate.cut + api.cut
        }
        () = signals.next() => {
            say("lighter ends at once");
            0
        }
    };
    if drained > 0 {
        say(&format!("lighter cut {drained} connections that had not ended in time"));
    }
    sweeper.abort();
    timers.abort();
    events.abort();
    if let Some(traces) = node.traces.clone() {
        tokio::task::spawn_blocking(move || traces.shutdown()).await.ok();
    }
    fs::remove_file(data.join("node.json")).ok();
    say("lighter has stopped");
    Ok(())
}

/// Starts the MQTT gate, if there is to be one.
fn start_mqtt(node: &Node, certificates: Option<&Certificates>, sinks: &MqttSinks) -> Result<(), Problem> {
    let Some(config) = &node.config.mqtt else { return Ok(()) };
    let seed = getrandom::u64().map_err(|error| Problem::new(Code::Internal, format!("no random numbers: {error}")))?;
    let mqtt = Mqtt::start(config, certificates, &node.events, seed)?;
    sinks.set_gate(mqtt.clone());
    node.mqtt.set(mqtt).ok();
    Ok(())
}

/// Opens all that is kept on disk.
async fn open(config: Config, started: Instant, mqtt_sinks: Arc<MqttSinks>) -> Result<Arc<Node>, Problem> {
    let state = State::open(&config.data, state::Options::default())?;
    state.set_sync_every(config.sync_every);
    let limits = warehouse::Config {
        image_bytes_max: config.image_bytes_max,
        images_bytes_max: config.warehouse_bytes_max / 2,
        artefacts_bytes_max: config.warehouse_bytes_max / 2,
    };
    let warehouse = Warehouse::open(&config.data.join("warehouse"), limits)?;
    let kinds = Kinds::open(&config, &warehouse)?;
    if let Some(port) = config.beacon_port {
        kinds.metal.listen(port).await.map_err(|error| {
            Problem::new(Code::ListenFailed, format!("beacons on UDP port {port} cannot be heard: {error}"))
        })?;
    }
    let access = Access::open(&state)?;
    let logs = Arc::new(Logs::new(config.logs_bytes_max, config.log_units));
    let result_ids = ResultIds::open(&state).await?;
    // A kind of sink is one more line here.
    let sinks = SinkKinds(vec![Arc::new(Webhooks::new(&state, config.webhook_trust.clone())), mqtt_sinks]);
    let loader = Arc::new(Loader::new(kinds, warehouse, state, config.functions_loaded_max, config.function_idle));
    let token_by_default = !config.http.ip().is_loopback();
    let units = dispatch::Node::new(config.units_max, config.units_max);
    let functions = Functions::restore(loader, logs.clone(), units, token_by_default, sinks)?;
    let seed = getrandom::u64().map_err(|error| Problem::new(Code::Internal, format!("no random numbers: {error}")))?;
    let traces = config.traces.as_ref().map(|target| Traces::new(target, Ids::new(seed)).map(Arc::new)).transpose()?;
    let seed = getrandom::u64().map_err(|error| Problem::new(Code::Internal, format!("no random numbers: {error}")))?;
    let events = Events::new(functions.clone(), traces.clone(), seed);
    Ok(Arc::new(Node {
        bodies: BodyRoom::new(config.bodies_bytes_max),
        result_ids,
        config,
        functions,
        events,
        access,
        logs,
        traces,
        strays: Counters::default(),
        started,
        mqtt: OnceLock::new(),
        gate_url: OnceLock::new(),
        stopping: watch::Sender::new(false),
    }))
}

/// Makes one function ready and starts a unit of it, so that the first caller does not wait for the process to touch its
/// own code for the first time. The others wait for their calls.
async fn warm_up(node: Arc<Node>) {
    let table = node.functions.table();
    let Some(entry) = table.entries().next() else { return };
    // What is wrong with it is told by its first call.
    if let Ok(ready) = node.functions.loader.ready(&entry.live, Instant::now()).await {
        ready.prepared.try_start().await.ok();
    }
}

async fn sweep(node: Arc<Node>) {
    let mut tick = tokio::time::interval(SWEEP_EVERY);
    loop {
        tick.tick().await;
        node.functions.loader.sweep(Instant::now());
        node.logs.sweep();
    }
}

fn say_ready(node: &Node, gate: &str, api: &str) {
    let say = |words: &str| say(node.config.log_format, words);
    let table = node.functions.table();
    let took = node.started.elapsed().as_millis();
    say(&format!("lighter ready: gate {gate} api {api} ({} functions, {took} ms)", table.count()));
    for (address, is_tls) in node.mqtt.get().iter().flat_map(|mqtt| &mqtt.addresses) {
        say(&format!("  mqtt: {}://{address}", if *is_tls { "mqtts" } else { "mqtt" }));
    }
    if node.config.log_format == LogFormat::Json {
        return;
    }
    let url = table.entries().find_map(|entry| node.describe(entry).urls.into_iter().next());
    match url {
        Some(url) => say(&format!("  try:  curl {url}")),
        None => say("  try:  lighter new hello && lighter deploy --build hello"),
    }
    say("  stop: Ctrl-C, or lighter down");
}

/// A word to whoever started the node. A log for machines holds nothing but its own lines, so there it is one of them.
fn say(format: LogFormat, words: &str) {
    match format {
        LogFormat::Text => eprintln!("{words}"),
        LogFormat::Json => tracing::info!("{}", words.trim_start()),
    }
}

/// Ctrl-C, and what service managers send.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> Result<Self, Problem> {
        let listen = |kind| {
            signal(kind).map_err(|error| Problem::new(Code::Internal, format!("signals cannot be heard: {error}")))
        };
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

fn start_log(config: &Config) -> Result<(), Problem> {
    let bad =
        |error: &dyn std::fmt::Display| Problem::new(Code::ConfigInvalid, format!("log {:?}: {error}", config.log));
    // The database tells much that is of interest only to its makers; who asks for it by name still gets it.
    let mut filter =
        EnvFilter::try_new(format!("fjall=warn,lsm_tree=warn,{}", config.log)).map_err(|error| bad(&error))?;
    for (wanted, on, off) in
        [(config.access_log, "access=info", "access=off"), (config.log_units, "unit=trace", "unit=off")]
    {
        let directive = if wanted { on } else { off };
        filter = filter.add_directive(directive.parse().expect("the directive is well formed"));
    }
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    let started = match config.log_format {
        LogFormat::Text => log.try_init(),
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| bad(&error))
}

/// Every connection is an open file, and the usual limit of 1,024 is for programs that cannot handle more.
fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!("the limit of open files stays as it is: {error}");
    }
}

/// The data folder is nobody else's business: it holds secrets.
fn make_folder(data: &Path) -> Result<(), Problem> {
    let failed =
        |error: std::io::Error| Problem::new(Code::DataUnusable, format!("data folder {}: {error}", data.display()));
    if data.is_file() {
        let problem = Problem::new(Code::DataUnusable, format!("{} is a file, and no data folder", data.display()));
        return Err(problem.with_hint("name a folder with --data, or one that is to be made"));
    }
    DirBuilder::new().recursive(true).mode(0o700).create(data).map_err(failed)?;
    let mode = fs::metadata(data).map_err(failed)?.permissions().mode();
    if mode & 0o077 != 0 {
        fs::set_permissions(data, Permissions::from_mode(0o700)).map_err(failed)?;
    }
    Ok(())
}

/// Sees to it that the folder holds a token that works, for the command line of whoever owns it.
async fn write_token(node: &Node, data: &Path) -> Result<(), Problem> {
    let path = data.join("token");
    let now_ms = clock::unix_ms(SystemTime::now());
    let kept = fs::read_to_string(&path).unwrap_or_default();
    if node.access.is_valid(kept.trim(), Scope::Admin, now_ms) {
        return Ok(());
    }
    let request = TokenRequest { name: LOCAL_TOKEN.to_owned(), scope: Scope::Admin, expires_seconds: None };
    let created = node.access.replace(request, now_ms).await?;
    replace_file(&path, format!("{}\n", created.token).as_bytes())
}

/// Puts a file in its place, whole or not at all, readable for its owner only.
fn replace_file(path: &Path, bytes: &[u8]) -> Result<(), Problem> {
    let new = path.with_extension("new");
    let write = || {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    write().map_err(|error| Problem::new(Code::DataUnusable, format!("write {}: {error}", path.display())))
}

fn load(files: &TlsFiles) -> Result<Arc<Certificates>, Problem> {
    Certificates::load(&files.certificate, &files.key)
}

/// The address to open in a client: one that listens everywhere is reached here.
fn url(address: SocketAddr, tls: bool) -> String {
    let scheme = if tls { "https" } else { "http" };
    match (address.ip().is_unspecified(), address.is_ipv4()) {
        (true, true) => format!("{scheme}://127.0.0.1:{}", address.port()),
        (true, false) => format!("{scheme}://[::1]:{}", address.port()),
        (false, _) => format!("{scheme}://{address}"),
    }
}
