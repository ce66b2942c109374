//! The node's own options of `lighter up`, and the checked result. Everything is checked before anything starts.
//!
//! What concerns one isolation class alone, the class brings: see [`Options`].

use super::memory;
use super::mqtt::{self, MqttArgs};
use super::options::{Asked, Options};
use super::sinks::Trust;
use clap::{Args, ValueEnum};
use fleet_deploy::profile::LABELS_MAX;
use fleet_trust::{Address, Token, check_name};
use manifest::Label;
use problem::{Code, Problem};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

/// What the node's log holds by default: what the node does, and of the database below only what is wrong.
const LOG: &str = "info,fjall=warn,lsm_tree=warn";

const MIB: u64 = 1 << 20;

/// The node's options of `lighter up`.
#[derive(Debug, Clone, Default, PartialEq, Args, Deserialize)]
#[serde(default)]
pub struct UpArgs {
    /// Folder for everything the node keeps [default: $XDG_DATA_HOME/lighter or ~/.local/share/lighter]
    #[arg(long, value_name = "DIR", env = "LIGHTER_DATA", alias = "data")]
    #[serde(alias = "data")]
    pub data_folder: Option<PathBuf>,
    /// File with the same options, such as `drain_seconds = 5`
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub config: Option<PathBuf>,
    /// Address of the HTTP gate, port 0 for any free one [default: 127.0.0.1:8700]
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub http: Option<SocketAddr>,
    /// Address of the API, port 0 for any free one [default: 127.0.0.1:8701]
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub api: Option<SocketAddr>,
    /// Another name clients may use for the API in `Host`; may be repeated
    #[arg(long, value_name = "NAME")]
    pub api_name: Vec<String>,
    /// Folder to serve the dashboard from, in place of the one in the program
    #[arg(long, value_name = "DIR")]
    pub dashboard: Option<PathBuf>,
    /// Certificate chain in PEM for the gate, and for the API beyond this machine; read again when it changes
    #[arg(long, value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// Private key in PEM for --tls-cert
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Certificates (PEM) that webhooks trust besides the public ones, such as those of a company's own authority
    #[arg(long, value_name = "FILE")]
    pub webhook_ca: Option<PathBuf>,
    /// Allow plain text beyond this machine, for instance behind a proxy that does TLS
    #[arg(long)]
    pub insecure_listen: bool,
    /// Address at which other nodes of a fleet connect; nothing listens there before there is a fleet [default:
    /// 0.0.0.0:8702]
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub fleet_listen: Option<SocketAddr>,
    /// Address at which other nodes reach this one, if it differs, such as pi-7.example.org:8702
    #[arg(long, value_name = "HOST:PORT")]
    pub fleet_address: Option<String>,
    /// Name of this node in a fleet [default: that of the machine]
    #[arg(long, value_name = "NAME")]
    pub node_name: Option<String>,
    /// Invitation of `lighter fleet invite`: join that fleet, unless this node has already
    #[arg(long, value_name = "TOKEN")]
    pub join: Option<String>,
    /// The nats-server that an anchor runs [default: the one in bin of the data folder, or in PATH]
    #[arg(long, value_name = "FILE")]
    pub nats_server: Option<PathBuf>,
    /// A NATS cluster of your own in place of the anchors' engine, such as tls://nats.example.org
    #[arg(long, value_name = "URL")]
    pub nats: Option<String>,
    /// Credentials for --nats, as NATS' own tools write them
    #[arg(long, value_name = "FILE")]
    pub nats_creds: Option<PathBuf>,
    /// Label of this node in a fleet, such as site=harbour; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub label: Vec<String>,
    /// Address of the MQTT broker, plain text; `[mqtt]` in the file says more [default: none]
    #[arg(long, value_name = "ADDRESS")]
    pub mqtt: Option<MqttArgs>,
    /// How many units exist at once [default: 1000]
    #[arg(long, value_name = "N")]
    pub units_max: Option<u32>,
    /// How many functions stay ready to start units; the next call loads any other [default: 1000]
    #[arg(long, value_name = "N")]
    pub functions_loaded_max: Option<usize>,
    /// Seconds without a call after which a function is unloaded [default: 900]
    #[arg(long, value_name = "N")]
    pub function_idle_seconds: Option<u64>,
    /// Bytes of one image [default: 268435456]
    #[arg(long, value_name = "N")]
    pub image_bytes_max: Option<u64>,
    /// Bytes of all images and artefacts on disk [default: 4294967296]
    #[arg(long, value_name = "N")]
    pub warehouse_bytes_max: Option<u64>,
    /// Connections at the gate from one address (IPv6: one /64) [default: 2500, and no bound for this machine]
    #[arg(long, value_name = "N")]
    pub connections_per_peer: Option<u32>,
    /// Bytes of request bodies in memory, for all calls together [default: 268435456]
    #[arg(long, value_name = "N")]
    pub bodies_bytes_max: Option<u64>,
    /// Bytes of memory the node holds for units, requests, connections and clients together [default: half of what the
    /// machine or its control group has]
    #[arg(long, value_name = "N")]
    pub memory_bytes_max: Option<u64>,
    /// Seconds of CPU time to compile one image, on all cores together [default: 300]
    #[arg(long, value_name = "N")]
    pub compile_cpu_seconds_max: Option<u64>,
    /// Bytes of units' log lines in memory, for all functions together [default: 16777216]
    #[arg(long, value_name = "N")]
    pub logs_bytes_max: Option<u64>,
    /// Where to send traces (OTLP over HTTP), such as http://127.0.0.1:4318
    #[arg(long, value_name = "URL")]
    pub otlp: Option<String>,
    /// Share of calls that are traced when the caller does not say, 0 to 1 [default: 1]
    #[arg(long, value_name = "SHARE")]
    pub otlp_share: Option<f64>,
    /// Format of the node's log [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
    /// What goes into the node's log, such as `info` or `warn,lighter=debug` [default: info, and warn for libraries]
    #[arg(long, value_name = "FILTER", env = "LIGHTER_LOG")]
    pub log: Option<String>,
    /// Also write the units' log lines to the node's log
    #[arg(long)]
    pub log_units: bool,
    /// Write a log line for every request of the gate and the API
    #[arg(long)]
    pub access_log: bool,
    /// Relaxed mode: acknowledge writes at once and sync them every N milliseconds [default: 0, sync before
    /// acknowledging]
    #[arg(long, value_name = "N")]
    pub sync_every_ms: Option<u64>,
    /// Start with all queues paused, until `lighter queue resume`
    #[arg(long)]
    pub paused: bool,
    /// Start with all queues paused after N runs in a row that ended badly within a minute, while events were handled;
    /// 0: never [default: 6]
    #[arg(long, value_name = "N")]
    pub short_runs_max: Option<u32>,
    /// Seconds for running calls to end when the node stops [default: 10]
    #[arg(long, value_name = "N")]
    pub drain_seconds: Option<u64>,
}

