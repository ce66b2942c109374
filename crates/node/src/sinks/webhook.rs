//! Webhooks: each event of a queue is one HTTP request to its receiver.
//!
//! Secrets are read for each request, so that a new value counts at once, and never appear in an error: the text of a
//! client library may name the host, which may be a secret.

use super::super::access::Secrets;
use super::super::clock;
use super::super::events::{Consumer, Outcome, SinkKind, Tried};
use super::{Trust, request, verdict};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use manifest::{Name, Retry, Sink, Webhook};
use problem::{Code, Problem};
use state::{Leased, State};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Bytes of a reply's body that are read, so that its connection can be used again; with more it is closed.
const REPLY_BYTES_MAX: usize = 64 << 10;

/// How long they may take.
const BODY_TIME_MAX: Duration = Duration::from_millis(500);

/// How long a connection that is not used is kept.
const IDLE: Duration = Duration::from_secs(30);

/// What reading secrets may take beside the request itself.
const MARGIN: Duration = Duration::from_secs(1);

type Client = hyper_util::client::legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// The kind of sink that is called `webhook`.
pub struct Webhooks {
    secrets: Secrets,
    client: Arc<LazyClient>,
}

/// Made by the first request: a node without webhooks needs none.
struct LazyClient {
    trust: Trust,
    made: OnceLock<Client>,
}

impl Webhooks {
    pub fn new(state: &State, trust: Trust) -> Self {
        Self { secrets: Secrets::new(state), client: Arc::new(LazyClient { trust, made: OnceLock::new() }) }
    }
}

impl SinkKind for Webhooks {
    fn takes(&self, sink: &Sink) -> bool {
        sink.webhook.is_some()
    }

    fn check(&self, name: &Name, sink: &Sink) -> Result<(), Problem> {
        let Some(webhook) = &sink.webhook else { return Ok(()) };
        for secret in webhook.secrets() {
            if self.secrets.get(secret)?.is_none() {
                let detail =
                    format!("sink {:?} names the secret {secret:?}, which this node does not have", name.as_str());
                let hint = format!("`lighter secret set {secret}` keeps its value on the node");
                return Err(Problem::new(Code::SecretUnknown, detail).with_hint(hint));
            }
        }
        request::fixed(webhook, |secret| self.secrets.get(secret).ok().flatten())
            .map(drop)
            .map_err(|why| Problem::new(Code::ManifestValue, format!("sink {:?}: {why}", name.as_str())))
    }

    fn open(&self, name: &Name, sink: &Arc<Sink>) -> Arc<dyn Consumer> {
        let (secrets, client) = (self.secrets.clone(), self.client.clone());
        Arc::new(Receiver { name: name.clone(), sink: sink.clone(), secrets, client })
    }
}

/// One webhook.
struct Receiver {
    name: Name,
    sink: Arc<Sink>,
    secrets: Secrets,
    client: Arc<LazyClient>,
}

impl Receiver {
    fn webhook(&self) -> &Webhook {
        self.sink.webhook.as_ref().expect("this kind takes sinks with a webhook only")
    }

    async fn deliver(&self, leased: &Leased) -> Outcome {
        let webhook = self.webhook();
        let fixed = match request::fixed(webhook, |name| self.secrets.get(name).ok().flatten()) {
            Ok(fixed) => fixed,
            // A secret was removed or is no longer good: not the event's fault.
            Err(why) => {
                let problem = Problem::new(Code::SecretUnknown, format!("sink {:?}: {why}", self.name.as_str()));
                return Outcome::Postponed { problem, after: None };
            }
        };
        let request = fixed.request(&leased.event, webhook.format);
        let exchange = self.client.get().request(request);
        let (head, body) = match tokio::time::timeout(Duration::from_millis(webhook.time_ms), exchange).await {
            Ok(Ok(response)) => response.into_parts(),
            Ok(Err(error)) => return verdict::of_failure(&reason(&error)),
            Err(_) => return verdict::of_failure(&format!("no reply within {} ms", webhook.time_ms)),
        };
        // What the body says matters to nobody; read to its end, the connection can be used again.
        let body = Limited::new(body, REPLY_BYTES_MAX).collect();
        tokio::time::timeout(BODY_TIME_MAX, body).await.ok();
        verdict::of_reply(head.status, &head.headers, clock::now_ms())
    }
}

impl Consumer for Receiver {
    fn time_max(&self) -> Duration {
        Duration::from_millis(self.webhook().time_ms) + MARGIN
    }

    fn workers_max(&self) -> u32 {
        self.webhook().concurrency
    }

    fn retry(&self) -> &Retry {
        &self.sink.retry
    }

    fn handle(self: Arc<Self>, leased: Arc<Leased>) -> BoxFuture<'static, Tried> {
        Box::pin(async move { self.deliver(&leased).await.into() })
    }
}

impl LazyClient {
    /// HTTP/1 or 2, as the receiver offers.
    fn get(&self) -> &Client {
        self.made.get_or_init(|| {
            let connector = HttpsConnectorBuilder::new().with_tls_config(self.trust.tls()).https_or_http();
            let connector = connector.enable_http1().enable_http2().build();
            hyper_util::client::legacy::Client::builder(TokioExecutor::new()).pool_idle_timeout(IDLE).build(connector)
        })
    }
}

/// Why there was no reply, without the words of the libraries.
fn reason(error: &hyper_util::client::legacy::Error) -> String {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    let mut kind = None;
    while let Some(error) = cause {
        kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind).or(kind);
        cause = error.source();
    }
    let what =
        if error.is_connect() { "the receiver cannot be reached" } else { "the connection broke before the reply" };
    kind.map_or_else(|| what.to_owned(), |kind| format!("{what}: {kind}"))
}
