//! Units held by hand, without a function, a store or a host around them: for benchmarks.

use crate::MicrovmClass;
use crate::processor;
use crate::snapshot::{Parts, Snapshot};
use crate::stock::Stock;
use crate::tender::{Recipe, Tender, What};
use frame::{Checksum, Frame, Kind, Limits, Value};
use kernel_abi::Policy;
use kernel_abi::exits::Exit;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// What units of one artefact are made of.
pub struct Bed {
    recipe: Arc<Recipe>,
    /// The same, but that its first instructions leave to the tender.
    leaving: Arc<Recipe>,
    stock: Arc<Stock>,
    /// There is never anything in it.
    nothing: Arc<Stock>,
}

/// Where a unit's machine comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    Nothing,
    /// One that was nobody's; [`Bed::fill`] sees to it that there is one.
    Stock,
}

/// A unit that lives until it is dropped.
pub struct Held(Tender, Arc<Recipe>);

impl Bed {
    /// # Errors
    /// There is no KVM, or the artefact is none.
    pub fn new(class: &MicrovmClass, artefact: &[u8], memory_bytes: u64) -> io::Result<Self> {
        let kvm = class.shared.kvm().map_err(|problem| io::Error::other(problem.to_string()))?;
        let whole = recipe(artefact, memory_bytes, true)?;
        let mut leaving = artefact.to_vec();
        let at = parts(artefact)?.place_of(whole.snapshot.about.registers.pc());
        let at = at.ok_or_else(|| io::Error::other("an artefact without a first instruction"))?;
        let code = processor::leaving(Exit::Log);
        leaving[at..at + code.len()].copy_from_slice(&code);
        // It does not wait for an event, and so does not read ahead.
        let leaving = recipe(&leaving, memory_bytes, false)?;
        Ok(Self { recipe: whole, leaving, stock: Stock::new(kvm.clone()), nothing: Stock::new(kvm) })
    }

    /// Sees to it that machines wait.
    pub async fn fill(&self) {
        self.stock.fill();
        while !self.stock.is_full() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// A unit, ready for its first event.
    ///
    /// # Errors
    /// There is no room for another.
    pub async fn start(&self, source: Source) -> io::Result<Held> {
        Ok(Held(self.make(source, &self.recipe).await?, self.recipe.clone()))
    }

    /// How long a unit takes to be there: from asking for it until its first instruction has told so. The event it is
    /// given and the way of the word are in it.
    ///
    /// # Errors
    /// As [`start`](Self::start), or it did something else.
    pub async fn first_instruction(&self, source: Source) -> io::Result<Duration> {
        let event = event(b"")?;
        let began = Instant::now();
        let mut tender = self.make(source, &self.leaving).await?;
        tender.begin_heard(event, &self.leaving, false);
        match tender.told().await.what {
            What::Lines => Ok(began.elapsed()),
            other => Err(io::Error::other(format!("{other:?}"))),
        }
    }

    async fn make(&self, source: Source, recipe: &Arc<Recipe>) -> io::Result<Tender> {
        let stock = if source == Source::Stock { &self.stock } else { &self.nothing };
        let (sender, receiver) = oneshot::channel();
        stock.start(recipe.clone(), 0, |made| drop(sender.send(made)));
        receiver.await.map_err(io::Error::other)?
    }
}

#[cfg(test)]
impl Held {
    pub async fn dump(&mut self) -> io::Result<Vec<u8>> {
        self.0.dump().await
    }

    /// Whether it reads ahead now.
    pub fn reads(&self) -> bool {
        self.0.reads()
    }
}

impl Held {
    /// Handles an event with this data; one that asks its host for anything fails.
    ///
    /// # Errors
    /// What else it told than a reply.
    pub async fn call(&mut self, data: &[u8]) -> io::Result<Vec<u8>> {
        self.0.begin_heard(event(data)?, &self.1, false);
        match self.0.told().await.what {
            What::Replied { reply, .. } => {
                let frame =
                    Frame::decode(&reply, &Limits::default()).map_err(|error| io::Error::other(error.to_string()))?;
                match frame.body {
                    Value::Buffer(data) | Value::Bytes(data) => Ok(data.to_vec()),
                    other => Err(io::Error::other(format!("{other:?}"))),
                }
            }
            other => Err(io::Error::other(format!("{other:?}"))),
        }
    }
}

fn event(data: &[u8]) -> io::Result<Vec<u8>> {
    let event = event::Event { kind: "measure".into(), attempt: 1, data: data.to_vec(), ..Default::default() };
    let body = frame::event_body(&event).map_err(|error| io::Error::other(error.to_string()))?;
    let frame = Frame { kind: Kind::Call, id: 1, body }.encode(Checksum::Front, &Limits::default());
    Ok(frame.map_err(|error| io::Error::other(error.to_string()))?.to_vec())
}

fn parts(artefact: &[u8]) -> io::Result<Parts<'_>> {
    Parts::read(artefact).map_err(|error| io::Error::other(error.0))
}

fn recipe(artefact: &[u8], memory_bytes: u64, reads_ahead: bool) -> io::Result<Arc<Recipe>> {
    let snapshot = Arc::new(Snapshot::lay_out(&parts(artefact)?, memory_bytes)?);
    let (policy, body_bytes) = (Policy::least(), 8 << 20);
    let (debugger, ear, rest) = Default::default();
    Ok(Arc::new(Recipe { snapshot, policy, memory_bytes, body_bytes, dump: false, debugger, reads_ahead, ear, rest }))
}
