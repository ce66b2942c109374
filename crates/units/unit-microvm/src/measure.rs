//! Units held by hand, without a function, a store or a host around them: for benchmarks.

use crate::MicrovmKind;
use crate::snapshot::{Parts, Snapshot};
use crate::tender::{Recipe, Tender, What};
use frame::{Checksum, Frame, Kind, Limits, Value};
use kernel_abi::Policy;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use tokio::sync::oneshot;

/// What units of one artefact are made of.
pub struct Bed {
    recipe: Arc<Recipe>,
}

/// A unit that lives until it is dropped.
pub struct Held(Tender);

impl Bed {
    /// # Errors
    /// There is no KVM, or the artefact is none.
    pub fn new(kind: &MicrovmKind, artefact: &[u8], memory_bytes: u64) -> io::Result<Self> {
        let parts = Parts::read(artefact).map_err(|error| io::Error::other(error.0))?;
        let kvm = kind.shared.kvm().map_err(|problem| io::Error::other(problem.to_string()))?;
        let snapshot = Arc::new(Snapshot::lay_out(&parts, memory_bytes)?);
        let (policy, body_bytes) = (Policy::least(), 8 << 20);
        let debugger = Mutex::default();
        Ok(Self { recipe: Arc::new(Recipe { kvm, snapshot, policy, memory_bytes, body_bytes, dump: false, debugger }) })
    }

    /// A machine from nothing, ready for its first event.
    ///
    /// # Errors
    /// There is no room for another.
    pub async fn start(&self) -> io::Result<Held> {
        let (sender, receiver) = oneshot::channel();
        Tender::start(self.recipe.clone(), 0, |made| drop(sender.send(made)));
        receiver.await.map_err(io::Error::other)?.map(Held)
    }
}

impl Held {
    /// Handles an event with this data; one that asks its host for anything fails.
    ///
    /// # Errors
    /// What else it told than a reply.
    pub async fn call(&mut self, data: &[u8]) -> io::Result<Vec<u8>> {
        let event = event::Event { kind: "measure".into(), attempt: 1, data: data.to_vec(), ..Default::default() };
        let body = frame::event_body(&event).map_err(|error| io::Error::other(error.to_string()))?;
        let limits = Limits::default();
        let frame = Frame { kind: Kind::Call, id: 1, body }.encode(Checksum::Front, &limits);
        self.0.begin(frame.map_err(|error| io::Error::other(error.to_string()))?.to_vec());
        match self.0.told().await.what {
            What::Replied { reply, .. } => {
                let frame = Frame::decode(&reply, &limits).map_err(|error| io::Error::other(error.to_string()))?;
                match frame.body {
                    Value::Buffer(data) | Value::Bytes(data) => Ok(data.to_vec()),
                    other => Err(io::Error::other(format!("{other:?}"))),
                }
            }
            other => Err(io::Error::other(format!("{other:?}"))),
        }
    }
}
