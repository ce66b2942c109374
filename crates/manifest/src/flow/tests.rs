//! Each test names a claim; a manifest in a short notation is the data.

use super::*;
use problem::{Code, Problem};

/// `a < topic`, `a > q r` (may push), `a : q` (handles), `a ~ q` (may take), `-> s : q` (sink), `[q]` (listed), `[q]
/// cycle`, `[q] dead r` (`dead_to`).
fn manifest(lines: &str) -> Manifest {
    let name = |text: &str| -> Name { text.parse().unwrap() };
    let mut manifest = Manifest::default();
    for words in lines.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).filter(|words| !words.is_empty())
    {
        let function = |manifest: &mut Manifest| {
            manifest.function.entry(name(words[0])).or_insert_with(|| Function::new("x")).clone()
        };
        match words[..] {
            [queue, ref more @ ..] if queue.starts_with('[') => {
                let queue = name(queue.trim_matches(['[', ']']));
                let table = manifest.queue.entry(queue).or_default();
                match more {
                    ["dead", dead_to] => table.dead_to = Some(name(dead_to)),
                    more => table.cycle = more == ["cycle"],
                }
            }
            ["->", sink, ":", queue] => {
                let text = format!("queue = \"{queue}\"\nwebhook.url = \"http://x\"");
                manifest.sink.insert(name(sink), toml::from_str(&text).unwrap());
            }
            ["->", sink, ":", queue, topic] => {
                let text = format!("queue = \"{queue}\"\nmqtt.topic = \"{topic}\"");
                manifest.sink.insert(name(sink), toml::from_str(&text).unwrap());
            }
            [_, sign, ref rest @ ..] => {
                let mut function = function(&mut manifest);
                match sign {
                    "<" => function
                        .mqtt
                        .extend(rest.iter().map(|topic| crate::MqttTrigger { topic: (*topic).to_owned(), qos: 1 })),
                    ">" => function.grants.push.extend(rest.iter().map(|queue| name(queue))),
                    "~" => function.grants.pop.extend(rest.iter().map(|queue| name(queue))),
                    ":" => function.queue = Some(name(rest[0])),
                    _ => panic!("{sign}"),
                }
                manifest.function.insert(name(words[0]), function);
            }
            _ => panic!("{words:?}"),
        }
    }
    manifest
}

fn edges(lines: &str) -> Vec<String> {
    let flow = Flow::of(&manifest(lines));
    let edge = |edge: &Edge| format!("{} -> {}", flow.stages[edge.from].name(), flow.stages[edge.to].name());
    flow.edges.iter().map(edge).collect()
}

fn findings(lines: &str) -> Findings {
    let manifest = manifest(lines);
    Flow::of(&manifest).check(&manifest)
}

#[track_caller]
fn refused(lines: &str, words: &[&str]) {
    let Findings { errors, .. } = findings(lines);
    let [problem] = &errors[..] else { panic!("one error was expected: {errors:?}") };
    assert_eq!(problem.code, Code::ManifestConflict);
    for word in words {
        assert!(problem.to_string().contains(word), "{word:?} is not in: {problem}");
    }
    let stopped: Result<(), Problem> = manifest(lines).check();
    assert_eq!(stopped.unwrap_err(), *problem, "a manifest with it is not deployed");
}

#[track_caller]
fn warned(lines: &str, words: &[&str]) {
    let findings = findings(lines);
    assert_eq!(findings.errors, []);
    manifest(lines).check().unwrap();
    let [warning] = &findings.warnings[..] else { panic!("one warning was expected: {:?}", findings.warnings) };
    for word in words {
        assert!(warning.to_string().contains(word), "{word:?} is not in: {warning}");
    }
}

#[track_caller]
fn sound(lines: &str) {
    assert_eq!(findings(lines), Findings::default());
    manifest(lines).check().unwrap();
}

const CO2: &str = "
    threshold < sck/+/readings
    threshold > alerts log
    notify : alerts
    notify > slack
    logger : log
    -> slack : slack";

#[test]
fn triggers_and_grants_join_functions_and_sinks() {
    let expected = ["sck/+/readings -> threshold", "notify -> slack", "threshold -> logger", "threshold -> notify"];
    assert_eq!(edges(CO2), expected);
    sound(CO2);
}

#[test]
fn a_topic_two_functions_wait_for_is_one_trigger() {
    assert_eq!(edges("a < t\nb < t"), ["t -> a", "t -> b"]);
}

#[test]
fn a_queue_somebody_else_takes_from_is_a_stage_of_its_own() {
    assert_eq!(edges("a < t\na > q\nb : q\nc ~ q\nc < u"), ["t -> a", "u -> c", "a -> q", "q -> b", "q -> c"]);
    sound("a < t\na > q\nb : q\nc ~ q\nc < u");
    sound("a < t\na ~ a");
}

