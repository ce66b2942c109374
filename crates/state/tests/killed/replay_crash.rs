//! `kill -9` in the middle of a replay of many dead letters: each is a dead letter still or back in its queue, none is
//! lost and none is there twice; and the next replay does what is left.
//!
//! The test starts itself again as a child, which replays the letters that died for one of two reasons, and meanwhile
//! says how often it could push to another queue: after so many times it is killed, somewhere in the replay.

use crate::common::{durable, folder, open, wait};
use event::Event;
use random::Random;
use state::{Failed, Part, Push, QueueConfig, REPLAYS, Replay, Replayed, State};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Half of them are replayed, 512 in a step.
const LETTERS: u64 = 12_000;
const ROUNDS: u64 = 8;
const NOW: u64 = 1_800_000_000_000;
const FOLDER: &str = "REPLAY_CRASH_FOLDER";

/// Where a letter is, and how often it was replayed.
type Found = BTreeMap<u64, (Part, u64)>;

fn push(id: u64) -> Push {
    let event = Event { id: id.to_string(), source: "/crash".into(), kind: "k".into(), ..Event::default() };
    Push { event, delay: Duration::ZERO, ttl: None }
}

fn replay(state: &State) -> Replayed {
    let replay = Replay { reason: Some("L6003"), replays_max: Some(5), ..Replay::default() };
    wait(state.queue("work").unwrap().replay_with(replay, NOW)).unwrap()
}

/// A queue where all events have died, those with odd numbers of L6003.
fn fill(folder: &Path) {
    let state = opened(folder);
    let queue = state.queue("work").unwrap();
    for first in (0..LETTERS).step_by(500) {
        let mut transaction = state.begin();
        (first..first + 500).for_each(|id| _ = transaction.push("work", &push(id), NOW).unwrap());
        durable(&state, transaction.commit().unwrap()).unwrap();
        let mut transaction = state.begin();
        for leased in queue.lease(NOW, NOW + 60_000, 500).unwrap() {
            let odd = leased.event.id.parse::<u64>().unwrap() % 2 == 1;
            let reason = if odd { "L6003: no JSON" } else { "L6001: trapped" };
            transaction.fail(&leased, Failed::Dead { reason: reason.into() });
        }
        durable(&state, transaction.commit().unwrap()).unwrap();
    }
    assert_eq!(queue.counts().dead, LETTERS);
}

fn opened(folder: &Path) -> State {
    let state = open(folder);
    for queue in ["work", "beat"] {
        let config = QueueConfig { events_max: 1_000_000, dead_letters_max: LETTERS, ..QueueConfig::default() };
        state.queue(queue).unwrap().configure(config);
    }
    state
}

#[test]
fn child_replays_until_it_is_killed() {
    // Does nothing unless the test below started it.
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let state = opened(Path::new(&folder));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0.. {
                let mut transaction = state.begin();
                transaction.push("beat", &push(number), NOW).unwrap();
                durable(&state, transaction.commit().unwrap()).unwrap();
                writeln!(std::io::stdout().lock(), "beat {number}").unwrap();
            }
        });
        replay(&state);
    });
}

fn start(folder: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "replay_crash::child_replays_until_it_is_killed", "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// All events of the queue; panics where one is there twice.
fn look(state: &State) -> Found {
    let (queue, mut found) = (state.queue("work").unwrap(), Found::new());
    for part in [Part::Ready, Part::Delayed, Part::Dead] {
        let mut after = None;
        loop {
            let listed = queue.list(part, after, 1_000).unwrap();
            let Some(last) = listed.last() else { break };
            after = Some(last.position);
            for one in listed {
                let replays = one.event.attribute(REPLAYS).map_or(0, |text| text.parse().unwrap());
                let id = one.event.id.parse().unwrap();
                assert_eq!(found.insert(id, (part, replays)), None, "{id} is there twice");
            }
        }
    }
    found
}

#[test]
fn kill_9_in_a_bulk_replay_loses_and_doubles_no_letter() {
    let mut in_the_middle = 0;
    for seed in 0..ROUNDS {
        let folder = folder();
        fill(folder.path());
        let wanted = 1 + Random(seed).below(12) as usize;
        let mut child = start(folder.path());
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let beats = lines.filter(|line| line.contains("beat ")).take(wanted).count();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(beats, wanted, "the child did not work");
        let state = opened(folder.path());
        let found = look(&state);
        assert_eq!(found.len() as u64, LETTERS, "none is lost");
        let back: Vec<_> = found.iter().filter(|(_, (part, _))| *part == Part::Ready).collect();
        assert!(back.iter().all(|(id, (_, replays))| *id % 2 == 1 && *replays == 1), "{back:?}");
        let counts = state.queue("work").unwrap().counts();
        assert_eq!((counts.ready, counts.dead), (back.len() as u64, LETTERS - back.len() as u64));
        in_the_middle += u64::from((1..LETTERS / 2).contains(&counts.ready));
        assert_eq!(replay(&state).replayed, LETTERS / 2 - counts.ready, "the next one does what is left");
        assert!(
            look(&state).iter().all(|(id, is)| *is == if id % 2 == 1 { (Part::Ready, 1) } else { (Part::Dead, 0) })
        );
    }
    assert!(in_the_middle > 0, "it was never killed in the middle");
}
