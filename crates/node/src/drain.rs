//! A node before it is switched off: it takes nothing new, and running work ends.
//!
//! Requests of the gate run on other nodes of the fleet that have the very same function, and are refused otherwise
//! (L4010). Calls of other nodes go elsewhere. Nothing more is leased from queues: what comes in by MQTT, by timers or
//! from functions waits on the disk. All of this ends with the node: started again, it takes work again.

use crate::Node;
use api_types::FleetDrain;
use problem::{Code, Problem};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

impl Node {
    /// Whether it takes nothing new any more.
    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Relaxed)
    }

    /// Takes nothing new from now on, until it is started again. Says what still runs; ask again until that is nothing.
    pub async fn drain(&self) -> FleetDrain {
        self.is_draining.store(true, Relaxed);
        if let Some(link) = self.link() {
            link.drain();
        }
        let queues = self.events.drain(Duration::ZERO).await;
        let units = self.functions.units.counts();
        FleetDrain { running: units.running, waiting: units.waiting, queues }
    }

    /// What a request hears that comes in meanwhile and can run nowhere else.
    pub(crate) fn drains() -> Problem {
        Problem::new(Code::Draining, "the node is being drained, and no other node was found for this request")
            .with_hint("ask another node of the fleet")
    }
}