#[test]
fn a_cycle_is_named_with_its_queues() {
    refused("a < t\na > q\nb : q\nb > a", &["a -> (q) b -> a", "[queue.a]", "cycle = true"]);
    refused("a : q\na > q", &["\"a\" may push to the queue it handles", "a -> (q) a"]);
    refused("a < x\na > q\nb : q\nb > r\nc : r\nc > q", &["b -> (r) c -> (q) b"]);
    refused("a < t\na > q\nb < u\nb ~ q\nb > a\n[q]", &["round", "a -> q -> b -> a"]);
}

#[test]
fn a_cycle_that_is_meant_is_allowed() {
    sound("a < t\na > q\nb : q\nb > a\n[q] cycle");
    sound("a < t\na > q\nb : q\nb > a\n[a] cycle");
    // One that is allowed does not hide another.
    refused("a < t\na > q a\nb : q\nb > a\n[q] cycle", &["\"a\" may push to the queue it handles"]);
}

#[test]
fn a_sink_that_publishes_what_the_workflow_waits_for_closes_a_cycle() {
    refused("a < home/+\na > q\n-> out : q home/lamp", &["home/+ -> a -> (q) out -> home/+"]);
    sound("a < home/+/set\na > q\n-> out : q home/lamp");
    sound("a < home/+\na > q\n-> out : q home/{subject}");
}

#[test]
fn a_long_row_of_functions_is_no_cycle_and_no_deep_recursion() {
    let lines: String = (0..5_000).map(|n| format!("f{n} < t{n}\nf{n} > f{}\n", n + 1)).collect();
    sound(&(lines + "f5000 < t"));
}

#[test]
fn a_grant_for_a_queue_that_is_not_there_is_refused() {
    refused("a < t\na > alrets\nb : alerts\nb < t", &["grants.push has \"alrets\"", "did you mean \"alerts\"?"]);
    refused("a < t\na ~ zzz", &["grants.pop has \"zzz\"", "[queue.zzz]"]);
    refused("a < t\na > b\nb > a", &["queue = \"b\""]);
    refused("a < t\na > slack q\n-> slack : q", &["the sink \"slack\" takes from the queue \"q\""]);
}

#[test]
fn dead_letters_may_go_on_to_another_queue() {
    assert_eq!(edges("a < t\nb : errors\n[a] dead errors"), ["t -> a", "a -> b"]);
    sound("a < t\nb : errors\n[a] dead errors");
    refused("a < t\nb : errors\n[a] dead erors", &["queue \"a\": dead_to has \"erors\"", "\"errors\"?"]);
    refused("a < t\n[a] dead a", &["round", "a -> a"]);
    refused("a < t\nb : errors\nb > a\n[a] dead errors", &["a -> (errors) b -> a"]);
    warned("a < t\n[errors]\n[a] dead errors", &["nobody in this manifest handles the queue \"errors\""]);
}

#[test]
fn ends_that_lead_nowhere_are_warned_of() {
    warned("a < t\na > q\n[q]", &["nobody in this manifest handles the queue \"q\""]);
    warned("a : q", &["nothing in this manifest feeds the queue \"q\" of \"a\"", "lighter push q"]);
    warned("-> slack : q", &["feeds the queue \"q\" of \"slack\""]);
    warned("a < t\n[q]", &["nothing uses the queue \"q\""]);
    warned("a < t\na > q\nb : q\nc > q", &["nothing starts the function \"c\""]);
    warned("a < t\na ~ q\n[q]", &["feeds the queue \"q\" of \"a\""]);
}

#[test]
fn a_call_that_is_answered_later_feeds_the_queue() {
    let text = "[function.f]\nimage = \"x\"\nhttp = { route = \"/f\", async = true }";
    let manifest = crate::parse(text).unwrap();
    let flow = Flow::of(&manifest);
    assert_eq!(flow.edges[0].queue.as_ref().map(Name::as_str), Some("f"));
    assert_eq!(flow.check(&manifest), Findings::default());
}

#[test]
fn topics_match_as_the_standard_says() {
    for (filter, topic) in [("a/+", "a/b"), ("a/#", "a"), ("a/#", "a/b/c"), ("#", "a"), ("+/b", "/b"), ("a", "a")] {
        assert!(topic_matches(filter, topic), "{filter} {topic}");
    }
    for (filter, topic) in [("a/+", "a"), ("a/+", "a/b/c"), ("#", "$SYS/x"), ("a", "a/b"), ("a/b", "a"), ("+", "/b")] {
        assert!(!topic_matches(filter, topic), "{filter} {topic}");
    }
}
