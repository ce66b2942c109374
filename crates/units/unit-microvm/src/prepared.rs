//! A function ready to run: its snapshot, machines that wait for a call, and calls that wait for a machine.

use crate::attach;
use crate::attempt::attempt;
use crate::debugger::DebugSession;
use crate::ear::Ear;
use crate::fetch::Client;
use crate::serving;
use crate::snapshot::{Parts, Snapshot};
use crate::stock::Stock;
use crate::tender::{Clock, Recipe, Tender};
use crate::{Busy, MicrovmInner};
use budget::Purpose;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use problem::{Code, Problem};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::sync::Arc;
use std::time::{Duration, Instant};
use unit::{Artefact, Attempt, Deployed, Host, Output, Prepared, Running, Seen, StackFrame, UnitStatus, Work};
use unit_host::pool::{Pool, Spare, Spares, Taken};
use unit_host::{Desk, RosterEntry, kernel};
use unit_lines::{Image, Share};

/// Machines that wait for a call.
const SPARES: Spares = Spares::new(2, 8);
/// How long they wait without a call.
const SPARES_IDLE: Duration = Duration::from_secs(120);

pub struct PreparedMicrovm {
    shared: Arc<MicrovmInner>,
    deployed: Arc<Deployed>,
    recipe: Arc<Recipe>,
    stock: Arc<Stock>,
    /// The artefact: what it says of the image's sources is read when a unit traps.
    artefact: Mutex<File>,
    /// Its share of the thread that reads that.
    share: Arc<Share>,
    pool: Pool<Tender>,
    /// Machines that serve a call.
    pub at_work: Arc<Desk<Clock>>,
    dump: Mutex<Option<Arc<Vec<u8>>>>,
}

impl PreparedMicrovm {
    pub fn load(shared: &Arc<MicrovmInner>, artefact: Artefact, deployed: Deployed) -> Result<Arc<Self>, Problem> {
        let corrupt =
            |why: String| Problem::new(Code::ArtefactCorrupt, format!("the artefact cannot be loaded: {why}"));
        let mut file = artefact.file;
        let bytes = read(&mut file).map_err(|error| corrupt(error.to_string()))?;
        let parts = Parts::read(&bytes).map_err(|error| corrupt(error.0.to_owned()))?;
        let function = &deployed.function;
        let snapshot = Snapshot::lay_out(&parts, function.limits.memory_bytes).map_err(|error| failed(&error))?;
        let recipe = Recipe {
            snapshot: Arc::new(snapshot),
            policy: kernel::policy(&function.grants),
            memory_bytes: function.limits.memory_bytes,
            body_bytes: function.limits.body_bytes,
            dump: function.units.dump,
            debugger: Mutex::default(),
            reads_ahead: true,
            ear: Ear::default(),
            rest: Ear::default(),
        };
        let spares = SPARES.with_warm(function.warm());
        let pool = Pool::new(function.units.reuse_calls, spares, function.limits.concurrency as usize);
        Ok(Arc::new(Self {
            shared: shared.clone(),
            deployed: Arc::new(deployed),
            recipe: Arc::new(recipe),
            stock: shared.stock()?,
            artefact: Mutex::new(file),
            share: Arc::default(),
            pool,
            at_work: Arc::default(),
            dump: Mutex::default(),
        }))
    }

    /// A machine goes to work.
    pub fn begins_work(&self) -> Busy {
        self.shared.begins_work()
    }

    /// Gives a unit its work, and listens for what it says.
    pub fn begin_heard(&self, tender: &mut Tender, work: Vec<u8>) {
        let is_used_again = tender.events + 1 < self.deployed.function.units.reuse_calls;
        tender.begin_heard(work, &self.recipe, is_used_again);
    }

    /// The clients of requests of its units' own.
    pub fn client(&self) -> Client {
        self.shared.client()
    }

    /// Lets a debugger look into the first unit that is given an event.
    pub fn debug(&self, session: DebugSession) {
        *self.recipe.debugger.lock() = Some(session);
    }

    /// Tells the log of the way to a trap, with source lines if the component was kept for them.
    pub fn tell(self: &Arc<Self>, frames: Vec<StackFrame>, output: &Arc<Output>) -> unit_lines::Told {
        let prepared = self.clone();
        let image: Image = Box::new(move || {
            let bytes = read(&mut prepared.artefact.lock()).unwrap_or_default();
            Parts::read(&bytes).map(|parts| parts.image.to_vec()).unwrap_or_default()
        });
        self.shared.teller.tell(Some(image), frames, &self.share, output)
    }

