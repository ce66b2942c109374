//! HTTP triggers: which requests go to a function.

use crate::Name;
use problem::{Code, Problem};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

/// Bytes of a route.
pub const ROUTE_BYTES_MAX: usize = 512;

/// Part of a path below which the results of an async route are read.
pub const RESULTS: &str = "/results/";

/// HTTP triggers of one function.
pub const TRIGGERS_MAX: usize = 64;

/// Requests for `route` (and `host`, if given) go to the function.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpTrigger {
    /// A path: exact (`/hello`), or a prefix when it ends with `/*` (`/files/*` takes `/files`, `/files/` and
    /// everything below). The longest match wins; an exact route wins over a prefix, one with a host over one without.
    pub route: String,
    /// Only requests for this host: `example.org`, or `*.example.org` for every name below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Only these methods; empty means all, OPTIONS too. HEAD is allowed wherever GET is. If methods are listed, the
    /// gate answers OPTIONS itself, unless it is among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<String>,
    /// Who may call. By default anyone if the gate listens on this machine only, otherwise holders of a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<RouteAuth>,
    /// Media type of a `lighter:unit` function's reply. A `wasi:http` function sets its own. Default
    /// `application/octet-stream`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_type: Option<String>,
    /// The request becomes an event in the function's queue and is answered with 202 at once; `location` says where its
    /// result will be, below `/results/` of the route. A CloudEvent stays one.
    #[serde(rename = "async", default, skip_serializing_if = "std::ops::Not::not")]
    pub is_async: bool,
}

/// Who may call a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RouteAuth {
    /// Anyone who reaches the gate.
    None,
    /// Holders of a token with the scope `call`.
    Token,
}

/// Whether two routes of one path have a method in common; one without methods takes all.
pub fn share_method<T: PartialEq>(one: &[T], other: &[T]) -> bool {
    one.is_empty() || other.is_empty() || one.iter().any(|method| other.contains(method))
}

impl HttpTrigger {
    pub fn new(route: impl Into<String>) -> Self {
        Self { route: route.into(), host: None, methods: Vec::new(), auth: None, reply_type: None, is_async: false }
    }

    /// The route below which the results of an async one are read.
    pub fn results(&self) -> Option<Self> {
        let above = self.route.strip_suffix("/*").unwrap_or(&self.route).trim_end_matches('/');
        self.is_async.then(|| Self {
            route: format!("{above}{RESULTS}*"),
            methods: vec!["GET".to_owned()],
            ..self.clone()
        })
    }

    pub(crate) fn check(&self, name: &Name) -> Result<(), Problem> {
        let bad = |what: String| {
            Err(Problem::new(Code::ManifestValue, format!("function {name:?}: http.{what}", name = name.as_str())))
        };
        let route = &self.route;
        if !route.starts_with('/') || route.len() > ROUTE_BYTES_MAX {
            return bad(format!("route is {route:?}, it must begin with / and have at most {ROUTE_BYTES_MAX} bytes"));
        }
        let fixed = route.strip_suffix("/*").unwrap_or(route);
        if !fixed.bytes().all(|b| b.is_ascii_graphic() && !b"*?#\\%".contains(&b))
            || fixed.split('/').any(|part| part == "." || part == "..")
            || fixed.contains("//")
        {
            return bad(format!(
                "route is {route:?}, it may not hold spaces, %, ?, #, \\, //, . or .. parts, nor * but as the last part"
            ));
        }
        if let Some(host) = &self.host {
            let fixed = host.strip_prefix("*.").unwrap_or(host);
            let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
            if fixed.is_empty() || fixed.len() > 253 || !fixed.bytes().all(plain) {
                return bad(format!("host is {host:?}, write a lower-case host name without port, or *.name"));
            }
        }
        for method in &self.methods {
            if method.is_empty() || method.len() > 32 || !method.bytes().all(|b| b.is_ascii_uppercase() || b == b'-') {
                return bad(format!("methods has {method:?}, write methods in capitals, like \"GET\""));
            }
        }
        let is_type =
            |kind: &str| kind.len() <= 255 && kind.contains('/') && kind.bytes().all(|b| (b' '..=b'~').contains(&b));
        if let Some(kind) = self.reply_type.as_ref().filter(|kind| !is_type(kind)) {
            return bad(format!("reply_type is {kind:?}, write a media type like \"text/plain\""));
        }
        Ok(())
    }
}

/// How triggers may be written: `"/hello"`, one table, or a list of either.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "http must be a route like \"/hello\", a table with `route`, or a list of these")]
#[schemars(inline)]
pub(crate) enum Triggers {
    // First: serde also reads a table from a list of its values, and a list of routes is none.
    Many(Vec<Trigger>),
    One(Trigger),
}

/// A route alone, or a table.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "http must be a route like \"/hello\", a table with `route`, or a list of these")]
#[schemars(inline)]
pub(crate) enum Trigger {
    Route(String),
    Table(HttpTrigger),
}

pub(crate) fn triggers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<HttpTrigger>, D::Error> {
    let written = match Triggers::deserialize(deserializer)? {
        Triggers::One(one) => vec![one],
        Triggers::Many(many) => many,
    };
    let trigger = |one| match one {
        Trigger::Route(route) => HttpTrigger::new(route),
        Trigger::Table(trigger) => trigger,
    };
    Ok(written.into_iter().map(trigger).collect())
}
