//! Every bound that stands in the sources stands in `docs/bounds.md`, with its value and what happens beyond it.
//! `LIGHTER_UPDATE=1` writes the file anew.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// Where bounds are looked for: what a node runs. Tests and programs that try it out are none of it.
const FOLDERS: [(&str, &str); 17] = [
    ("The node", "crates/node/src"),
    ("Its life", "crates/lighter/src"),
    ("The API", "crates/api/src"),
    ("Backups", "crates/backup/src"),
    ("Connections of gates", "crates/gates/connections/src"),
    ("The HTTP gate", "crates/gates/http/src"),
    ("The MQTT gate", "crates/gates/mqtt/src"),
    ("Timers", "crates/gates/timer/src"),
    ("A node of a fleet", "crates/fleet/agent/src"),
    ("Deployments of a fleet", "crates/fleet/deploy/src"),
    ("Who belongs to a fleet", "crates/fleet/trust/src"),
    ("A handling, and what units ask of it", "crates/handling/src"),
    ("Outgoing requests", "crates/egress/src"),
    ("Units of every class", "crates/units/unit/src"),
    ("`wasm`", "crates/units/unit-wasm/src"),
    ("`process`", "crates/units/unit-process/src"),
    ("`microvm`", "crates/units/unit-microvm/src"),
];

const HEAD: &str = "# Bounds, by name

All constants in the sources whose names end in `_MAX`, with their comments: what each bounds and what happens beyond
it. A test writes this page and compares it with the sources. [Limits](limits.md) explains those that users meet, and
lists the options.
";

struct Bound {
    name: String,
    value: String,
    words: String,
}

#[test]
fn every_bound_is_on_its_page_with_its_value_and_a_word_on_what_happens() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut page = HEAD.to_owned();
    let mut wordless = Vec::new();
    for (title, folder) in FOLDERS {
        let mut found = BTreeMap::new();
        for path in sources(&root.join(folder)) {
            let shown = path.strip_prefix(root.join(folder)).unwrap().display().to_string();
            for bound in bounds(&fs::read_to_string(&path).unwrap()) {
                if bound.words.is_empty() {
                    wordless.push(format!("{folder}/{shown}: {}", bound.name));
                }
                found.insert((shown.clone(), bound.name.clone()), bound);
            }
        }
        assert!(!found.is_empty(), "{folder} has no bounds, or they are not found");
        write!(page, "\n## {title}\n\n| bound | is | in `{folder}` | |\n|---|---|---|---|\n").unwrap();
        for ((shown, name), Bound { value, words, .. }) in &found {
            writeln!(page, "| `{name}` | {value} | `{shown}` | {words} |").unwrap();
        }
    }
    assert!(wordless.is_empty(), "without a word on what they bound: {wordless:#?}");
    let kept = root.join("docs/bounds.md");
    if std::env::var_os("LIGHTER_UPDATE").is_some() {
        fs::write(&kept, &page).unwrap();
    }
    let there = fs::read_to_string(&kept).unwrap_or_default();
    assert!(there == page, "docs/bounds.md is not what the sources say; LIGHTER_UPDATE=1 writes it");
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.extension() {
            None if path.is_dir() => found.extend(sources(&path)),
            Some(extension) if extension == "rs" => found.push(path),
            _ => {}
        }
    }
    found
}

/// The constants of one file whose names end in `_MAX`, but for those of its tests.
fn bounds(source: &str) -> Vec<Bound> {
    let source = source.split("#[cfg(test)]").next().unwrap_or_default();
    let (mut found, mut words) = (Vec::new(), Vec::new());
    let mut is_told = false;
    for line in source.lines().map(str::trim) {
        if let Some(comment) = line.strip_prefix("///") {
            // Words stand for all constants that follow them without a gap.
            if is_told {
                words.clear();
            }
            is_told = false;
            words.push(comment.trim());
            continue;
        }
        let constant = line.split_once("const ").filter(|(before, _)| before.is_empty() || before.starts_with("pub"));
        let Some((name, rest)) = constant.and_then(|(_, rest)| rest.split_once(':')) else {
            words.clear();
            continue;
        };
        is_told = true;
        let value = rest.split_once('=').map(|(_, value)| value.trim().trim_end_matches(';'));
        if let Some(value) = value.filter(|_| name.ends_with("_MAX") || name.ends_with("_CEILING")) {
            found.push(Bound {
                name: name.to_owned(),
                value: plain(value),
                words: words.join(" ").replace('|', "\\|"),
            });
        }
    }
    found
}

/// A value as people write it, where it is a number or a time; else as it stands.
fn plain(value: &str) -> String {
    let product = |text: &str| text.split('*').map(|one| number(one.trim())).product::<Option<u64>>();
    let within = |name: &str| product(value.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')')?);
    if let Some(seconds) = within("Duration::from_secs") {
        return match seconds {
            86_400.. if seconds % 86_400 == 0 => format!("{} d", seconds / 86_400),
            120.. if seconds % 60 == 0 => format!("{} min", seconds / 60),
            _ => format!("{seconds} s"),
        };
    }
    if let Some(milliseconds) = within("Duration::from_millis") {
        return format!("{milliseconds} ms");
    }
    match product(value) {
        Some(bytes) if value.contains("<<") || value.contains('*') => binary(bytes),
        Some(count) => grouped(count),
        None => format!("`{value}`"),
    }
}

fn number(text: &str) -> Option<u64> {
    let digits = |text: &str| text.trim().replace('_', "").parse::<u64>().ok();
    match text.split_once("<<") {
        Some((mantissa, bits)) => digits(mantissa)?.checked_shl(u32::try_from(digits(bits)?).ok()?),
        None => digits(text),
    }
}

fn binary(bytes: u64) -> String {
    let unit = [(30, "Gi"), (20, "Mi"), (10, "Ki")].into_iter().find(|(bits, _)| bytes.trailing_zeros() >= *bits);
    unit.map_or_else(|| grouped(bytes), |(bits, unit)| format!("{} {unit}", bytes >> bits))
}

fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let places = digits.len();
    let with = digits.chars().enumerate().flat_map(|(at, digit)| {
        let comma = (at > 0 && (places - at) % 3 == 0).then_some(',');
        comma.into_iter().chain([digit])
    });
    with.collect()
}
