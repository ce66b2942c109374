//! What a unit asks for, without a unit: what is counted, what is noted, and what is undone.

use crate::bindings::lighter::unit::http as contract;
use crate::bindings::wasi::keyvalue;
use crate::engine::Series;
use crate::host::http::Client;
use crate::meter::Meter;
use crate::unit_state::UnitState;
use budget::{Budget, Purpose};
use event::Event;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{HeaderMap, Uri};
use http_body_util::{BodyExt, Empty};
use manifest::Function;
use parking_lot::Mutex;
use problem::{Code, Problem};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use unit::{
    Contract, Departure, Deployed, Host, Inbound, LogLine, LogWriter, Outbound, Outgoing, Output, Page, Reach, Refusal,
};
use wasmtime_wasi_http::WasiHttpView;

/// Answers no request, keeps numbers, and has nothing else.
#[derive(Default)]
struct Slow {
    number: Mutex<i64>,
}

fn denied<T>() -> Result<T, Refusal> {
    Err(Refusal::Denied("nothing is there".into()))
}

impl Host for Slow {
    fn get(&self, _: &str, _: &str) -> Result<Option<Vec<u8>>, Refusal> {
        denied()
    }

    fn set(&self, _: &str, _: &str, _: Vec<u8>) -> Result<(), Refusal> {
        denied()
    }

    fn set_with_ttl(&self, _: &str, _: &str, _: Vec<u8>, _: Duration) -> Result<(), Refusal> {
        denied()
    }

    fn delete(&self, _: &str, _: &str) -> Result<(), Refusal> {
        denied()
    }

    fn increment(&self, _: &str, _: &str, delta: i64) -> Result<i64, Refusal> {
        let mut number = self.number.lock();
        *number += delta;
        Ok(*number)
    }

    fn compare_and_set(&self, _: &str, _: &str, _: Option<&[u8]>, _: Option<Vec<u8>>) -> Result<bool, Refusal> {
        denied()
    }

    fn list(&self, _: &str, _: &str, _: Option<&str>, _: u32) -> Result<Page, Refusal> {
        denied()
    }

    fn may_push(&self, _: &str) -> Result<(), Refusal> {
        denied()
    }

    fn push(&self, _: &str, _: Outgoing) -> Result<(), Refusal> {
        denied()
    }

    fn pop(&self, _: &str) -> Result<Option<Event>, Refusal> {
        denied()
    }

    fn now_ms(&self) -> u64 {
        0
    }

    fn monotonic_ns(&self) -> u64 {
        0
    }

    fn random(&self, _: u32) -> Result<Vec<u8>, String> {
        Err("there is none".into())
    }

    fn config(&self, _: &str) -> Option<&str> {
        None
    }

    fn configs(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    fn send(&self, _: Outbound) -> BoxFuture<'_, Result<Inbound, Refusal>> {
        Box::pin(async {
            tokio::task::yield_now().await;
            Err(Refusal::Unavailable("no answer".into()))
        })
    }

    fn departs(&self, _: &Uri, _: &mut HeaderMap) -> Result<Departure, String> {
        Ok(Departure { function: "test".into(), reach: Reach::Named, caused: Box::pin(std::future::pending()) })
    }

    fn commit(&self) -> Result<(), Problem> {
        Ok(())
    }

    fn undo(&self) {}

    fn held_bytes(&self) -> u64 {
        0
    }
}

#[derive(Default)]
struct Lines(Mutex<Vec<String>>);

impl LogWriter for Lines {
    fn write(&self, line: LogLine<'_>) {
        self.0.lock().push(line.message.to_owned());
    }
}

/// A unit's state, its host, its log and the node's budget.
struct Stage {
    state: UnitState,
    host: Arc<Slow>,
    log: Arc<Lines>,
    budget: Arc<Budget>,
}

fn stage() -> Stage {
    let (log, host, budget) = (Arc::new(Lines::default()), Arc::new(Slow::default()), Budget::unbounded());
    let mut function = Function::new("test");
    function.grants.stores = vec!["default".into()];
    let deployed = Arc::new(Deployed {
        name: "test".parse().unwrap(),
        version: 1,
        function: Arc::new(function),
        contract: Contract::Unit,
        secrets: Arc::default(),
        log: log.clone(),
        budget: budget.clone(),
    });
    let client: Client = egress::Clients::new();
    let output = Output::new(log.clone(), 1, "r1".into(), 64 << 10);
    let state =
        UnitState::new(deployed, Series::Wasi02, client, meter(), (1, Arc::default()), output, host.clone()).unwrap();
    Stage { state, host, log, budget }
}

