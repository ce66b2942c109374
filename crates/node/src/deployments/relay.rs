//! Orders and views that come to this node by its API, and are an anchor's to answer.

use super::Deployments;
use api_types::{FleetDeployments, OrderTaken};
use bytes::Bytes;
use fleet_link::whole;
use http::{Method, Request};
use problem::{Code, Problem};
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of an anchor's view. A longer one is refused.
const VIEW_BYTES_MAX: usize = 16 << 20;
/// Bytes of the answer to an order.
const TAKEN_BYTES_MAX: usize = 64 << 10;
/// How long an anchor may take to fetch the images of an order.
const ORDER_PATIENCE: Duration = Duration::from_secs(600);

impl Deployments {
    /// Has an anchor decide about an order: this node, if it is one. Durable at the anchor once `Ok`.
    ///
    /// # Errors
    /// [`Code::AnchorsAway`]: none answers. [`Code::DeploymentChanged`] also where the order was taken and its answer
    /// was lost. What [`fleet_deploy::decide::decide`] says; [`Code::DeployerUnknown`], [`Code::ImageNowhere`].
    pub async fn order(self: &Arc<Self>, bytes: Bytes) -> Result<OrderTaken, Problem> {
        if self.leads() {
            return self.take_order(&bytes, None).await;
        }
        let mut last = None;
        for anchor in self.anchors() {
            let request = Request::post("/deployments/orders").body(bytes.clone()).expect("the path is one");
            match self.link()?.exchange(anchor.node, request, ORDER_PATIENCE).await {
                Ok(response) => return read(&whole(response, TAKEN_BYTES_MAX).await?),
                Err(problem) if problem.code == Code::MemberAway => last = Some(problem),
                Err(problem) => return Err(problem),
            }
        }
        match self.desk {
            // The other anchors are away, and this one decides, if it can.
            Some(_) => self.take_order(&bytes, None).await,
            None => Err(away(last)),
        }
    }

    /// All deployments and how far each node is, as an anchor sees it; as this node does where none answers.
    pub async fn views(&self) -> FleetDeployments {
        if !self.leads() {
            for anchor in self.anchors() {
                let asked = self.ask(anchor.node, Method::GET, "/deployments", Bytes::new(), VIEW_BYTES_MAX).await;
                match asked.and_then(|bytes| read(&bytes)) {
                    Ok(view) => return view,
                    Err(problem) => tracing::debug!(%problem, "an anchor did not tell of deployments"),
                }
            }
        }
        self.view()
    }
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(bytes)
        .map_err(|error| Problem::new(Code::FleetMessage, format!("what an anchor answers cannot be read: {error}")))
}

fn away(last: Option<Problem>) -> Problem {
    let why = last.map_or_else(|| "none is known".to_owned(), |problem| problem.detail.into_owned());
    Problem::new(Code::AnchorsAway, format!("an anchor decides about deployments, and none answers: {why}"))
        .with_hint("what is deployed runs on; deploy again when an anchor is back")
}
