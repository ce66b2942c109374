//! What the servers themselves refuse, whatever a node sends.

use crate::name;
use crate::town::{Stage, Town, next_message, of_anchors, until};
use async_nats::{Client, ConnectOptions};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use facts::{Facts as _, Heard, Key, News, Post as _, Prefix};
use fleet_nats::{Credentials, FleetKeys, NatsFacts, NatsNode};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

type Violations = Arc<Mutex<Vec<String>>>;

/// A client that keeps to nothing.
async fn connect(town: &Town, credentials: &Credentials) -> Result<(Client, Violations), async_nats::ConnectError> {
    let violations = Violations::default();
    let said = Arc::clone(&violations);
    let options = ConnectOptions::with_credentials(&credentials.to_file()).expect("they are credentials");
    let options = options.custom_inbox_prefix("_INBOX_thief").event_callback(move |event| {
        said.lock().unwrap().push(event.to_string());
        async {}
    });
    Ok((options.connect(town.config(0).listen.to_string()).await?, violations))
}

pub async fn refused_by_the_server(stage: &Stage) {
    let town = stage.town(1).await;
    let anchor = town.way(&name("anchor"), true);
    let key = Key::new("home.orders").unwrap();
    until("the anchor is connected", async || anchor.get(&key).await.is_ok()).await;
    anchor.set(&key, None, Some(b"pi-1")).await.expect("an anchor may");

    let stranger = FleetKeys::derived(|_| [7; 32]).admit(&name("thief"), true, SystemTime::now());
    assert!(connect(&town, &stranger).await.is_err(), "keys of another fleet open nothing");

    let credentials = town.keys().admit(&name("thief"), false, SystemTime::now());
    let (thief, violations) = connect(&town, &credentials).await.expect("it is a node");
    // Mail to the victim is in the thief's own stream, so that nothing but rights is between them.
    let own = own_mail(&credentials);
    let (victim, share) = (own.replace("thief", "victim"), own.split('.').nth(1).expect("its share"));
    let forbidden = [
        "$KV.facts.home.orders".to_owned(),
        "$KV.facts.node.victim".to_owned(),
        victim.replace('>', "other"),
        victim.replace('>', "other.thief"),
        "$JS.API.STREAM.DELETE.KV_facts".to_owned(),
        "$JS.API.STREAM.PURGE.KV_facts".to_owned(),
        format!("$JS.API.STREAM.PURGE.mail_{share}"),
        "taken.victim".to_owned(),
        format!("$JS.API.STREAM.MSG.GET.mail_{share}"),
        format!("$JS.API.DIRECT.GET.mail_{share}"),
        format!("$JS.API.CONSUMER.CREATE.mail_{share}"),
        format!("$JS.API.CONSUMER.CREATE.mail_{share}.thief.{victim}"),
        format!("$JS.API.CONSUMER.MSG.NEXT.mail_{share}.victim"),
        "$SYS.REQ.SERVER.PING".to_owned(),
    ];
    for subject in &forbidden {
        thief.publish(subject.clone(), "mine".into()).await.expect("it is sent");
    }
    let heard = ["mail.>", &victim, "_INBOX_victim.>", "taken.>", "$JS.API.>", "$KV.facts.>"].map(str::to_owned);
    let mut subscribed = Vec::new();
    for subject in &heard {
        subscribed.push(thief.subscribe(subject.clone()).await.expect("it is asked for"));
    }
    for subject in forbidden.iter().chain(&heard) {
        let words = format!("\"{}\"", subject.to_lowercase());
        let is_refused = || violations.lock().unwrap().iter().any(|said| said.to_lowercase().contains(&words));
        until(subject, async || is_refused()).await;
    }
    let fact = anchor.get(&key).await.expect("it answers").expect("it is there");
    assert_eq!(fact.value, b"pi-1");
    own_subject_with_another_filter(&thief, &own, share).await;
    answers_as_facts(&town, &thief, &anchor).await;

    // What it may: its own record and mail under its own name.
    let node = town.way(&name("thief"), false);
    let own = Key::new("node.thief").unwrap();
    node.set(&own, None, Some(b"here")).await.expect("it is its own");
    let anchors = own_mail(&town.keys().admit(&name("anchor"), false, SystemTime::now()));
    for word in [b"first", b"later"] {
        node.send(&name("anchor"), word).await.expect("it is sent");
        assert_eq!(next_message(&anchor).await, Heard::Message { from: name("thief"), bytes: word.into() });
        mail_as_the_answer_to_a_question(&thief, &anchors.replace('>', "victim")).await;
    }
}

