//! The host of a function that may touch nothing.

use event::Event;
use futures_util::future::{BoxFuture, FutureExt};
use http::{HeaderMap, Uri};
use problem::Problem;
use std::time::Duration;
use unit::{Departure, Host, Inbound, Outbound, Outgoing, Page, Refusal};

pub struct Nobody;

fn denied<T>() -> Result<T, Refusal> {
    Err(Refusal::Denied("this function has no grants".to_owned()))
}

impl Host for Nobody {
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

    fn increment(&self, _: &str, _: &str, _: i64) -> Result<i64, Refusal> {
        denied()
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
        Err("this function has no use for random bytes".to_owned())
    }

    fn config(&self, _: &str) -> Option<&str> {
        None
    }

    fn configs(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    fn send(&self, _: Outbound) -> BoxFuture<'_, Result<Inbound, Refusal>> {
        async { denied() }.boxed()
    }

    fn departs(&self, _: &Uri, _: &mut HeaderMap) -> Result<Departure, String> {
        Err("this function has no grants".to_owned())
    }

    fn commit(&self) -> Result<(), Problem> {
        Ok(())
    }

    fn undo(&self) {}

    fn held_bytes(&self) -> u64 {
        0
    }
}
