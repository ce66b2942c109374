//! Three households, their nodes, the links and the engine between them, in virtual time.
//!
//! ```text
//!  faults until FAULTS ─▶ everything works again, one last push on each way ─▶ everything has arrived before SETTLED
//! ```

use crate::disk::{Backup, Disk};
use crate::history::{Fate, History, Push};
use crate::net::{Net, Style};
use crate::node::{Done, Node, Plant, STRANGER, name, nonce};
use mail::Bounds;
use random::Random;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Microseconds of virtual time.
pub type Time = u64;

pub const MS: Time = 1_000;
pub const SECOND: Time = 1_000 * MS;
const FAULTS: Time = 20 * SECOND;
/// All has arrived so long after the last fault: some rests of 30 s, one after the other.
const SETTLED: Time = FAULTS + 150 * SECOND;
pub const HOUSEHOLDS: usize = 3;

/// What happens next. Nodes are named by their place in the world.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Happening {
    Push(usize),
    Sync(usize),
    Poll(usize),
    Handle(usize),
    Arrive { to: usize, by: String, bytes: Vec<u8> },
    Start(usize),
    Fault,
    Learn { viewer: usize, household: usize },
    Wake(usize),
    End,
    PushLast(usize),
    Look,
}

pub struct World {
    pub rng: Random,
    pub now: Time,
    agenda: BinaryHeap<Reverse<(Time, u64, Happening)>>,
    counter: u64,
    pub nodes: Vec<Node>,
    pub net: Net,
    pub history: History,
    /// Which node is the home of each household.
    home: [usize; HOUSEHOLDS],
    /// A node that is stopped does nothing before this time, and its clock has lost so much.
    stopped: Vec<(Time, Time)>,
    polls: Vec<Option<Time>>,
    syncs: Vec<bool>,
    backups: Vec<Option<Backup>>,
    sync_time: Time,
    restores: bool,
    /// A backup was put back.
    restored: bool,
    /// A node is killed in one of so many steps.
    kills: u64,
    pushes_left: u64,
    /// Last pushes that are still to be made.
    lasts_left: usize,
    ends: Time,
    is_over: bool,
}

impl World {
    pub fn new(seed: u64, plant: Plant) -> Self {
        let mut rng = Random(seed);
        let style = Style::new(&mut rng);
        let parcel_bytes = rng.between(200, 2_000);
        let bounds = Bounds { letters_max: rng.between(6, 60), bytes_max: rng.between(4_000, 40_000) };
        let nodes: Vec<Node> = (0..HOUSEHOLDS)
            .map(|number| Node {
                number,
                id: format!("n{number}"),
                epoch: 1,
                disk: Disk::default(),
                life: None,
                homes: (0..HOUSEHOLDS).map(|other| (format!("n{other}"), 1)).collect(),
                queue_max: rng.between(2, 30),
                is_stale: false,
                plant,
                bounds,
                parcel_bytes,
            })
            .collect();
        let mut world = Self {
            now: 0,
            agenda: BinaryHeap::new(),
            counter: 0,
            nodes,
            net: Net::new(style),
            history: History::default(),
            home: [0, 1, 2],
            stopped: vec![(0, 0); HOUSEHOLDS],
            polls: vec![None; HOUSEHOLDS],
            syncs: vec![false; HOUSEHOLDS],
            backups: vec![None; HOUSEHOLDS],
            sync_time: [2 * MS, 20 * MS, 400 * MS][rng.below(3) as usize],
            restores: rng.once_in(4),
            restored: false,
            kills: [0, 30, 200][rng.below(3) as usize],
            pushes_left: rng.between(5, 60),
            lasts_left: HOUSEHOLDS,
            ends: SETTLED,
            is_over: false,
            rng,
        };
        for node in 0..HOUSEHOLDS {
            let nonce = nonce(&mut world.rng);
            world.nodes[node].start(nonce);
            let at = world.rng.below(SECOND);
            world.at(at, Happening::Push(node));
            world.at(at, Happening::Handle(node));
        }
        world.at(0, Happening::Fault);
        world.at(FAULTS, Happening::End);
        world
    }

