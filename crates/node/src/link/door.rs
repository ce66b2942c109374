//! Calls that come from other nodes: through the same route, token and admission as calls at the gate.

use super::{Door, offers};
use crate::asker::Asker;
use crate::functions::{Answered, Table, Target};
use crate::gate::failed_for;
use crate::metrics::Times;
use crate::serve::{REQUEST_ID_HEADER, ReplyBody, Wanted, serve};
use bytes::Bytes;
use choice::{Report, Truth};
use event::Gate;
use fleet_link::{FarBody, FarCall, Local, Offers, Ran, Why};
use fleet_trust::NodeId;
use http::{HeaderName, Request, Response};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The form of the function that a call is for: its hash, as offers have it.
pub const FORM: HeaderName = HeaderName::from_static("lighter-fleet-form");
/// Characters of a request's id.
const ID_CHARS_MAX: usize = 64;

impl Local for Door {
    type Body = ReplyBody;

    fn report(&self) -> Report {
        match self.node.upgrade() {
            Some(node) => self.means.report(&node, Instant::now()),
            None => Report { truth: Truth { backlog: f64::MAX }, places: 1, speed: 1.0 },
        }
    }

    fn truth(&self, function: &str) -> Option<Truth> {
        let node = self.node.upgrade()?;
        let live = &node.functions.table().entry(function)?.live.clone();
        Some(self.means.truth(&node, live, Instant::now()))
    }

    fn offers(&self) -> Offers {
        self.node.upgrade().map_or_else(Offers::default, |node| self.seen(&node).offers.clone())
    }

    fn learn(&self, node: NodeId, offers: Offers) {
        self.others.lock().insert(node, offers::read(&offers.bytes));
        if let Some(node) = self.node.upgrade() {
            self.look(node.functions.table());
        }
    }

    fn forget_others(&self, members: &[NodeId]) {
        let has_left = self.others.lock().extract_if(.., |node, _| !members.contains(node)).count() > 0;
        if let Some(node) = self.node.upgrade().filter(|_| has_left) {
            self.look(node.functions.table());
        }
    }

    async fn mail(&self, from: NodeId, message: Bytes) -> Option<Duration> {
        let node = self.node.upgrade()?;
        let mail = node.events.mail()?;
        Some(mail.hear(&node, from, message).await)
    }

    fn reached(&self, node: NodeId) {
        let mail = self.node.upgrade().and_then(|here| here.events.mail());
        mail.inspect(|mail| mail.reached(node));
    }

    async fn answer(self: &Arc<Self>, from: NodeId, request: Request<FarBody>) -> Option<Response<ReplyBody>> {
        self.deployments.as_ref()?.answer(from, request).await
    }

    async fn run(self: &Arc<Self>, mut request: Request<FarBody>, call: FarCall) -> Result<Ran<ReplyBody>, Why> {
        let arrived = Instant::now();
        let node = self.node.upgrade().ok_or(Why::Draining)?;
        node.calls.came();
        let table: Arc<Table> = node.functions.table();
        let route = table.routes.route(&request).map_err(|_| Why::Absent)?;
        let target: &Target = &route.target;
        if target.live.name().as_str() != call.function || target.answered != Answered::AtOnce {
            return Err(Why::Absent);
        }
        let form = request.headers_mut().remove(&FORM);
        if form.is_some_and(|form| !offers::has_form(&self.seen(&node).here, &call.function, form.as_bytes())) {
            return Err(Why::Absent);
        }
        let asker = Asker::of(&node, target, request.headers_mut()).map_err(|_| Why::Closed)?;
        let request_id = id_of(&request);
        let wanted = Wanted {
            live: &target.live,
            source: &target.source,
            gate: Gate::Http,
            sender: &asker.name,
            reply_type: &target.reply_type,
            request_id,
            arrived,
        };
        let served = serve(&node, wanted, request).await;
        let response = served.unwrap_or_else(|failed| failed_for(&asker, &node, target, failed));
        let run = response.extensions().get::<Times>().map(|times| times.run);
        Ok(Ran { response, run })
    }
}

/// The id that the gate gave it where it entered.
fn id_of<B>(request: &Request<B>) -> Arc<str> {
    let given = request.headers().get(REQUEST_ID_HEADER).and_then(|id| id.to_str().ok());
    let is_plain = |id: &str| {
        (1..=ID_CHARS_MAX).contains(&id.len())
            && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
    };
    given.filter(|id| is_plain(id)).unwrap_or("unnamed").into()
}
