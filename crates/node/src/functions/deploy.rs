//! A deployment: everything is checked, compiled and started once before anything changes.
//!
//! Its messages wait in a queue that holds all of them. A client that goes away while an image is compiled ends the
//! deployment, and the compiler with it. From then on the deployment runs to its end, so its result is never in doubt.

use super::history::{History, NewVersion};
use super::live::Live;
use super::loader::{Loaded, blocking};
use super::{Change, Functions, PartChange, Table, hash};
use api_types::{DeployStep, LogLine};
use handling::Handler;
use manifest::{Function, Manifest, Name};
use problem::{Code, Problem};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use unit::{Contract, Level};
use warehouse::ImageHash;

/// Steps one function says at most, and those of the whole deployment.
const STEPS_PER_FUNCTION: usize = 5;
const STEPS_AT_THE_END: usize = 1;

/// Lines of its log, and bytes of them, that go into the problem of a function that does not start.
const LAST_LINES: usize = 12;
const LAST_BYTES: usize = 4 << 10;

/// Says how far a deployment is.
pub struct Steps(mpsc::Sender<DeployStep>);

impl Steps {
    /// For the deployment of this manifest.
    pub fn new(manifest: &Manifest) -> (Self, mpsc::Receiver<DeployStep>) {
        let Manifest { function, queue, sink, bucket, workflow } = manifest;
        // A function or sink whose workflow had ended has a step more. A function ends the bounds of one workflow at
        // most.
        let steps = function.len() * (STEPS_PER_FUNCTION + 1) + queue.len() + 2 * sink.len() + bucket.len();
        let steps = steps + workflow.len();
        let (sender, receiver) = mpsc::channel(steps + STEPS_AT_THE_END);
        (Self(sender), receiver)
    }

    /// Waits for the moment nobody hears them any more.
    pub async fn unheard(&self) {
        self.0.closed().await;
    }

    fn say_part(&self, part: &PartChange) {
        let (kind, name) = part.subject();
        self.say(DeployStep::Configured { kind: kind.to_owned(), name: name.to_owned() });
    }

    pub fn say(&self, step: DeployStep) {
        // The queue holds every step there can be; without a receiver nobody wants to know.
        self.0.try_send(step).ok();
    }
}

/// The right to change these functions, queues, sinks and buckets. Dropping it gives it back.
pub struct Claim {
    functions: Arc<Functions>,
    /// As `function "hello"`.
    subjects: Vec<String>,
}

impl Claim {
    /// # Errors
    /// [`Code::DeployBusy`] names what somebody else is changing.
    pub fn all(functions: &Arc<Functions>, manifest: &Manifest) -> Result<Self, Problem> {
        let Manifest { function, queue, sink, bucket, workflow } = manifest;
        let subjects = function.keys().map(|name| ("function", name.as_str()));
        let subjects = subjects.chain(queue.keys().map(|name| ("queue", name.as_str())));
        let subjects = subjects.chain(sink.keys().map(|name| ("sink", name.as_str())));
        let subjects = subjects.chain(bucket.keys().map(|name| ("bucket", name.as_str())));
        Self::new(functions, subjects.chain(workflow.keys().map(|name| ("workflow", name.as_str()))))
    }

    /// Kinds and names; errors as of [`Claim::all`].
    pub fn new<'a>(
        functions: &Arc<Functions>,
        subjects: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, Problem> {
        let subjects: Vec<String> = subjects.into_iter().map(|(kind, name)| format!("{kind} {name:?}")).collect();
        let mut busy = functions.busy.lock();
        if let Some(subject) = subjects.iter().find(|subject| busy.contains(*subject)) {
            return Err(Problem::new(Code::DeployBusy, format!("{subject} is being changed already")));
        }
        busy.extend(subjects.iter().cloned());
        drop(busy);
        Ok(Self { functions: functions.clone(), subjects })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut busy = self.functions.busy.lock();
        self.subjects.iter().for_each(|subject| _ = busy.remove(subject));
    }
}

/// Functions and sinks that go when a deployment comes, in the same moment. None of them is in its manifest.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Leaving {
    pub functions: BTreeSet<Name>,
    pub sinks: BTreeSet<Name>,
}

impl Leaving {
    /// Kinds and names, as [`Claim::new`] takes them.
    pub fn subjects(&self) -> impl Iterator<Item = (&str, &str)> {
        let functions = self.functions.iter().map(|name| ("function", name.as_str()));
        functions.chain(self.sinks.iter().map(|name| ("sink", name.as_str())))
    }

    /// What changes in a table when they go. Of what is not there, nothing.
    fn changes(&self, table: &Table) -> Vec<Change> {
        let ended = |name: &Name| Change::Part(PartChange::Ended(name.clone(), None));
        let functions = self.functions.iter().filter(|name| table.entry(name.as_str()).is_some());
        let functions = functions.flat_map(|name| [Change::Remove(name.clone()), ended(name)]);
        let sinks = self.sinks.iter().filter(|name| table.parts().sinks.contains_key(*name));
        let sinks = sinks.flat_map(|name| [Change::Part(PartChange::Sink(name.clone(), None)), ended(name)]);
        functions.chain(sinks).collect()
    }
}

