//! What a sink hears while the disk is slow, full or broken: never of what is not durable, and nothing it could not
//! ack.

use super::{Script, World, push_of};
use parking_lot::{Condvar, Mutex};
use state::{Disk, RealDisk};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use tokio::time::sleep;

/// Long enough for a sink that did not wait to be heard of.
const LOOK: Duration = Duration::from_millis(600);

/// Answers when it may, fails when it is to, and has the space it is given.
struct Hands {
    is_shut: Mutex<bool>,
    opened: Condvar,
    fails: AtomicBool,
    bytes_free: AtomicU64,
}

impl Hands {
    fn new() -> Arc<Self> {
        let (is_shut, opened, fails) = (Mutex::new(false), Condvar::new(), AtomicBool::new(false));
        Arc::new(Self { is_shut, opened, fails, bytes_free: AtomicU64::new(u64::MAX) })
    }

    fn set_shut(&self, is_shut: bool) {
        *self.is_shut.lock() = is_shut;
        self.opened.notify_all();
    }
}

impl Disk for Hands {
    fn sync(&self, journal: &File) -> io::Result<()> {
        self.opened.wait_while(&mut self.is_shut.lock(), |is_shut| *is_shut);
        match self.fails.load(SeqCst) {
            true => Err(io::Error::other("the disk is on fire")),
            false => RealDisk.sync(journal),
        }
    }

    fn bytes_free(&self, _: &Path) -> io::Result<u64> {
        Ok(self.bytes_free.load(SeqCst))
    }
}

fn postponed(world: &World) -> u64 {
    world.shell.numbers.postponed.load(SeqCst)
}

#[tokio::test]
async fn a_sink_hears_of_an_event_once_that_is_durable() {
    let disk = Hands::new();
    let world = World::on(disk.clone(), Script::default());
    disk.set_shut(true);
    let ticket = push_of(&world.state, &["done"]);
    sleep(LOOK).await;
    assert_eq!(world.script.count("done"), 0);
    disk.set_shut(false);
    world.state.durable(ticket).await.unwrap();
    world.drained().await;
    assert_eq!(world.script.count("done"), 1);
}

#[tokio::test]
async fn an_event_that_could_not_be_written_is_never_sent() {
    let disk = Hands::new();
    let world = World::on(disk.clone(), Script::default());
    disk.fails.store(true, SeqCst);
    let ticket = push_of(&world.state, &["done"]);
    assert!(world.state.durable(ticket).await.is_err());
    sleep(LOOK).await;
    assert_eq!(world.script.count("done"), 0);
    assert!((1..=6).contains(&postponed(&world)), "{} pauses, each twice as long as the last", postponed(&world));
}

/// Once each of them was sent again every 50 ms, as long as there was no room.
#[tokio::test]
async fn while_nothing_can_be_acked_nothing_is_sent_and_afterwards_it_goes_on() {
    let disk = Hands::new();
    let filling = disk.clone();
    let fill = move |world: &state::State| {
        filling.bytes_free.store(0, SeqCst);
        // The sync of this one notices.
        let mut transaction = world.begin();
        transaction.set("b", "k", b"v".to_vec()).unwrap();
        transaction.commit().unwrap()
    };
    let world = World::on(disk.clone(), Script { fill: Some(Box::new(fill)), ..Script::default() });
    world.push(&["fill"]).await;
    sleep(LOOK).await;
    assert_eq!(world.script.count("fill"), 1, "it was sent, and cannot be acked");
    assert!((1..=6).contains(&postponed(&world)), "{} pauses, each twice as long as the last", postponed(&world));
    disk.bytes_free.store(u64::MAX, SeqCst);
    world.drained().await;
    assert_eq!(world.script.count("fill"), 2);
}
