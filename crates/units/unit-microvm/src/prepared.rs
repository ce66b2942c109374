//! A function ready to run: its snapshot, machines that wait for a call, and calls that wait for a machine.

use crate::Shared;
use crate::attempt::attempt;
use crate::debugger::Session;
use crate::snapshot::{Parts, Snapshot};
use crate::stock::Stock;
use crate::tender::{Recipe, Tender};
use budget::Purpose;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use problem::{Code, Problem};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use unit::{Artefact, Attempt, Deployed, Host, Output, Place, Prepared, Running, UnitStatus};
use unit_host::pool::Pool;
use unit_host::{Entry, Roster, kernel};
use unit_lines::{Image, Share};

/// Machines that wait for a call, at most.
const SPARES_MAX: u32 = 8;
/// How long they wait without a call.
const SPARES_IDLE: Duration = Duration::from_secs(120);

pub struct PreparedMicrovm {
    shared: Arc<Shared>,
    deployed: Arc<Deployed>,
    recipe: Arc<Recipe>,
    stock: Arc<Stock>,
    /// The artefact: what it says of the image's sources is read when a unit traps.
    artefact: Mutex<File>,
    /// Its share of the thread that reads that.
    share: Arc<Share>,
    pool: Mutex<Pool<Tender>>,
    roster: Arc<Roster>,
    dump: Mutex<Option<Arc<Vec<u8>>>>,
}

impl PreparedMicrovm {
    pub fn load(shared: &Arc<Shared>, artefact: Artefact, deployed: Deployed) -> Result<Arc<Self>, Problem> {
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
        };
        Ok(Arc::new(Self {
            shared: shared.clone(),
            deployed: Arc::new(deployed),
            recipe: Arc::new(recipe),
            stock: shared.stock()?,
            artefact: Mutex::new(file),
            share: Arc::default(),
            pool: Mutex::default(),
            roster: Arc::default(),
            dump: Mutex::default(),
        }))
    }

    /// Lets a debugger look into the first unit that is given an event.
    pub fn debug(&self, session: Session) {
        *self.recipe.debugger.lock() = Some(session);
    }

    /// Tells the log of the way to a trap, with source lines if the component was kept for them.
    pub fn tell(self: &Arc<Self>, places: Vec<Place>, output: &Arc<Output>) -> unit_lines::Told {
        let prepared = self.clone();
        let image: Image = Box::new(move || {
            let bytes = read(&mut prepared.artefact.lock()).unwrap_or_default();
            Parts::read(&bytes).map(|parts| parts.image.to_vec()).unwrap_or_default()
        });
        self.shared.teller.tell(Some(image), places, &self.share, output)
    }

    fn is_fresh(&self) -> bool {
        self.deployed.function.units.reuse_calls == 1
    }

    /// A machine for one call: one kept for reuse, a spare, or the next one that is made.
    ///
    /// # Errors
    /// There can be none.
    pub async fn take(self: &Arc<Self>, request_id: &Arc<str>) -> Result<(Tender, Entry), Problem> {
        let room = self.deployed.budget.take(Purpose::Units, self.recipe.memory_bytes)?;
        let (mut tender, entry) = self.machine(request_id).await?;
        // A unit that is kept holds it on; one that is ended or renewed does not.
        tender.room = Some(room);
        Ok((tender, entry))
    }

    async fn machine(self: &Arc<Self>, request_id: &Arc<str>) -> Result<(Tender, Entry), Problem> {
        let waited = {
            let mut pool = self.pool.lock();
            pool.used = Some(Instant::now());
            if let Some((tender, entry)) = pool.kept.pop() {
                pool.begins();
                entry.serves(Some(request_id.clone()));
                return Ok((tender, entry));
            }
            if let Some(tender) = pool.spares.pop_front() {
                pool.begins();
                drop(pool);
                self.top_up(true);
                return Ok(self.entered(tender, request_id));
            }
            let (sender, receiver) = oneshot::channel();
            pool.waiting.push_back(sender);
            receiver
        };
        self.top_up(true);
        let gone = |_| Problem::new(Code::Internal, "nobody makes a machine any more");
        let tender = waited.await.map_err(gone)??;
        self.pool.lock().begins();
        Ok(self.entered(tender, request_id))
    }

    fn entered(&self, tender: Tender, request_id: &Arc<str>) -> (Tender, Entry) {
        let entry = Roster::enter(&self.roster, tender.number, request_id.clone());
        (tender, entry)
    }

    /// After a call that went well: keeps the unit for its next call, or makes a fresh one in its machine.
    pub fn put_back(self: &Arc<Self>, mut tender: Tender, entry: Entry) {
        if tender.events < self.deployed.function.units.reuse_calls {
            tender.since = Instant::now();
            entry.serves(None);
            let mut pool = self.pool.lock();
            pool.kept.push((tender, entry));
            drop(pool);
            self.returned();
            return;
        }
        drop(entry);
        tender.room = None;
        let is_wanted = {
            let mut pool = self.pool.lock();
            let counts = pool.counts(self.is_fresh());
            let is_wanted = counts.spares + counts.coming < counts.peak.clamp(2, SPARES_MAX) + counts.waiting;
            pool.coming += u32::from(is_wanted);
            is_wanted
        };
        if is_wanted {
            let came = Came(Some(self.clone()));
            tender.renew(self.shared.next_number(), move |tender| came.with(Ok(tender)));
        } else {
            self.stock.take_back(tender);
        }
        self.returned();
    }

    /// A call has no machine any more.
    pub fn returned(self: &Arc<Self>) {
        {
            let mut pool = self.pool.lock();
            pool.busy = pool.busy.saturating_sub(1);
        }
        self.top_up(false);
        self.stock.fill();
    }

    pub fn keep_dump(&self, dump: Vec<u8>) {
        *self.dump.lock() = Some(Arc::new(dump));
    }

    /// Begins to make what is missing. Whoever makes one may fail at once and say so: nothing is locked meanwhile.
    fn top_up(self: &Arc<Self>, in_call: bool) {
        let missing = {
            let mut pool = self.pool.lock();
            pool.waiting.retain(|waiting| !waiting.is_closed());
            let missing = pool.counts(self.is_fresh()).to_make(in_call, SPARES_MAX);
            pool.coming += missing;
            missing
        };
        for _ in 0..missing {
            let came = Came(Some(self.clone()));
            self.stock.start(self.recipe.clone(), self.shared.next_number(), move |made| came.with(made));
        }
    }

    /// A machine is ready, or could not be made: whoever waits longest hears of it.
    fn came(self: &Arc<Self>, made: Option<io::Result<Tender>>) {
        let mut pool = self.pool.lock();
        pool.coming = pool.coming.saturating_sub(1);
        match made {
            Some(Ok(tender)) => pool.give(tender),
            Some(Err(error)) => pool.refuse(&failed(&error)),
            None => {
                drop(pool);
                self.top_up(false);
            }
        }
    }
}