/// A function that differs from what runs, and can run here.
struct Candidate {
    name: Name,
    function: Arc<Function>,
    image: ImageHash,
    image_bytes: u64,
    contract: Contract,
}

impl Functions {
    /// Deploys all functions of the manifest, or none. The caller holds the claim on them.
    ///
    /// # Errors
    /// The first problem that was found; nothing was changed.
    pub async fn deploy(self: &Arc<Self>, manifest: Manifest, now_ms: u64, steps: &Steps) -> Result<(), Problem> {
        self.replace(&Leaving::default(), manifest, now_ms, steps).await
    }

    /// Deploys all functions of the manifest in place of others, whose routes and queues it may have, or does nothing.
    /// The caller holds the claim on all of them.
    ///
    /// # Errors
    /// The first problem that was found; nothing was changed.
    pub async fn replace(
        self: &Arc<Self>,
        leaving: &Leaving,
        manifest: Manifest,
        now_ms: u64,
        steps: &Steps,
    ) -> Result<(), Problem> {
        manifest.check()?;
        let new_names: Vec<Name> =
            manifest.function.keys().filter(|name| self.get(name.as_str()).is_err()).cloned().collect();
        let deployed = self.deploy_all(leaving, manifest, now_ms, steps).await;
        if deployed.is_err() {
            // What a function said that never came to be.
            new_names.iter().for_each(|name| self.logs.remove(name));
        }
        deployed
    }

    async fn deploy_all(
        self: &Arc<Self>,
        leaving: &Leaving,
        manifest: Manifest,
        now_ms: u64,
        steps: &Steps,
    ) -> Result<(), Problem> {
        let mut changes = leaving.changes(&self.table());
        // What goes is in nobody's way.
        let table = self.table().changed(&changes, self.token_by_default)?;
        table.check_routes(&manifest)?;
        table.check_handlers(&manifest)?;
        let parts = self.changed_parts(&table, &manifest, now_ms)?;
        for (name, sink) in &manifest.sink {
            self.sinks.get(name, sink)?.check(name, sink)?;
        }
        let names: BTreeSet<Name> = manifest.function.keys().chain(manifest.sink.keys()).cloned().collect();
        let mut candidates = Vec::new();
        for (name, function) in manifest.function {
            match self.unchanged(&name, &function) {
                Some(version) => steps.say(DeployStep::Unchanged { function: name.to_string(), version }),
                None => candidates.push(self.check(name, function, steps).await?),
            }
        }
        for candidate in candidates {
            changes.push(self.make_ready(candidate, now_ms, steps).await?);
        }
        parts.iter().for_each(|part| steps.say_part(part));
        changes.extend(parts.into_iter().map(Change::Part));
        let (is_news, said) = (!changes.is_empty(), changes.iter().filter_map(describe).collect::<Vec<_>>());
        let late = self.commit_deployed(changes, &names).await?;
        late.iter().for_each(|part| steps.say_part(part));
        if !is_news {
            return Ok(());
        }
        for (live, what) in said {
            live.identity.log.node(Level::Info, live.version, &what);
            tracing::info!(function = %live.name(), version = live.version, image = %live.image, "deployed");
        }
        for name in &leaving.functions {
            self.logs.remove(name);
        }
        for (kind, name) in leaving.subjects() {
            tracing::info!(kind, name, "removed");
        }
        Ok(())
    }

    fn changed_parts(&self, table: &Table, manifest: &Manifest, now_ms: u64) -> Result<Vec<PartChange>, Problem> {
        table.parts().changes(manifest, now_ms, |name| table.get(name.as_str()).is_ok())
    }

    /// The version that runs, if it is this very function.
    fn unchanged(&self, name: &Name, function: &Function) -> Option<u32> {
        let entry = self.get(name.as_str()).ok()?;
        (*entry.live.function == *function).then_some(entry.live.version)
    }

    async fn check(&self, name: Name, function: Function, steps: &Steps) -> Result<Candidate, Problem> {
        let about = |problem: Problem| Problem {
            detail: format!("function {:?}: {}", name.as_str(), problem.detail).into(),
            ..problem
        };
        let image = hash(&function).map_err(about)?;
        let offered = self.loader.classes.get(function.isolation).map_err(about)?.clone();
        offered.units.usable().await.map_err(about)?;
        gate_timer::Timer::all(&function).map_err(about)?;
        self.loader.secrets.check_granted(&name, &function)?;
        let warehouse = self.loader.warehouse.clone();
        let checked = blocking(move || {
            let bytes = warehouse.read_image(&image)?;
            Ok((offered.units.check(&bytes)?, bytes.len() as u64))
        });
        let (shape, image_bytes) = checked.await.map_err(about)?;
        steps.say(DeployStep::Checked { function: name.to_string(), contract: shape.contract.as_str().to_owned() });
        Ok(Candidate { name, function: Arc::new(function), image, image_bytes, contract: shape.contract })
    }

