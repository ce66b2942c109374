//! One attempt to handle an event, for classes whose units are on the other side of a wire.

use crate::Meter;
use crate::calls::Answers;
use budget::Purpose;
use event::Event;
use futures_util::future::BoxFuture;
use problem::Problem;
use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll};
use unit::{Deployed, Given, Host, Output, Running, Spent, Work};

pub struct Attempt {
    pub request_id: Arc<str>,
    pub event: Arc<Event>,
    pub host: Arc<dyn Host>,
    pub meter: Arc<Meter>,
}

impl Attempt {
    /// What answers the unit of this number.
    pub fn answers(&self, deployed: &Deployed, unit: u64) -> Answers {
        answers(deployed, unit, self.request_id.clone(), self.host.clone())
    }
}

/// What answers the unit of this number, for one attempt.
pub fn answers(deployed: &Deployed, unit: u64, request_id: Arc<str>, host: Arc<dyn Host>) -> Answers {
    let log_bytes = deployed.function.limits.log_bytes;
    Answers {
        host,
        function: deployed.function.clone(),
        output: Arc::new(Output::new(deployed.log.clone(), unit, request_id, log_bytes)),
        budget: deployed.budget.clone(),
        held: deployed.budget.share(Purpose::HostCalls),
    }
}

/// The attempt as `work` does it.
///
/// # Panics
/// The attempt is at a request.
pub fn run<F>(attempt: unit::Attempt, work: impl FnOnce(Attempt) -> F) -> Box<dyn Running>
where
    F: Future<Output = Result<Given, Problem>> + Send + 'static,
{
    let unit::Attempt { request_id, work: given, deadline, host } = attempt;
    let Work::Event(event) = given else { unreachable!("these functions take events") };
    let (event, meter) = (Arc::new(event), Arc::new(Meter::new(deadline)));
    let work = work(Attempt { request_id, event: event.clone(), host, meter: meter.clone() });
    Box::new(Wired { work: Box::pin(work), event: Some(event), meter })
}

struct Wired {
    work: BoxFuture<'static, Result<Given, Problem>>,
    event: Option<Arc<Event>>,
    meter: Arc<Meter>,
}

impl Running for Wired {
    fn poll_given(&mut self, cx: &mut Context<'_>) -> Poll<Result<Given, Problem>> {
        self.work.as_mut().poll(cx)
    }

    fn spent(&self) -> Spent {
        self.meter.spent()
    }

    fn give_back(&mut self) -> Option<Event> {
        self.event.take().map(Arc::unwrap_or_clone)
    }
}