/// A machine that is on its way; if it gets lost there, that is heard of too.
struct Came(Option<Arc<PreparedMicrovm>>);

impl Came {
    fn with(mut self, made: io::Result<Tender>) {
        if let Some(prepared) = self.0.take() {
            prepared.came(Some(made));
        }
    }
}

impl Drop for Came {
    fn drop(&mut self) {
        if let Some(prepared) = self.0.take() {
            prepared.came(None);
        }
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
            let (tender, entry) = self.machine(&"deploy".into()).await?;
            let took = began.elapsed();
            // Nobody has used it: it is the first call's.
            drop(entry);
            self.pool.lock().spares.push_front(tender);
            self.returned();
            Ok(took)
        })
    }

    fn attempt(self: Arc<Self>, one: Attempt) -> Box<dyn Running> {
        unit_host::run(one, |one| attempt(self, one))
    }

    fn units(&self) -> Vec<UnitStatus> {
        self.roster.units()
    }

    fn dump(&self) -> Option<Arc<Vec<u8>>> {
        self.dump.lock().clone()
    }

    fn sweep(&self, now: Instant, all: bool) {
        let idle = Duration::from_millis(self.deployed.function.units.reuse_idle_ms);
        let mut pool = self.pool.lock();
        pool.peak = pool.busy;
        let is_idle = pool.busy == 0 && pool.used.is_none_or(|used| now.saturating_duration_since(used) > SPARES_IDLE);
        let (stay, go): (Vec<_>, Vec<_>) = std::mem::take(&mut pool.kept)
            .into_iter()
            .partition(|(tender, _)| !all && now.saturating_duration_since(tender.since) < idle);
        pool.kept = stay;
        let spares = if all || is_idle { std::mem::take(&mut pool.spares) } else { VecDeque::new() };
        drop(pool);
        drop((go, spares));
        self.stock.sweep(now, SPARES_IDLE);
    }
}
