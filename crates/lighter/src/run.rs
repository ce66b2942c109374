//! The life of a node: open, restore, listen, say so, wait, drain, end.

use crate::classes::{self, Configured};
use crate::engine;
use crate::files::{self, Shares};
use api::Routes;
use api_types::identity::Identity;
use api_types::{Scope, TokenRequest};
use cli::locate::PROCESS_NAME;
use gate_http::{Certificates, Gate, Listener};
use node::config::{Config, LogFormat, TlsFiles};
use node::mqtt::{Mqtt, MqttSinks};
use node::starts::LASTING_AFTER;
use node::{Guard, Node, Opening, Row, clock, gate};
use problem::{Code, Problem};
use rustix::process::geteuid;
use serde_json::{Value, json};
use std::env;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tracing_subscriber::EnvFilter;

/// Connections of the API at once. The next one waits in the listen backlog.
const API_CONNECTIONS_MAX: u32 = 256;

/// What the node asks for when memory runs out, from -1,000 (never ended) to 1,000 (the first). Needs a privilege;
/// without it the value stays 0, and units stand before the node by their own.
const OOM_SCORE_ADJUST: i32 = -250;

/// How long threads that still work may take once everything is drained.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A start is over so long after the node is ready; and so long after that, a member has found the others of its fleet.
const SETTLES_AFTER: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(3)];

/// Nobody waits longer for functions that are made ready before their first calls, and as long again for a unit of one
/// of them. The others follow.
const AHEAD_WAIT: Duration = Duration::from_millis(50);

/// Every so many tasks a worker takes one of those that did not fit into its own queue of 256. By default it takes one
/// every 200 µs, and of a thousand connections that all ask, those in the queue are served again and again meanwhile.
const LEFT_BEHIND_EVERY: u32 = 2;

/// Name of the token in the data folder.
const LOCAL_TOKEN: &str = "local";

/// Runs a node until it is stopped. `ready` is told where it listens, once it does: what `node.json` holds.
///
/// # Errors
/// It could not start; nothing was changed but in its data folder.
pub fn run(
    config: Config,
    classes: Vec<Configured>,
    engine: engine::Configured,
    ready: impl FnOnce(&Value),
) -> Result<(), Problem> {
    let started = Instant::now();
    // Now, for later its file may be another.
    let program = env::current_exe();
    start_log(&config)?;
    let mut config = config;
    let shares = files::share(Shares {
        state: state::FILES_KEPT,
        api: API_CONNECTIONS_MAX,
        gate: gate_http::Config::default().connections_max,
        mqtt: config.mqtt.as_ref().map_or(0, |mqtt| mqtt.limits.connections_max),
    });
    if let Some(mqtt) = &mut config.mqtt {
        mqtt.limits.connections_max = shares.mqtt;
    }
    // It is found by its name. Where that cannot be changed, it mostly is the right one.
    let _ = std::fs::write("/proc/self/comm", PROCESS_NAME);
    outlive_units();
    stay_in_memory();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .global_queue_interval(LEFT_BEHIND_EVERY)
        .enable_all()
        .build()
        .map_err(|error| Problem::new(Code::Internal, format!("the runtime cannot start: {error}")))?;
    let ended = runtime.block_on(live(config, (classes, engine), shares, started, ready));
    runtime.shutdown_timeout(LAST_WORDS);
    match ended? {
        Then::End => Ok(()),
        Then::Again => Err(again(program)),
    }
}

/// What comes after a node has ended.
enum Then {
    End,
    Again,
}

/// Has this process run the program's file, as it was run before. Whoever started the node, watches it or reads its log
/// goes on doing so. Returns only if that failed.
fn again(program: io::Result<PathBuf>) -> Problem {
    let mut words = env::args_os();
    let error = match program {
        Ok(program) => Command::new(program).arg0(words.next().unwrap_or_default()).args(words).exec(),
        Err(error) => error,
    };
    Problem::new(Code::Internal, format!("the program does not start again: {error}"))
        .with_hint("start the node again with `lighter up`")
}

