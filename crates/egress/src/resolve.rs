//! Names of hosts: made addresses, of which those remain that may be connected to.
//!
//! ```text
//!   name ─▶ a place of its function's ─▶ a place of all ─▶ a blocking thread asks the system ─▶ addresses
//! ```
//! The system's question cannot be given up: it takes a thread for as long as the slowest server of names wants. Those
//! threads also fork units and read files. So a lookup has its places until it is over, whoever still waits for it.

use crate::connect::Boxed;
use crate::shares::Shares;
use crate::{CALLER, Unsent, is_inner};
use hyper_util::client::legacy::connect::dns::Name;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::vec;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tower_service::Service;
use unit::Reach;

/// Lookups of the whole process at once, and of one function. Who comes later waits for as long as its request may.
const LOOKUPS_MAX: usize = 16;
const OF_FUNCTION_MAX: usize = 4;
/// Bytes of a name; DNS has no longer ones.
const NAME_BYTES_MAX: usize = 253;

/// How a name becomes addresses. It blocks.
type Ask = dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// The lookups of a process.
pub struct Lookups {
    ask: Box<Ask>,
    places: Arc<Semaphore>,
    of_function: Shares,
}

/// The places of a lookup that is under way.
type Held = (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>);

impl Lookups {
    /// Those that ask the system.
    pub fn of_system() -> Arc<Self> {
        Self::new(|name| Ok((name, 0).to_socket_addrs()?.collect()))
    }

    pub fn new(ask: impl Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static) -> Arc<Self> {
        let places = Arc::new(Semaphore::new(LOOKUPS_MAX));
        Arc::new(Self { ask: Box::new(ask), places, of_function: Shares::new(OF_FUNCTION_MAX) })
    }

    async fn addresses(self: Arc<Self>, name: Name, function: Option<Arc<str>>) -> Result<Vec<SocketAddr>, Unsent> {
        if name.as_str().len() > NAME_BYTES_MAX {
            return Err(Unsent::NameUnknown);
        }
        let held = self.places(function).await;
        let found = spawn_blocking(move || {
            let found = (self.ask)(name.as_str());
            drop(held);
            found
        });
        found.await.ok().and_then(Result::ok).ok_or(Unsent::NameUnknown)
    }

    /// Waits for the function's place first: while its own lookups are slow, it takes none from others.
    async fn places(&self, function: Option<Arc<str>>) -> Held {
        let of_function = self.of_function.take(function).await;
        (self.places.clone().acquire_owned().await.expect("nobody closes it"), of_function)
    }
}

/// Turns a name into the addresses that may be connected to.
#[derive(Clone)]
pub struct Resolver {
    pub lookups: Arc<Lookups>,
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
        // A connection that is opened for nobody any more has no caller.
        let function = CALLER.try_with(|caller| caller.function.clone()).ok();
        let (lookups, reach) = (self.lookups.clone(), self.reach);
        Box::pin(async move {
            let found = lookups.addresses(name, function).await?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    /// Lookups took the blocking threads of the node, behind which forks of units wait.
    #[tokio::test]
    async fn slow_names_take_few_threads_and_one_functions_take_none_of_anothers() {
        let (begun, (end, ended)) = (Arc::new(AtomicUsize::new(0)), mpsc::channel::<()>());
        let (counter, ended) = (begun.clone(), Mutex::new(ended));
        let lookups = Lookups::new(move |name| {
            if name == "slow" {
                counter.fetch_add(1, SeqCst);
                ended.lock().recv().ok();
            }
            Ok(vec![SocketAddr::from(([192, 0, 2, 1], 0))])
        });
        let ask = |name: &str, function: &str| {
            tokio::spawn(lookups.clone().addresses(name.parse().unwrap(), Some(function.into())))
        };
        let until_begun = async |count: usize| {
            let deadline = Instant::now() + Duration::from_secs(20);
            while begun.load(SeqCst) != count {
                assert!(Instant::now() < deadline, "{} of {count}", begun.load(SeqCst));
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        // Given up at once by who asked, they are under way all the same.
        let slow: Vec<_> = (0..20).map(|_| ask("slow", "a")).collect();
        until_begun(OF_FUNCTION_MAX).await;
        slow.iter().for_each(|one| one.abort());
        assert_eq!(ask("fast", "b").await.unwrap().unwrap().len(), 1);
        assert_eq!(lookups.places.available_permits(), LOOKUPS_MAX - OF_FUNCTION_MAX);
        let others: Vec<_> =
            ["c", "d", "e", "f"].into_iter().flat_map(|one| [one; 4].map(|one| ask("slow", one))).collect();
        until_begun(LOOKUPS_MAX).await;
        drop(end);
        for one in others {
            assert!(one.await.unwrap().is_ok());
        }
        assert_eq!(ask("fast", "a").await.unwrap().unwrap().len(), 1);
    }

    #[tokio::test]
    async fn no_name_is_longer_than_dns_has_them() {
        let lookups = Lookups::new(|_| Ok(vec![SocketAddr::from(([192, 0, 2, 1], 0))]));
        for (bytes, is_asked) in [(253, true), (254, false)] {
            let name = "a".repeat(bytes).parse().unwrap();
            assert_eq!(lookups.clone().addresses(name, None).await.is_ok(), is_asked, "{bytes}");
        }
    }
}