fn address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| "no address with a port, as 127.0.0.1:8700 or 0.0.0.0:8700")
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

/// A configuration that can be used.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    pub data: PathBuf,
    pub http: SocketAddr,
    pub api: SocketAddr,
    pub api_names: Vec<String>,
    /// None: the one in the program.
    pub dashboard: Option<PathBuf>,
    pub tls: Option<TlsFiles>,
    pub fleet: FleetConfig,
    pub mqtt: Option<mqtt::Config>,
    pub webhook_trust: Trust,
    pub units_max: u32,
    pub functions_loaded_max: usize,
    pub function_idle: Duration,
    pub image_bytes_max: u64,
    pub warehouse_bytes_max: u64,
    /// None: what the gate chooses by itself.
    pub connections_per_peer: Option<u32>,
    pub bodies_bytes_max: u64,
    pub memory_bytes_max: u64,
    pub compile_cpu_time_max: Duration,
    pub logs_bytes_max: usize,
    pub traces: Option<TraceTarget>,
    pub log_format: LogFormat,
    pub log: String,
    pub log_units: bool,
    pub access_log: bool,
    /// How much a power cut may take; none: nothing that was acknowledged.
    pub sync_every: Option<Duration>,
    pub paused: bool,
    /// Runs that end soon and badly, one after the other, after which the node starts paused; none: never.
    pub short_runs_max: Option<u32>,
    pub drain: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetConfig {
    pub listen: SocketAddr,
    /// What other nodes are told; none: what the node sees for itself.
    pub address: Option<Address>,
    /// None: that of the machine.
    pub node_name: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub join: Option<Token>,
    /// The engine's program on an anchor; none: it is looked for.
    pub nats_server: Option<PathBuf>,
    /// None: the engine of the anchors.
    pub nats: Option<NatsTarget>,
}

