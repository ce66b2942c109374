//! Power cuts at random moments: what was acknowledged is there, nothing is half there, and the state opens.
//!
//! Each seed makes commits on buckets and queues, cuts the power at some syncs and between them, opens each image,
//! compares it with a model of the first so many commits, and goes on from one of them. Its clients are hedged: some
//! send each event a second time at once and believe whichever answer comes first, and some only look whether their
//! commit is there. `LIGHTER_SEEDS=100000` runs so many seeds; `LIGHTER_SEED=81` runs one again. What the database's
//! own thread did at the moment of a cut is not in the seed: the image that failed is kept, and its folder named.

#[path = "../all/common/mod.rs"]
mod common;
mod disk;
#[path = "../all/format_one.rs"]
mod format_one;
mod model;
mod renamed;

use disk::{Cut, Disk};
use model::{BUCKETS, Change, EFFECTS, Model, QUEUES, SERIAL};
use problem::Code;
use random::Random;
use state::{Clock, CommitError, Failed, Leased, Options, Part, Push, Pushed, QueueConfig, RealDisk, State, Ticket};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Without `LIGHTER_SEEDS`.
const SEEDS: u64 = 120;
/// More than there are cores: a seed mostly waits for threads of the database.
const THREADS: usize = 8;
/// Each goes on from an image of the one before.
const GENERATIONS: u64 = 2;
const COMMITS: u64 = 60;
/// Queues remember their events for longer than a life.
const REMEMBERED: Duration = Duration::from_secs(1_000_000);
/// Of each generation; half of them in the middle of a sync.
const CUTS: u64 = 4;

/// Wall and steady clock go together, when the test says so.
struct Hands(AtomicU64);

impl Clock for Hands {
    fn wall_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    fn steady_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// What goes wrong with the disk, beside its power.
#[derive(Debug, Clone, Copy)]
enum Fault {
    None,
    /// Syncs fail from this one on.
    FailAfter(u64),
    /// There is no space from the first to the second look.
    Full(u64, u64),
    Slow(Duration),
}

/// Asked by the state for syncs and space; counts both.
struct FaultyDisk {
    fault: Fault,
    syncs: AtomicU64,
    looks: AtomicU64,
}

impl state::Disk for FaultyDisk {
    fn sync(&self, journal: &File) -> io::Result<()> {
        let number = self.syncs.fetch_add(1, Ordering::SeqCst);
        match self.fault {
            Fault::FailAfter(last) if number >= last => return Err(io::Error::other("the disk failed")),
            Fault::Slow(time) => std::thread::sleep(time),
            _ => {}
        }
        state::Disk::sync(&RealDisk, journal)
    }

    fn bytes_free(&self, _: &Path) -> io::Result<u64> {
        let number = self.looks.fetch_add(1, Ordering::SeqCst);
        let is_full = matches!(self.fault, Fault::Full(from, to) if (from..to).contains(&number));
        Ok(if is_full { 0 } else { u64::MAX })
    }
}

fn options(fault: Fault, clock: &Arc<Hands>) -> Options {
    let disk = FaultyDisk { fault, syncs: AtomicU64::new(0), looks: AtomicU64::new(0) };
    // Small, so that tables are written and merged all the time.
    Options {
        memtable_bytes: 48 << 10,
        queue_memtable_bytes: 24 << 10,
        disk: Arc::new(disk),
        clock: clock.clone(),
        ..Options::default()
    }
}

/// All that was ever committed: a model of the first part, and the rest.
struct History {
    before: Model,
    commits: Vec<Vec<Change>>,
}

impl History {
    fn count(&self) -> u64 {
        self.before.commits + self.commits.len() as u64
    }