async fn live(
    config: Config,
    (classes, engine): (Vec<Configured>, engine::Configured),
    shares: Shares,
    started: Instant,
    ready: impl FnOnce(&Value),
) -> Result<Then, Problem> {
    let mut signals = Signals::new()?;
    make_folder(&config.data)?;
    let mqtt_sinks = Arc::new(MqttSinks::new(config.mqtt.is_some()));
    let classes = classes::open(classes, &config)?;
    let opening = Opening { files_kept: shares.state, classes: classes.all, mqtt_sinks: mqtt_sinks.clone(), started };
    let node = Node::open(config, opening).await?;
    node.fleet.may_anchor(engine.may_run());
    node::fleet::take_part(&node, move |part| engine.open(part));
    let ahead = node.load_ahead();
    node.enter_fleet().await?;
    tokio::time::timeout(AHEAD_WAIT, ahead).await.ok();
    // Before anybody can call: whoever calls while pages go waits for them.
    give_back();
    tokio::time::timeout(AHEAD_WAIT, node.warm_up()).await.ok();
    let doors = Doors::open(&node, shares, &mqtt_sinks, classes.routes).await?;
    // Where the command line finds this node, and what the next run should know of this one.
    let mut place = json!({ "api": doors.api_url, "gate": doors.gate_url, "mqtt": doors.mqtt,
        "pid": std::process::id(), "short_runs": node.short_runs, "is_lasting": false });
    classes.found.into_iter().for_each(|(name, value)| place[name] = value);
    replace_file(&node.config.data.join("node.json"), format!("{place}\n").as_bytes())?;
    let lasting = tokio::spawn(last(node.clone(), place.clone()));
    let helpers = node.begin();
    say_ready(&node, &doors.gate_url, &doors.api_url);
    ready(&place);
    let settling = tokio::spawn(settle(node.clone()));

    tokio::select! {
        () = node.stop_wanted() => {}
        () = signals.next() => node.stop(),
    }
    if let Some(link) = node.link() {
        link.drain();
    }
    doors.drain(&node, &mut signals).await;
    node::fleet::end(&node).await;
    helpers.iter().for_each(JoinHandle::abort);
    settling.abort();
    lasting.abort();
    lasting.await.ok();
    if let Some(traces) = node.traces.clone() {
        tokio::task::spawn_blocking(move || traces.shutdown()).await.ok();
    }
    fs::remove_file(node.config.data.join("node.json")).ok();
    node.events.running.end();
    node.audit.end();
    let then = if node.restarts() { Then::Again } else { Then::End };
    let words = match then {
        Then::End => "lighter has stopped",
        Then::Again => "lighter has stopped, and starts again",
    };
    say(node.config.log_format, words);
    Ok(then)
}

/// Where the outside world comes in.
struct Doors {
    gate: Gate,
    api: Gate,
    gate_url: String,
    api_url: String,
    /// The MQTT gate without TLS.
    mqtt: Option<SocketAddr>,
}

impl Doors {
    async fn open(
        node: &Arc<Node>,
        shares: Shares,
        mqtt_sinks: &MqttSinks,
        routes: Vec<Routes>,
    ) -> Result<Self, Problem> {
        let certificates = node.config.tls.as_ref().map(load).transpose()?;
        let gate_listener = Listener::bind(node.config.http, certificates.clone())?;
        let api_listener = Listener::bind(node.config.api, node.config.api_tls().and(certificates.clone()))?;
        let gate_url = url(gate_listener.address(), certificates.is_some());
        let api_url = url(api_listener.address(), node.config.api_tls().is_some());
        node.set_gate_url(gate_url.clone());
        let token = write_token(node, &node.config.data).await?;
        node.set_identity(Identity::new(&token, &api_url));
        node::fleet::tell_api(node, api_listener.address(), node.config.api_tls().is_some());

        // Before the API answers that the node is ready. Whoever asks sooner waits in the listen backlog.
        start_mqtt(node, certificates.as_deref(), mqtt_sinks)?;
        let guard = Guard::new(api_listener.address(), node.config.api_names.clone());
        let router = api::router(node.clone(), guard, routes);
        let config = gate_http::Config { budget: node.budget.clone(), ..gate_http::Config::default() };
        // Peers of the API are not bounded one by one: who holds a place without using it gives way to whoever comes.
        let api_config = gate_http::Config {
            connections_max: shares.api,
            connections_per_peer_max: Some(u32::MAX),
            is_administration: true,
            ..config.clone()
        };
        let gate_config = gate_http::Config {
            connections_max: shares.gate,
            connections_per_peer_max: node.config.connections_per_peer,
            ..config
        };
        let api = api::serve(api_listener, api_config, router)?;
        let gate = gate::serve(node, gate_listener, gate_config)?;
        let mqtt = node.mqtt.get().and_then(|mqtt| mqtt.addresses.iter().find(|(_, is_tls)| !is_tls));
        Ok(Self { gate, api, gate_url, api_url, mqtt: mqtt.map(|(address, _)| *address) })
    }

