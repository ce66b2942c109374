//! Each test names a claim; the manifests are the data.

use super::*;

fn error(text: &str) -> Problem {
    parse(text).expect_err("the manifest should be refused")
}

#[track_caller]
pub(crate) fn refused(text: &str, code: Code, words: &[&str]) {
    let problem = error(text);
    assert_eq!(problem.code, code, "{problem}");
    for word in words {
        assert!(problem.to_string().contains(word), "{word:?} is not in: {problem}");
    }
}

#[test]
fn a_route_may_be_a_string_a_table_or_a_list() {
    for http in [r#""/a""#, r#"{ route = "/a" }"#, r#"["/a"]"#, r#"[{ route = "/a" }]"#] {
        let manifest = parse(&format!("[function.f]\nimage = \"f.wasm\"\nhttp = {http}")).unwrap();
        assert_eq!(manifest.function["f"].http, [HttpTrigger::new("/a")]);
    }
}

#[test]
fn defaults_are_bounded() {
    let manifest = parse("[function.f]\nimage = \"f.wasm\"").unwrap();
    let function = &manifest.function["f"];
    assert_eq!(function.limits, Limits::default());
    assert_eq!(function.units.reuse_calls, 1, "fresh memory for every call");
    assert_eq!(function.grants, Grants::default(), "nothing is granted");
}

#[test]
fn an_unknown_key_names_the_nearest_known_one() {
    let top = "[function.f]\nimage = \"f.wasm\"\n";
    refused(&format!("{top}imgae = \"x\""), Code::ManifestUnknownKey, &["function.f.imgae", "\"image\""]);
    refused(
        &format!("{top}[function.f.limits]\nmemory_byte = 1"),
        Code::ManifestUnknownKey,
        &["function.f.limits.memory_byte", "\"memory_bytes\""],
    );
    refused(
        &format!("{top}http = {{ rout = \"/a\" }}"),
        Code::ManifestUnknownKey,
        &["function.f.http.rout", "\"route\""],
    );
    refused(&format!("{top}http = [{{ route = \"/a\", metods = [] }}]"), Code::ManifestUnknownKey, &["\"methods\""]);
    refused(
        &format!("{top}[function.f.limits]\nmemry = 1"),
        Code::ManifestUnknownKey,
        &["function.f.limits.memry", "\"memory_bytes\""],
    );
    refused("[functions.f]\nimage = \"f.wasm\"", Code::ManifestUnknownKey, &["\"function\""]);
    refused("[function.f.zzzzzz]\n", Code::ManifestUnknownKey, &["function.f.zzzzzz"]);
}

#[test]
fn an_unknown_word_names_the_nearest_known_one_and_all_there_are() {
    let top = "[function.f]\nimage = \"f.wasm\"\n";
    let near = "did you mean \"microvm\"?";
    refused(&format!("{top}isolation = \"microwm\""), Code::ManifestValue, &["f.isolation", "\"metal\"", near]);
    refused(
        &format!("{top}http = {{ route = \"/a\", auth = \"tokn\" }}"),
        Code::ManifestValue,
        &["f.http.auth", "did you mean \"token\"?"],
    );
}

#[test]
fn broken_syntax_names_the_line() {
    refused("[function.f]\nimage = \"f.wasm", Code::ManifestSyntax, &["line 2"]);
    refused("[function.f]\nimage = 1", Code::ManifestValue, &["line 2, image:", "string"]);
    refused("[function.f]\nhttp = \"/f\"", Code::ManifestValue, &["image"]);
}

#[test]
fn values_out_of_range_name_their_bounds() {
    let top = "[function.f]\nimage = \"f.wasm\"\n";
    refused(&format!("{top}[function.f.limits]\nmemory_bytes = 1"), Code::ManifestValue, &["is 1", "65536"]);
    refused(&format!("{top}[function.f.limits]\ntime_ms = 0"), Code::ManifestValue, &["limits.time_ms is 0"]);
    refused(&format!("{top}[function.f.limits]\ntime_ms = -1"), Code::ManifestValue, &["line 4"]);
    refused(&format!("{top}isolation = \"docker\""), Code::ManifestValue, &["wasm"]);
    refused("[function.Bad_Name]\nimage = \"f.wasm\"", Code::ManifestValue, &["Bad_Name"]);
    refused(&format!("{top}grants = {{ hosts = [\"http://x\"] }}"), Code::ManifestValue, &["http://x", "example.org"]);
    refused(&format!("{top}grants = {{ stores = [\"UPPER\"] }}"), Code::ManifestValue, &["UPPER"]);
    for route in ["x", "/a//b", "/a/../b", "/a b", "/%41", "/a*", "/*/b", "/a?b"] {
        refused(&format!("{top}http = {route:?}"), Code::ManifestValue, &["route"]);
    }
}

