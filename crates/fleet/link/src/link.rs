//! The side that sends: a call goes to another node, to a second one if that refuses, or stays here.
//!
//! ```text
//!   gate ─▶ choose ─▶ Here ─▶ runs here
//!              └─▶ There ─▶ send ─▶ carry ─▶ ran      ─▶ the reply, streamed
//!                             ▲         ├─▶ refused, away: nothing was done ─▶ choose again
//!                             └─────────┘   lost: it may have run ─▶ L9121, and never a second time
//! ```

use crate::body::CallBody;
use crate::counts::Counts;
use crate::fields::{self, CALL, CallField, REPLY, REPORT, ReplyField, Why};
use crate::known::{Known, Neighbour, Undecided, Way, Weighed};
use crate::limits::{GRACE, SILENCE_TIMEOUT};
use crate::local::{CameByLink, Local, RanAt};
use crate::pool::{Dialer, Lane, Members, Pool};
use crate::pump::Pump;
use crate::reply::{CallHold, FarReply};
use crate::reports::AskedBy;
use crate::room::CallRoom;
use budget::{Budget, Purpose};
use choice::REFUSALS_MAX;
use fleet_trust::{NodeId, Trust};
use h2::{Reason, RecvStream};
use http::header::{AUTHORIZATION, CONNECTION, HOST, TE, TRANSFER_ENCODING, UPGRADE};
use http::uri::{Authority, Parts, PathAndQuery, Scheme};
use http::{HeaderName, HeaderValue, Request, Response, Uri, Version};
use http_body::Body;
use parking_lot::Mutex;
use problem::{Code, Problem};
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::sleep;

const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// The way to the other nodes, and from them. One for each node that belongs to a fleet.
pub struct Link<L> {
    pub(crate) local: Arc<L>,
    pub(crate) dialer: Arc<Dialer>,
    pub(crate) known: Known,
    pub(crate) pools: Mutex<BTreeMap<NodeId, Arc<Pool>>>,
    pub(crate) asked_by: Mutex<BTreeMap<NodeId, AskedBy>>,
    pub(crate) counts: Counts,
    pub(crate) draining: watch::Sender<bool>,
}

/// What became of a call that was chosen to run elsewhere.
pub enum Sent {
    /// It ran on another node.
    Ran(Box<Response<FarReply>>),
    /// It runs best here, now that others have refused it. Nothing of it was done; its body is whole.
    Here(Request<CallBody>),
    /// Nobody ran it, or nobody knows: the code says which.
    Failed(Problem),
}

/// What became of a call that was sent to one node.
enum Carried {
    Ran(Box<Response<FarReply>>),
    Refused(Request<CallBody>, Why),
    /// It was not sent.
    Away(Request<CallBody>, Problem),
    Lost(Problem),
}

impl<L: Local> Link<L> {
    /// Opens no connection yet. Needs a tokio runtime.
    pub fn new(trust: Arc<Trust>, members: Arc<dyn Members>, local: Arc<L>, budget: Arc<Budget>) -> Arc<Self> {
        let known = Known::new(local.report().speed);
        let dialer = Arc::new(Dialer { trust, members, budget });
        let (pools, asked_by, counts) = Default::default();
        Arc::new(Self { local, dialer, known, pools, asked_by, counts, draining: watch::Sender::new(false) })
    }

    /// This node.
    pub fn local(&self) -> &Arc<L> {
        &self.local
    }

    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Where a call runs best, as far as this node knows.
    pub fn choose(&self, call: &Undecided<'_>) -> Way {
        self.known.choose(call, &[])
    }

    /// Why a call would run where it would run now. Changes nothing.
    pub fn weigh(&self, call: &Undecided<'_>) -> Weighed {
        self.known.weigh(call)
    }

    /// How a member was when it was last heard; none if it was not, or could not be reached since.
    pub fn neighbour(&self, node: &NodeId) -> Option<Neighbour> {
        self.known.neighbour(node)
    }

    /// The way to each member that was heard and can be reached, there and back; the nearest first.
    pub fn round_trips(&self) -> impl Iterator<Item = (NodeId, Duration)> {
        self.known.round_trips().into_iter().map(|(node, seconds)| (node, Duration::from_secs_f64(seconds.max(0.0))))
    }

    /// A call ran here.
    pub fn ran_here(&self, function: &str, bytes: u64, run: Duration) {
        self.known.ran_here(function, bytes, run.as_secs_f64());
    }