    /// Lets nobody in any more, and what runs come to its end within the time for it; another signal ends it at once.
    async fn drain(self, node: &Node, signals: &mut Signals) {
        let say = |words: &str| say(node.config.log_format, words);
        let at_most = node.config.drain;
        let seconds = at_most.as_secs();
        say(&format!("lighter is stopping: running calls have {seconds} s to end; once more to end at once"));
        node.logs.close();
        node.audit.close();
        let drain = async {
            // Clients are told before what they publish would find nobody to keep it.
            if let Some(mqtt) = node.mqtt.get() {
                mqtt.drain().await;
            }
            tokio::join!(self.gate.drain(at_most), self.api.drain(at_most), node.events.drain(at_most))
        };
        let (cut, handlings) = tokio::select! {
            (gate, api, handlings) = drain => (gate.cut + api.cut, handlings),
            () = signals.next() => {
                say("lighter ends at once");
                // Whoever ends it so wants no other in its place.
                node.stop();
                (0, 0)
            }
        };
        if handlings > 0 {
            say(&format!(
                "lighter gave up {handlings} queues whose handlings had not ended in time; their events are handled after \
                 the next start"
            ));
        }
        if cut > 0 {
            say(&format!("lighter cut {cut} connections that had not ended in time"));
        }
    }
}

/// Starts the MQTT gate, if there is to be one.
fn start_mqtt(node: &Node, certificates: Option<&Certificates>, sinks: &MqttSinks) -> Result<(), Problem> {
    let Some(config) = &node.config.mqtt else { return Ok(()) };
    let mqtt = Mqtt::start(config, certificates, &node.gate_node, &node.budget)?;
    sinks.set_gate(mqtt.clone());
    node.mqtt.set(mqtt).ok();
    Ok(())
}