#[test]
fn two_functions_may_not_share_a_route() {
    let two = "[function.a]\nimage = \"x\"\nhttp = \"/r\"\n[function.b]\nimage = \"x\"\nhttp = \"/r\"";
    refused(two, Code::ManifestConflict, &[r#"functions "a" and "b" both have the route "/r""#]);
    let twice = "[function.a]\nimage = \"x\"\nhttp = [\"/r\", \"/r\"]";
    refused(twice, Code::ManifestConflict, &[r#"function "a" has the route "/r" twice"#]);
    let by_method = |one: &str, other: &str| {
        let function = |name: &str, methods: &str| {
            format!("[function.{name}]\nimage = \"x\"\nhttp = {{ route = \"/r\", methods = [{methods}] }}\n")
        };
        function("a", one) + &function("b", other)
    };
    refused(&by_method(r#""GET", "PUT""#, r#""POST", "PUT""#), Code::ManifestConflict, &["\"/r\""]);
    parse(&by_method(r#""GET""#, r#""POST""#)).unwrap();
}

#[test]
fn a_host_grant_covers_what_it_says_and_no_more() {
    let grant = |text: &str| HostGrant::try_from(text.to_owned()).unwrap();
    assert!(grant("example.org").covers("example.org", 443));
    assert!(grant("example.org").covers("EXAMPLE.org", 80));
    assert!(!grant("example.org").covers("example.org", 8080));
    assert!(!grant("example.org").covers("www.example.org", 443));
    assert!(grant("*.example.org").covers("www.example.org", 443));
    assert!(!grant("*.example.org").covers("example.org", 443));
    assert!(!grant("*.example.org").covers("badexample.org", 443));
    assert!(grant("localhost:9000").covers("localhost", 9000));
    assert!(!grant("localhost:9000").covers("localhost", 80));
    assert!(grant("*").covers("anything", 1));
    assert!(grant("[::1]:80").covers("[::1]", 80));
}

#[test]
fn a_manifest_reads_back_as_it_was_written() {
    let text = "[function.f]\nimage = \"f.wasm\"\nhttp = \"/f/*\"\n[function.f.grants]\nhosts = [\"a.b:1\"]\n";
    let manifest = parse(text).unwrap();
    assert_eq!(parse(&toml::to_string(&manifest).unwrap()).unwrap(), manifest);
}

#[test]
fn the_schema_states_the_bounds_that_are_checked() {
    let schema = json_schema();
    for table in ["limits", "units"] {
        let mut bounded = 0;
        let properties =
            schema["$defs"][if table == "limits" { "Limits" } else { "Units" }]["properties"].as_object().unwrap();
        for (key, property) in properties.iter().filter(|(_, property)| property["type"] == "integer") {
            let [min, max] = ["minimum", "maximum"].map(|bound| property[bound].as_i64().expect(key));
            let manifest = |value| format!("[function.f]\nimage = \"x\"\n[function.f.{table}]\n{key} = {value}");
            for value in [min, max] {
                parse(&manifest(value)).unwrap_or_else(|problem| panic!("{key} = {value}: {problem}"));
            }
            for value in [min - 1, max + 1] {
                refused(&manifest(value), Code::ManifestValue, &[]);
            }
            bounded += 1;
        }
        assert!(bounded >= 2, "{table} has integers");
    }
}

#[test]
fn the_schema_of_http_takes_every_way_to_write_it() {
    let http = &json_schema()["$defs"]["Function"]["properties"]["http"];
    let text = http.to_string();
    for part in [r#""type":"string""#, r##""$ref":"#/$defs/HttpTrigger""##, r#""type":"array""#] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

#[test]
fn the_manual_has_every_key_with_its_default_and_bounds() {
    const MANUAL: &str = include_str!("../../../docs/manifest.md");
    /// `65536` as the manual has it: `65_536`.
    fn grouped(number: i64) -> String {
        let digits = number.to_string();
        let group = |(index, digit): (usize, char)| {
            if index > 0 && (digits.len() - index).is_multiple_of(3) { format!("_{digit}") } else { format!("{digit}") }
        };
        digits.chars().enumerate().map(group).collect()
    }
    let schema = json_schema();
    for table in ["Function", "HttpTrigger", "Grants", "Limits", "Units", "Place"] {
        for (key, property) in schema["$defs"][table]["properties"].as_object().unwrap() {
            let line = MANUAL
                .lines()
                .find(|line| line.starts_with(&format!("| `{key}` |")) || line.starts_with(&format!("## `{key}`")));
            let line = line.unwrap_or_else(|| panic!("docs/manifest.md does not have `{key}`"));
            if property["type"] == "integer" {
                let numbers = ["default", "minimum", "maximum"].map(|what| grouped(property[what].as_i64().unwrap()));
                assert!(
                    line.starts_with(&format!("| `{key}` | {} |", numbers.join(" | "))),
                    "{numbers:?} are not in: {line}"
                );
            }
        }
    }
}

#[test]
fn the_example_in_the_manual_is_right() {
    let manual = include_str!("../../../docs/manifest.md");
    let example = manual.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let manifest = parse(example).unwrap();
    assert_eq!(manifest.function["hello"].limits.time_ms, 2_000);
}

#[test]
fn the_contract_holds_exactly_this_schema() {
    const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contracts/manifest.schema.json");
    let written = serde_json::to_string_pretty(&json_schema()).unwrap() + "\n";
    if std::env::var_os("LIGHTER_UPDATE").is_some() {
        std::fs::write(FILE, &written).unwrap();
    }
    assert_eq!(std::fs::read_to_string(FILE).unwrap(), written, "run LIGHTER_UPDATE=1 cargo test -p manifest");
}

/// `cron = ["0 7 * * *", "UTC"]` was read as one table whose zone is the second text.
#[test]
fn a_list_of_texts_is_a_list_of_triggers() {
    let manifest = parse(
        r##"[function.f]
            image = "x"
            http = ["/a", "/b"]
            mqtt = ["a", "b"]
            every = ["10s", "20s"]
            cron = ["0 7 * * *", "0 8 * * *"]"##,
    )
    .unwrap();
    let function = &manifest.function["f"];
    assert_eq!([function.http.len(), function.mqtt.len(), function.every.len(), function.cron.len()], [2; 4]);
    assert_eq!((function.http[1].route.as_str(), function.cron[1].schedule.as_str()), ("/b", "0 8 * * *"));
}

#[test]
fn the_results_of_an_async_route_have_a_route_of_their_own() {
    let text =
        |more: &str| format!("[function.f]\nimage = \"x\"\nhttp = [{{ route = \"/jobs\", async = true }}{more}]");
    let manifest = parse(&text(", { route = \"/jobs/*\", async = true }, \"/\"")).unwrap();
    let function = &manifest.function["f"];
    assert_eq!(function.handles(&"f".parse().unwrap()).unwrap().as_str(), "f");
    let results: Vec<_> =
        function.results().iter().map(|trigger| (trigger.route.clone(), trigger.methods.clone())).collect();
    assert_eq!(results, [("/jobs/results/*".to_owned(), vec!["GET".to_owned()])]);
    refused(&text(", \"/jobs/results/*\""), Code::ManifestConflict, &["/jobs/results/*"]);
    assert_eq!(HttpTrigger { is_async: true, ..HttpTrigger::new("/*") }.results().unwrap().route, "/results/*");
    assert_eq!(HttpTrigger { is_async: true, ..HttpTrigger::new("/") }.results().unwrap().route, "/results/*");
}

#[test]
fn the_nodes_own_buckets_cannot_be_granted() {
    let text = "[function.f]\nimage = \"x\"\ngrants.stores = [\".results\"]";
    refused(text, Code::ManifestValue, &["\".results\""]);
    refused("[bucket.\".results\"]\nkeys_max = 1", Code::ManifestValue, &["\".results\""]);
}

#[test]
fn a_queue_may_have_its_home_on_one_node() {
    let function = "[function.f]\nimage = \"x\"\nqueue = \"readings\"\n";
    let home = |home: &str| format!("{function}[queue.readings]\nhome = \"{home}\"\n");
    assert_eq!(parse(&home("7-pi")).unwrap().queue["readings"].home.as_deref(), Some("7-pi"));
    assert_eq!(parse(function).unwrap().queue.len(), 0);
    for bad in ["", "Pi 7", "pi_7", &"a".repeat(33)] {
        refused(&home(bad), Code::ManifestValue, &["readings", "home"]);
    }
    // The result would be at another node than the one that is asked for it.
    let asynchronous = home("pi-7").replace("queue =", "http = { route = \"/f\", async = true }\nqueue =");
    refused(&asynchronous, Code::ManifestConflict, &["async", "readings"]);
}

#[test]
fn a_place_that_makes_no_sense_is_refused_with_what_helps() {
    let place = |lines: &str| format!("[function.f]\nimage = \"x\"\n[function.f.place]\n{lines}\n");
    let read = |lines: &str| parse(&place(lines)).unwrap().function["f"].place.clone().unwrap();
    let whole = read("near = \"site=a|b\"\nwithin = \"20ms\"\ncopies = \"1..8\"\nquiet = \"30s\"\nwarm = 3");
    let written = toml::to_string(&whole).unwrap();
    assert_eq!(toml::from_str::<Place>(&written).unwrap(), whole, "{written}");
    assert_eq!((whole.on_node().unwrap().warm, read("copies = 2").on_node()), (Some(3), None));
    refused(&place("within = \"20ms\""), Code::ManifestValue, &["within is 20ms", "near = \"pi-7\""]);
    refused(&place("near = \"a\"\nwithin = \"2m\""), Code::ManifestValue, &["within is 2m", "1ms and 1m"]);
    refused(&place("quiet = \"20s\"\ncopies = 2"), Code::ManifestValue, &["quiet is 20s", "copies = \"1..8\""]);
    refused(&place("quiet = \"1ms\"\ncopies = \"1..2\""), Code::ManifestValue, &["quiet is 1ms", "1s and 1d"]);
    refused(&place("warm = 33"), Code::ManifestValue, &["warm is 33", "0 and 32"]);
    let few = place("warm = 3").replace("image =", "limits.concurrency = 2\nimage =");
    refused(&few, Code::ManifestConflict, &["warm keeps 3", "lets 2 run"]);
    refused(&place("copies = \"8..1\""), Code::ManifestValue, &["8..1", "\"1..8\""]);
    refused(&place("near = \"Pi 7\""), Code::ManifestValue, &["Pi 7", "site=harbour"]);
}

#[test]
fn a_batch_is_bounded_and_for_functions_that_send_no_requests() {
    let with = |lines: &str| format!("[function.f]\nimage = \"x\"\nqueue = \"f\"\n{lines}");
    assert_eq!(parse(&with("")).unwrap().function["f"].units.batch, 1);
    for wrong in ["units.batch = 0", "units.batch = 257"] {
        refused(&with(wrong), Code::ManifestValue, &["units.batch is", "1 and 256"]);
    }
    let sends = with("units.batch = 2\ngrants.hosts = [\"example.org\"]");
    refused(&sends, Code::ManifestConflict, &["units.batch is 2", "grants.hosts", "another function"]);
    parse(&sends.replace("batch = 2", "batch = 1")).unwrap();
    parse(&with("units.batch = 256\ngrants.push = [\"f\"]\n[queue.f]\ncycle = true")).unwrap();
}

#[test]
fn triggers_that_cannot_work_are_refused_with_what_helps() {
    let units = |lines: &str| format!("[function.f]\nimage = \"x\"\nqueue = \"f\"\n{lines}\n[function.f.units]\n");
    let zero = units("") + "policy = \"triggers\"\nthreshold = 0";
    refused(&zero, Code::ManifestValue, &["units.threshold is 0", "1 starts a unit"]);
    // A lease of 5 s for its turn, twice 1 s for the handling, and 5 s more.
    let long = units("limits.time_ms = 1000") + "policy = \"triggers\"\ngrace = \"12001ms\"";
    refused(&long, Code::ManifestConflict, &["units.grace is 12001ms", "12s", "limits.time_ms"]);
    parse(&long.replace("12001ms", "12s")).unwrap();
    parse(&long.replace("triggers", "latency")).unwrap();
}