    /// Sends a call to `node`, with `bears` seconds of waiting ([`Way::There`]), and to others if that refuses. `left`
    /// is the time that the call has. Dropping the future, or the body of the reply, ends the call there.
    pub async fn send(
        &self,
        call: &Undecided<'_>,
        (mut node, mut bears): (NodeId, f64),
        mut request: Request<CallBody>,
        left: Duration,
    ) -> Sent {
        let begun = Instant::now();
        if request.extensions().get::<CameByLink>().is_some() {
            self.counts.looped();
            return Sent::Failed(Problem::new(Code::CallLooped, "the call came from another node: it is not sent on"));
        }
        let (mut tried, mut refusals, mut last) = (Vec::new(), 0, None);
        let (mut busy, mut has_insisted) = (Vec::new(), false);
        loop {
            let left = left.saturating_sub(begun.elapsed());
            let field = CallField { function: call.function.to_owned(), hops: 1, refusals, bears, left };
            let back;
            match self.carry(node, call, &field, request).await {
                Carried::Ran(response) => return Sent::Ran(response),
                Carried::Lost(problem) => {
                    self.counts.lost();
                    return Sent::Failed(problem);
                }
                Carried::Refused(request, why) => {
                    self.counts.refused(why);
                    if why == Why::Busy {
                        refusals += 1;
                        busy.push(node);
                    }
                    last.get_or_insert_with(|| refusal(node, why, &request));
                    back = request;
                }
                Carried::Away(request, problem) => {
                    self.counts.away();
                    self.known.forget(&node);
                    last = Some(problem);
                    back = request;
                }
            }
            request = back;
            tried.push(node);
            (node, bears) = match self.known.choose(call, &tried) {
                Way::There { node, bears } if tried.len() <= REFUSALS_MAX as usize => (node, bears),
                _ if call.here.is_some() => return Sent::Here(request),
                // All that have it are busier than was thought: now they have said so, and one of them has to take it.
                _ if !busy.is_empty() && !has_insisted => {
                    (refusals, has_insisted) = (REFUSALS_MAX, true);
                    (self.least_busy(call, &busy), f64::MAX)
                }
                _ => return Sent::Failed(last.expect("somebody refused it")),
            };
        }
    }

    /// Of nodes that have just said how busy they are, the one where a call ends soonest.
    fn least_busy(&self, call: &Undecided<'_>, nodes: &[NodeId]) -> NodeId {
        match self.known.choose(&Undecided { nodes, ..*call }, &[]) {
            Way::There { node, .. } => node,
            Way::Here | Way::Nowhere => *nodes.last().expect("somebody was busy"),
        }
    }

    /// Sends a call to one node.
    async fn carry(
        &self,
        node: NodeId,
        call: &Undecided<'_>,
        field: &CallField,
        request: Request<CallBody>,
    ) -> Carried {
        let pool = self.pool(node);
        let lane = match pool.lane_for_call(&self.dialer).await {
            Ok(lane) => lane,
            Err(problem) => return Carried::Away(request, problem),
        };
        let room = match lane.wire.room.call(request.headers(), true) {
            Ok(room) => room,
            Err(full) => return Carried::Away(request, full.into()),
        };
        let (head, body) = request.into_parts();
        let sent_head = match self.prepare(head.clone(), field) {
            Ok(head) => head,
            Err(problem) => return Carried::Lost(problem),
        };
        let has_ended = lane.wire.sender.clone().ready().await;
        let sent = has_ended
            .and_then(|mut sender| sender.send_request(Request::from_parts(sent_head, ()), body.is_end_stream()));
        let (mut response, stream) = match sent {
            Ok(sent) => sent,
            Err(error) => {
                let detail = format!("the connection to the node {node} has ended: {error}");
                let problem = Problem::new(Code::MemberAway, detail);
                return Carried::Away(Request::from_parts(head, body), problem);
            }
        };
        let mut pump = Pump::new(body, stream, self.dialer.budget.share(Purpose::Bodies));
        let began = Instant::now();
        let mut over = pin!(sleep(field.left + GRACE));
        let answer = loop {
            tokio::select! {
                biased;
                answer = &mut response => break answer,
                pumped = pump.run(), if !pump.is_over() => if let Err(problem) = pumped {
                    return Carried::Lost(problem);
                },
                () = &mut over => {
                    let left = field.left.as_millis();
                    let detail = format!("the node {node} has not answered in the {left} ms left");
                    return Carried::Lost(Problem::new(Code::TimeExceeded, detail));
                }
            }
        };
        let sent = OnItsWay { node, head, pump, began, room };
        match answer {
            Ok(response) => self.answered(sent, call, lane, response),
            Err(error) => sent.broken(&error, &lane),
        }
    }