    /// A machine for one call: one kept for reuse, a spare, or the next one that is made or kept.
    ///
    /// # Errors
    /// There can be none.
    pub async fn take(self: &Arc<Self>, request_id: &Arc<str>) -> Result<(Tender, RosterEntry), Problem> {
        let taken = self.pool.take(request_id);
        // A unit that was kept has its room already; one that is ended or renewed has none.
        if let Taken::Again(tender, entry) = taken {
            return Ok((tender, entry));
        }
        let room = match self.deployed.budget.take(Purpose::Units, self.recipe.memory_bytes) {
            Ok(room) => room,
            Err(full) => {
                if let Taken::Fresh(tender, entry) = taken {
                    drop(entry);
                    self.pool.give_back(tender);
                }
                return Err(full.for_unit(0));
            }
        };
        self.top_up(true);
        let (mut tender, entry) = self.pool.wait(taken, request_id).await?;
        // One that was kept meanwhile gives back the room that it had.
        tender.room = Some(room);
        Ok((tender, entry))
    }

    /// After a call that went well: keeps the unit for its next call, or makes a fresh one in its machine.
    pub fn put_back(self: &Arc<Self>, mut tender: Tender, entry: RosterEntry) {
        if tender.events < self.deployed.function.units.reuse_calls {
            tender.is_kept();
            self.pool.keep(tender, entry);
            self.returned();
            return;
        }
        drop(entry);
        tender.room = None;
        if self.pool.wants_one() {
            let came = Came(Some(self.clone()));
            tender.renew(self.shared.next_number(), move |tender| came.with(Ok(tender)));
        } else {
            self.stock.take_back(tender);
        }
        self.returned();
    }

    /// A call has no machine any more.
    pub fn returned(self: &Arc<Self>) {
        self.top_up(false);
        self.stock.fill();
    }

    pub fn keep_dump(&self, dump: Vec<u8>) {
        *self.dump.lock() = Some(Arc::new(dump));
    }

    /// Begins to make what is missing. Whoever makes one may fail at once and say so.
    fn top_up(self: &Arc<Self>, in_call: bool) {
        for _ in 0..self.pool.missing(in_call) {
            let came = Came(Some(self.clone()));
            self.stock.start(self.recipe.clone(), self.shared.next_number(), move |made| came.with(made));
        }
    }
}

/// A machine that is on its way; if it gets lost there, that is heard of too.
struct Came(Option<Arc<PreparedMicrovm>>);

impl Came {
    fn with(mut self, made: io::Result<Tender>) {
        if let Some(prepared) = self.0.take() {
            prepared.pool.came(Some(made.map_err(|error| failed(&error))));
        }
    }
}

impl Drop for Came {
    fn drop(&mut self) {
        if let Some(prepared) = self.0.take() {
            prepared.pool.came(None);
            prepared.top_up(false);
        }
    }
}

impl Spare for Tender {
    fn number(&self) -> u64 {
        self.number
    }

    fn is_there(&mut self) -> bool {
        self.obeys()
    }
}

fn read(file: &mut File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn failed(error: &io::Error) -> Problem {
    Problem::new(Code::NodeFull, format!("no room for another microvm: {error}"))
}

impl Prepared for PreparedMicrovm {
    fn deployed(&self) -> &Arc<Deployed> {
        &self.deployed
    }

    fn try_start(self: Arc<Self>, _: Arc<dyn Host>) -> BoxFuture<'static, Result<Duration, Problem>> {
        Box::pin(async move {
            let began = Instant::now();
            let request_id = "deploy".into();
            let taken = self.pool.take(&request_id);
            self.top_up(true);
            let (tender, entry) = self.pool.wait(taken, &request_id).await?;
            let took = began.elapsed();
            // Nobody has used it: it is the first call's.
            drop(entry);
            self.pool.give_back(tender);
            self.top_up(false);
            self.stock.fill();
            Ok(took)
        })
    }

    fn attempt(self: Arc<Self>, one: Attempt) -> Box<dyn Running> {
        match one.work {
            Work::Event(_) => unit_host::run(one, |one| attempt(self, one)),
            Work::Http(_) => serving::begin(self, one),
        }
    }

    fn warm_up(self: Arc<Self>) {
        self.top_up(false);
    }

    fn units(&self) -> Vec<UnitStatus> {
        self.pool.units()
    }

    fn dump(&self) -> Option<Arc<Vec<u8>>> {
        self.dump.lock().clone()
    }

    fn attach(self: Arc<Self>, unit: u64, wants_core: bool) -> BoxFuture<'static, Result<Seen, Problem>> {
        Box::pin(attach::attach(self, unit, wants_core))
    }

    fn sweep(&self, now: Instant, all: bool) {
        let idle = Duration::from_millis(self.deployed.function.units.reuse_idle_ms);
        self.pool.sweep(now, all, idle, SPARES_IDLE);
        self.pool.forget_gone();
        self.stock.sweep(now, SPARES_IDLE);
    }
}
