//! The broker alone, without a node behind it: for measuring, and for suites of tests from elsewhere.
//!
//! `broker ADDRESS [KEY=VALUE …]`, where the keys are limits. What it keeps is gone when it ends.

use budget::Budget;
use gate_mqtt::{Changes, Gate, Limits, Listener, Node, Refused, Users};
use parking_lot::Mutex;
use problem::Problem;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Keeps records in memory, and calls that durable.
#[derive(Default)]
struct Memory(Mutex<(BTreeMap<String, Vec<u8>>, u64)>);

impl Node for Memory {
    fn wants(&self, _topic: &str) -> bool {
        false
    }

    fn commit(&self, changes: &Changes) -> Result<u64, Refused> {
        let mut kept = self.0.lock();
        for (key, value) in &changes.records {
            match value {
                Some(value) => drop(kept.0.insert(key.clone(), value.clone())),
                None => drop(kept.0.remove(key)),
            }
        }
        kept.1 += 1;
        Ok(kept.1)
    }

    async fn durable(&self, number: u64) -> Result<u64, Problem> {
        Ok(number)
    }

    fn restore(&self, take: &mut dyn FnMut(&str, &[u8])) -> Result<(), Problem> {
        self.0.lock().0.iter().for_each(|(key, value)| take(key, value));
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().ok_or("usage: broker ADDRESS [KEY=VALUE …]")?.parse()?;
    let mut limits = Limits::default();
    for argument in arguments {
        let (key, value) = argument.split_once('=').ok_or("limits are KEY=VALUE")?;
        match key {
            "inflight_max" => limits.inflight_max = value.parse()?,
            "receive_maximum" => limits.receive_maximum = value.parse()?,
            "packet_bytes_max" => limits.packet_bytes_max = value.parse()?,
            "topic_alias_maximum" => limits.topic_alias_maximum = value.parse()?,
            "connections_max" => {
                limits.connections_max = value.parse()?;
                limits.connections_per_address_max = limits.connections_max;
            }
            "keep_alive_max_s" => limits.keep_alive_max = std::time::Duration::from_secs(value.parse()?),
            _ => return Err(format!("there is no limit {key:?}").into()),
        }
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = Listener::bind(address, None)?;
        println!("listening on {}", listener.address());
        let gate =
            Gate::start(vec![listener], limits, Users::open(), Arc::new(Memory::default()), &Budget::unbounded())?;
        std::future::pending::<()>().await;
        drop(gate);
        Ok::<(), Problem>(())
    })?;
    Ok(())
}
