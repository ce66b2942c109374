//! Deployments of the fleet: an order that is signed here, and a look at how far each node is.
//!
//! ```text
//! deployer's key   --deployer ▸ LIGHTER_DEPLOYER ▸ fleet/deployer.key in the data folder of an anchor
//! order            made from the newest record, signed ──▶ any node ──▶ an anchor
//! ```

use super::client::{Client, announced};
use super::progress::Progress;
use super::stop::{Result, Stop};
use super::table::Table;
use super::{Session, locate, words};
use api_types::{DeploymentNode, FleetDeployment, FleetDeployments, FleetRollout, OrderTaken};
use clap::Args;
use fleet_deploy::{DeployerKey, Order, SignedOrder, Wish};
use manifest::Name;
use problem::{Code, Problem};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use ureq::http::header::CONTENT_TYPE;

/// Bytes of a key's file; a larger one is none.
const KEY_BYTES_MAX: u64 = 4_096;
/// How often is looked how far the nodes are.
const LOOK_EVERY: Duration = Duration::from_millis(150);
/// A node tries again by itself: a failure that lasts so long is told.
const FAILED_FOR: Duration = Duration::from_secs(5);
/// How long the nodes may take. They go on without this command.
const WAIT_MAX: Duration = Duration::from_secs(900);

/// The key of whoever deploys to a fleet.
#[derive(Debug, Args)]
pub struct Deployer {
    /// File with a deployer's key [default: LIGHTER_DEPLOYER, else that of the anchor's data folder]
    #[arg(long, value_name = "FILE")]
    deployer: Option<PathBuf>,
}

impl Deployer {
    fn key(&self, session: &Session) -> Result<DeployerKey> {
        let variable = std::env::var_os("LIGHTER_DEPLOYER").filter(|file| !file.is_empty()).map(PathBuf::from);
        let file = match self.deployer.clone().or(variable) {
            Some(file) => file,
            None => {
                let file =
                    locate::data_folder(session.global.data_folder.as_deref())?.join("fleet").join("deployer.key");
                if !file.exists() {
                    let detail =
                        "there is no key of a deployer: this machine is no anchor, and --deployer names no file";
                    return Err(Stop::new(Code::DeployerUnknown, detail));
                }
                file
            }
        };
        let mut text = String::new();
        let read = File::open(&file).and_then(|open| open.take(KEY_BYTES_MAX).read_to_string(&mut text));
        read.map_err(|error| Stop::named("--deployer", &file, &error))?;
        Ok(DeployerKey::read(&text)?)
    }
}

/// Orders what is wished, and waits until the nodes that are there have it.
pub fn order(session: &Session, deployer: &Deployer, name: &Name, wish: Wish) -> Result {
    let (client, progress) = (session.client()?, session.out.progress());
    let key = deployer.key(session)?;
    let view = look(&client)?;
    let after = of(&view, name.as_str()).map_or(0, |deployment| deployment.serial);
    let order = Order { fleet: view.fleet, name: name.clone(), after, deployer: key.name.clone(), wish };
    let order = SignedOrder::sign(order, &key)?;
    progress.step("waiting for an anchor");
    let request = announced(client.request("POST", "/v1/fleet/orders"), order.bytes().len());
    let request = request.header(CONTENT_TYPE, "application/octet-stream");
    let response = client.exchange(request, order.bytes())?;
    let taken: OrderTaken = client.read(client.succeeded(response)?)?;
    progress.done(format!("{name}: revision {} is the fleet's", taken.revision));
    let deployment = follow(&client, &taken, &progress)?;
    progress.end();
    for node in deployment.nodes.iter().filter(|node| !node.is_there) {
        session.out.say(format!("{} is away: it takes the deployment when it is back", node.name));
    }
    match session.out.json {
        true => session.out.json(&deployment),
        false if deployment.is_removed => Ok(()),
        false => session.out.table(&nodes(&deployment)),
    }
}

/// The deployments of the fleet.
pub fn list(session: &Session) -> Result {
    let (out, client) = (session.out, session.client()?);
    let view = look(&client)?;
    if out.json {
        return out.json(&view);
    }
    out.table(&table(&view))?;
    for deployment in &view.deployments {
        if let Some(text) = way(deployment) {
            out.say(text);
        }
    }
    for (deployment, node) in view.deployments.iter().flat_map(|one| one.nodes.iter().map(move |node| (one, node))) {
        if let Some(trouble) = &node.trouble {
            let detail = words::harmless(&trouble.detail);
            out.say(format!("{} on {}: {} {detail}", deployment.name, node.name, trouble.code));
        }
    }
    if !view.is_anchor {
        out.say(format!("no anchor answers: this is what {} knows", view.told_by));
    }
    Ok(())
}

fn look(client: &Client) -> Result<FleetDeployments> {
    client.get("/v1/fleet/deployments")
}

