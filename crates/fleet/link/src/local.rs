//! This node, as the link sees it.

use crate::body::Arriving;
use crate::fields::Why;
use crate::room::CallRoom;
use bytes::Bytes;
use choice::{Report, Truth};
use fleet_trust::NodeId;
use http::{Request, Response};
use http_body::Body;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// The body of a call that came from another node.
pub type FarBody = Arriving<Arc<CallRoom>>;

/// A call that came from another node.
#[derive(Debug, Clone)]
pub struct FarCall {
    /// Where it entered the fleet, as the certificate says.
    pub from: NodeId,
    pub function: String,
    /// The time that is left to it. After that its future is dropped.
    pub left: Duration,
}

/// A reply, and how long the unit ran, where that is known.
#[derive(Debug)]
pub struct Ran<B> {
    pub response: Response<B>,
    pub run: Option<Duration>,
}

/// Stands in the extensions of a reply that came from another node: the name of that node.
#[derive(Debug, Clone)]
pub struct RanAt(pub Arc<str>);

/// In the extensions of a request that came from another node: such a request is never sent on.
#[derive(Debug, Clone, Copy)]
pub struct CameByLink;

/// What a node has, in bytes that nodes understand and the link does not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Offers {
    /// Another one for other bytes.
    pub revision: u64,
    pub bytes: Bytes,
}

/// This node. Everything but `run` is asked for each call, and answers at once.
pub trait Local: Send + Sync + 'static {
    /// An error of it breaks the reply off: the caller sees that it is not whole.
    type Body: Body<Data = Bytes, Error: Into<crate::body::Fault>> + Send + Unpin + 'static;

    /// How it is now.
    fn report(&self) -> Report;

    /// How busy it is for a call of this function. None: it does not have it.
    fn truth(&self, function: &str) -> Option<Truth>;

    /// What it has.
    fn offers(&self) -> Offers;

    /// Another node says what it has. Called when that has changed; bytes that make no sense are to be ignored.
    fn learn(&self, node: NodeId, offers: Offers);

    /// Members are these and no others: what one that has left has said counts no more.
    fn forget_others(&self, members: &[NodeId]) {
        let _ = members;
    }

    /// Takes a message of mail that another node sent. None: it was not taken, and may come again, as any may that
    /// was. Else for how long the answer is held back, a second at most: the sender sends the next one after that.
    fn mail(&self, from: NodeId, message: Bytes) -> impl Future<Output = Option<Duration>> + Send {
        let _ = (from, message);
        std::future::ready(None)
    }

    /// Another node has asked this one how it is, or has answered: there is a way between the two. Said every few
    /// seconds.
    fn reached(&self, node: NodeId) {
        let _ = node;
    }

    /// Answers what a member asks under a path of its own: anything but `/`. None: nothing is known under that path.
    /// Dropped when the asker goes away.
    fn answer(
        self: &Arc<Self>,
        from: NodeId,
        request: Request<FarBody>,
    ) -> impl Future<Output = Option<Response<Self::Body>>> + Send {
        let _ = (from, request);
        std::future::ready(None)
    }

    /// Runs a call that came from another node: through the same door as others, and here. The request has
    /// [`CameByLink`]. Dropped when the caller goes away before the head of the reply is there, or its time is over.
    ///
    /// # Errors
    /// It did not begin, and the body was not read: it may run elsewhere.
    fn run(
        self: &Arc<Self>,
        request: Request<FarBody>,
        call: FarCall,
    ) -> impl Future<Output = Result<Ran<Self::Body>, Why>> + Send;
}
