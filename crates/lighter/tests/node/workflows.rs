//! The examples as their users run them: deployed by the command line from `examples/`, fed by a real MQTT client,
//! heard by a real receiver. A hundred events each, some of them as broken as real sensors send them.
//!
//! What should come out is computed here once more, in the plainest way.

use crate::mqtt_client::Mqtt;
use crate::receiver::Receiver;
use crate::support::{Node, send};
use sensor::{Kits, Options, Random};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

const EVENTS: usize = 100;

fn start() -> Node {
    Node::start_with(&["--mqtt", "127.0.0.1:0"])
}

pub fn lighter(node: &Node, words: &[&str], input: &str) {
    let mut process = Command::new(env!("CARGO_BIN_EXE_lighter"))
        .args(words)
        .env("LIGHTER_DATA", &node.data)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut process.stdin.take().unwrap(), input.as_bytes()).unwrap();
    let output = process.wait_with_output().unwrap();
    assert!(output.status.success(), "lighter {words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn deploy(node: &Node, example: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(example);
    lighter(node, &["deploy", folder.to_str().unwrap()], "");
}

/// Waits until every event of the queue was handled or is a dead letter, and returns the dead letters' reasons.
fn dead_letters(node: &Node, name: &str, pushed: usize) -> Vec<String> {
    let count = |queue: &Value, key: &str| queue[key].as_u64().unwrap() as usize;
    node.queue_is(name, |queue| count(queue, "acked") + count(queue, "died") == pushed);
    let page = node.api("GET", &format!("/v1/queues/{name}/events?part=dead&limit=1000"), &[]).json();
    page["events"].as_array().unwrap().iter().map(|letter| letter["reason"].as_str().unwrap().to_owned()).collect()
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

/// What a sensor with a sequence number sends: mostly in order, some twice, some late, some spoilt.
struct Sensors {
    random: Random,
    sequence: BTreeMap<String, u64>,
}

impl Sensors {
    fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), sequence: BTreeMap::new() }
    }

    /// `spoilt`: what may come in the place of a reading. `reading` is told the sequence.
    fn messages(
        &mut self,
        topics: &[&str],
        spoilt: &[&str],
        reading: impl Fn(u64, &mut Random) -> String,
    ) -> Vec<(String, String, Option<u64>)> {
        let mut sent: Vec<(String, String, Option<u64>)> = Vec::new();
        while sent.len() < EVENTS {
            let topic = topics[self.random.below(topics.len())].to_owned();
            match self.random.below(10) {
                0 => sent.push((topic, spoilt[self.random.below(spoilt.len())].to_owned(), None)),
                // Twice, or late: one of those before, once more.
                1 if !sent.is_empty() => sent.push(sent[self.random.below(sent.len())].clone()),
                _ => {
                    let sequence = self.sequence.entry(topic.clone()).or_default();
                    *sequence += 1;
                    sent.push((topic, reading(*sequence, &mut self.random), Some(*sequence)));
                }
            }
        }
        sent
    }
}

fn publish(mqtt: &Mqtt, messages: &[(String, String, Option<u64>)]) {
    mqtt.publish(messages.iter().map(|(topic, payload, _)| (topic.as_str(), payload.as_str())));
}

fn spoilt_in(messages: &[(String, String, Option<u64>)]) -> usize {
    messages.iter().filter(|(_, _, sequence)| sequence.is_none()).count()
}

/// The readings that are newer than all before them, by topic, as JSON.
fn newest_only(messages: &[(String, String, Option<u64>)]) -> Vec<(String, Value)> {
    let mut newest = BTreeMap::new();
    let mut kept = Vec::new();
    for (topic, payload, sequence) in messages {
        let Some(sequence) = sequence else { continue };
        if newest.get(topic).is_none_or(|newest| sequence > newest) {
            newest.insert(topic.clone(), *sequence);
            kept.push((topic.clone(), serde_json::from_str(payload).unwrap()));
        }
    }
    kept
}

