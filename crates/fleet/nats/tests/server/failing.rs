//! Servers that are stopped, killed and lose what they had, while nodes go on.

use crate::name;
use crate::process::kill;
use crate::town::{SOON, Stage, of_anchors, set, until};
use facts::{Fact, Facts as _, Key, News, NotSet, Prefix};
use fleet_nats::{EngineState, Servers, StreamBounds, make_streams};
use rustix::process::Signal;
use std::time::{Duration, Instant, SystemTime};
use tokio::time::{sleep, timeout};

pub async fn silent_server_is_left(stage: &Stage) {
    let town = stage.three().await;
    let node = town.impatient(&name("anchor"), true);
    let link = node.link().clone();
    until("it is connected", async || link.server().is_some()).await;
    let first = link.server().unwrap();
    let EngineState::Up { process, .. } = town.engines[first].as_ref().unwrap().state() else { panic!("it runs") };
    let began = Instant::now();
    kill(process, Signal::STOP);
    until("another server is asked", async || link.server().is_some_and(|server| server != first)).await;
    let changed = began.elapsed();
    let key = Key::new("fn.silent").unwrap();
    set(&node, &key).await;
    kill(process, Signal::CONT);
    println!("left a silent server after {changed:.1?}, and set a fact after {:.1?}", began.elapsed());
}

pub async fn leader_is_killed(stage: &Stage) {
    let town = stage.three().await;
    let node = town.impatient(&name("anchor"), true);
    let key = Key::new("fn.count").unwrap();
    let (mut confirmed, mut longest) = (Vec::new(), Duration::ZERO);
    let mut last = Instant::now();
    let deadline = last + SOON;
    for step in 0_u32.. {
        assert!(Instant::now() < deadline, "{} were confirmed", confirmed.len());
        if confirmed.len() == 20 && longest == Duration::ZERO {
            let EngineState::Up { process, .. } = town.engines[town.leader()].as_ref().unwrap().state() else {
                panic!()
            };
            kill(process, Signal::KILL);
            longest = Duration::from_nanos(1);
        }
        let Ok(fact) = node.get(&key).await else { continue };
        let (revision, mut value) =
            fact.map_or((None, String::new()), |fact| (Some(fact.revision), String::from_utf8(fact.value).unwrap()));
        value += &format!("{step},");
        match node.set(&key, revision, Some(value.as_bytes())).await {
            Ok(_) => {
                confirmed.push(step);
                if longest > Duration::ZERO {
                    longest = longest.max(last.elapsed());
                }
                last = Instant::now();
            }
            Err(NotSet::Changed | NotSet::Unknown | NotSet::Away) => sleep(Duration::from_millis(20)).await,
            Err(error) => panic!("{error}"),
        }
        if confirmed.len() == 40 {
            break;
        }
    }
    let value = String::from_utf8(node.get(&key).await.unwrap().unwrap().value).unwrap();
    let written: Vec<u32> = value.split_terminator(',').map(|step| step.parse().unwrap()).collect();
    assert!(confirmed.iter().all(|step| written.contains(step)), "confirmed {confirmed:?}, written {written:?}");
    println!("after the leader was killed, nothing was confirmed for {longest:.1?}");
}

pub async fn another_set_is_left_alone(stage: &Stage) {
    let town = stage.three().await;
    let anchor = town.way(&name("anchor-0"), true);
    let alone = StreamBounds { replicas: 1, ..town.bounds };
    for another in [None, Some("fleet-1".to_owned())] {
        let servers = Servers::Of(another);
        let of_anchors = of_anchors();
        let making = make_streams(anchor.link(), &servers, alone, &of_anchors, SystemTime::now());
        let made = timeout(Duration::from_secs(2), making).await;
        assert!(made.is_err(), "{servers:?} were wanted, and others have {made:?}");
    }
    let own = Servers::Of(Some("fleet-0".to_owned()));
    make_streams(anchor.link(), &own, town.bounds, &of_anchors(), SystemTime::now()).await.unwrap();
}

pub async fn all_data_are_lost(stage: &Stage) {
    let mut town = stage.town(1).await;
    let node = town.way(&name("anchor"), true);
    let key = Key::new("fn.a").unwrap();
    until("it is connected", async || node.get(&key).await.is_ok()).await;
    let old = node.set(&key, None, Some(b"1")).await.unwrap();
    let mut watch = node.watch(&Prefix::ALL);
    let fact = Fact { key: key.clone(), value: b"1".into(), revision: old };
    assert_eq!(timeout(SOON, watch.next()).await, Ok(News::All(vec![fact.clone()])));

    town.engines[0] = None;
    town.start(0);
    until("it is connected again", async || node.get(&key).await == Ok(Some(fact.clone()))).await;
    let new = node.set(&key, Some(old), Some(b"2")).await.unwrap();
    let fact = Fact { key: key.clone(), value: b"2".into(), revision: new };
    assert_eq!(timeout(SOON, watch.next()).await, Ok(News::Set(fact)), "a restart is nothing to tell");

    town.wipe(0);
    town.start(0);
    town.make_streams().await;
    assert_eq!(timeout(SOON, watch.next()).await, Ok(News::All(Vec::new())));
    assert_eq!(node.set(&key, Some(new), Some(b"3")).await, Err(NotSet::Changed), "no revision outlives the loss");
    let again = node.set(&key, None, Some(b"3")).await.unwrap();
    assert!(again > new, "{again:?} comes after {new:?}");
    let fact = Fact { key, value: b"3".into(), revision: again };
    assert_eq!(timeout(SOON, watch.next()).await, Ok(News::Set(fact)));
}