    async fn make_ready(self: &Arc<Self>, candidate: Candidate, now_ms: u64, steps: &Steps) -> Result<Change, Problem> {
        let Candidate { name, function, image, image_bytes, contract } = candidate;
        let about = |problem: Problem| Problem {
            detail: format!("function {:?}: {}", name.as_str(), problem.detail).into(),
            ..problem
        };
        steps.say(DeployStep::Compiling { function: name.to_string(), image_bytes });
        // What is not there yet is begun for nobody else: without a client it is not made.
        let built = tokio::select! {
            built = self.loader.build(function.isolation, image) => built.map_err(about)?,
            () = steps.unheard() => {
                return Err(about(Problem::new(Code::Interrupted, "the client went away while it compiled")));
            }
        };
        steps.say(DeployStep::Compiled {
            function: name.to_string(),
            milliseconds: u64::try_from(built.took.as_millis()).unwrap_or(u64::MAX),
            artefact_bytes: built.artefact_bytes,
            kept: built.kept,
        });

        let before = self.get(name.as_str()).ok();
        let new = NewVersion { image_bytes, deployed_ms: now_ms, contract, function: function.clone() };
        let history = Arc::new(History::deployed(before.as_ref().map(|entry| &*entry.history), new));
        // Now rather than at the commit: compiling the other functions may take a while.
        history.to_record(&name)?;
        let identity = before.map_or_else(|| self.identity(&name, &function), |entry| entry.live.identity.clone());
        let live = Live::new(identity, history.current(), image);
        let started = async {
            let loaded = self.loader.load(&live).await?;
            let took = start_once(&self.loader.handler, &loaded).await?;
            Ok((loaded, took))
        };
        let (loaded, took) = started.await.map_err(|problem| about(self.with_last_words(&live, problem)))?;
        steps.say(DeployStep::Started {
            function: name.to_string(),
            microseconds: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
        });
        self.loader.keep(&live, loaded);
        Ok(Change::Put { live, history })
    }

    /// Adds what the function said while it was started: the log of one that never comes to be goes away with it.
    fn with_last_words(&self, live: &Live, problem: Problem) -> Problem {
        let is_its = |line: &LogLine| line.version == live.version && line.message != problem.detail;
        let said: Vec<String> =
            self.logs.tail(Some(live.name()), LAST_LINES).into_iter().filter(is_its).map(|line| line.message).collect();
        let hint = match (problem.code, self.get(live.name().as_str())) {
            (Code::StartFailed, Ok(_)) => format!("`lighter logs {}` has all it said", live.name()).into(),
            (Code::StartFailed, Err(_)) => problem.code.hint().into(),
            _ => problem.hint,
        };
        let said = said.join("\n");
        let detail = match said.is_empty() {
            true => problem.detail,
            false => format!("{}; it said:\n{}", problem.detail, &said[..said.floor_char_boundary(LAST_BYTES)]).into(),
        };
        Problem { detail, hint, ..problem }
    }
}

/// # Errors
/// [`Code::StartFailed`] when the unit traps; a limit keeps its own code.
pub async fn start_once(handler: &Handler, loaded: &Loaded) -> Result<Duration, Problem> {
    handler.try_start(&loaded.prepared).await.map_err(|problem| match problem.code {
        Code::UnitTrapped | Code::UnitExited => Problem::new(Code::StartFailed, problem.detail),
        _ => problem,
    })
}

fn describe(change: &Change) -> Option<(Arc<Live>, String)> {
    match change {
        Change::Put { live, .. } => Some((live.clone(), format!("version {} takes calls", live.version))),
        Change::Remove(_) | Change::Part(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::functions::Ended;
    use crate::link::tests::town::TownNode;

    /// It succeeded, and left what it had deployed as ended as before.
    #[tokio::test]
    async fn a_deployment_in_whose_middle_its_workflow_ends_has_it_go_on() {
        let town = TownNode::start("one").await;
        let text = "[function.a]\nimage = \"a\"\nqueue = \"q\"\n";
        town.deploy(text).await;
        let functions = &town.node.functions;
        let still = functions.hold_still().await;
        let names = BTreeSet::from(["a".parse::<Name>().unwrap()]);
        let end = tokio::spawn({
            let functions = functions.clone();
            async move { functions.end_workflow(names, Ended { reason: "full".to_owned(), at_ms: 1 }).await }
        });
        tokio::task::yield_now().await;
        let manifest = town.manifest(text);
        let (steps, mut heard) = Steps::new(&manifest);
        let deploy = tokio::spawn({
            let functions = functions.clone();
            async move { functions.deploy(manifest, 2, &steps).await }
        });
        assert!(matches!(heard.recv().await, Some(DeployStep::Unchanged { .. })));
        assert!(functions.table().parts().ended.is_empty(), "it was deployed as if nothing were to happen");
        drop(still);
        end.await.unwrap().unwrap();
        deploy.await.unwrap().unwrap();
        assert!(functions.table().parts().ended.is_empty());
        assert!(matches!(heard.recv().await, Some(DeployStep::Configured { .. })));
    }
}