fn level(topic: &str, place: usize) -> &str {
    topic.split('/').nth(place).unwrap()
}

/// What comes for each subject, in its order: subjects do not wait for each other.
fn by_first<T>(pairs: impl IntoIterator<Item = (String, T)>) -> BTreeMap<String, Vec<T>> {
    let mut map: BTreeMap<String, Vec<T>> = BTreeMap::new();
    for (first, second) in pairs {
        map.entry(first).or_default().push(second);
    }
    map
}

#[test]
fn what_cannot_be_handled_goes_on_with_its_reason() {
    let node = start();
    let motion = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/lights/motion.wasm");
    let image = node.upload_bytes(&std::fs::read(motion).unwrap());
    let functions = json!({ "motion": { "image": image, "queue": "motion", "grants": { "stores": ["lights"] } } });
    let queues = json!({ "motion": { "dead_to": "errors" }, "errors": { "events_max": 2 } });
    let last = node.deploy_manifest(json!({ "function": functions, "queue": queues }));
    assert_eq!(last["step"], "done", "{last}");
    for _ in 0..3 {
        assert_eq!(node.push("motion", "subject=home/hall/motion", "{}").status, 201);
    }
    // The third finds the queue full and stays where it is.
    assert_eq!(dead_letters(&node, "motion", 3), ["L6003: sequence is missing"]);
    let page = node.api("GET", "/v1/queues/errors/events", &[]).json();
    assert_eq!(page["events"].as_array().unwrap().len(), 2);
    let event = &page["events"][0]["event"];
    let said = (&event["deadqueue"], &event["deadreason"], &event["subject"]);
    assert_eq!(said, (&json!("motion"), &json!("L6003: sequence is missing"), &json!("home/hall/motion")));
}