    pub fn at(&mut self, time: Time, what: Happening) {
        self.counter += 1;
        self.agenda.push(Reverse((time, self.counter, what)));
    }

    fn after(&mut self, pause: Time, what: Happening) {
        self.at(self.now + pause, what);
    }

    /// Plays the seed to its end.
    pub fn run(mut self) -> Result<History, String> {
        while let Some(Reverse((time, _, what))) = self.agenda.pop() {
            if time > self.ends {
                break;
            }
            (self.now, self.net.now) = (time, time);
            self.happen(what)?;
        }
        if let Some(left) = (0..HOUSEHOLDS).find_map(|household| self.left(household)) {
            return Err(left);
        }
        let homes: Vec<&Node> = self.home.iter().map(|node| &self.nodes[*node]).collect();
        self.history.check(&homes)?;
        let alarms = self.history.rolled_back.len() + self.history.lost.len();
        if alarms > 0 && !self.restored {
            return Err("somebody was told of a restore, and there was none".to_owned());
        }
        Ok(self.history)
    }

    /// What a household has not got rid of.
    fn left(&self, household: usize) -> Option<String> {
        let node = &self.nodes[self.home[household]];
        let counts = node.life.as_ref().map(|life| life.outbox.counts());
        let is_clean = counts.is_some_and(|counts| counts.letters == 0 && counts.bytes == 0);
        (!is_clean).then(|| format!("{household} still has {counts:?}"))
    }

    /// Once everything has arrived, only what is late is waited for.
    fn look(&mut self) {
        match self.lasts_left > 0 || (0..HOUSEHOLDS).any(|household| self.left(household).is_some()) {
            true => self.after(SECOND, Happening::Look),
            false => self.ends = self.now + 9 * SECOND,
        }
    }

    fn is_up(&self, node: usize) -> bool {
        self.nodes[node].life.is_some()
    }

    /// The node's own clock.
    fn clock(&self, node: usize) -> Duration {
        Duration::from_micros(self.now.saturating_sub(self.stopped[node].1))
    }

    fn happen(&mut self, what: Happening) -> Result<(), String> {
        if let Some(until) = self.stopped_until(&what) {
            self.at(until, what);
            return Ok(());
        }
        match what {
            Happening::Push(node) => self.push(node)?,
            Happening::Sync(node) => self.sync(node)?,
            Happening::Poll(node) => {
                self.polls[node] = None;
                self.pump(node)?;
            }
            Happening::Handle(node) => self.handle(node)?,
            Happening::Arrive { to, by, bytes } if self.is_up(to) => {
                let clock = self.clock(to);
                let done = self.nodes[to].hear(&bytes, &by, clock)?;
                self.did(to, done, Some(&by))?;
            }
            Happening::Arrive { .. } => {}
            Happening::Start(node) => self.start(node)?,
            Happening::Fault => self.fault()?,
            Happening::Learn { viewer, household } => self.learn(viewer, household),
            Happening::Wake(node) if self.is_up(node) => {
                let clock = self.clock(node);
                let life = self.nodes[node].life.as_mut().expect("it is up");
                (0..HOUSEHOLDS).for_each(|to| life.outbox.wake(&name(to), clock));
                self.pump(node)?;
            }
            Happening::Wake(_) => {}
            Happening::End => self.end()?,
            Happening::PushLast(household) => self.push_last(household)?,
            Happening::Look => self.look(),
        }
        Ok(())
    }

    fn stopped_until(&self, what: &Happening) -> Option<Time> {
        let node = match what {
            Happening::Push(node) | Happening::Sync(node) | Happening::Poll(node) | Happening::Handle(node) => *node,
            Happening::Start(node) | Happening::Wake(node) => *node,
            Happening::Arrive { to, .. } => *to,
            _ => return None,
        };
        Some(self.stopped[node].0).filter(|until| *until > self.now)
    }