    /// What is there after the first `commits`.
    fn model(&self, commits: u64) -> Model {
        let mut model = self.before.clone();
        self.commits[..(commits - self.before.commits) as usize].iter().for_each(|changes| model.commit(changes));
        model
    }
}

/// One life of a state, until the power fails.
struct Life<'a> {
    state: State,
    clock: Arc<Hands>,
    history: &'a mut History,
    /// Commits that were acknowledged.
    acknowledged: Arc<AtomicU64>,
    waiting: Vec<(u64, Ticket)>,
    leased: Vec<(&'static str, Leased)>,
}

impl Life<'_> {
    /// Makes random commits until there are enough, or the disk fails.
    fn run(&mut self, rng: &mut Random, mut between: impl FnMut(u64)) {
        for step in 0..COMMITS {
            between(step);
            self.clock.0.fetch_add(rng.below(20), Ordering::SeqCst);
            if rng.below(10) == 0 {
                self.state.sweep().ok();
            }
            if !self.commit(rng) || (rng.below(4) == 0 && !self.wait(rng)) {
                return;
            }
        }
        self.wait(rng);
    }

    fn now_ms(&self) -> u64 {
        self.clock.0.load(Ordering::SeqCst)
    }

    /// Says whether the disk still works.
    fn commit(&mut self, rng: &mut Random) -> bool {
        let (now, serial) = (self.now_ms(), self.history.count() + 1);
        self.lease(rng, now);
        let mut changes = model::changes(rng, serial, now);
        let mut transaction = self.state.begin();
        for change in &changes {
            match change {
                Change::Set { bucket, key, value, expires_ms: None } => {
                    transaction.set(bucket, key, value.clone()).unwrap()
                }
                Change::Set { bucket, key, value, expires_ms: Some(at) } => {
                    transaction.set_with_ttl(bucket, key, value.clone(), Duration::from_millis(at - now)).unwrap();
                }
                Change::Delete { bucket, key } => transaction.delete(bucket, key).unwrap(),
                Change::Push { queue, id } => drop(transaction.push(queue, &push(id), now).unwrap()),
                Change::Handled { .. } | Change::Died { .. } => unreachable!("they need a lease"),
            }
        }
        for (queue, leased) in std::mem::take(&mut self.leased) {
            let id = leased.event.id.clone();
            match rng.below(8) {
                0 => self.state.queue(queue).unwrap().release(leased.lease),
                1 => {
                    transaction.fail(&leased, Failed::Dead { reason: "as it was to be".into() });
                    changes.push(Change::Died { queue, id });
                }
                _ => {
                    transaction.increment(EFFECTS, &format!("{queue} {id}"), 1).unwrap();
                    if queue == QUEUES[0] {
                        transaction.push(QUEUES[1], &push(&id), now).unwrap();
                    }
                    transaction.ack(&leased);
                    changes.push(Change::Handled { queue, id });
                }
            }
        }
        transaction.set(SERIAL, "n", serial.to_string().into_bytes()).unwrap();
        match transaction.commit() {
            Ok(ticket) => {
                self.history.commits.push(changes);
                let heard = match rng.below(3) {
                    0 => self.send_again(serial),
                    1 => self.look_for(rng, serial),
                    _ => None,
                };
                self.waiting.push((serial, heard.unwrap_or(ticket)));
                true
            }
            Err(CommitError::Unavailable(problem)) if problem.code == Code::DiskFailed => {
                self.history.commits.push(changes);
                false
            }
            // Nothing happened; another time.
            Err(CommitError::Unavailable(problem)) if problem.code == Code::DiskFull => true,
            Err(other) => panic!("{other}"),
        }
    }

    /// The events of this commit come once more: there is nothing to push, and the answer says that they are there.
    /// None if there were no events, or the disk takes none.
    fn send_again(&self, serial: u64) -> Option<Ticket> {
        let changes = &self.history.commits[(serial - self.history.before.commits) as usize - 1];
        let pushes = changes.iter().filter_map(|change| match change {
            Change::Push { queue, id } => Some((*queue, id)),
            _ => None,
        });
        let mut transaction = self.state.begin();
        let mut is_any = false;
        for (queue, id) in pushes {
            match transaction.push(queue, &push(id), self.now_ms()) {
                Ok(Pushed::Duplicate) => is_any = true,
                // What could not be written is not remembered.
                Ok(Pushed::Accepted) => {}
                Err(other) => panic!("{other}"),
            }
        }
        transaction.commit().ok().filter(|_| is_any)
    }