/// The engine answers under any subject that the question names. What lies there then is no fact; and where anchors
/// agree, members know no subject.
async fn answers_as_facts(town: &Town, thief: &Client, anchor: &NatsNode) {
    let key = Key::new("home.orders").unwrap();
    let agreed = NatsFacts::new(anchor.link().clone(), of_anchors(), None);
    let ledger = Key::new("ledger").unwrap();
    let revision = agreed.set(&ledger, None, Some(b"agreed")).await.expect("anchors may");
    let (mut watch, mut watch_agreed) = (anchor.watch(&Prefix::ALL), agreed.watch(&Prefix::ALL));
    assert!(matches!(watch.next().await, News::All(facts) if facts.len() == 1));
    assert!(matches!(watch_agreed.next().await, News::All(facts) if facts[0].value == b"agreed"));
    for subject in ["$KV.facts.home.orders", "anchors.ledger", "anchors.>", "anchors.*.ledger", "$KV.facts.ledger"] {
        thief.publish_with_reply("$JS.API.INFO", subject.to_owned(), "".into()).await.expect("it is sent");
    }
    thief.flush().await.expect("it is there");
    assert!(matches!(watch.next().await, News::Deleted(gone, _) if gone == key));
    assert_eq!(anchor.get(&key).await, Ok(None));
    anchor.set(&key, None, Some(b"pi-2")).await.expect("it is set anew");
    let found = agreed.get(&ledger).await.expect("it answers").expect("it is there");
    assert_eq!((found.value, found.revision), (b"agreed".to_vec(), revision));
    assert_eq!(town.messages_of(0, "anchors"), 1);
}

/// The engine answers where the question says, under the subject of what it answers with: here that ends in the
/// victim's name, and lies in the thief's own record.
async fn mail_as_the_answer_to_a_question(thief: &Client, to: &str) {
    let record = "$KV.facts.node.thief.victim";
    thief.publish(record, "forged".into()).await.expect("it is sent");
    let config = json!({ "name": "reader", "ack_policy": "none", "filter_subject": record });
    let body = json!({ "stream_name": "KV_facts", "config": config }).to_string();
    let create = format!("$JS.API.CONSUMER.CREATE.KV_facts.reader.{record}");
    let made = thief.request(create, body.into()).await.expect("it is answered");
    assert!(!String::from_utf8_lossy(&made.payload).contains("error"), "a node may read facts");
    let next = "$JS.API.CONSUMER.MSG.NEXT.KV_facts.reader";
    thief.publish_with_reply(next, to.to_owned(), r#"{"batch": 1}"#.into()).await.expect("it is sent");
    thief.flush().await.expect("it is there");
}

/// The subject of the request is the thief's own; only what stands in it is not.
async fn own_subject_with_another_filter(thief: &Client, own: &str, share: &str) {
    let (stream, filter) = (format!("mail_{share}"), own.replace("thief", "victim"));
    let config = json!({ "name": "thief", "ack_policy": "none", "filter_subject": filter });
    let body = json!({ "stream_name": stream, "config": config }).to_string();
    let asked = thief.request(format!("$JS.API.CONSUMER.CREATE.{stream}.thief.{own}"), body.into());
    let answer: Value = serde_json::from_slice(&asked.await.expect("it is answered").payload).expect("it is JSON");
    // The filter is not that of the subject.
    assert_eq!(answer["error"]["err_code"], 10131, "{answer}");
}

/// The subjects of a node's own mail, as its credentials say.
fn own_mail(credentials: &Credentials) -> String {
    let jwt = credentials.jwt();
    let claims = jwt.split('.').nth(1).expect("a JWT has three parts");
    let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).expect("base64")).expect("JSON");
    claims["nats"]["sub"]["allow"][0].as_str().expect("a subject").to_owned()
}
