//! Names of hosts: made addresses, of which those remain that may be connected to.

use crate::connect::Boxed;
use crate::{Unsent, is_inner};
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::vec;
use tower_service::Service;
use unit::Reach;

/// Turns a name into the addresses that may be connected to.
#[derive(Clone)]
pub struct Resolver {
    pub system: GaiResolver,
    pub reach: Reach,
}

impl Service<Name> for Resolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = Unsent;
    type Future = Boxed<Self::Response, Unsent>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Unsent>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let (found, reach) = (self.system.call(name), self.reach);
        Box::pin(async move {
            let found: Vec<SocketAddr> = found.await.map_err(|_| Unsent::NameUnknown)?.collect();
            let may = |address: &SocketAddr| reach == Reach::Named || !is_inner(address.ip());
            let (may, must_not): (Vec<_>, Vec<_>) = found.into_iter().partition(may);
            match (may.is_empty(), must_not.first()) {
                (true, Some(inner)) => Err(Unsent::Inner(inner.ip())),
                (true, None) => Err(Unsent::NameUnknown),
                (false, _) => Ok(may.into_iter()),
            }
        })
    }
}
