//! The store from outside: the contents of buckets, listed, set, exported and imported.
//!
//! All of it needs the scope `deploy`: anybody who may deploy a function can let it read and write any bucket.

use super::paced;
use super::reply::{self, Answer, NDJSON, of_query, whole};
use super::scope::MayDeploy;
use api_types::{BucketInfo, DeleteRequest, DeletedReply, ImportReply, KeyInfo, KeyPage};
use axum::Json;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use node::body::Collected;
use node::{Node, Pace, blocking};
use problem::{Code, Problem};
use serde::Deserialize;
use state::{Import, ImportError, LIMIT_MAX, StoreError, Transaction, VALUE_BYTES_MAX};
use std::sync::Arc;
use std::time::Duration;

/// Keys of one page, unless the request says otherwise.
const PAGE_KEYS: u32 = 100;
/// Keys one request deletes.
const DELETED_MAX: u32 = LIMIT_MAX;

/// Every bucket that holds something or has bounds, by name.
#[utoipa::path(get, path = "/v1/buckets", tag = "store", operation_id = "list_buckets", responses((status = 200, body = Vec<BucketInfo>)))]
pub async fn buckets(_: MayDeploy, State(node): State<Arc<Node>>) -> Json<Vec<BucketInfo>> {
    Json(node.describe_buckets())
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Listing {
    /// Only keys that begin so.
    prefix: Option<String>,
    /// `next` of the page before.
    after: Option<String>,
    /// Keys of the page, at most 1,000. Default 100.
    limit: Option<u32>,
}

/// A page of the keys of a bucket, in order, with their values: at most 1 MiB.
#[utoipa::path(get, path = "/v1/buckets/{bucket}/keys", tag = "store", operation_id = "list_keys",
    params(("bucket" = String, Path), Listing), responses(
    (status = 200, body = KeyPage),
    (status = 400, description = "L4009: the name or the query is not right"),
))]
pub async fn list(
    _: MayDeploy,
    State(node): State<Arc<Node>>,
    Path(bucket): Path<String>,
    query: Result<Query<Listing>, QueryRejection>,
) -> Answer<Json<KeyPage>> {
    users(&bucket)?;
    let Listing { prefix, after, limit } = of_query(query)?;
    let state = node.functions.loader.state.clone();
    let page = read(state, move |transaction| {
        let limit = limit.unwrap_or(PAGE_KEYS);
        transaction.list(&bucket, prefix.as_deref().unwrap_or_default(), after.as_deref(), limit)
    })
    .await?;
    let keys = page.entries.into_iter().map(|entry| KeyInfo::new(entry.key, entry.value)).collect();
    Ok(Json(KeyPage { keys, next: page.next }))
}

/// A key is asked for in the query and not in the path: it may have slashes, or be `..`.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Keyed {
    key: String,
}

/// The value of a key, as it is.
#[utoipa::path(get, path = "/v1/buckets/{bucket}/value", tag = "store", operation_id = "get_key",
    params(("bucket" = String, Path), Keyed), responses(
    (status = 200, content_type = "application/octet-stream", body = Vec<u8>),
    (status = 404, description = "L5009: there is no such key"),
))]
pub async fn get(
    _: MayDeploy,
    State(node): State<Arc<Node>>,
    Path(bucket): Path<String>,
    query: Result<Query<Keyed>, QueryRejection>,
) -> Answer<Response> {
    users(&bucket)?;
    let Keyed { key } = of_query(query)?;
    let state = node.functions.loader.state.clone();
    let unknown = Problem::new(Code::KeyUnknown, format!("bucket {bucket:?} has no key {key:?}"));
    let value = read(state, move |transaction| transaction.get(&bucket, &key)).await?.ok_or(unknown)?;
    Ok(([(CONTENT_TYPE, "application/octet-stream")], value).into_response())
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Setting {
    key: String,
    /// How long the key lives, in milliseconds. Default: as long as its bucket says.
    ttl_ms: Option<u64>,
}

/// Sets a key to the bytes of the body. Durable when the answer comes.
#[utoipa::path(put, path = "/v1/buckets/{bucket}/value", tag = "store", operation_id = "set_key",
    params(("bucket" = String, Path), Setting),
    request_body(content_type = "application/octet-stream", content = Vec<u8>), responses(
    (status = 204, description = "It is set"),
    (status = 400, description = "L4009: the bucket or the key cannot have this name"),
    (status = 413, description = "L3006: the value is too large"),
    (status = 507, description = "L5003, L7007: the disk or the bucket is full"),
))]
pub async fn set(
    _: MayDeploy,
    State(node): State<Arc<Node>>,
    Path(bucket): Path<String>,
    query: Result<Query<Setting>, QueryRejection>,
    body: Body,
) -> Answer<StatusCode> {
    let Setting { key, ttl_ms } = of_query(query)?;
    let ttl = ttl_ms.map(Duration::from_millis);
    let Collected { data: value, share: _share } = whole(&node, body, VALUE_BYTES_MAX as u64).await?;
    write(&node, &bucket, |transaction| match ttl {
        None => transaction.set(&bucket, &key, value),
        Some(ttl) => transaction.set_with_ttl(&bucket, &key, value, ttl),
    })
    .await
}