fn of<'a>(view: &'a FleetDeployments, name: &str) -> Option<&'a FleetDeployment> {
    view.deployments.iter().find(|deployment| deployment.name == name)
}

/// Shows each node as it becomes ready, and returns when all that are there are.
fn follow(client: &Client, taken: &OrderTaken, progress: &Progress) -> Result<FleetDeployment> {
    let began = Instant::now();
    // By node: what was said of it, and since when it fails.
    let mut said: BTreeMap<String, String> = BTreeMap::new();
    let mut failing: BTreeMap<String, Instant> = BTreeMap::new();
    // Steps are watched for as long as the manifest says.
    let mut is_underway = false;
    progress.step("waiting for the nodes");
    loop {
        let view = look(client)?;
        let deployment = of(&view, &taken.name).filter(|deployment| deployment.serial >= taken.serial).cloned();
        if let Some(deployment) = deployment {
            if let Some(returned) = deployment.returned.as_ref().filter(|one| one.revision == taken.revision) {
                let (name, why) = (&taken.name, words::harmless(&returned.why));
                let (failed, now) = (returned.revision, deployment.revision);
                let detail = format!("{name}: back from revision {failed} to {now}: {why}");
                return Err(Stop::new(Code::RolloutFailed, detail));
            }
            if deployment.revision != taken.revision {
                let detail = format!("the deployment {:?} was changed again meanwhile", taken.name);
                return Err(Stop::new(Code::DeploymentChanged, detail));
            }
            is_underway = deployment.rollout.is_some();
            let there = || deployment.nodes.iter().filter(|node| node.is_there);
            for node in there() {
                if node.stage == "ready"
                    && node.revision == deployment.revision
                    && said.insert(node.name.clone(), node.stage.clone()).as_deref() != Some("ready")
                {
                    progress.done(format!("{}: {} ready", node.name, node.functions.join(", ")));
                    progress.step("waiting for the nodes");
                }
                match node.stage.as_str() {
                    "failed" => _ = failing.entry(node.name.clone()).or_insert_with(Instant::now),
                    "ready" => _ = failing.remove(&node.name),
                    _ => {}
                }
            }
            let ready = there().filter(|node| node.stage == "ready").count();
            let step = deployment.rollout.as_ref().map(step_in_words).unwrap_or_default();
            progress.update(format!("{step}{ready} of {} nodes are ready", there().count()));
            let is_open = |node: &DeploymentNode| match failing.get(&node.name) {
                Some(since) => since.elapsed() < FAILED_FOR,
                None => node.stage != "ready",
            };
            if deployment.rollout.is_none() && !there().any(is_open) {
                return failed(&deployment).map_or(Ok(deployment), Err);
            }
        }
        if began.elapsed() > WAIT_MAX && !is_underway {
            let detail = format!("the nodes are not ready after {} s; they go on", WAIT_MAX.as_secs());
            let problem = Problem::new(Code::RequestTimeout, detail);
            return Err(problem.with_hint("`lighter fleet deployments` shows how far each is").into());
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// The first node that could not, as a problem.
fn failed(deployment: &FleetDeployment) -> Option<Stop> {
    let mut failed = deployment.nodes.iter().filter(|node| node.is_there && node.stage != "ready");
    let node = failed.next()?;
    let trouble = node.trouble.as_ref()?;
    let others = match failed.count() {
        0 => String::new(),
        count => format!(" (and {count} more nodes failed)"),
    };
    let code = Code::from_name(&trouble.code).unwrap_or(Code::Unknown);
    let problem = Problem::new(code, format!("{}: {}{others}", node.name, trouble.detail));
    Some(problem.with_hint(trouble.hint.clone()).into())
}

fn step_in_words(rollout: &FleetRollout) -> String {
    format!("step {} of {}: ", rollout.step, rollout.steps)
}

/// Which nodes have a new form that is on its way, or why one was gone back from.
fn way(deployment: &FleetDeployment) -> Option<String> {
    let FleetDeployment { name, revision, .. } = deployment;
    if let Some(returned) = &deployment.returned {
        return Some(format!("{name}: back from revision {}: {}", returned.revision, words::harmless(&returned.why)));
    }
    let rollout = deployment.rollout.as_ref()?;
    let new = deployment.nodes.iter().filter(|node| node.revision == *revision);
    let new: Vec<&str> = new.map(|node| node.name.as_str()).collect();
    let (step, new, before) = (step_in_words(rollout), new.join(", "), rollout.before);
    Some(format!("{name}: {step}revision {revision} is on {new}, revision {before} on all others"))
}

fn nodes(deployment: &FleetDeployment) -> Table {
    let mut table = Table::new(&["NODE", "STAGE", "FUNCTIONS"]);
    for node in &deployment.nodes {
        table.row([node.name.clone(), stage(node), node.functions.join(", ")]);
    }
    table
}

fn stage(node: &DeploymentNode) -> String {
    if node.is_there { node.stage.clone() } else { "away".to_owned() }
}

fn table(view: &FleetDeployments) -> Table {
    let mut table = Table::new(&["NAME", "REVISION", "EARLIER", "NODES", "FUNCTIONS", "DEPLOYER"]);
    for deployment in view.deployments.iter().filter(|deployment| !deployment.is_removed) {
        let ready = deployment.nodes.iter().filter(|node| node.is_there && node.stage == "ready").count();
        let earlier: Vec<String> = deployment.earlier.iter().map(u64::to_string).collect();
        table.row([
            deployment.name.clone(),
            deployment.revision.to_string(),
            if earlier.is_empty() { "-".to_owned() } else { earlier.join(" ") },
            format!("{ready} of {} ready", deployment.nodes.len()),
            deployment.functions.join(" "),
            deployment.deployer.clone(),
        ]);
    }
    table
}

/// The name of a deployment: the one that was given, or that of the folder.
pub fn name(given: Option<&str>, folder: &Path) -> Result<Name> {
    let of_folder = || {
        let whole = std::fs::canonicalize(if folder == Path::new("") { Path::new(".") } else { folder }).ok()?;
        Some(whole.file_name()?.to_string_lossy().to_lowercase().replace(['_', '.', ' '], "-"))
    };
    let text = given.map(str::to_owned).or_else(of_folder).unwrap_or_default();
    text.parse().map_err(|why: String| {
        let problem = Problem::new(Code::Usage, format!("the name of the deployment: {why}"));
        problem.with_hint("say one with --name").into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use api_types::{FleetReturned, FleetTrouble};

    fn node(name: &str, is_there: bool, stage: &str) -> DeploymentNode {
        let trouble = (stage == "failed").then(|| FleetTrouble {
            code: "L2006".to_owned(),
            detail: "it has another hash".to_owned(),
            hint: "send it again".to_owned(),
        });
        let functions = vec!["hello".to_owned()];
        DeploymentNode {
            id: "00".repeat(16),
            name: name.to_owned(),
            is_there,
            stage: stage.to_owned(),
            revision: 2,
            functions,
            trouble,
        }
    }

    fn deployment(nodes: Vec<DeploymentNode>) -> FleetDeployment {
        FleetDeployment {
            name: "app".to_owned(),
            serial: 3,
            revision: 2,
            earlier: vec![1],
            deployer: "ci".to_owned(),
            made_s: 0,
            is_removed: false,
            functions: vec!["hello".to_owned()],
            nodes,
            rollout: None,
            returned: None,
        }
    }

    #[test]
    fn the_first_node_that_failed_is_the_problem_and_one_that_is_away_is_none() {
        let all = deployment(vec![node("a", true, "ready"), node("b", false, "waiting")]);
        assert!(failed(&all).is_none());
        let all = deployment(vec![node("a", true, "failed"), node("b", true, "failed"), node("c", false, "failed")]);
        let Some(Stop::Problem(problem)) = failed(&all) else { panic!("one has failed") };
        assert_eq!(problem.code, Code::ImageHash);
        assert_eq!(problem.detail, "a: it has another hash (and 1 more nodes failed)");
    }

    #[test]
    fn a_line_for_each_deployment_that_runs() {
        let mut removed = deployment(vec![]);
        removed.is_removed = true;
        let deployments = vec![deployment(vec![node("a", true, "ready"), node("b", false, "ready")]), removed];
        let view = FleetDeployments { fleet: "f".to_owned(), told_by: "a".to_owned(), is_anchor: true, deployments };
        let lines = table(&view).lines();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[1].split_whitespace().collect::<Vec<_>>().join(" "), "app 2 1 1 of 2 ready hello ci");
        assert_eq!(stage(&node("b", false, "ready")), "away");
    }

    #[test]
    fn what_is_on_its_way_and_what_came_back_is_told() {
        let mut one = deployment(vec![node("a", true, "ready"), node("b", true, "ready")]);
        assert_eq!(way(&one), None);
        one.nodes[1].revision = 1;
        one.rollout = Some(FleetRollout { step: 1, steps: 2, before: 1, watch_ms: 60_000 });
        assert_eq!(way(&one).unwrap(), "app: step 1 of 2: revision 2 is on a, revision 1 on all others");
        (one.revision, one.rollout) = (1, None);
        one.returned = Some(FleetReturned { revision: 2, why: "a cannot run it".to_owned() });
        assert_eq!(way(&one).unwrap(), "app: back from revision 2: a cannot run it");
    }

    #[test]
    fn a_deployment_is_called_as_its_folder_or_as_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("My_App");
        std::fs::create_dir(&inner).unwrap();
        assert_eq!(name(None, &inner).unwrap().as_str(), "my-app");
        assert_eq!(name(Some("other"), &inner).unwrap().as_str(), "other");
        assert!(name(Some("No Name"), &inner).is_err());
    }
}