    /// A function that finds its work done, and says so.
    fn look_for(&self, rng: &mut Random, serial: u64) -> Option<Ticket> {
        let mut transaction = self.state.begin();
        let found = match rng.below(2) {
            0 => transaction.get(SERIAL, "n").unwrap(),
            _ => transaction.list(SERIAL, "", None, 10).unwrap().entries.pop().map(|entry| entry.value),
        };
        let is_there = found.is_some_and(|value| model::number(&value) == serial);
        transaction.commit().ok().filter(|_| is_there)
    }

    fn lease(&mut self, rng: &mut Random, now: u64) {
        let name = QUEUES[rng.below(2) as usize];
        let count = rng.below(4) as usize;
        let leased = self.state.queue(name).unwrap().lease(now, now + 1_000_000, count).unwrap();
        self.leased.extend(leased.into_iter().map(|leased| (name, leased)));
    }

    /// Waits until some of the commits are durable. Says whether the disk still works.
    fn wait(&mut self, rng: &mut Random) -> bool {
        let count = 1 + rng.below(self.waiting.len().max(1) as u64) as usize;
        let first: Vec<_> = self.waiting.drain(..count.min(self.waiting.len())).collect();
        for (serial, ticket) in first {
            if common::durable(&self.state, ticket).is_err() {
                // Whoever asks again is not told that it is there.
                for heard in [self.send_again(serial), self.look_for(rng, serial)].into_iter().flatten() {
                    assert!(common::durable(&self.state, heard).is_err(), "commit {serial} failed, and is called done");
                }
                return false;
            }
            self.acknowledged.fetch_max(serial, Ordering::SeqCst);
        }
        true
    }
}

fn push(id: &str) -> Push {
    Push { event: model::event(id), delay: Duration::ZERO, ttl: None }
}

/// What can be seen of `state`.
fn look(state: &State) -> Model {
    let mut seen = Model::default();
    for bucket in BUCKETS.into_iter().chain([EFFECTS, SERIAL]) {
        let mut after = None::<String>;
        loop {
            let page = state.begin().list(bucket, "", after.as_deref(), 1_000).unwrap();
            let entries = page.entries.into_iter();
            seen.values.extend(entries.map(|entry| ((bucket.to_owned(), entry.key), (entry.value, None))));
            let Some(next) = page.next else { break };
            after = Some(next);
        }
    }
    let serial = seen.values.get(&(SERIAL.to_owned(), "n".to_owned()));
    seen.commits = serial.map_or(0, |(value, _)| model::number(value));
    for queue in QUEUES {
        let handle = state.queue(queue).unwrap();
        let ids = |part| {
            let listed = handle.list(part, None, 1_000).unwrap();
            listed.into_iter().map(|listed| {
                assert_eq!(listed.event.data, model::event(&listed.event.id).data);
                listed.event.id
            })
        };
        let (ready, dead) =
            (ids(Part::Ready).collect::<Vec<_>>(), ids(Part::Dead).collect::<std::collections::BTreeSet<_>>());
        let counts = handle.counts();
        assert_eq!((counts.ready, counts.dead), (ready.len() as u64, dead.len() as u64), "counts of queue {queue}");
        if !ready.is_empty() {
            seen.queues.insert(queue, ready);
        }
        if !dead.is_empty() {
            seen.dead.insert(queue, dead);
        }
    }
    seen
}

/// What is counted is what is there, once everything that expired is removed.
fn check_counts(state: &State, seen: &Model) {
    while state.sweep().unwrap().next == Some(Duration::ZERO) {}
    let mut looked = BTreeMap::<&str, (u64, u64)>::new();
    for ((bucket, key), (value, _)) in &seen.values {
        let held = looked.entry(bucket).or_default();
        *held = (held.0 + 1, held.1 + (key.len() + value.len()) as u64);
    }
    for bucket in BUCKETS.into_iter().chain([EFFECTS, SERIAL]) {
        let counts = state.bucket_counts(bucket);
        assert_eq!((counts.keys, counts.bytes), looked.get(bucket).copied().unwrap_or_default(), "counts of {bucket}");
    }
}

/// An image, and how many commits had been acknowledged when the power failed.
struct Image {
    folder: PathBuf,
    acknowledged: u64,
}