/// Deletes a key; one that is not there is no error. Durable when the answer comes.
#[utoipa::path(delete, path = "/v1/buckets/{bucket}/value", tag = "store", operation_id = "delete_key",
    params(("bucket" = String, Path), Keyed), responses(
    (status = 204, description = "It is not there any more"),
))]
pub async fn delete(
    _: MayDeploy,
    State(node): State<Arc<Node>>,
    Path(bucket): Path<String>,
    query: Result<Query<Keyed>, QueryRejection>,
) -> Answer<StatusCode> {
    let Keyed { key } = of_query(query)?;
    write(&node, &bucket, |transaction| transaction.delete(&bucket, &key)).await
}

/// Deletes many keys at once, all or none: those that are named, or the first 1,000 that begin so. Durable when the
/// answer comes.
#[utoipa::path(post, path = "/v1/buckets/{bucket}/delete", tag = "store", operation_id = "delete_keys",
    params(("bucket" = String, Path)), request_body = DeleteRequest, responses(
    (status = 200, body = DeletedReply),
    (status = 400, description = "L4009: a name is not right, or there are too many"),
    (status = 503, description = "L5005: the keys were changed by others all the while"),
))]
pub async fn delete_many(
    _: MayDeploy,
    State(node): State<Arc<Node>>,
    Path(bucket): Path<String>,
    reply::Json(what): reply::Json<DeleteRequest>,
) -> Answer<Json<DeletedReply>> {
    users(&bucket)?;
    let state = node.functions.loader.state.clone();
    let (reply, ticket) =
        blocking(move || state.transact(|transaction| delete_once(transaction, &bucket, &what))).await?;
    node.functions.loader.state.durable(ticket).await?;
    Ok(Json(reply))
}

fn delete_once(transaction: &mut Transaction, bucket: &str, what: &DeleteRequest) -> Result<DeletedReply, Problem> {
    let mut reply = DeletedReply::default();
    match (&what.keys, &what.prefix) {
        (Some(keys), None) if keys.len() <= DELETED_MAX as usize => {
            for key in keys {
                match transaction.get(bucket, key).map_err(asked)? {
                    Some(_) => reply.deleted.push(key.clone()),
                    None => reply.missing.push(key.clone()),
                }
                transaction.delete(bucket, key).map_err(asked)?;
            }
        }
        (None, Some(prefix)) => {
            let page = transaction.list(bucket, prefix, None, DELETED_MAX).map_err(asked)?;
            for entry in page.entries {
                transaction.delete(bucket, &entry.key).map_err(asked)?;
                reply.deleted.push(entry.key);
            }
            reply.more = page.next.is_some();
        }
        (Some(keys), None) => {
            let detail = format!("{} keys are to be deleted, one request deletes at most {DELETED_MAX}", keys.len());
            return Err(Problem::new(Code::ApiRequest, detail));
        }
        _ => return Err(Problem::new(Code::ApiRequest, "either keys or a prefix say what to delete")),
    }
    Ok(reply)
}

/// A whole bucket of one moment, as JSON lines: `{"key": …, "value": …}`, with `base64` in place of `value` for what is
/// not text, and `expires_ms` where it expires.
#[utoipa::path(get, path = "/v1/buckets/{bucket}/export", tag = "store", operation_id = "export_bucket",
    params(("bucket" = String, Path)), responses((status = 200, content_type = "application/x-ndjson", body = String)))]