fn meter() -> Arc<Meter> {
    Arc::new(Meter::new(Instant::now() + Duration::from_secs(20)))
}

/// A request that another host was slow to answer was in no book of this one.
#[tokio::test]
async fn a_request_counts_until_it_is_answered() {
    let Stage { mut state, budget, .. } = stage();
    let body = vec![0; 10 << 20];
    let url = "http://localhost/".to_owned();
    let request = contract::Request { method: "POST".into(), url, headers: Vec::new(), body, timeout_ms: None };
    let mut sent = Box::pin(contract::Host::send(&mut state, request));
    assert!((&mut sent).now_or_never().is_none());
    assert!(budget.used_bytes(Purpose::HostCalls) >= 10 << 20);
    assert!(sent.await.unwrap().is_err());
    assert_eq!(budget.used_bytes(Purpose::HostCalls), 0);
}

/// Each of them was a line in the log, outside of `log_bytes`, with the whole name.
#[tokio::test]
async fn a_bucket_without_a_grant_is_noted_once_in_a_call() {
    let Stage { mut state, host, log, .. } = stage();
    for call in 1..=2 {
        for _ in 0..1_000 {
            let opened = keyvalue::store::Host::open(&mut state, "other".repeat(1_000)).unwrap();
            assert!(matches!(opened, Err(keyvalue::store::Error::AccessDenied)));
        }
        let lines = log.0.lock().clone();
        assert!(lines.len() == call && lines.iter().all(|line| line.len() < 200), "{lines:?}");
        state.end_call();
        state.next_call(meter(), "r2".into(), host.clone());
    }
}

type Sent = Pin<Box<dyn Future<Output = Result<(), wasmtime_wasi_http::Error>> + Send>>;

/// Sends a request piece by piece, as `wasi:http` does.
fn sends(state: &mut UnitState) -> Sent {
    let body = Empty::new().map_err(|never| match never {}).boxed_unsync();
    let request = http::Request::get("http://localhost/").body(body).unwrap();
    let sent = state.http().hooks.send_request(request, None, Box::new(async { Ok(()) }));
    let sent = Pin::from(sent);
    Box::pin(async move { sent.await.map(drop) })
}

/// In WASI 0.2 only handles were counted, and a request that is sent is in none of them.
#[tokio::test]
async fn requests_under_way_are_bounded_in_number_and_in_bytes() {
    let Stage { mut state, .. } = stage();
    let mut few: Vec<_> = (0..20).map(|_| sends(&mut state)).collect();
    assert!(few.iter_mut().all(|sent| sent.now_or_never().is_none()));
    assert!(state.check_holdings().is_ok());
    drop(few);
    assert_eq!(state.http.under_way(false).unit, 0);
    let mut many: Vec<_> = (0..300).map(|_| sends(&mut state)).collect();
    let ended: Vec<_> = many.iter_mut().filter_map(|sent| sent.now_or_never()).collect();
    assert_eq!(ended.len(), 50);
    assert!(ended.iter().all(|sent| matches!(sent, Err(wasmtime_wasi_http::Error::ConnectionLimitReached))));
    assert_eq!(state.check_holdings().unwrap_err().code, Code::MemoryExceeded);
}

#[tokio::test]
async fn an_increment_that_is_answered_with_an_error_is_undone() {
    let Stage { mut state, host, .. } = stage();
    *host.number.lock() = -5;
    for (delta, sum) in [(3, None), (0, None), (6, Some(1))] {
        let bucket = keyvalue::store::Host::open(&mut state, "default".into()).unwrap().unwrap();
        let answered = keyvalue::atomics::Host::increment(&mut state, bucket, "key".into(), delta).unwrap();
        assert_eq!(answered.ok(), sum);
        assert_eq!(*host.number.lock(), sum.map_or(-5, |sum| i64::try_from(sum).unwrap()));
    }
}