    /// The head of a reply is there.
    fn answered(
        &self,
        sent: OnItsWay,
        call: &Undecided<'_>,
        lane: Lane,
        mut response: Response<RecvStream>,
    ) -> Carried {
        let OnItsWay { node, head, pump, began, room } = sent;
        let whole = began.elapsed().as_secs_f64();
        let headers = response.headers_mut();
        if let Some(report) = fields::read_report(headers) {
            self.known.hear(node, report, None);
        }
        let reply = headers.get(REPLY).and_then(ReplyField::read);
        fields::strip(headers);
        match reply {
            Some(ran @ ReplyField::Ran { took, .. }) => {
                self.counts.sent();
                self.known.ran_there(&node, call, whole, ran);
                let name = self.dialer.members.name(&node).unwrap_or_else(|| node.to_string());
                say_timing(&mut response, whole - took, &name);
                response.extensions_mut().insert(RanAt(name.into()));
                let held = CallHold { _permit: lane.permit, _room: room, _pumping: pump.go_on() };
                Carried::Ran(Box::new(FarReply::of(response, held)))
            }
            Some(ReplyField::Refused(why)) => match pump.take_back() {
                Some(body) => Carried::Refused(Request::from_parts(head, body), why),
                None => Carried::Lost(garbled(node, "it refused a call of which it had read the body")),
            },
            None => Carried::Lost(garbled(node, "its reply does not say what became of the call")),
        }
    }

    /// The head as it travels.
    fn prepare(&self, mut head: http::request::Parts, field: &CallField) -> Result<http::request::Parts, Problem> {
        let malformed = || Problem::new(Code::RequestMalformed, "the request cannot be sent to another node");
        let headers = &mut head.headers;
        fields::strip(headers);
        let host = headers.remove(HOST);
        for name in [CONNECTION, TE, TRANSFER_ENCODING, UPGRADE] {
            headers.remove(name);
        }
        headers.insert(CALL, field.write().map_err(|()| malformed())?);
        headers.insert(REPORT, fields::write_report(&self.local.report()));
        let mut parts = Parts::default();
        parts.scheme = Some(head.uri.scheme().cloned().unwrap_or(Scheme::HTTP));
        let named = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
        let authority = head.uri.authority().cloned().or(named);
        parts.authority = Some(authority.unwrap_or_else(|| Authority::from_static("fleet.invalid")));
        let path = head.uri.path_and_query().cloned();
        parts.path_and_query = Some(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
        head.uri = Uri::from_parts(parts).map_err(|_| malformed())?;
        head.version = Version::HTTP_2;
        // What the node knows of the request is its own.
        head.extensions.clear();
        Ok(head)
    }

    pub(crate) fn pool(&self, node: NodeId) -> Arc<Pool> {
        self.pools.lock().entry(node).or_insert_with(|| Pool::new(node)).clone()
    }
}

/// A call whose head was handed to HTTP/2.
struct OnItsWay {
    node: NodeId,
    /// As it came, for another try.
    head: http::request::Parts,
    pump: Pump,
    began: Instant,
    room: CallRoom,
}

impl OnItsWay {
    /// There will be no reply.
    fn broken(self, error: &h2::Error, lane: &Lane) -> Carried {
        let node = self.node;
        // HTTP/2 says so of streams that were not looked at, and of no other ones (RFC 9113, 8.7).
        let did_not_begin = match error.reason() {
            Some(Reason::REFUSED_STREAM) => error.is_reset() && error.is_remote(),
            Some(Reason::NO_ERROR) => error.is_go_away() && error.is_remote(),
            _ => false,
        };
        match self.pump.take_back().filter(|_| did_not_begin) {
            Some(body) => {
                let detail = format!("the node {node} takes no calls on this connection: {error}");
                Carried::Away(Request::from_parts(self.head, body), Problem::new(Code::MemberAway, detail))
            }
            None if lane.wire.is_suspect() => {
                let detail = format!("the node {node} has said nothing for {} s", SILENCE_TIMEOUT.as_secs());
                Carried::Lost(Problem::new(Code::CallLost, detail))
            }
            None => {
                let detail = format!("the node {node} is gone, or gave the call up: {error}");
                Carried::Lost(Problem::new(Code::CallLost, detail))
            }
        }
    }
}

/// What the caller is told if nobody else runs it.
fn refusal(node: NodeId, why: Why, request: &Request<CallBody>) -> Problem {
    let code = match why {
        Why::Closed if request.headers().contains_key(AUTHORIZATION) => Code::TokenInvalid,
        Why::Closed => Code::TokenMissing,
        _ => Code::CallsRefused,
    };
    Problem::new(code, format!("the node {node} refused the call: {}", why.word()))
}

fn garbled(node: NodeId, what: &str) -> Problem {
    Problem::new(Code::FleetMessage, format!("the node {node} breaks the link's rules: {what}"))
}

/// Says how long the way was, before what the far end says of itself.
fn say_timing<B>(response: &mut Response<B>, way: f64, name: &str) {
    let mut text = format!("fleet;dur={:.3};desc=\"{name}\"", way.max(0.0) * 1e3);
    for said in response.headers().get_all(SERVER_TIMING) {
        text += ", ";
        text += said.to_str().unwrap_or_default();
    }
    if let Ok(value) = HeaderValue::try_from(text) {
        response.headers_mut().insert(SERVER_TIMING, value);
    }
}