    fn push(&mut self, node: usize) -> Result<(), String> {
        if self.is_over || self.pushes_left == 0 {
            return Ok(());
        }
        self.after(0, Happening::Poll(node));
        let pause = FAULTS / 40;
        let pause = self.rng.below(pause) + self.rng.below(pause);
        self.after(pause, Happening::Push(node));
        if !self.is_up(node) {
            return Ok(());
        }
        self.pushes_left -= 1;
        let others: Vec<usize> = (0..HOUSEHOLDS).filter(|other| *other != self.nodes[node].number).collect();
        let letters = self.rng.between(1, 5);
        let to: Vec<usize> = (0..letters).map(|_| others[self.rng.below(2) as usize]).collect();
        self.push_to(node, &to)?;
        Ok(())
    }

    /// Whether there was room.
    fn push_to(&mut self, node: usize, to: &[usize]) -> Result<bool, String> {
        let first = self.history.pushes.len();
        let Some(commit) = self.nodes[node].push(to, first)? else { return Ok(false) };
        let (from, is_stale) = (self.nodes[node].number, self.nodes[node].is_stale);
        let fate = if is_stale { Fate::Stale } else { Fate::Kept };
        self.history.pushes.extend(to.iter().map(|to| Push { from, to: *to, fate, commit }));
        self.wants_sync(node);
        self.pump(node)?;
        Ok(true)
    }

    /// A last push on each way, without which nobody would notice that letters before it are gone.
    fn push_last(&mut self, household: usize) -> Result<(), String> {
        let node = self.home[household];
        let others: Vec<usize> = (0..HOUSEHOLDS).filter(|other| *other != household).collect();
        match self.push_to(node, &others)? {
            true => self.lasts_left -= 1,
            false => self.after(SECOND, Happening::PushLast(household)),
        }
        Ok(())
    }

    fn wants_sync(&mut self, node: usize) {
        if !self.syncs[node] && self.nodes[node].disk.unsynced() > 0 {
            self.syncs[node] = true;
            let slow = if !self.is_over && self.rng.once_in(20) { SECOND } else { self.sync_time };
            let pause = self.rng.between(slow / 4, slow);
            self.after(pause, Happening::Sync(node));
        }
    }

    fn sync(&mut self, node: usize) -> Result<(), String> {
        self.syncs[node] = false;
        if !self.is_up(node) {
            return Ok(());
        }
        let done = self.nodes[node].sync();
        self.did(node, done, None)
    }

    fn handle(&mut self, node: usize) -> Result<(), String> {
        let pause = if self.is_over { SECOND / 4 } else { self.rng.below(SECOND) };
        self.after(pause, Happening::Handle(node));
        if self.is_up(node) {
            let some = self.rng.between(0, 6);
            self.nodes[node].handle(if self.is_over { 30 } else { some });
            self.wants_sync(node);
        }
        Ok(())
    }

    /// Sends what the node wants to send after it has done something.
    fn did(&mut self, node: usize, done: Done, by: Option<&str>) -> Result<(), String> {
        let number = self.nodes[node].number;
        // A home that is over is a backup that nobody should have started.
        let is_told = !self.nodes[node].is_stale;
        if let Some((to, notice)) = done.notice.filter(|_| is_told) {
            self.history.note(number, to, Some(notice))?;
        }
        if let Some((from, lost)) = done.lost.filter(|_| is_told) {
            *self.history.lost.entry((from, number)).or_default() += lost;
        }
        // Killed between a commit and what it would have sent.
        if !self.is_over && self.rng.once_in(self.kills) {
            self.crash(node);
            return Ok(());
        }
        for (to, bytes) in done.sent {
            let target = self.nodes[node].homes[to].0.clone();
            self.send(node, &target, bytes);
        }
        for bytes in done.answers {
            self.send(node, by.unwrap_or_default(), bytes);
        }
        self.wants_sync(node);
        self.pump(node)
    }

