//! Drawings as they look: a manifest, and the files its drawings are compared with.
//!
//! To write the files anew: LIGHTER_UPDATE=1 cargo test -p drawing

use drawing::Counts;
use manifest::flow::Flow;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const CO2: &str = r#"
[function.threshold]
image = "x"
mqtt = "sck/+/readings"
grants.push = ["alerts", "log"]
[function.notify]
image = "x"
queue = "alerts"
grants.push = ["slack"]
[function.logger]
image = "x"
queue = "log"
[sink.slack]
queue = "slack"
webhook.url = "http://x"
"#;

/// Fan-out, fan-in, a call, lines over several columns, a cycle and a function that nothing joins.
const LARGE: &str = r#"
[function.take]
image = "x"
http = ["/orders", "/orders/bulk"]
grants.push = ["stock", "payment", "letters", "audit"]
[function.stock]
image = "x"
queue = "stock"
grants.push = ["ship", "audit"]
[function.payment]
image = "x"
queue = "payment"
grants.push = ["ship", "payment"]
[function.ship]
image = "x"
queue = "ship"
cron = "0 7 * * mon-fri"
grants.push = ["letters", "stock", "audit"]
[function.bill]
image = "x"
every = "10s"
grants.pop = ["audit"]
grants.push = ["letters"]
[function.alone]
image = "x"
http = "/alone"
[queue.stock]
cycle = true
[queue.payment]
cycle = true
[queue.audit]
[sink.letters]
queue = "letters"
mqtt.topic = "letters/{subject}"
"#;

fn flow(text: &str) -> Flow {
    Flow::of(&manifest::parse(text).unwrap())
}

#[track_caller]
fn golden(file: &str, drawing: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(file);
    if std::env::var_os("LIGHTER_UPDATE").is_some() {
        fs::write(&path, drawing).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), drawing, "run LIGHTER_UPDATE=1 cargo test -p drawing");
}

#[test]
fn a_workflow_is_drawn_as_wide_as_there_is_place() {
    for (name, text, width) in [("co2", CO2, 80), ("large", LARGE, 132)] {
        let drawing = drawing::text(&flow(text), &BTreeMap::new(), width);
        assert!(drawing.lines().all(|line| line.chars().count() <= width), "{drawing}");
        golden(&format!("{name}.txt"), &drawing);
    }
}

/// The examples that come with the node, as their manual shows them.
#[test]
fn the_examples_are_sound_and_fit_80_columns() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let manifests = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path().join("lighter.toml"));
    let mut count = 0;
    for path in manifests.filter(|path| path.exists()) {
        let manifest = manifest::parse(&fs::read_to_string(&path).unwrap()).unwrap();
        let flow = Flow::of(&manifest);
        // Who handles a queue may be a worker outside of the node, or be in another manifest: nobody here does.
        let elsewhere = [("worker", "jobs"), ("noise", "alerts")];
        let handled_elsewhere = elsewhere.iter().filter(|(name, _)| path.ends_with(format!("{name}/lighter.toml")));
        let expected: Vec<&str> = handled_elsewhere.map(|(_, queue)| *queue).collect();
        let warnings = flow.check(&manifest).warnings;
        assert_eq!(warnings.len(), expected.len(), "{path:?}: {warnings:?}");
        for (queue, warning) in expected.iter().zip(&warnings) {
            assert!(warning.detail.contains(&format!("handles the queue {queue:?}")), "{path:?}: {warning:?}");
        }
        let drawing = drawing::text(&flow, &BTreeMap::new(), 80);
        assert!(drawing.lines().all(|line| line.chars().count() <= 80) && !drawing.contains("──▶ "), "{drawing}");
        count += 1;
    }
    assert!(count >= 8, "{count} examples");
}

#[test]
fn the_manual_shows_what_is_drawn() {
    const MANUAL: &str = include_str!("../../../docs/workflows.md");
    for name in ["co2", "orders"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../examples/{name}/lighter.toml"));
        let flow = flow(&fs::read_to_string(path).unwrap());
        let drawing = drawing::text(&flow, &BTreeMap::new(), 80);
        assert!(MANUAL.contains(&drawing), "docs/workflows.md should have\n{drawing}");
        golden(&format!("../../../../docs/{name}.svg"), &drawing::svg(&flow, &BTreeMap::new()));
    }
}

#[test]
fn counts_stand_in_the_boxes_of_their_queues() {
    let counts = BTreeMap::from([
        ("alerts".to_owned(), Counts { ready: 12, leased: 3, ..Counts::default() }),
        ("slack".to_owned(), Counts { dead: 1, delayed: 2, ..Counts::default() }),
    ]);
    golden("counts.txt", &drawing::text(&flow(CO2), &counts, 80));
}

#[test]
fn names_are_cut_before_a_drawing_becomes_a_list() {
    let narrow = drawing::text(&flow(CO2), &BTreeMap::new(), 60);
    assert!(narrow.contains('…') && narrow.lines().all(|line| line.chars().count() <= 60), "{narrow}");
    golden("list.txt", &drawing::text(&flow(CO2), &BTreeMap::new(), 40));
}

#[test]
fn an_svg_stands_alone_and_names_everything() {
    let document = drawing::svg(&flow(LARGE), &BTreeMap::new());
    for word in ["letters/{subject}", "<script", "href"] {
        assert!(!document.contains(word), "{word}");
    }
    for name in ["/orders/bulk", "stock", "payment", "ship", "audit", "0 7 * * mon-fri", "to mqtt"] {
        assert!(document.contains(&format!(">{name}<")), "{name}");
    }
    golden("large.svg", &document);
}

/// No line may be lost or lead elsewhere: what a reader's eye does, done by following the characters.
#[test]
fn every_line_can_be_followed_to_its_target() {
    for edges in 1..40_u64 {
        let text = random_manifest(edges);
        let flow = flow(&text);
        let drawing = drawing::text(&flow, &BTreeMap::new(), 10_000);
        let heads = drawing.matches('▶').count();
        let back = drawing.matches("and back").count();
        let own = drawing.matches("and again").count();
        let joins: std::collections::BTreeSet<_> = flow.edges.iter().map(|edge| (edge.from, edge.to)).collect();
        let expected = joins.len();
        // Without a queue nothing is drawn.
        if flow.has_queues() {
            assert_eq!(heads + back + own, expected, "{text}\n{drawing}");
        }
    }
}

/// Eight functions, each in a queue of its own, joined at random; all cycles allowed.
fn random_manifest(seed: u64) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut text = String::new();
    for function in 0..8 {
        let targets: std::collections::BTreeSet<u64> = (0..next(4)).map(|_| next(8)).collect();
        let targets: Vec<String> = targets.into_iter().map(|target| format!("\"q{target}\"")).collect();
        text += &format!(
            "[function.f{function}]\nimage = \"x\"\nqueue = \"q{function}\"\ngrants.push = [{}]\n",
            targets.join(", ")
        );
        text += &format!("[queue.q{function}]\ncycle = true\n");
    }
    text
}
