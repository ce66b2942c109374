//! Mail that was taken is purged, and nothing else.

use crate::name;
use crate::town::{Stage, next_message, until};
use facts::{Heard, NodeName, Post as _};
use fleet_nats::{NatsNode, purge_taken};
use std::time::Duration;
use tokio::time::sleep;

/// Messages to each of two nodes.
const MESSAGES: u8 = 20;

pub async fn what_was_taken(stage: &Stage) {
    let town = stage.town(1).await;
    let anchor = town.way(&name("anchor"), true);
    let purging = tokio::spawn(purge_taken(anchor.link().clone()));
    let (sender, away) = (town.way(&name("sender"), false), name("away"));
    let home = name("home");
    for number in 0..MESSAGES {
        for to in [&home, &away] {
            until("a message is kept", async || sender.send(to, &[number]).await.is_ok()).await;
        }
    }
    let of_one = u64::from(MESSAGES);
    until("all are kept", async || town.mail_kept(0) == 2 * of_one).await;

    // Those that waited, and then some that come at once.
    let node = town.tidy(&home, false);
    take(&node, 0..MESSAGES).await;
    until("what waited is gone", async || town.mail_kept(0) == of_one).await;
    for number in 0..MESSAGES {
        sender.send(&home, &[number]).await.expect("it is kept");
    }
    take(&node, 0..MESSAGES).await;
    until("what came at once is gone", async || town.mail_kept(0) == of_one).await;

    // Nobody takes these: they come, and stay.
    for number in 0..MESSAGES {
        sender.send(&home, &[number]).await.expect("it is kept");
    }
    sleep(Duration::from_secs(2)).await;
    assert_eq!(town.mail_kept(0), 2 * of_one, "what nobody has taken stays");
    take(&node, 0..MESSAGES).await;
    until("they are gone too", async || town.mail_kept(0) == of_one).await;

    let late = town.tidy(&away, false);
    take(&late, 0..MESSAGES).await;
    until("nothing is left", async || town.mail_kept(0) == 0).await;
    purging.abort();
}

/// Takes messages with these numbers, each once and in order, and no others.
async fn take(node: &NatsNode, numbers: std::ops::Range<u8>) {
    for number in numbers {
        let expected = Heard::Message { from: NodeName::new("sender").expect("it is a name"), bytes: vec![number] };
        assert_eq!(next_message(node).await, expected);
    }
}