    fn pump(&mut self, node: usize) -> Result<(), String> {
        if !self.is_up(node) {
            return Ok(());
        }
        let clock = self.clock(node);
        let mut messages = 0;
        while let Some((to, bytes)) = self.nodes[node].poll(clock)? {
            let target = self.nodes[node].homes[to].0.clone();
            self.send(node, &target, bytes);
            messages += 1;
            if messages > 1_000 {
                return Err("a node sends without end".to_owned());
            }
        }
        let next = self.nodes[node].life.as_ref().and_then(|life| life.outbox.next_poll(clock));
        if let Some(next) = next {
            // A letter that cannot be sent yet is asked for at its time, and not at once again.
            let time = self.now + (next.saturating_sub(clock).as_micros() as Time).max(MS / 10);
            if self.polls[node].is_none_or(|known| known > time) {
                self.polls[node] = Some(time);
                self.at(time, Happening::Poll(node));
            }
        }
        Ok(())
    }

    fn send(&mut self, from: usize, target: &str, bytes: Vec<u8>) {
        let by = self.nodes[from].id.clone();
        let Some(to) = self.nodes.iter().position(|node| node.id == target) else { return };
        self.net.keep_sample(&mut self.rng, &bytes);
        for (pause, bytes) in self.net.carry(&mut self.rng, from, to, &by, bytes) {
            self.after(pause, Happening::Arrive { to, by: by.clone(), bytes });
        }
    }

    fn crash(&mut self, node: usize) {
        if self.nodes[node].life.take().is_none() {
            return;
        }
        if self.rng.once_in(2) {
            let unsynced = self.nodes[node].disk.unsynced();
            let survivors = self.rng.below(unsynced + 1);
            let commit = self.nodes[node].disk.cut(survivors);
            let number = self.nodes[node].number;
            if !self.nodes[node].is_stale {
                self.history.undo(number, commit, Fate::Gone);
            }
        }
        let down = self.rng.below(3 * SECOND);
        self.after(down, Happening::Start(node));
    }

    fn start(&mut self, node: usize) -> Result<(), String> {
        if self.is_up(node) || (self.nodes[node].is_stale && self.is_over) || self.is_left(node) {
            return Ok(());
        }
        let nonce = nonce(&mut self.rng);
        self.nodes[node].start(nonce);
        for (by, bytes) in self.net.stored(&mut self.rng, node) {
            let pause = self.rng.below(200 * MS);
            self.after(pause, Happening::Arrive { to: node, by, bytes });
        }
        self.pump(node)
    }

    /// Its household has moved away, and nobody has started it since.
    fn is_left(&self, node: usize) -> bool {
        self.home[self.nodes[node].number] != node && !self.nodes[node].is_stale
    }

    fn learn(&mut self, viewer: usize, household: usize) {
        let home = self.home[household];
        if !self.nodes[viewer].is_stale {
            self.nodes[viewer].homes[household] = (self.nodes[home].id.clone(), self.nodes[home].epoch);
        }
    }

    fn fault(&mut self) -> Result<(), String> {
        if self.is_over {
            return Ok(());
        }
        let pause = self.rng.below(2 * SECOND);
        self.after(pause, Happening::Fault);
        let node = self.rng.below(self.nodes.len() as u64) as usize;
        match self.rng.below(12) {
            0..=3 => self.crash(node),
            4..=5 => {
                let other = self.rng.below(self.nodes.len() as u64) as usize;
                let until = self.now + self.rng.below(4 * SECOND);
                let both = self.rng.once_in(2);
                self.net.cut(node, other, until, both);
                self.at(until, Happening::Wake(node));
            }
            6 => {
                let until = self.now + self.rng.below(5 * SECOND);
                self.net.engine_away(until);
            }
            7 => self.net.wipe(),
            8 => self.stop(node),
            9 => self.forge(node),
            10 if self.restores => self.restore(node),
            10 => self.backups[node] = None,
            _ => self.relocate(node)?,
        }
        Ok(())
    }