/// A NATS cluster of the user's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NatsTarget {
    pub servers: String,
    pub credentials: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

#[derive(Debug, Clone, PartialEq)]
pub struct TraceTarget {
    /// Base address; `/v1/traces` is added unless it ends so.
    pub url: String,
    pub share: f64,
}

impl Config {
    /// What was asked for, checked. Here and not where options are asked for, so that the reader of TOML is compiled
    /// once for them.
    ///
    /// # Errors
    /// As [`Config::new`] and [`Asked::options`].
    pub fn of(asked: &Asked<'_>) -> Result<Self, Problem> {
        Self::new(asked.options()?)
    }

    /// Adds the defaults to what is asked for, and checks the result.
    ///
    /// # Errors
    /// [`Code::ConfigInvalid`] names the option and its bounds; [`Code::InsecureListen`].
    pub fn new(args: UpArgs) -> Result<Self, Problem> {
        let fleet = FleetConfig::new(&args)?;
        let tls = match (args.tls_cert, args.tls_key) {
            (Some(certificate), Some(key)) => Some(TlsFiles { certificate, key }),
            (None, None) => None,
            _ => return Err(invalid("tls_cert and tls_key belong together, only one is given")),
        };
        let config = Self {
            data: args.data_folder.map_or_else(default_data, Ok)?,
            http: args.http.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 8700))),
            api: args.api.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 8701))),
            api_names: args.api_name,
            fleet,
            dashboard: folder("dashboard", args.dashboard)?,
            mqtt: mqtt::Config::new(args.mqtt.unwrap_or_default(), tls.is_some(), args.insecure_listen)?,
            tls,
            webhook_trust: Trust::new(args.webhook_ca.as_deref())?,
            units_max: in_range("units_max", args.units_max, 1_000, 1..=100_000)?,
            functions_loaded_max: in_range("functions_loaded_max", args.functions_loaded_max, 1_000, 1..=100_000)?,
            function_idle: seconds("function_idle_seconds", args.function_idle_seconds, 900, 1..=86_400)?,
            image_bytes_max: in_range("image_bytes_max", args.image_bytes_max, 256 * MIB, 1_024..=8_192 * MIB)?,
            warehouse_bytes_max: in_range(
                "warehouse_bytes_max",
                args.warehouse_bytes_max,
                4_096 * MIB,
                MIB..=1_048_576 * MIB,
            )?,
            connections_per_peer: args
                .connections_per_peer
                .map(|count| in_range("connections_per_peer", Some(count), count, 1..=1_000_000))
                .transpose()?,
            bodies_bytes_max: in_range("bodies_bytes_max", args.bodies_bytes_max, 256 * MIB, MIB..=1_048_576 * MIB)?,
            memory_bytes_max: in_range(
                "memory_bytes_max",
                args.memory_bytes_max,
                memory::budget_bytes(),
                16 * MIB..=1_048_576 * MIB,
            )?,
            compile_cpu_time_max: seconds("compile_cpu_seconds_max", args.compile_cpu_seconds_max, 300, 1..=7_200)?,
            logs_bytes_max: in_range("logs_bytes_max", args.logs_bytes_max, 16 * MIB, 65_536..=4_096 * MIB)? as usize,
            traces: trace_target(args.otlp, args.otlp_share)?,
            log_format: args.log_format.unwrap_or_default(),
            log: args.log.unwrap_or_else(|| LOG.to_owned()),
            log_units: args.log_units,
            access_log: args.access_log,
            sync_every: Some(in_range("sync_every_ms", args.sync_every_ms, 0, 0..=60_000)?)
                .filter(|every_ms| *every_ms > 0)
                .map(Duration::from_millis),
            paused: args.paused,
            short_runs_max: Some(in_range("short_runs_max", args.short_runs_max, 6, 0..=1_000)?).filter(|max| *max > 0),
            drain: seconds("drain_seconds", args.drain_seconds, 10, 0..=3_600)?,
        };
        config.check_listening(args.insecure_listen)?;
        Ok(config)
    }

    /// The API has TLS only where strangers could read along, so that `lighter` on this machine needs no certificate.
    pub fn api_tls(&self) -> Option<&TlsFiles> {
        self.tls.as_ref().filter(|_| !self.api.ip().is_loopback())
    }

    fn check_listening(&self, insecure: bool) -> Result<(), Problem> {
        if self.http.port() != 0 && self.http == self.api {
            return Err(invalid(format!("http and api are both {}", self.http)));
        }
        for (key, address) in [("http", self.http), ("api", self.api)] {
            if !address.ip().is_loopback() && self.tls.is_none() && !insecure {
                let detail = format!("{key} is {address}, which other machines can reach, and there is no certificate");
                let hint = "give --tls-cert and --tls-key, keep to 127.0.0.1, or allow it with --insecure-listen";
                return Err(Problem::new(Code::InsecureListen, detail).with_hint(hint));
            }
        }
        Ok(())
    }
}

