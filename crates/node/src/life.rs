//! What a node does by itself, and how it begins.
//!
//! A future is compiled by the crate that polls it, with everything that it awaits, unless it is boxed or spawned here.
//! So the program, which begins all of this, does not compile the node a second time.

use crate::functions::Rest;
use crate::{Node, clock, timers};
use futures_util::future::BoxFuture;
use problem::Problem;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// How often idle functions, idle units and overlong logs are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(5);

impl Node {
    /// Takes its place in a fleet, if it has one, and joins the one that its configuration names. To be done before
    /// anybody is let in: a node that is asked to join and cannot does not start.
    ///
    /// # Errors
    /// Its part in the fleet cannot be read, or it is not let in.
    pub fn enter_fleet(self: &Arc<Self>) -> BoxFuture<'_, Result<(), Problem>> {
        Box::pin(async move {
            self.fleet.open().await?;
            if let Some(token) = &self.config.fleet.join {
                self.fleet.join(token).await?;
            }
            Ok(())
        })
    }

    /// Begins what goes on until it is aborted: the workers of all queues, the timers, the sweep, and the rounds for
    /// functions that rest.
    pub fn begin(self: &Arc<Self>) -> [JoinHandle<()>; 4] {
        [
            tokio::spawn(self.events.clone().run()),
            tokio::spawn(timers::run(self.events.clone())),
            tokio::spawn(sweep(self.clone())),
            tokio::spawn(Rest::rounds(self.functions.loader.clone())),
        ]
    }

    /// Whether any call has come since the start.
    pub fn was_called(&self) -> bool {
        self.calls.have_come()
    }

    /// Makes functions ready before their first calls, where that takes next to no time.
    pub fn load_ahead(self: &Arc<Self>) -> JoinHandle<()> {
        let node = self.clone();
        tokio::spawn(async move {
            let table = node.functions.table();
            node.functions.loader.load_ahead(table.entries().map(|entry| entry.live.clone())).await;
        })
    }

    /// Makes one function ready and starts a unit of it, so that the first caller does not wait for the process to
    /// touch its own code for the first time.
    pub fn warm_up(self: &Arc<Self>) -> JoinHandle<()> {
        let node = self.clone();
        tokio::spawn(async move {
            let table = node.functions.table();
            let Some(entry) = table.entries().next() else { return };
            // What is wrong with it is told by its first call.
            if let Ok(ready) = node.functions.loader.ready(&entry.live, Instant::now()).await {
                node.functions.loader.handler.try_start(&ready.prepared).await.ok();
            }
        })
    }
}

async fn sweep(node: Arc<Node>) {
    let mut rounds = tokio::time::interval(SWEEP_EVERY);
    loop {
        rounds.tick().await;
        node.functions.loader.sweep(Instant::now());
        node.functions.keep_warm();
        node.logs.sweep();
        node.look_at_hour(Instant::now());
        node.audit.sweep(clock::now_ms());
    }
}