impl Image {
    /// Opens it and compares what is there with the history. Says how many commits are there.
    fn check(&self, history: &History, clock: &Arc<Hands>) -> u64 {
        let state =
            State::open(&self.folder, options(Fault::None, clock)).unwrap_or_else(|problem| panic!("{problem}"));
        let seen = look(&state);
        let commits = seen.commits;
        assert!(commits >= self.acknowledged, "{commits} commits are there, {} were acknowledged", self.acknowledged);
        assert!(commits <= history.count(), "{commits} commits are there, {} were made", history.count());
        let right = history.model(commits).at(clock.wall_ms());
        assert!(seen == right, "after {commits} commits of {}: {}", history.count(), seen.unlike(&right));
        check_counts(&state, &seen);
        commits
    }
}

/// Lets a state live in `folder`, cutting its power now and then. `lies_from`: see [`Disk::lie_from`].
fn live(
    rng: &mut Random,
    folder: &Path,
    fault: Fault,
    lies_from: u64,
    clock: &Arc<Hands>,
    history: &mut History,
) -> Vec<Image> {
    let acknowledged = Arc::new(AtomicU64::new(history.count()));
    let images = Arc::new(Mutex::new(Vec::new()));
    let cut = {
        let (acknowledged, images, folder) = (acknowledged.clone(), images.clone(), folder.to_owned());
        move |seed: u64| {
            let mut images = images.lock().unwrap();
            let image = PathBuf::from(format!("{}.{}", folder.display(), images.len()));
            images.push(Image { folder: image.clone(), acknowledged: acknowledged.load(Ordering::SeqCst) });
            Cut { image, seed }
        }
    };
    // Early ones are in the middle of opening.
    let in_syncs: BTreeMap<u64, u64> = (0..CUTS / 2).map(|_| (1 + rng.below(120), rng.next())).collect();
    let between: BTreeMap<u64, u64> = (0..CUTS / 2).map(|_| (rng.below(COMMITS), rng.next())).collect();
    let last = rng.next();
    let on_sync = cut.clone();
    let disk = Disk::watch(folder, move |number| in_syncs.get(&number).map(|seed| on_sync(*seed)));
    disk.lie_from(lies_from);
    let state = State::open(folder, options(fault, clock)).unwrap_or_else(|problem| panic!("{problem}"));
    for queue in QUEUES {
        let config = QueueConfig { deduplicate: Some(REMEMBERED), ..QueueConfig::default() };
        state.queue(queue).unwrap().configure(config);
    }
    let mut life = Life { state, clock: clock.clone(), history, acknowledged, waiting: Vec::new(), leased: Vec::new() };
    life.run(rng, |step| {
        if let Some(seed) = between.get(&step) {
            disk.cut(&cut(*seed));
        }
    });
    disk.cut(&cut(last));
    drop(life);
    disk.forget();
    std::mem::take(&mut *images.lock().unwrap())
}

fn fault(rng: &mut Random) -> Fault {
    match rng.below(8) {
        0 => Fault::FailAfter(rng.below(40)),
        1 => {
            let from = rng.below(40);
            Fault::Full(from, from + 1 + rng.below(20))
        }
        2 => Fault::Slow(Duration::from_micros(rng.below(2_000))),
        _ => Fault::None,
    }
}

fn run(seed: u64) {
    let home = common::folder();
    let at = Mutex::new(home.path().join("life"));
    let lives = || lives(seed, u64::MAX, &at);
    if let Err(panic) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(lives)) {
        let image = at.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        eprintln!("seed {seed} failed at {}, which is kept; LIGHTER_SEED={seed} runs it again", image.display());
        let _kept = home.keep();
        std::panic::resume_unwind(panic);
    }
}

/// Some lives, one after the other. `at` says where it is.
fn lives(seed: u64, lies_from: u64, at: &Mutex<PathBuf>) {
    let mut rng = Random(seed);
    let clock = Arc::new(Hands(AtomicU64::new(1_700_000_000_000)));
    let mut history = History { before: Model::default(), commits: Vec::new() };
    let mut folder = at.lock().unwrap().clone();
    std::fs::create_dir(&folder).unwrap();
    for _ in 0..GENERATIONS {
        let fault = fault(&mut rng);
        at.lock().unwrap().clone_from(&folder);
        let images = live(&mut rng, &folder, fault, lies_from, &clock, &mut history);
        let next = rng.below(images.len() as u64) as usize;
        let mut commits = Vec::new();
        for image in &images {
            at.lock().unwrap().clone_from(&image.folder);
            commits.push(image.check(&history, &clock));
            // The first start was one after a power cut, this is an ordinary one.
            assert_eq!(image.check(&history, &clock), commits[commits.len() - 1], "another start finds something else");
        }
        folder.clone_from(&images[next].folder);
        history = History { before: history.model(commits[next]), commits: Vec::new() };
    }
}