impl FleetConfig {
    fn new(args: &UpArgs) -> Result<Self, Problem> {
        let nats = match (args.nats.clone(), args.nats_creds.clone()) {
            (Some(servers), Some(credentials)) => Some(NatsTarget { servers, credentials }),
            (None, None) => None,
            _ => return Err(invalid("nats and nats_creds belong together, only one is given")),
        };
        args.node_name.as_deref().map_or(Ok(()), check_name)?;
        Ok(Self {
            listen: args.fleet_listen.unwrap_or(SocketAddr::from(([0, 0, 0, 0], 8702))),
            address: args.fleet_address.as_deref().map(fleet_address).transpose()?,
            node_name: args.node_name.clone(),
            labels: labels(&args.label)?,
            join: args.join.as_deref().map(Token::read).transpose()?,
            nats_server: args.nats_server.clone(),
            nats,
        })
    }
}

impl Options for UpArgs {
    fn or(self, file: Self) -> Self {
        Self {
            data_folder: self.data_folder.or(file.data_folder),
            config: self.config,
            http: self.http.or(file.http),
            api: self.api.or(file.api),
            api_name: if self.api_name.is_empty() { file.api_name } else { self.api_name },
            dashboard: self.dashboard.or(file.dashboard),
            tls_cert: self.tls_cert.or(file.tls_cert),
            tls_key: self.tls_key.or(file.tls_key),
            webhook_ca: self.webhook_ca.or(file.webhook_ca),
            fleet_listen: self.fleet_listen.or(file.fleet_listen),
            fleet_address: self.fleet_address.or(file.fleet_address),
            node_name: self.node_name.or(file.node_name),
            join: self.join.or(file.join),
            nats_server: self.nats_server.or(file.nats_server),
            nats: self.nats.or(file.nats),
            nats_creds: self.nats_creds.or(file.nats_creds),
            label: if self.label.is_empty() { file.label } else { self.label },
            mqtt: match (self.mqtt, file.mqtt) {
                (Some(line), Some(file)) => Some(line.or(file)),
                (line, file) => line.or(file),
            },
            insecure_listen: self.insecure_listen || file.insecure_listen,
            units_max: self.units_max.or(file.units_max),
            functions_loaded_max: self.functions_loaded_max.or(file.functions_loaded_max),
            function_idle_seconds: self.function_idle_seconds.or(file.function_idle_seconds),
            image_bytes_max: self.image_bytes_max.or(file.image_bytes_max),
            warehouse_bytes_max: self.warehouse_bytes_max.or(file.warehouse_bytes_max),
            connections_per_peer: self.connections_per_peer.or(file.connections_per_peer),
            bodies_bytes_max: self.bodies_bytes_max.or(file.bodies_bytes_max),
            memory_bytes_max: self.memory_bytes_max.or(file.memory_bytes_max),
            compile_cpu_seconds_max: self.compile_cpu_seconds_max.or(file.compile_cpu_seconds_max),
            logs_bytes_max: self.logs_bytes_max.or(file.logs_bytes_max),
            otlp: self.otlp.or(file.otlp),
            otlp_share: self.otlp_share.or(file.otlp_share),
            log_format: self.log_format.or(file.log_format),
            log: self.log.or(file.log),
            log_units: self.log_units || file.log_units,
            access_log: self.access_log || file.access_log,
            sync_every_ms: self.sync_every_ms.or(file.sync_every_ms),
            paused: self.paused || file.paused,
            short_runs_max: self.short_runs_max.or(file.short_runs_max),
            drain_seconds: self.drain_seconds.or(file.drain_seconds),
        }
    }
}

