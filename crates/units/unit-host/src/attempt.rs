//! One attempt to handle an event, for kinds whose units are on the other side of a wire.

use crate::calls::Host;
use crate::http::{Client, Requests};
use crate::{Handled, Handling, Meter, Output, rerun};
use budget::Purpose;
use bytes::Bytes;
use event::Event;
use http_body_util::Full;
use problem::{Code, Problem};
use state::Leased;
use std::future::Future;
use std::sync::Arc;
use unit::{Call, Deployed, Reply, Work};

pub struct Attempt {
    pub request_id: Arc<str>,
    pub event: Arc<Event>,
    pub lease: Option<Arc<Leased>>,
    pub meter: Arc<Meter>,
}

impl Attempt {
    /// The host's side of it, for the unit of this number.
    pub fn host(&self, deployed: &Arc<Deployed>, client: &Client<Full<Bytes>>, unit: u64) -> Host {
        let log_bytes = deployed.function.limits.log_bytes;
        let output = Output::new(deployed.log.clone(), unit, self.request_id.clone(), log_bytes);
        let mut handling = Handling::new(deployed.clone());
        handling.begin(self.lease.clone());
        let mut requests = Requests::new(client.clone(), deployed.clone(), self.request_id.clone());
        requests.set_trace(|name| self.event.attribute(name));
        Host {
            deployed: deployed.clone(),
            handling,
            requests,
            output: Arc::new(output),
            event: self.event.clone(),
            deadline: self.meter.deadline,
            held: deployed.budget.share(Purpose::HostCalls),
        }
    }
}

/// Hands the call's event to `attempt`, again with a higher attempt number after each conflict.
///
/// # Errors
/// As [`rerun::call`]; [`Code::Internal`] for work that is no event.
pub async fn handle<F>(deployed: &Deployed, call: Call, mut attempt: impl FnMut(Attempt) -> F) -> Result<Reply, Problem>
where
    F: Future<Output = Result<Handled, Problem>>,
{
    let Call { request_id, work, deadline, watch, lease } = call;
    let Work::Event(event) = work else {
        let detail = format!("this work is not for a {} unit", deployed.function.isolation.as_str());
        return Err(Problem::new(Code::Internal, detail));
    };
    let first = event.attempt;
    let mut event = Arc::new(event);
    let one = |reruns: u32| {
        if reruns > 0 {
            Arc::<Event>::make_mut(&mut event).attempt = first + reruns;
        }
        let meter = Arc::new(Meter::new(deadline));
        let (request_id, event, lease) = (request_id.clone(), event.clone(), lease.clone());
        let attempt = attempt(Attempt { request_id, event, lease, meter: meter.clone() });
        async move { (attempt.await, meter) }
    };
    rerun::call(&deployed.state, lease.as_deref(), watch, one).await
}
