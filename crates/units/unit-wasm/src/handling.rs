//! One event, handled by a `lighter:unit` component: each attempt is a unit, metered.

use crate::bindings::types;
use crate::failure;
use crate::host::queue::{attribute, to_guest};
use crate::meter::Meter;
use crate::prepared::{Instance, PreparedWasm, timing};
use crate::run::Run;
use crate::unit_state::Cause;
use event::Event;
use problem::Problem;
use state::Leased;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;
use unit::{Reply, Watch};
use unit_host::{Handled, Spending, Spent, check_reply};

impl Spending for Meter {
    fn spent(&self) -> Spent {
        Spent { timing: timing(self), cpu: self.cpu(), memory_bytes: self.memory_bytes.load(Relaxed) }
    }
}

pub async fn call(
    prepared: Arc<PreparedWasm>,
    request_id: Arc<str>,
    deadline: Instant,
    watch: Box<dyn Watch>,
    event: Event,
    lease: Option<Arc<Leased>>,
) -> Result<Reply, Problem> {
    let first = event.attempt;
    let mut event = Arc::new(to_guest(event));
    let attempt = |reruns: u32| {
        if reruns > 0 {
            Arc::make_mut(&mut event).attempt = first + reruns;
        }
        let meter = Arc::new(Meter::new(deadline));
        let work = prepared.clone().handle(meter.clone(), request_id.clone(), event.clone(), lease.clone());
        let run = Run::new(prepared.engine.clone(), prepared.weight.clone(), meter.clone(), Box::pin(work));
        async move { (run.await, meter) }
    };
    unit_host::call(&prepared.deployed.state, lease.as_deref(), watch, attempt).await
}

impl PreparedWasm {
    async fn handle(
        self: Arc<Self>,
        meter: Arc<Meter>,
        request_id: Arc<str>,
        event: Arc<types::Event>,
        lease: Option<Arc<Leased>>,
    ) -> Result<Handled, Problem> {
        let mut unit = self.start(&meter, &request_id).await?;
        let state = unit.store.data_mut();
        state.http.requests.set_trace(|wanted| attribute(&event, wanted));
        state.cause = Cause::Event(event.clone());
        state.handling.begin(lease);
        let Instance::Unit(instance) = &unit.instance else { unreachable!("the guest's contract is lighter:unit") };
        let result = instance.lighter_unit_handler().call_handle(&mut unit.store, &event).await;
        let transaction = unit.store.data_mut().end_handling();
        let reply = match result {
            Ok(Ok(reply)) => reply,
            Ok(Err(said)) => {
                let problem = failure::said(said, &unit.store.data().output);
                self.put_back(unit);
                return Ok(Handled { reply: Err(problem), transaction });
            }
            Err(error) => {
                let problem = self.failed(&error, &mut unit.store).await;
                unit.store.data().output.end_call();
                return Err(problem);
            }
        };
        self.put_back(unit);
        check_reply(reply.len() as u64, &self.deployed.function.limits)?;
        Ok(Handled { reply: Ok(reply.into()), transaction })
    }
}