/// # Errors
/// Neither the environment nor the user's home says where.
fn default_data() -> Result<PathBuf, Problem> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    variable("XDG_DATA_HOME")
        .map(|folder| folder.join("lighter"))
        .or_else(|| variable("HOME").map(|folder| folder.join(".local/share/lighter")))
        .ok_or_else(|| invalid("data_folder is not given, and neither HOME nor XDG_DATA_HOME is set"))
}

fn fleet_address(text: &str) -> Result<Address, Problem> {
    Address::read(text)
        .ok_or_else(|| invalid(format!("fleet_address is {text:?}, write it like pi-7.example.org:8702")))
}

fn labels(texts: &[String]) -> Result<BTreeMap<String, String>, Problem> {
    let mut labels = BTreeMap::new();
    for text in texts {
        let Label { key, value } = Label::read(text).map_err(|why| invalid(format!("label: {why}")))?;
        if labels.insert(key.clone(), value).is_some() {
            return Err(invalid(format!("label: {key} is given twice")));
        }
    }
    match labels.len() {
        count if count > LABELS_MAX => Err(invalid(format!("label is given {count} times, {LABELS_MAX} at most"))),
        _ => Ok(labels),
    }
}

fn folder(key: &str, path: Option<PathBuf>) -> Result<Option<PathBuf>, Problem> {
    match path {
        Some(path) if !path.is_dir() => Err(invalid(format!("{key} is {path:?}, which is no folder"))),
        path => Ok(path),
    }
}

fn trace_target(url: Option<String>, share: Option<f64>) -> Result<Option<TraceTarget>, Problem> {
    let share = in_range("otlp_share", share, 1.0, 0.0..=1.0)?;
    let Some(url) = url else { return Ok(None) };
    let parsed: Option<http::Uri> = url.parse().ok();
    match parsed.as_ref().and_then(http::Uri::scheme_str) {
        Some("http" | "https") => Ok(Some(TraceTarget { url, share })),
        _ => Err(invalid(format!("otlp is {url:?}, write it like http://127.0.0.1:4318"))),
    }
}

fn seconds(key: &str, value: Option<u64>, default: u64, range: RangeInclusive<u64>) -> Result<Duration, Problem> {
    in_range(key, value, default, range).map(Duration::from_secs)
}

