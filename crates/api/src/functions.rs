//! Functions: list, deploy, roll back, remove, and the core dump of the last trap.

use super::deployments::check_own;
use super::reply::{Answer, Json, NDJSON, line, whole};
use super::scope::{MayDeploy, MayLookSome};
use api_types::{DeployStep, FunctionInfo, RollbackRequest};
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use manifest::{Manifest, Name};
use node::{Claim, Node, Steps, clock};
use problem::{Code, Problem};
use std::convert::Infallible;
use std::sync::Arc;

/// Bytes of a manifest as JSON, where every default is written out.
const MANIFEST_JSON_BYTES_MAX: u64 = 16 << 20;

/// Every function, by name.
#[utoipa::path(get, path = "/v1/functions", tag = "functions", responses((status = 200, body = Vec<FunctionInfo>)))]
pub async fn list(MayLookSome(who): MayLookSome, State(node): State<Arc<Node>>) -> axum::Json<Vec<FunctionInfo>> {
    let table = node.functions.table();
    let seen = table.entries().filter(|entry| who.token.covers_function(entry.live.name().as_str()));
    axum::Json(seen.map(|entry| node.describe(entry)).collect())
}

/// One function.
#[utoipa::path(get, path = "/v1/functions/{name}", tag = "functions", params(("name" = String, Path)), responses(
    (status = 200, body = FunctionInfo),
    (status = 404, description = "L2001: there is none"),
))]
pub async fn get(
    MayLookSome(who): MayLookSome,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
) -> Answer<axum::Json<FunctionInfo>> {
    who.token.may_call(&name)?;
    Ok(axum::Json(node.describe(&node.functions.get(&name)?)))
}

/// Removes a function and all its versions. Calls that run may end. The queue it handled stays, with its events.
#[utoipa::path(delete, path = "/v1/functions/{name}", tag = "functions", params(("name" = String, Path)), responses(
    (status = 204, description = "It is gone"),
    (status = 404, description = "L2001: there is none"),
    (status = 409, description = "L9136: it belongs to a deployment of the fleet"),
))]
pub async fn remove(
    MayDeploy(who): MayDeploy,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
) -> Answer<StatusCode> {
    let name = known(&node, &name)?;
    check_own(&node, [name.as_str()].into_iter())?;
    // To its end even if the client goes away: half a removal helps nobody.
    detached(async move {
        let removed = node.functions.remove(&name).await;
        who.did(&node, "rm", name.as_str(), removed).await
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Goes back to an earlier version: the one asked for, or the one before the current.
#[utoipa::path(post, path = "/v1/functions/{name}/rollback", tag = "functions", params(("name" = String, Path)),
    request_body = RollbackRequest, responses(
    (status = 200, body = FunctionInfo),
    (status = 404, description = "L2001, L2002: no such function or version"),
    (status = 409, description = "L9136: it belongs to a deployment of the fleet"),
))]
pub async fn rollback(
    MayDeploy(who): MayDeploy,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
    Json(request): Json<RollbackRequest>,
) -> Answer<axum::Json<FunctionInfo>> {
    let name = known(&node, &name)?;
    check_own(&node, [name.as_str()].into_iter())?;
    let (working, wanted) = (node.clone(), name.clone());
    detached(async move {
        let rolled = working.functions.roll_back(&wanted, request.version).await;
        who.did(&working, "rollback", wanted.as_str(), rolled).await
    })
    .await?;
    Ok(axum::Json(node.describe(&node.functions.get(name.as_str())?)))
}

/// The core dump of the last unit that trapped, if `units.dump` asks for dumps.
#[utoipa::path(get, path = "/v1/functions/{name}/dump", tag = "functions", params(("name" = String, Path)), responses(
    (status = 200, description = "A wasm core dump", content_type = "application/octet-stream", body = Vec<u8>),
    (status = 404, description = "L2001, L2017: no such function, or no dump"),
))]
pub async fn dump(
    MayDeploy(who): MayDeploy,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
) -> Answer<Response> {
    let live = node.functions.get(&name)?.live;
    let Some(dump) = live.prepared().and_then(|prepared| prepared.dump()) else {
        let problem = Problem::new(Code::DumpMissing, format!("function {name:?} has no core dump"));
        let isolation = live.function.isolation;
        let hint = match node.functions.loader.classes.get(isolation)?.class.leaves_dumps() {
            false => format!("the class {} leaves none: the log has what the function wrote", isolation.as_str()),
            true if live.function.units.dump => "no unit trapped since it was deployed or loaded".to_owned(),
            true => "set units.dump = true".to_owned(),
        };
        return Err(problem.with_hint(hint).into());
    };
    who.did(&node, "dump", &name, Ok(())).await?;
    let bytes = Bytes::from_owner(DumpBytes(dump));
    Ok(([(CONTENT_TYPE, "application/octet-stream")], bytes).into_response())
}