pub async fn export(
    MayDeploy(who): MayDeploy,
    State(node): State<Arc<Node>>,
    Path(bucket): Path<String>,
) -> Answer<Response> {
    users(&bucket)?;
    let mut export = node.functions.loader.state.export(&bucket).map_err(asked)?;
    who.did(&node, "store export", &bucket, Ok(())).await?;
    // It keeps the state of this moment on disk.
    let lines = paced::body("the export", move || export.next_lines());
    Ok(([(CONTENT_TYPE, NDJSON)], lines).into_response())
}

/// Adds the lines of an export to a bucket, in transactions of up to 1,000 keys. What was counted is durable; doing all
/// of it again is safe.
#[utoipa::path(post, path = "/v1/buckets/{bucket}/import", tag = "store", operation_id = "import_bucket",
    params(("bucket" = String, Path)), request_body(content_type = "application/x-ndjson", content = String), responses(
    (status = 200, body = ImportReply),
    (status = 400, description = "L4009: names the line that cannot be read; those before it may be there"),
    (status = 408, description = "L4012: it comes too slowly; says how many lines are there"),
    (status = 413, description = "L3006: a line is larger than all request bodies together may be"),
    (status = 503, description = "L3010: all request bodies together are too large; says how many lines are there"),
    (status = 507, description = "L5003, L7007: the disk or the bucket is full"),
))]
pub async fn import(
    MayDeploy(who): MayDeploy,
    State(node): State<Arc<Node>>,
    Path(bucket): Path<String>,
    body: Body,
) -> Answer<Json<ImportReply>> {
    users(&bucket)?;
    // Before it begins: what came through of one that breaks off stays.
    who.did(&node, "store import", &bucket, Ok(())).await?;
    let mut import = node.functions.loader.state.import(&bucket).map_err(asked)?;
    let (mut data, mut pace, mut share) = (body.into_data_stream(), Pace::begin("the import"), node.bodies.share());
    while let Some(piece) = pace.wait(data.next()).await.map_err(|slow| ended(slow, &import))? {
        let broken = |error| Problem::new(Code::RequestMalformed, format!("the request body broke off: {error}"));
        let piece = piece.map_err(broken)?;
        pace.moved(piece.len());
        share.hold(import.held_bytes() + piece.len() as u64).map_err(|full| ended(full, &import))?;
        import.feed(&piece).await.map_err(refused)?;
        share.hold(import.held_bytes())?;
    }
    let imported = import.finish().await.map_err(refused)?;
    Ok(Json(ImportReply { keys: imported.keys, expired: imported.expired }))
}

/// What is there, once it is durable.
async fn read<T: Send + 'static>(
    state: state::State,
    read: impl FnOnce(&mut Transaction) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, Problem> {
    let reading = state.clone();
    let (value, seen) = blocking(move || {
        let mut transaction = reading.begin();
        let value = read(&mut transaction).map_err(asked)?;
        Ok((value, transaction.seen()))
    })
    .await?;
    state.durable(seen).await?;
    Ok(value)
}

async fn write(
    node: &Node,
    bucket: &str,
    write: impl FnOnce(&mut Transaction) -> Result<(), StoreError>,
) -> Answer<StatusCode> {
    users(bucket)?;
    let state = &node.functions.loader.state;
    let mut transaction = state.begin();
    write(&mut transaction).map_err(asked)?;
    state.durable(transaction.commit().map_err(Problem::from)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What the node keeps for itself is nobody's business.
fn users(bucket: &str) -> Result<(), Problem> {
    match bucket.starts_with('.') {
        true => Err(Problem::new(
            Code::ApiRequest,
            format!("bucket {bucket:?}: names that begin with '.' are the node's own"),
        )),
        false => Ok(()),
    }
}

/// What is wrong is the request, unless it is the disk.
fn asked(error: StoreError) -> Problem {
    match error {
        StoreError::Unavailable(problem) => problem,
        other => Problem::new(Code::ApiRequest, other.to_string()),
    }
}

/// Why an import goes no further, and how far it has come.
fn ended(why: Problem, import: &Import) -> Problem {
    let detail = format!("{}; {} lines are imported", why.detail, import.imported().lines);
    Problem { detail: detail.into(), ..why }
}

fn refused(error: ImportError) -> Problem {
    error.into()
}