#[test]
fn lights_follow_motion_in_its_order() {
    let node = start();
    deploy(&node, "lights");
    let mqtt = Mqtt::connect(&node.mqtt, "lights");
    mqtt.subscribe("home/+/bulb");
    let topics = ["home/hall/motion", "home/kitchen/motion", "home/attic/motion"];
    let spoilt = [
        "",
        "NaN",
        "{}",
        r#"{"sequence": 1}"#,
        r#"{"sequence": -1, "motion": true}"#,
        r#"{"sequence": 9, "motion": "yes"}"#,
        "\u{fffd}[",
    ];
    let messages = Sensors::new(1).messages(&topics, &spoilt, |sequence, random| {
        format!(r#"{{"sequence": {sequence}, "motion": {}}}"#, random.below(2) == 0)
    });
    publish(&mqtt, &messages);
    assert_eq!(dead_letters(&node, "motion", EVENTS).len(), spoilt_in(&messages));

    let switch = |(topic, reading): (String, Value)| {
        let word = if reading["motion"] == true { "on" } else { "off" };
        (format!("home/{}/bulb", level(&topic, 1)), word.to_owned())
    };
    let expected: Vec<_> = newest_only(&messages).into_iter().map(switch).collect();
    let heard: Vec<_> = expected.iter().map(|_| mqtt.next()).collect();
    assert_eq!(by_first(heard), by_first(expected));
    dead_letters(&node, "bulbs", newest_only(&messages).len());
    assert_eq!(mqtt.rest(), [""; 0], "nothing comes twice");
}

#[test]
fn daily_statistics_count_every_reading_once() {
    let node = start();
    deploy(&node, "health");
    let mqtt = Mqtt::connect(&node.mqtt, "health");
    mqtt.subscribe("health/+/daily");
    let day_ms = now_ms() / 86_400_000 * 86_400_000 - 86_400_000;
    let time = |minute: u64| sensor::time::iso(day_ms + minute * 60_000);
    let spoilt = [
        "{}".to_owned(),
        format!(r#"{{"time": "{}", "rate": NaN, "unit": "bpm"}}"#, time(1)),
        format!(r#"{{"time": "{}", "rate": 1.2, "unit": "Hz"}}"#, time(1)),
        format!(r#"{{"time": "{}", "rate": 900, "unit": "bpm"}}"#, time(1)),
        r#"{"time": "yesterday", "rate": 70, "unit": "bpm"}"#.to_owned(),
        r#"{"time": "2999-01-01T00:00:00Z", "rate": 70, "unit": "bpm"}"#.to_owned(),
    ];
    let spoilt: Vec<&str> = spoilt.iter().map(String::as_str).collect();
    let messages = Sensors::new(2).messages(&["health/ada/heart", "health/bo/heart"], &spoilt, |sequence, random| {
        format!(r#"{{"time": "{}", "rate": {}, "unit": "bpm"}}"#, time(sequence), 50 + random.below(60))
    });
    publish(&mqtt, &messages);
    assert_eq!(dead_letters(&node, "record", EVENTS).len(), spoilt_in(&messages));
    lighter(&node, &["push", "report", "--data", "today"], "");

    let rates =
        by_first(newest_only(&messages).into_iter().map(|(topic, reading)| (topic, reading["rate"].as_f64().unwrap())));
    assert_eq!(rates.len(), 2);
    for _ in &rates {
        let (topic, payload) = mqtt.next();
        let report: Value = serde_json::from_str(&payload).unwrap();
        let rates = &rates[&format!("health/{}/heart", level(&topic, 1))];
        let mean = (rates.iter().sum::<f64>() / rates.len() as f64 * 10.0).round() / 10.0;
        assert_eq!(report["count"].as_f64(), Some(rates.len() as f64), "{report}");
        assert_eq!(report["mean"].as_f64(), Some(mean));
        assert_eq!(report["least"].as_f64(), rates.iter().copied().reduce(f64::min));
        assert_eq!(report["most"].as_f64(), rates.iter().copied().reduce(f64::max));
    }

    // A day that goes on is reported whole each time, and one that is over once.
    for count in 1..=2 {
        let time = sensor::time::iso(now_ms() + count * 60_000);
        mqtt.publish([("health/cleo/heart", format!(r#"{{"time": "{time}", "rate": 61, "unit": "bpm"}}"#).as_str())]);
        dead_letters(&node, "record", EVENTS + count as usize);
        lighter(&node, &["push", "report", "--data", "today"], "");
        let report: Value = serde_json::from_str(&mqtt.next().1).unwrap();
        assert_eq!((&report["person"], report["count"].as_f64()), (&json!("cleo"), Some(count as f64)));
    }
}

#[test]
fn a_weight_becomes_progress_of_day_week_and_month_whatever_its_order() {
    let node = start();
    deploy(&node, "health");
    let mqtt = Mqtt::connect(&node.mqtt, "weights");
    mqtt.subscribe("health/+/progress");
    let today = now_ms() / 86_400_000;
    let weight_of = |day: u64| 70.0 + day as f64 * 0.1;
    let measured = |day: u64, kg: f64| {
        let time = sensor::time::iso((today - 59 + day) * 86_400_000 + 3_600_000 + (kg * 10.0) as u64 * 1_000);
        format!(r#"{{"time": "{time}", "weight": {kg}, "unit": "kg"}}"#)
    };
    // Sixty days in another order than that of time, each with a first measurement that the second replaces.
    let days: Vec<u64> = (0..60).map(|step| step * 17 % 60).collect();
    let twice = days.iter().flat_map(|day| [measured(*day, 40.0), measured(*day, weight_of(*day))]);
    let mut messages: Vec<String> = twice.collect();
    let told = messages.len();
    // What is known already, and what is older than all that is kept.
    messages.extend([measured(3, weight_of(3)), measured(3, 40.0)]);
    let old = sensor::time::iso((today - 60) * 86_400_000);
    messages.push(format!(r#"{{"time": "{old}", "weight": 99.0, "unit": "kg"}}"#));
    let spoilt = [
        "{}".to_owned(),
        measured(1, 70.0).replace("kg", "lb"),
        measured(1, 70.0).replace("70", "7000"),
        r#"{"time": "2999-01-01T00:00:00Z", "weight": 70, "unit": "kg"}"#.to_owned(),
    ];
    messages.extend_from_slice(&spoilt);
    mqtt.publish(messages.iter().map(|message| ("health/ada/weight", message.as_str())));
    assert_eq!(dead_letters(&node, "weigh", messages.len()).len(), spoilt.len());

    let heard: Vec<(String, String)> = (0..told).map(|_| mqtt.next()).collect();
    assert!(heard.iter().all(|(topic, _)| topic == "health/ada/progress"));
    let last: Value = serde_json::from_str(&heard.last().unwrap().1).unwrap();
    assert_eq!((&last["person"], last["last_day"].as_u64()), (&json!("ada"), Some(today)));
    let mean = |days: std::ops::Range<u64>| days.clone().map(weight_of).sum::<f64>() / (days.end - days.start) as f64;
    for (name, length) in [("day", 1), ("week", 7), ("month", 30)] {
        let (now, before) = (mean(60 - length..60), mean(60 - 2 * length..60 - length));
        for (key, expected) in [("weight", now), ("before", before), ("change", now - before)] {
            let said = last[name][key].as_f64().unwrap();
            assert!((said - expected).abs() <= 0.006, "{name}.{key} is {said}, not {expected}");
        }
    }
    assert_eq!(mqtt.rest(), [""; 0], "nothing comes twice");
}

#[test]
fn smoke_is_told_once_and_so_is_its_end() {
    let receiver = Receiver::start(|_, _| Some("204 Done".to_owned()));
    let node = start();
    lighter(&node, &["secret", "set", "SIREN_URL"], &receiver.url);
    deploy(&node, "alert");
    let mqtt = Mqtt::connect(&node.mqtt, "alert");
    let topics = ["home/kitchen/smoke", "home/garage/smoke"];
    let spoilt = [
        "{}",
        r#"{"sequence": 3, "density": NaN, "unit": "1/m"}"#,
        r#"{"sequence": 3, "density": 12, "unit": "%/ft"}"#,
        r#"{"sequence": 3, "density": 1e300, "unit": "1/m"}"#,
        r#"{"sequence": 3, "density": -0.2, "unit": "1/m"}"#,
    ];
    let messages = Sensors::new(3).messages(&topics, &spoilt, |sequence, random| {
        format!(r#"{{"sequence": {sequence}, "density": {:.2}, "unit": "1/m"}}"#, random.share() * 0.25)
    });
    publish(&mqtt, &messages);
    assert_eq!(dead_letters(&node, "smoke", EVENTS).len(), spoilt_in(&messages));

    let mut burns = BTreeMap::new();
    let mut expected = Vec::new();
    for (topic, reading) in newest_only(&messages) {
        let burning = burns.entry(topic.clone()).or_insert(false);
        let now = reading["density"].as_f64().unwrap() >= if *burning { 0.05 } else { 0.15 };
        if now != *burning {
            *burning = now;
            expected.push((level(&topic, 1).to_owned(), if now { "air.smoke" } else { "air.clear" }.to_owned()));
        }
    }
    assert!(expected.len() > 10, "{expected:?}");
    let heard: Vec<_> = expected.iter().map(|_| receiver.next()).collect();
    let heard =
        heard.iter().map(|request| (request.header("ce-subject").to_owned(), request.header("ce-type").to_owned()));
    assert_eq!(by_first(heard), by_first(expected));
    assert!(receiver.rest().is_empty(), "nothing comes twice");
}

#[test]
fn a_fridge_that_is_opened_is_counted_once() {
    let node = start();
    deploy(&node, "fridge");
    let mqtt = Mqtt::connect(&node.mqtt, "fridge");
    mqtt.subscribe("fridge/+/count");
    let spoilt = [
        "",
        "NaN",
        "[]",
        "null",
        r#"{"sequence": 1.5, "open": true}"#,
        r#"{"sequence": 4, "open": 1}"#,
        r#"{"open": true}"#,
    ];
    let messages =
        Sensors::new(4).messages(&["fridge/kitchen/door", "fridge/bar/door"], &spoilt, |sequence, random| {
            format!(r#"{{"sequence": {sequence}, "open": {}}}"#, random.below(2) == 0)
        });
    publish(&mqtt, &messages);
    assert_eq!(dead_letters(&node, "count", EVENTS).len(), spoilt_in(&messages));

    let mut doors: BTreeMap<String, (bool, u32)> = BTreeMap::new();
    let mut expected = Vec::new();
    for (topic, reading) in newest_only(&messages) {
        let (was_open, count) = doors.entry(topic.clone()).or_default();
        let open = reading["open"] == true;
        if open && !*was_open {
            *count += 1;
            expected.push((format!("fridge/{}/count", level(&topic, 1)), count.to_string()));
        }
        *was_open = open;
    }
    let heard: Vec<_> = expected.iter().map(|_| mqtt.next()).collect();
    assert_eq!(by_first(heard), by_first(expected));
}

#[test]
fn a_fridge_tells_at_which_hours_and_on_which_weekdays_it_is_opened() {
    let node = start();
    deploy(&node, "fridge");
    let mqtt = Mqtt::connect(&node.mqtt, "habits");
    mqtt.subscribe("fridge/+/habits");
    let (mut hours, mut weekdays) = ([0_u64; 24], [0_u64; 7]);
    let mut messages = Vec::new();
    for opened in 0..EVENTS as u64 / 2 {
        // Every 31 hours, from a Thursday on.
        let hour = opened * 31;
        let time = sensor::time::iso(hour * 3_600_000);
        hours[(hour % 24) as usize] += 1;
        weekdays[((hour / 24 + 4) % 7) as usize] += 1;
        messages.push(format!(r#"{{"sequence": {}, "open": true, "time": "{time}"}}"#, 2 * opened));
        messages.push(format!(r#"{{"sequence": {}, "open": false, "time": "{time}"}}"#, 2 * opened + 1));
    }
    messages.push(r#"{"sequence": 1000, "open": true, "time": "tomorrow"}"#.to_owned());
    mqtt.publish(messages.iter().map(|message| ("fridge/kitchen/door", message.as_str())));
    assert_eq!(dead_letters(&node, "count", messages.len()).len(), 1);
    let heard: Vec<_> = (0..EVENTS / 2).map(|_| mqtt.next()).collect();
    let (topic, payload) = heard.last().unwrap();
    let habits: Value = serde_json::from_str(payload).unwrap();
    assert_eq!((topic.as_str(), habits["count"].as_u64()), ("fridge/kitchen/habits", Some(EVENTS as u64 / 2)));
    assert_eq!(habits["hours"], json!(hours));
    let names = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
    for (name, count) in names.iter().zip(weekdays) {
        assert_eq!(habits["weekdays"][name].as_u64(), Some(count), "{habits}");
    }
    let busiest = habits["busiest_weekday"].as_str().unwrap();
    assert_eq!(habits["weekdays"][busiest].as_u64(), weekdays.iter().max().copied());
    assert_eq!(hours.get(habits["busiest_hour"].as_u64().unwrap() as usize), hours.iter().max());
}

#[test]
fn fibonacci_answers_every_question_that_is_one() {
    let node = start();
    deploy(&node, "fibonacci");
    let mqtt = Mqtt::connect(&node.mqtt, "fibonacci");
    mqtt.subscribe("fibonacci/answer/+");
    let mut random = Random::new(5);
    let spoilt = ["", "NaN", "-1", "41", "1e3", "12 apples"];
    let questions: Vec<String> = (0..EVENTS)
        .map(|_| match random.below(8) {
            0 => spoilt[random.below(spoilt.len())].to_owned(),
            _ => random.below(24).to_string(),
        })
        .collect();
    mqtt.publish(questions.iter().map(|question| ("fibonacci/ask/me", question.as_str())));
    let mut expected: Vec<String> = Vec::new();
    for n in questions.iter().filter_map(|question| question.parse::<u64>().ok()).filter(|n| *n <= 40) {
        let number = (0..n).fold((0_u64, 1_u64), |(a, b), _| (b, a + b)).0;
        expected.push(format!("{n} {number}"));
    }
    assert_eq!(dead_letters(&node, "fibonacci", EVENTS).len(), EVENTS - expected.len());
    let mut heard: Vec<String> = expected.iter().map(|_| mqtt.next().1).collect();
    heard.sort();
    expected.sort();
    assert_eq!(heard, expected);
}

#[test]
fn bad_air_is_told_in_words_and_every_reading_is_kept() {
    let receiver = Receiver::start(|_, _| Some("200 OK".to_owned()));
    let node = start();
    lighter(&node, &["secret", "set", "SLACK_URL"], &receiver.url);
    deploy(&node, "co2");
    let mqtt = Mqtt::connect(&node.mqtt, "co2");
    // A day in a hundred messages, which ended an hour ago.
    let begin_ms = now_ms() - 90_000_000;
    let mut kits = Kits::new(Options { seed: 6, faults: 0.25, ..Options::default() });
    let messages: Vec<_> = (0..EVENTS as u64).map(|step| kits.next(begin_ms + step * 864_000)).collect();
    mqtt.publish(messages.iter().map(|message| (message.topic.as_str(), message.payload.as_str())));

    let spoilt = messages.iter().filter(|message| message.fault.is_some_and(|fault| fault.spoils())).count();
    let reasons = dead_letters(&node, "threshold", EVENTS);
    assert_eq!(reasons.len(), spoilt);
    assert!(spoilt > 5 && reasons.iter().all(|reason| reason.starts_with("L6003: ")), "{reasons:?}");

    let mut kits: BTreeMap<&str, (u64, bool)> = BTreeMap::new();
    let mut newest: BTreeMap<&str, f64> = BTreeMap::new();
    let mut expected = Vec::new();
    for message in messages.iter().filter(|message| message.fault.is_none_or(|fault| !fault.spoils())) {
        let kit = level(&message.topic, 2);
        let (newest_ms, alarm) = kits.entry(kit).or_default();
        // Kits write whole seconds.
        let time_ms = message.time_ms / 1_000 * 1_000;
        if time_ms <= *newest_ms {
            continue;
        }
        *newest_ms = time_ms;
        newest.insert(kit, message.co2_ppm);
        let now = message.co2_ppm >= if *alarm { 900.0 } else { 1_000.0 };
        if now != *alarm {
            *alarm = now;
            expected.push((kit.to_owned(), if now { "open a window" } else { "fine again" }));
        }
    }
    assert!(expected.len() >= 6, "{expected:?}");
    let mut heard = Vec::new();
    for _ in &expected {
        let message: Value = serde_json::from_slice(&receiver.next().body).unwrap();
        let text = message["text"].as_str().unwrap();
        let kit = text.split_whitespace().find(|word| word.starts_with("room-")).unwrap().to_owned();
        heard.push((kit, ["open a window", "fine again"].into_iter().find(|end| text.ends_with(end)).unwrap()));
    }
    assert_eq!(by_first(heard), by_first(expected));
    assert!(receiver.rest().is_empty(), "nothing comes twice");

    dead_letters(&node, "log", EVENTS - spoilt);
    let shown = node.get("/co2").json();
    for (kit, co2) in newest {
        assert_eq!(shown[kit]["co2_ppm"].as_f64(), Some(co2), "{shown}");
    }
}

#[test]
fn two_workflows_share_a_notifier_and_the_event_says_who_is_told() {
    let receiver = Receiver::start(|_, _| Some("200 OK".to_owned()));
    let node = start();
    lighter(&node, &["secret", "set", "SLACK_URL"], &receiver.url);
    deploy(&node, "co2");
    deploy(&node, "noise");
    let mqtt = Mqtt::connect(&node.mqtt, "kits");
    let time = sensor::time::iso(now_ms() - 60_000);
    let reading = |slack: &str, co2: u32, noise: u32| {
        let sensors = format!(r#"[{{"id": 158, "value": {co2}}}, {{"id": 53, "value": {noise}}}]"#);
        format!(r#"{{"data": [{{"recorded_at": "{time}", "sensors": {sensors}}}]{slack}}}"#)
    };
    let channel = r##", "slack": {"channel": "#air"}"##;
    mqtt.publish([
        ("device/sck/a/readings", reading(channel, 1_200, 90).as_str()),
        ("device/sck/b/readings", reading("", 1_200, 40).as_str()),
        // Nobody has said where this organisation is told, so it is told nothing.
        ("device/sck/c/readings", reading(r#", "slack": {"organisation": "lab"}"#, 400, 90).as_str()),
        ("device/sck/d/readings", reading(r#", "slack": {"room": "lab"}"#, 1_200, 90).as_str()),
    ]);
    let mut heard: Vec<(String, Value)> = (0..3)
        .map(|_| serde_json::from_slice::<Value>(&receiver.next().body).unwrap())
        .map(|message| (message["text"].as_str().unwrap().to_owned(), message["channel"].clone()))
        .collect();
    heard.sort_by(|one, other| one.0.cmp(&other.0));
    let expected = [
        (":warning: CO2 at a is 1200 ppm (limit 1000): open a window", json!("#air")),
        (":warning: CO2 at b is 1200 ppm (limit 1000): open a window", Value::Null),
        (":warning: noise at a is 90 dB(A) (limit 85): close a window", json!("#air")),
    ];
    assert_eq!(heard, expected.map(|(text, channel)| (text.to_owned(), channel)));
    assert_eq!(dead_letters(&node, "alerts", 4), [r#"L6003: config.organisations does not list "lab""#]);
    let refused = dead_letters(&node, "threshold", 4);
    assert!(refused.len() == 1 && refused[0].contains("slack.room"), "{refused:?}");
    assert_eq!(dead_letters(&node, "noise", 4).len(), 1);
    dead_letters(&node, "log", 3);
    assert!(receiver.rest().is_empty(), "nothing comes twice");
}

#[test]
fn parts_of_an_order_come_together() {
    let node = start();
    deploy(&node, "orders");
    let mqtt = Mqtt::connect(&node.mqtt, "orders");
    mqtt.subscribe("orders/#");
    let mut expected = BTreeMap::new();
    let mut refused = 0;
    for order in 0..EVENTS {
        let (pieces, paid) = (order % 13, order % 3 > 0);
        let body = json!({ "pieces": pieces, "paid": paid }).to_string();
        let reply = send("POST", &format!("{}/orders/{order}", node.gate), &[], body.as_bytes());
        if pieces == 0 {
            assert_eq!(reply.code(), "L6003");
            refused += 1;
            continue;
        }
        assert_eq!((reply.status, reply.text().as_str()), (200, "taken\n"));
        let way = if pieces <= 10 && paid { "shipped" } else { "refused" };
        expected.insert(format!("orders/{order}/{way}"), order.to_string());
    }
    let heard: BTreeMap<String, String> = expected.iter().map(|_| mqtt.next()).collect();
    assert_eq!(heard, expected);
    assert_eq!(dead_letters(&node, "gather", 2 * (EVENTS - refused)), [""; 0]);
    assert_eq!(mqtt.rest(), [""; 0], "nothing comes twice");
}