pub fn in_range<T>(key: &str, value: Option<T>, default: T, range: RangeInclusive<T>) -> Result<T, Problem>
where
    T: PartialOrd + Display,
{
    let value = value.unwrap_or(default);
    if range.contains(&value) {
        return Ok(value);
    }
    Err(invalid(format!("{key} is {value}, it must be between {} and {}", range.start(), range.end())))
}

pub fn invalid(detail: impl Into<String>) -> Problem {
    Problem::new(Code::ConfigInvalid, detail.into())
}

#[cfg(test)]
mod tests {
    use super::super::options::File;
    use super::*;

    fn parse(text: &str) -> Result<UpArgs, Problem> {
        File::new(text.to_owned(), &UpArgs::augment_args(clap::Command::new("up")))?.options()
    }

    fn args(text: &str) -> UpArgs {
        UpArgs { data_folder: Some("data".into()), ..parse(text).unwrap() }
    }

    fn refused(text: &str) -> Problem {
        match parse(text) {
            Err(problem) => problem,
            Ok(parsed) => Config::new(UpArgs { data_folder: Some("data".into()), ..parsed }).unwrap_err(),
        }
    }

    #[test]
    fn defaults_keep_to_this_machine() {
        let config = Config::new(args("")).unwrap();
        assert!(config.http.ip().is_loopback() && config.api.ip().is_loopback());
        assert_eq!((config.http.port(), config.api.port(), config.units_max), (8700, 8701, 1_000));
    }

    #[test]
    fn beyond_this_machine_needs_a_certificate_or_an_explicit_word() {
        let problem = refused("http = \"0.0.0.0:8700\"");
        assert_eq!(problem.code, Code::InsecureListen);
        assert!(Config::new(args("http = \"0.0.0.0:8700\"\ninsecure_listen = true")).is_ok());
        let config = Config::new(args("http = \"0.0.0.0:443\"\ntls_cert = \"c\"\ntls_key = \"k\"")).unwrap();
        assert!(config.tls.is_some() && config.api_tls().is_none());
    }

    #[test]
    fn the_command_line_wins_over_the_file() {
        let line = UpArgs { drain_seconds: Some(1), ..UpArgs::default() };
        let joined = line.or(args("drain_seconds = 2\nunits_max = 5"));
        assert_eq!((joined.drain_seconds, joined.units_max), (Some(1), Some(5)));
    }

    #[test]
    fn the_old_key_of_the_data_folder_is_taken() {
        assert_eq!(parse("data = \"/d\"").unwrap().data_folder, Some("/d".into()));
        assert_eq!(parse("data_folder = \"/d\"").unwrap().data_folder, Some("/d".into()));
        let problem = refused("data = \"/d\"\ndata_folder = \"/e\"");
        assert!(problem.code == Code::ConfigInvalid && problem.detail.contains("duplicate field"), "{problem}");
    }

    #[test]
    fn an_unknown_key_names_the_nearest() {
        let problem = refused("drain_second = 2");
        assert_eq!(problem.code, Code::ConfigInvalid);
        assert_eq!(problem.hint, "did you mean \"drain_seconds\"?");
    }

    #[test]
    fn values_out_of_range_are_refused_with_their_bounds() {
        for text in [
            "units_max = 0",
            "drain_seconds = 3601",
            "sync_every_ms = 60001",
            "otlp_share = 1.5",
            "otlp = \"nowhere\"",
            "http = \"localhost\"",
            "tls_cert = \"c\"",
            "nats = \"tls://nats.example.org\"",
            "fleet_address = \"nowhere\"",
            "label = [\"site\"]",
            "label = [\"site=a\", \"site=b\"]",
            "webhook_ca = \"/nowhere/ca.pem\"",
            "http = \"127.0.0.1:1\"\napi = \"127.0.0.1:1\"",
            "units_max = \"many\"",
            "= 1",
        ] {
            assert_eq!(refused(text).code, Code::ConfigInvalid, "{text}");
        }
        assert_eq!(refused("units_max = 0").detail, "units_max is 0, it must be between 1 and 100000");
    }
}
