//! Calls that enter here: those that run on another node.

use super::CallLink;
use super::door::FORM;
use super::hop::Hop;
use super::offers::{FarFunction, Same};
use crate::Node;
use crate::functions::{Live, Target};
use crate::metrics::Times;
use crate::serve::{REQUEST_ID_HEADER, ReplyBody};
use bytes::Bytes;
use choice::Truth;
use fleet_link::{CallBody, Sent, Undecided, Way};
use fleet_trust::NodeId;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, Response};
use http_body::Body as HttpBody;
use http_body_util::BodyExt;
use problem::{Code, Problem};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The time that a call has whose function is not known here: the longest that a manifest may give.
const LEFT: Duration = Duration::from_secs(3_600);

/// A call that runs sooner elsewhere, though the function is here.
pub struct Sooner {
    same: Same,
    first: (NodeId, f64),
    /// Taken out of the request by the check of its token: the other node checks it again.
    authorization: Option<HeaderValue>,
}

/// What is said of a call that leaves, beside where it may go.
struct Leaving<'a> {
    left: Duration,
    request_id: &'a str,
    /// The hash of the function that is meant. None: what the other node has by that name will do.
    form: Option<&'a str>,
}

/// What became of a call that was to run elsewhere.
pub enum Elsewhere {
    Ran(Response<ReplyBody>),
    /// It runs here after all.
    Here(Request<CallBody>),
    Failed(Problem),
}

impl CallLink {
    /// The function that a request is for which has no route here.
    pub fn route<B>(&self, node: &Node, request: &Request<B>) -> Option<Arc<FarFunction>> {
        self.seen(node).elsewhere.route(request)
    }

    /// Whether a call of a function that is here runs sooner elsewhere.
    pub fn sooner<B: HttpBody>(
        &self,
        node: &Node,
        target: &Target,
        request: &Request<B>,
        authorization: Option<HeaderValue>,
    ) -> Option<Sooner> {
        let live = &target.live;
        let same = self.seen(node).elsewhere.same(live.name().as_str())?;
        let bytes = request.body().size_hint().lower();
        let here = self.truth(node, live);
        let undecided = Undecided { function: live.name().as_str(), bytes, here, nodes: &same.nodes };
        match self.link.choose(&undecided) {
            Way::There { node, bears } => Some(Sooner { same, first: (node, bears), authorization }),
            Way::Here | Way::Nowhere => None,
        }
    }

    /// How busy this node is for a function of its own. None: it takes nothing new.
    fn truth(&self, node: &Node, live: &Live) -> Option<Truth> {
        (!node.is_draining()).then(|| self.link.local().means.truth(node, live, Instant::now()))
    }

    /// A call that could have run elsewhere ran here.
    pub fn ran_here<B>(&self, live: &Live, bytes: u64, response: &Response<B>) {
        if let Some(times) = response.extensions().get::<Times>() {
            self.link.ran_here(live.name().as_str(), bytes, times.run);
        }
    }

    /// Runs a call elsewhere that may run here as well.
    pub async fn send<B>(
        &self,
        node: &Node,
        live: &Live,
        sooner: Sooner,
        mut request: Request<B>,
        request_id: &str,
    ) -> Elsewhere
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        Problem: From<B::Error>,
    {
        let Sooner { same, first, authorization } = sooner;
        authorization.map(|value| request.headers_mut().insert(AUTHORIZATION, value));
        let bytes = request.body().size_hint().lower();
        let here = self.truth(node, live);
        let undecided = Undecided { function: live.name().as_str(), bytes, here, nodes: &same.nodes };
        let left = live.function.limits.time() + live.identity.admission.limits().wait_max;
        // The other node may have got another form since it told what it has.
        let leaving = Leaving { left, request_id, form: Some(&same.hash) };
        self.carry(node, &undecided, first, request, leaving).await
    }

    /// Runs a call of a function that is not here.
    pub async fn send_far<B>(
        &self,
        node: &Node,
        function: &FarFunction,
        request: Request<B>,
        request_id: &str,
    ) -> Elsewhere
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        Problem: From<B::Error>,
    {
        let bytes = request.body().size_hint().lower();
        let undecided = Undecided { function: &function.name, bytes, here: None, nodes: &function.nodes };
        match self.link.choose(&undecided) {
            Way::There { node: far, bears } => {
                let leaving = Leaving { left: LEFT, request_id, form: None };
                self.carry(node, &undecided, (far, bears), request, leaving).await
            }
            Way::Here | Way::Nowhere => {
                let detail = format!("no node that has the function {:?} is heard of", &*function.name);
                Elsewhere::Failed(Problem::new(Code::MemberAway, detail))
            }
        }
    }

    async fn carry<B>(
        &self,
        node: &Node,
        undecided: &Undecided<'_>,
        first: (NodeId, f64),
        mut request: Request<B>,
        leaving: Leaving<'_>,
    ) -> Elsewhere
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        Problem: From<B::Error>,
    {
        let Leaving { left, request_id, form } = leaving;
        let headers = request.headers_mut();
        if let Ok(id) = HeaderValue::from_str(request_id) {
            headers.insert(REQUEST_ID_HEADER, id);
        }
        headers.remove(&FORM);
        if let Some(form) = form.and_then(|form| HeaderValue::from_str(form).ok()) {
            headers.insert(FORM, form);
        }
        let hop = Hop::begin(node, &mut request, undecided.function, request_id);
        let request = request.map(|body| CallBody::new(body.map_err(Problem::from)));
        match self.link.send(undecided, first, request, left).await {
            Sent::Ran(response) => {
                hop.inspect(|hop| hop.ran(&response));
                Elsewhere::Ran(response.map(|body| ReplyBody::Far(Box::new(body))))
            }
            Sent::Here(mut request) => {
                request.headers_mut().remove(&FORM);
                hop.inspect(|hop| hop.came_back(&mut request));
                Elsewhere::Here(request)
            }
            Sent::Failed(problem) => {
                hop.inspect(|hop| hop.failed(&problem));
                Elsewhere::Failed(problem)
            }
        }
    }
}
