//! Opens all that a node keeps on disk.

use crate::access::Access;
use crate::audit::Audit;
use crate::body::BodyRoom;
use crate::compiler::Compilers;
use crate::config::Config;
use crate::decisions::Decisions;
use crate::events::{Events, Pauses, Running, SinkKinds};
use crate::functions::{Functions, Loader};
use crate::hour::Hour;
use crate::ids::Ids;
use crate::log::Logs;
use crate::metrics::Counters;
use crate::mqtt::{GateNode, MqttSinks};
use crate::registry::OfferedClasses;
use crate::results::ResultIds;
use crate::sinks::Webhooks;
use crate::starts::Starts;
use crate::traces::Traces;
use crate::{Class, Node, fleet};
use budget::Budget;
use futures_util::future::BoxFuture;
use parking_lot::RwLock;
use problem::{Code, Problem};
use state::State;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use tokio::sync::watch;
use warehouse::Warehouse;

/// What a node is opened with, beside its configuration.
pub struct Opening {
    /// Tables of the state that are kept open for reading.
    pub files_kept: usize,
    /// The isolation classes it offers.
    pub classes: Vec<Arc<dyn Class>>,
    pub mqtt_sinks: Arc<MqttSinks>,
    pub started: Instant,
}

impl Node {
    /// # Errors
    /// Something of it cannot be opened; nothing was changed but in the data folder.
    pub fn open(config: Config, opening: Opening) -> BoxFuture<'static, Result<Arc<Self>, Problem>> {
        Box::pin(Self::opened(config, opening))
    }

    async fn opened(config: Config, opening: Opening) -> Result<Arc<Self>, Problem> {
        let Opening { files_kept, classes, mqtt_sinks, started } = opening;
        let budget = Budget::new(config.memory_bytes_max);
        let state = State::open(&config.data, state::Options { files_kept, ..state::Options::default() })?;
        state.set_sync_every(config.sync_every);
        let warehouse = warehouse(&config)?;
        let classes = OfferedClasses::open(classes, &warehouse)?;
        for offered in classes.iter() {
            offered.class.start().await?;
        }
        let access = Access::open(&state)?;
        let audit = Audit::open(&config.data)?;
        let logs = Arc::new(Logs::new(config.logs_bytes_max, config.log_units));
        let result_ids = ResultIds::open(&state).await?;
        // A kind of sink is one more line here.
        let sinks = SinkKinds(vec![Arc::new(Webhooks::new(&state, config.webhook_trust.clone())), mqtt_sinks]);
        let loader = Arc::new(Loader::new(
            classes,
            warehouse,
            state,
            budget.clone(),
            Compilers::new(budget.clone(), config.compile_cpu_time_max),
            config.functions_loaded_max,
            config.function_idle,
        ));
        let token_by_default = !config.http.ip().is_loopback();
        let units = dispatch::NodeTurns::new(config.units_max, config.units_max);
        let functions = Functions::restore(loader, logs.clone(), units, token_by_default, sinks)?;
        let seed =
            getrandom::u64().map_err(|error| Problem::new(Code::Internal, format!("no random numbers: {error}")))?;
        let traces =
            config.traces.as_ref().map(|target| Traces::new(target, Ids::new(seed)).map(Arc::new)).transpose()?;
        let seed =
            getrandom::u64().map_err(|error| Problem::new(Code::Internal, format!("no random numbers: {error}")))?;
        let running = Running::open(&config.data)
            .map_err(|error| Problem::new(Code::DataUnusable, format!("what was being handled: {error}")))?;
        let short_runs = Starts::short_runs(Starts::left(&config.data), running.suspected() > 0);
        let pauses = Pauses::open(&functions.loader.state, why_paused(&config, short_runs).as_deref())?;
        let events = Events::new(functions.clone(), traces.clone(), pauses, running, seed);
        let when_full = config.mqtt.as_ref().map(|mqtt| mqtt.limits.when_session_full).unwrap_or_default();
        let gate_node = GateNode::open(events.clone(), audit.clone(), seed, when_full)?;
        Ok(Arc::new(Node {
            gate_node,
            fleet: fleet::agent(&config),
            bodies: BodyRoom::new(config.bodies_bytes_max, &budget),
            budget,
            result_ids,
            config,
            functions,
            events,
            access,
            audit,
            logs,
            decisions: Decisions::default(),
            hour: Hour::default(),
            traces,
            strays: Counters::default(),
            started,
            calls: Arc::default(),
            short_runs,
            mqtt: OnceLock::new(),
            link: RwLock::new(None),
            engine: watch::Sender::new(None),
            gate_url: OnceLock::new(),
            identity: OnceLock::new(),
            stopping: watch::Sender::new(None),
            is_draining: AtomicBool::new(false),
        }))
    }
}

/// Half of its room is for images, half for what they are compiled to.
fn warehouse(config: &Config) -> Result<Warehouse, Problem> {
    let limits = warehouse::Config {
        image_bytes_max: config.image_bytes_max,
        images_bytes_max: config.warehouse_bytes_max / 2,
        artefacts_bytes_max: config.warehouse_bytes_max / 2,
    };
    Warehouse::open(&config.data.join("warehouse"), limits)
}

/// Why all queues are paused from the start, if they are to be.
fn why_paused(config: &Config, short_runs: u32) -> Option<String> {
    if config.paused {
        return Some("the node was started with --paused".to_owned());
    }
    config.short_runs_max.filter(|max| short_runs >= *max).map(|_| {
        format!("the node's last {short_runs} runs ended within a minute of their start, while events were handled")
    })
}