/// Says of this run that it has lasted, once it has.
async fn last(node: Arc<Node>, mut place: Value) {
    tokio::time::sleep(LASTING_AFTER).await;
    node.events.running.forget(|queue| node.events.pauses.is_paused(queue));
    place["is_lasting"] = true.into();
    let file = node.config.data.join("node.json");
    // In this very task, so that nothing is written any more once it has been awaited.
    let write = || replace_file(&file, format!("{place}\n").as_bytes());
    if let Err(problem) = tokio::task::block_in_place(write) {
        tracing::warn!("{} {}", problem.code, problem.detail);
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
    if let Ok(status) = node.fleet.status()
        && let Some(Row { record, .. }) = status.rows.first()
    {
        let address = record.address.as_ref().map_or_else(String::new, ToString::to_string);
        say(&format!("  fleet: {} as {}, at {address}", status.name, record.name));
    }
    if let Some(reason) = node.events.pauses.reason() {
        say(&format!("  the queues are paused, because {reason}: `lighter queue resume` when it is safe"));
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
    // The database tells much that is of interest only to its makers. The engine's client logs each failed try as an
    // error, and the node itself says what is wrong (L9103). Requests and units have options of their own. A filter
    // that names one of these still shows it.
    let usual = "fjall=warn,lsm_tree=warn,async_nats=off,access=off,unit=off";
    let mut filter =
        EnvFilter::try_new(format!("{usual},{}", of_its_crates(&config.log))).map_err(|error| bad(&error))?;
    for (_, on) in [(config.access_log, "access=info"), (config.log_units, "unit=trace")].iter().filter(|one| one.0) {
        filter = filter.add_directive(on.parse().expect("the directive is well formed"));
    }
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    let started = match config.log_format {
        LogFormat::Text => log.try_init(),
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| bad(&error))
}

/// The filter with the crates of the node for which its word `lighter` stands.
fn of_its_crates(filter: &str) -> String {
    let each = filter.split(',').flat_map(|one| {
        let level = one.trim().strip_prefix("lighter").filter(|rest| rest.is_empty() || rest.starts_with('='));
        let crates = level.into_iter().flat_map(|level| ["node", "api"].map(|name| format!("{name}{level}")));
        std::iter::once(one.to_owned()).chain(crates)
    });
    each.collect::<Vec<_>>().join(",")
}

/// Where memory runs out the system shall end units, and not the node. A value that somebody else has set stays.
fn outlive_units() {
    const FILE: &str = "/proc/self/oom_score_adj";
    if fs::read_to_string(FILE).is_ok_and(|value| value.trim() == "0")
        && let Err(error) = fs::write(FILE, OOM_SCORE_ADJUST.to_string())
    {
        tracing::debug!("the node's place in the line of the out-of-memory killer stays as it is: {error}");
    }
}

/// Where memory is short, the kernel takes what units have read from files before the program's own code.
fn stay_in_memory() {
    match resident::keep() {
        Ok(bytes) => tracing::debug!(bytes, "the program's own pages stay in memory once they were used"),
        Err(error) => tracing::debug!("the program's own pages may be taken from memory: {error}"),
    }
}

/// The last steps of the start, and whoever asks whether it is ready, use most of what was given back once more; so
/// does a member that connects to the others. A node that nobody calls meanwhile gives it back again.
async fn settle(node: Arc<Node>) {
    for pause in SETTLES_AFTER {
        tokio::time::sleep(pause).await;
        if node.was_called() {
            break;
        }
        give_back();
        drop(node.warm_up());
    }
}

/// What only the start needed is over.
fn give_back() {
    match resident::give_back() {
        Ok(bytes) => tracing::debug!(bytes, "gave back the program's pages that the start has used"),
        Err(error) => tracing::debug!("the program's pages that the start has used stay in memory: {error}"),
    }
}

/// Makes the data folder, for its owner alone: it holds secrets.
///
/// # Errors
/// `DataUnusable`: it cannot be made, is a file, or belongs to another user.
pub fn make_folder(data: &Path) -> Result<(), Problem> {
    let failed =
        |error: std::io::Error| Problem::new(Code::DataUnusable, format!("data folder {}: {error}", data.display()));
    if data.is_file() {
        let problem = Problem::new(Code::DataUnusable, format!("{} is a file, and no data folder", data.display()));
        return Err(problem.with_hint("name a folder with --data-folder, or one that is to be made"));
    }
    DirBuilder::new().recursive(true).mode(0o700).create(data).map_err(failed)?;
    let found = fs::metadata(data).map_err(failed)?;
    let (owner, user) = (found.uid(), geteuid().as_raw());
    if owner != user {
        // Whoever owns it can replace what is in it: compiled code among it.
        let detail =
            format!("data folder {} belongs to user {owner}, and the node runs as user {user}", data.display());
        let hint = format!("run the node as its owner, or give it to this user: chown -R {user} {}", data.display());
        return Err(Problem::new(Code::DataUnusable, detail).with_hint(hint));
    }
    if found.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(data, Permissions::from_mode(0o700)).map_err(failed)?;
    }
    Ok(())
}

/// Sees to it that the folder holds a token that works, for the command line of whoever owns it, and says which.
async fn write_token(node: &Node, data: &Path) -> Result<String, Problem> {
    let path = data.join("token");
    let now_ms = clock::now_ms();
    let kept = fs::read_to_string(&path).unwrap_or_default();
    if node.access.is_valid(kept.trim(), Scope::Admin, now_ms) {
        return Ok(kept.trim().to_owned());
    }
    // It lasts: whoever reads it could read a new one.
    let (functions, queues) = (Vec::new(), Vec::new());
    let request =
        TokenRequest { name: LOCAL_TOKEN.to_owned(), scope: Scope::Admin, expires_seconds: Some(0), functions, queues };
    let created = node.access.replace(request, now_ms).await?;
    replace_file(&path, format!("{}\n", created.token).as_bytes())?;
    Ok(created.token)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_name_in_a_filter_stands_for_the_crates_of_the_node() {
        assert_eq!(of_its_crates("warn,lighter=debug"), "warn,lighter=debug,node=debug,api=debug");
        assert_eq!(of_its_crates("info,lighter::jails=off"), "info,lighter::jails=off");
    }
}