    /// SIGSTOP for a while; sometimes its clock stands still meanwhile.
    fn stop(&mut self, node: usize) {
        let pause = self.rng.below(4 * SECOND);
        let until = self.now + pause;
        if self.stopped[node].0 < self.now {
            let lost = if self.rng.once_in(2) { pause } else { 0 };
            self.stopped[node] = (until, self.stopped[node].1 + lost);
        }
    }

    /// Somebody without rights sends what looks like mail of a household.
    fn forge(&mut self, node: usize) {
        if let Some(bytes) = self.net.forged(&mut self.rng, self.history.pushes.len()) {
            self.after(MS, Happening::Arrive { to: node, by: STRANGER.to_owned(), bytes });
        }
    }

    /// Takes a backup, or puts the last one back.
    fn restore(&mut self, node: usize) {
        if self.nodes[node].is_stale {
            return;
        }
        let Some(backup) = self.backups[node].take() else {
            self.backups[node] = Some(self.nodes[node].disk.backup());
            return;
        };
        let number = self.nodes[node].number;
        self.nodes[node].life = None;
        let commit = self.nodes[node].disk.cut(0);
        self.history.undo(number, commit, Fate::Gone);
        self.nodes[node].disk.restore(&backup);
        self.restored = true;
        self.history.undo(number, backup.number, Fate::Forgotten);
        self.history.ordered_from.insert(number, self.history.pushes.len());
        self.after(SECOND, Happening::Start(node));
    }

    /// The household leaves its node in good order for another one; sometimes somebody starts the old one again.
    fn relocate(&mut self, node: usize) -> Result<(), String> {
        let number = self.nodes[node].number;
        if !self.is_up(node) || self.nodes.len() > HOUSEHOLDS || self.home[number] != node || self.restores {
            return Ok(());
        }
        let done = self.nodes[node].sync();
        self.did(node, done, None)?;
        if !self.is_up(node) {
            return Ok(());
        }
        self.nodes[node].disk.sync();
        self.nodes[node].life = None;
        let old = &self.nodes[node];
        let place = self.nodes.len();
        let homes = old.homes.clone();
        let (disk, epoch, id) = (old.disk.clone(), old.epoch + 1, format!("n{place}"));
        let (queue_max, plant, bounds, parcel_bytes) = (old.queue_max, old.plant, old.bounds, old.parcel_bytes);
        let (life, is_stale) = (None, false);
        self.nodes.push(Node {
            number,
            id,
            epoch,
            disk,
            life,
            homes,
            queue_max,
            is_stale,
            plant,
            bounds,
            parcel_bytes,
        });
        self.home[number] = place;
        self.stopped.push((0, 0));
        self.polls.push(None);
        self.syncs.push(false);
        self.backups.push(None);
        let arrives = self.rng.below(SECOND);
        for happening in [Happening::Start(place), Happening::Push(place), Happening::Handle(place)] {
            self.after(arrives, happening);
        }
        for viewer in 0..=place {
            let hears = self.rng.below(3 * SECOND);
            self.after(hears, Happening::Learn { viewer, household: number });
        }
        if self.rng.once_in(2) {
            // It runs from now on, but nobody believes it any more once all have learned of the new home.
            self.nodes[node].is_stale = true;
            let again = self.rng.between(3 * SECOND, 6 * SECOND);
            self.after(again, Happening::Start(node));
            self.after(again, Happening::Push(node));
        }
        Ok(())
    }

    /// From here on everything works.
    fn end(&mut self) -> Result<(), String> {
        self.is_over = true;
        self.net.heal();
        self.after(SECOND, Happening::Look);
        for node in 0..self.nodes.len() {
            self.stopped[node].0 = self.now;
            if self.nodes[node].is_stale {
                self.nodes[node].life = None;
                continue;
            }
            if !self.is_left(node) {
                self.start(node)?;
            }
            (0..HOUSEHOLDS).for_each(|household| self.learn(node, household));
        }
        for household in 0..HOUSEHOLDS {
            let node = self.home[household];
            self.after(0, Happening::PushLast(household));
            self.after(0, Happening::Wake(node));
        }
        Ok(())
    }
}
