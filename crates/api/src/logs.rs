//! Logs of functions, as lines of JSON: the last ones, and with `follow` the new ones as they are written.

use super::reply::{Answer, NDJSON, line, of_query};
use super::scope::MayDeploy;
use api_types::{LogLine, Scope};
use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use manifest::Name;
use node::{FOLLOWERS_MAX, Follower, Node, clock};
use problem::{Code, Problem};
use serde::Deserialize;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;

/// Earlier lines that a request may ask for.
const TAIL_LINES_MAX: usize = 10_000;

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct Wish {
    /// Stay, and send lines as they are written.
    follow: bool,
    /// Lines to begin with, at most 10,000.
    tail: usize,
}

impl Default for Wish {
    fn default() -> Self {
        Self { follow: false, tail: 100 }
    }
}

/// The log of a function; of all functions for the name `-`.
#[utoipa::path(get, path = "/v1/functions/{name}/logs", tag = "functions", params(("name" = String, Path), Wish), responses(
    (status = 200, content_type = "application/x-ndjson", body = LogLine),
    (status = 404, description = "L2001: no such function"),
))]
pub async fn logs(
    _: MayDeploy,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    wish: Result<Query<Wish>, QueryRejection>,
) -> Answer<Response> {
    let wish = of_query(wish)?;
    let name: Option<Name> = match name.as_str() {
        "-" => None,
        name => Some(node.functions.get(name)?.live.name().clone()),
    };
    // First listen, then look back: a line in between is heard twice and told once.
    let follower = match wish.follow {
        true => Some(node.logs.follow(name.clone()).ok_or_else(|| {
            Problem::new(Code::ConcurrencyExceeded, format!("{FOLLOWERS_MAX} followers read the logs already"))
                .with_hint("end one of them")
        })?),
        false => None,
    };
    let tail = node.logs.tail(name.as_ref(), wish.tail.min(TAIL_LINES_MAX));
    let mut told = HashMap::new();
    let mut begin = Vec::new();
    for one in &tail {
        told.insert(one.function.clone(), one.sequence);
        begin.extend_from_slice(&line(one));
    }
    let first = stream::iter((!begin.is_empty()).then(|| Ok::<_, Infallible>(Bytes::from(begin))));
    let body = match follower {
        None => Body::from_stream(first),
        Some(follower) => {
            let reader = Reader { follower, told, node, headers };
            let rest = stream::unfold(reader, async |mut reader: Reader| {
                let one = reader.next().await?;
                Some((Ok(line(&*one)), reader))
            });
            Body::from_stream(futures_util::StreamExt::chain(first, rest))
        }
    };
    Ok(([(CONTENT_TYPE, NDJSON)], body).into_response())
}

/// Who reads lines as they are written.
struct Reader {
    follower: Follower,
    /// The last line that each function had in the tail.
    told: HashMap<String, u64>,
    node: Arc<Node>,
    headers: HeaderMap,
}

impl Reader {
    /// The next line that the tail did not have; none for a token that has been removed since, or has ended.
    async fn next(&mut self) -> Option<Arc<LogLine>> {
        loop {
            let one = self.follower.next().await?;
            match self.told.get(&one.function) {
                Some(last) if one.sequence <= *last => continue,
                Some(_) => drop(self.told.remove(&one.function)),
                None => {}
            }
            self.node.access.check(&self.headers, Scope::Deploy, clock::now_ms()).ok()?;
            return Some(one);
        }
    }
}
