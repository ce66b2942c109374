//! The engine of a fleet: NATS, as the node's own process on an anchor, or the user's cluster.

use facts::{Answer, Facts, NodeName, Post};
use fleet_nats::{Anchoring, Cluster, EngineReport, EngineState, FleetEngine, Launcher, Standing, find};
use node::config::{Config, NatsTarget};
use node::fleet::engine::{EngineStatus, EngineWay, ForEngine};
use problem::{Code, Problem};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_blocking;

/// The first word of this program when it is to become the engine.
const WORD: &str = "fleet-engine";
/// How long an anchor that was just founded waits for its engine, before it says that it does not know.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);

/// What this program is in the place of a command line, if its first word says so.
pub fn program(word: &str) -> Option<ExitCode> {
    (word == WORD).then(|| {
        eprintln!("{}", fleet_nats::launch(std::env::args_os().skip(2)));
        ExitCode::FAILURE
    })
}

/// How the engine of a fleet is reached, once there is a fleet.
pub struct Configured {
    data: PathBuf,
    given: Option<PathBuf>,
    cluster: Option<Cluster>,
}

/// Checks what is asked for.
///
/// # Errors
/// [`Code::ConfigInvalid`] names the option.
pub fn configure(config: &Config) -> Result<Configured, Problem> {
    let read = |target: &NatsTarget| {
        let file = target.credentials.display();
        let failed = |error| Problem::new(Code::ConfigInvalid, format!("nats_creds {file}: {error}"));
        Cluster::new(&target.servers, &std::fs::read_to_string(&target.credentials).map_err(failed)?)
    };
    let cluster = config.fleet.nats.as_ref().map(read).transpose()?;
    Ok(Configured { data: config.data.clone(), given: config.fleet.nats_server.clone(), cluster })
}

impl Configured {
    /// Whether this node could run the engine, if it became an anchor. It looks for the program.
    ///
    /// # Errors
    /// [`Code::EngineMissing`].
    pub fn may_run(&self) -> impl Fn() -> Result<(), Problem> + Send + Sync + use<> {
        let (data, given, has_cluster) = (self.data.clone(), self.given.clone(), self.cluster.is_some());
        move || match has_cluster {
            true => Ok(()),
            false => find(given.as_deref(), &data, std::env::var_os("PATH").as_deref()).map(|_| ()),
        }
    }

    /// Opens it for a node that has become a part of a fleet. None: the system gives no thread or no socket for it.
    pub fn open(&self, ForEngine { trust, anchor, arrivals }: ForEngine) -> Option<Arc<dyn EngineWay>> {
        let (data, given) = (self.data.clone(), self.given.clone());
        let anchoring = Anchoring {
            folder: data.join("fleet"),
            find: Arc::new(move || find(given.as_deref(), &data, std::env::var_os("PATH").as_deref())),
            launcher: Launcher { program: "/proc/self/exe".into(), word: WORD.to_owned() },
        };
        match FleetEngine::start(Standing { trust, anchor, arrivals }, anchoring, self.cluster.clone()) {
            Ok(engine) => Some(Arc::new(Nats(Arc::new(engine)))),
            Err(problem) => {
                tracing::error!("{} {}", problem.code, problem.detail);
                None
            }
        }
    }
}

struct Nats(Arc<FleetEngine>);

impl EngineWay for Nats {
    fn name(&self) -> &NodeName {
        self.0.name()
    }

    fn facts(&self) -> Arc<dyn Facts> {
        self.0.node()
    }

    fn post(&self) -> Arc<dyn Post> {
        self.0.node()
    }

    fn status(&self) -> EngineStatus {
        let EngineReport { is_connected, server, trouble } = self.0.report();
        let process = match server {
            Some(EngineState::Up { process, .. }) => Some(process),
            _ => None,
        };
        EngineStatus { is_connected, process, trouble }
    }

    fn settle(&self) -> Answer<'_, ()> {
        let engine = self.0.clone();
        Box::pin(async move {
            // It waits for a thread.
            let _ = spawn_blocking(move || engine.wait_known(SETTLE_TIMEOUT)).await;
        })
    }

    fn end(&self) -> Answer<'_, ()> {
        Box::pin(self.0.end())
    }
}