/// All that is deployed, as one manifest: of each function the version that takes calls now. Secrets stand as
/// `{SECRET:NAME}`.
#[utoipa::path(get, path = "/v1/deployments", tag = "functions", responses((status = 200, body = Object)))]
pub async fn deployed(_: MayDeploy, State(node): State<Arc<Node>>) -> axum::Json<Manifest> {
    axum::Json(node.functions.table().manifest())
}

/// Deploys all functions, queues, sinks and buckets of a manifest, or none. The answer is a stream of steps, one JSON
/// document a line; the last is `done` or `failed`. A client that goes away while an image
/// is compiled ends the deployment; later it goes on to its end.
#[utoipa::path(post, path = "/v1/deployments", tag = "functions",
    request_body(content = Object, description = "A manifest as JSON, with the hashes of uploaded images in `image`"), responses(
    (status = 200, content_type = "application/x-ndjson", body = DeployStep),
    (status = 400, description = "L1003, L1004, L1005: the manifest is not right, or at odds with what is deployed; nothing was begun"),
    (status = 409, description = "L2012: somebody else is changing one of the functions; L9136: a deployment of the fleet has one; nothing was begun"),
))]
pub async fn deploy(MayDeploy(who): MayDeploy, State(node): State<Arc<Node>>, body: Body) -> Answer<Response> {
    let manifest = parse(&whole(&node, body, MANIFEST_JSON_BYTES_MAX).await?.data)?;
    if node.is_stopping() {
        return Err(Problem::new(Code::Draining, "the node is shutting down").into());
    }
    check_own(&node, manifest.function.keys().chain(manifest.sink.keys()).map(Name::as_str))?;
    let claim = Claim::all(&node.functions, &manifest)?;
    let (steps, receiver) = Steps::new(&manifest);
    tokio::spawn(async move {
        let _claim = claim;
        let names: Vec<Name> = manifest.function.keys().cloned().collect();
        let what = described(&manifest);
        let deployed = node.functions.deploy(manifest, clock::now_ms(), &steps).await;
        let deployed = who.did(&node, "deploy", &what, deployed).await;
        if deployed.is_ok() {
            tracing::info!(token = who.token.name, what, "a manifest was deployed");
        }
        steps.say(match deployed {
            Ok(()) => {
                let entries = names.iter().filter_map(|name| node.functions.get(name.as_str()).ok());
                DeployStep::Done { functions: entries.map(|entry| node.describe(&entry)).collect() }
            }
            Err(problem) => {
                tracing::info!("a deployment failed: {} {}", problem.code, problem.detail);
                let document = serde_json::from_slice(&problem.to_json());
                DeployStep::Failed { problem: document.expect("a problem is written as JSON") }
            }
        });
    });
    let lines = stream::unfold(receiver, async |mut receiver| {
        let step = receiver.recv().await?;
        Some((Ok::<_, Infallible>(line(&step)), receiver))
    });
    Ok(([(CONTENT_TYPE, NDJSON)], Body::from_stream(lines)).into_response())
}

/// The names of what a manifest deploys, for the audit.
fn described(manifest: &Manifest) -> String {
    let Manifest { function, queue, sink, bucket, workflow } = manifest;
    let others = [("queue", queue.len()), ("sink", sink.len()), ("bucket", bucket.len()), ("workflow", workflow.len())];
    let functions = function.keys().map(ToString::to_string);
    let others = others.into_iter().filter(|(_, count)| *count > 0).map(|(what, count)| format!("{what} ({count})"));
    functions.chain(others).collect::<Vec<_>>().join(", ")
}

fn parse(body: &[u8]) -> Result<Manifest, Problem> {
    let manifest: Manifest = serde_json::from_slice(body).map_err(|error| {
        let text = error.to_string();
        let code = match text.starts_with("unknown field") {
            true => Code::ManifestUnknownKey,
            false => Code::ManifestValue,
        };
        Problem::new(code, format!("the manifest as JSON: {text}"))
    })?;
    manifest.check()?;
    // A workflow has functions in its manifest.
    let Manifest { function, queue, sink, bucket, workflow: _ } = &manifest;
    if function.is_empty() && queue.is_empty() && sink.is_empty() && bucket.is_empty() {
        return Err(Problem::new(Code::ManifestValue, "the manifest has nothing to deploy"));
    }
    Ok(manifest)
}

/// What is not even a name is as unknown as a name nobody has.
fn known(node: &Node, name: &str) -> Result<Name, Problem> {
    Ok(node.functions.get(name)?.live.name().clone())
}

pub async fn detached<T: Send + 'static>(
    work: impl Future<Output = Result<T, Problem>> + Send + 'static,
) -> Result<T, Problem> {
    let ended = tokio::spawn(work).await;
    ended.map_err(|error| Problem::new(Code::Internal, format!("a change gave up: {error}")))?
}

struct DumpBytes(Arc<Vec<u8>>);

impl AsRef<[u8]> for DumpBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