#[test]
fn a_disk_that_says_it_has_what_it_has_not_is_found_out() {
    let mut found = 0;
    for seed in 0..10 {
        let home = common::folder();
        let at = Mutex::new(home.path().join("life"));
        // At first it is honest, so that not everything is gone.
        let lives = || lives(seed, 20 + seed, &at);
        found += u32::from(std::panic::catch_unwind(std::panic::AssertUnwindSafe(lives)).is_err());
    }
    // Where the disk fails before it lies, or nothing happened to be acknowledged, there is nothing to find.
    assert!(found >= 5, "of 10 seeds with a lying disk only {found} failed");
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_is_half_there_after_power_cuts() {
    let number = |name: &str| std::env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
    if let Some(seed) = number("LIGHTER_SEED") {
        return run(seed);
    }
    let (next, seeds) = (AtomicU64::new(0), number("LIGHTER_SEEDS").unwrap_or(SEEDS));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        return;
                    }
                    run(seed);
                }
            });
        }
    });
}

/// Numbers of the journals in `folder`.
fn journals(folder: &Path) -> Vec<u64> {
    let names = std::fs::read_dir(folder.join("state")).unwrap().map(|entry| entry.unwrap().file_name());
    let mut numbers: Vec<u64> = names.filter_map(|name| name.to_str()?.strip_suffix(".jnl")?.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}

#[test]
fn nothing_is_lost_when_the_power_fails_while_the_database_begins_another_journal() {
    const VALUE_BYTES: usize = 1 << 20;
    let home = common::folder();
    let folder = home.path().join("life");
    std::fs::create_dir(&folder).unwrap();
    let clock = Arc::new(Hands(AtomicU64::new(1_700_000_000_000)));
    let acknowledged = Arc::new(AtomicU64::new(0));
    let images = Arc::new(Mutex::new(Vec::<Image>::new()));
    let on_sync = {
        let (folder, acknowledged, images) = (folder.clone(), acknowledged.clone(), images.clone());
        move |number: u64| {
            // The last syncs of the old journal cannot be known beforehand; the first ones with the new are.
            let mut images = images.lock().unwrap();
            if journals(&folder).last().is_none_or(|newest| *newest == 0) || images.len() == 8 {
                return None;
            }
            let image = PathBuf::from(format!("{}.{}", folder.display(), images.len()));
            images.push(Image { folder: image.clone(), acknowledged: acknowledged.load(Ordering::SeqCst) });
            Some(Cut { image, seed: number })
        }
    };
    let disk = Disk::watch(&folder, on_sync);
    let options = || Options { memtable_bytes: 4 << 20, clock: clock.clone(), ..Options::default() };
    let state = State::open(&folder, options()).unwrap();
    let mut history = History { before: Model::default(), commits: Vec::new() };
    while images.lock().unwrap().len() < 8 {
        let serial = history.count() + 1;
        assert!(serial < 200, "another journal should have been begun by now");
        let value = vec![serial as u8; VALUE_BYTES];
        let key = format!("{}", serial % 5);
        let mut transaction = state.begin();
        transaction.set(BUCKETS[0], &key, value.clone()).unwrap();
        transaction.set(SERIAL, "n", serial.to_string().into_bytes()).unwrap();
        history.commits.push(vec![Change::Set { bucket: BUCKETS[0], key, value, expires_ms: None }]);
        common::durable(&state, transaction.commit().unwrap()).unwrap();
        acknowledged.store(serial, Ordering::SeqCst);
    }
    drop(state);
    disk.forget();
    for image in images.lock().unwrap().iter() {
        image.check(&history, &clock);
        std::fs::remove_dir_all(&image.folder).unwrap();
    }
}
