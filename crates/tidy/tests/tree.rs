//! The form of this repository's sources. What a test names is to be made smaller, clearer or true; the short lists of
//! exceptions say why.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use tidy::{files_named, functions, public_types, words_defined};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

const FILE_LINES_MAX: usize = 550;
const FUNCTION_LINES_MAX: usize = 70;
const LINE_CHARS_MAX: usize = 120;
const PARAMETERS_MAX: usize = 7;
/// Crates that may show a type of the same name. Two may each have their half of one thing, and a third may join them;
/// with a fourth, a reader can no longer guess which one is meant.
const CRATES_OF_A_NAME_MAX: usize = 3;

/// Others' code, and code that others' tools make.
const NOT_OURS: [&str; 2] = ["third-party/", "/templates/"];
/// The hash of these stands in binaries of ours that are committed, or the numbers of their lines do.
const HASHED: [&str; 4] = ["kernel/", "crates/shared/", "guests/", "examples/"];

/// Every path that git knows.
fn paths() -> Vec<String> {
    let output = Command::new("git").args(["-C", ROOT, "ls-files"]).output().expect("git runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let listed = String::from_utf8(output.stdout).expect("paths are UTF-8");
    listed.lines().map(str::to_owned).collect()
}

/// Our Rust, as path and text.
fn sources() -> Vec<(String, String)> {
    let ours = |path: &String| path.ends_with(".rs") && !NOT_OURS.iter().any(|other| path.contains(other));
    let read = |path: String| Some((fs::read_to_string(Path::new(ROOT).join(&path)).ok()?, path));
    paths().into_iter().filter(ours).filter_map(read).map(|(text, path)| (path, text)).collect()
}

fn is_test(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("tests.rs")
}

fn none(found: &[String]) {
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn files_are_short() {
    let long = sources().into_iter().filter_map(|(path, text)| {
        let lines = text.lines().count();
        (lines > FILE_LINES_MAX).then(|| format!("{path}: {lines} lines, {FILE_LINES_MAX} at most"))
    });
    none(&long.collect::<Vec<_>>());
}

#[test]
fn functions_are_short() {
    let mut long = Vec::new();
    for (path, text) in sources().into_iter().filter(|(path, _)| !is_test(path)) {
        for one in functions(&text).into_iter().filter(|one| one.lines > FUNCTION_LINES_MAX) {
            long.push(format!(
                "{path}:{}: {} has {} lines, {FUNCTION_LINES_MAX} at most",
                one.line, one.name, one.lines
            ));
        }
    }
    none(&long);
}

#[test]
fn functions_have_few_parameters() {
    let mut many = Vec::new();
    for (path, text) in sources() {
        for one in functions(&text).into_iter().filter(|one| one.parameters > PARAMETERS_MAX) {
            many.push(format!(
                "{path}:{}: {} has {} parameters, {PARAMETERS_MAX} at most",
                one.line, one.name, one.parameters
            ));
        }
    }
    none(&many);
}

/// rustfmt keeps code to this width, and leaves comments and long texts as they are. Pictures and tables may be wider.
#[test]
fn comments_are_narrow() {
    let mut long = Vec::new();
    for (path, text) in sources().into_iter().filter(|(path, _)| !HASHED.iter().any(|hashed| path.starts_with(hashed)))
    {
        long.extend(wide_comments(&text).into_iter().map(|(line, comment)| format!("{path}:{line}: {comment}")));
    }
    none(&long);
}

fn wide_comments(text: &str) -> Vec<(usize, &str)> {
    let mut is_picture = false;
    let comments = text.lines().enumerate().filter(|(_, line)| line.trim_start().starts_with("//"));
    let wide = comments.filter(|(_, line)| {
        let words = line.trim_start().trim_start_matches(['/', '!']).trim_start();
        is_picture ^= words.starts_with("```");
        !is_picture && !words.starts_with('|') && line.chars().count() > LINE_CHARS_MAX
    });
    wide.map(|(at, line)| (at + 1, line)).collect()
}

#[test]
fn files_named_in_comments_exist() {
    let known: BTreeSet<String> =
        paths().into_iter().filter_map(|path| path.rsplit('/').next().map(str::to_owned)).collect();
    // What functions of users and tools of others call their files.
    let others =
        ["lighter.toml", "node.toml", "NAME.toml", "Cargo.toml", "pyproject.toml", "data.py", "lib.py", "secret.py"];
    let mut missing = Vec::new();
    for (path, text) in sources().into_iter().filter(|(path, _)| !path.starts_with("crates/tidy/")) {
        for (line, named) in files_named(&text) {
            let name = named.rsplit('/').next().unwrap_or_default();
            let is_pattern = name.contains(['{', '*']);
            if !is_pattern && !known.contains(name) && !others.contains(&name) {
                missing.push(format!("{path}:{line}: there is no {named}"));
            }
        }
    }
    none(&missing);
}

#[test]
fn a_word_of_the_glossary_is_defined_once() {
    let glossary = fs::read_to_string(Path::new(ROOT).join("GLOSSARY.md")).unwrap();
    let mut first = BTreeMap::new();
    let mut twice = Vec::new();
    for (line, word) in words_defined(&glossary) {
        if let Some(before) = first.insert(word.clone(), line) {
            twice.push(format!("GLOSSARY.md:{line}: {word} is defined in line {before}"));
        }
    }
    none(&twice);
}

#[test]
fn a_types_name_says_which_type_it_is() {
    // Each of these means the same wherever it stands.
    const SAME_EVERYWHERE: [(&str, &str); 6] = [
        ("Config", "what its crate is set up with"),
        ("Counts", "what its crate counts for metrics"),
        ("Failed", "why the main thing its module does was not done"),
        ("Gate", "where the outside world comes in"),
        ("Limits", "what its crate lets others use"),
        ("Reader", "reads the one format of its module"),
    ];
    let mut crates: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, text) in sources().into_iter().filter(|(path, _)| path.starts_with("crates/") && !is_test(path)) {
        let Some((name, _)) = path.split_once("/src/") else { continue };
        for (_, named) in public_types(&text) {
            crates.entry(named).or_default().insert(name.to_owned());
        }
    }
    let is_common = |name: &str| SAME_EVERYWHERE.iter().any(|(common, _)| *common == name);
    let many = crates.iter().filter(|(name, crates)| crates.len() > CRATES_OF_A_NAME_MAX && !is_common(name));
    let said = many.map(|(name, crates)| format!("{name} is a type of {crates:?}, {CRATES_OF_A_NAME_MAX} at most"));
    none(&said.collect::<Vec<_>>());
    let is_rare = |name: &str| crates.get(name).is_none_or(|crates| crates.len() <= CRATES_OF_A_NAME_MAX);
    let rare = SAME_EVERYWHERE.iter().filter(|(name, _)| is_rare(name));
    none(&rare.map(|(name, _)| format!("{name} needs no exception any more")).collect::<Vec<_>>());
}

#[test]
fn a_skipped_test_names_a_need_that_is_judged() {
    let table = fs::read_to_string(Path::new(ROOT).join("tools/skips")).unwrap();
    let needs = needs(&table);
    assert!(needs.contains("kvm") && needs.contains("lesser-jail"), "{needs:?}");
    let mut wrong = Vec::new();
    for path in paths().into_iter().filter(|path| skips(path)) {
        let text = fs::read_to_string(Path::new(ROOT).join(&path)).unwrap();
        for (number, line) in text.lines().enumerate() {
            let Some((_, said)) = SKIPPING.iter().find_map(|begins| line.split_once(begins)) else { continue };
            let need = said.trim_start_matches([' ', 'f', '"']).split_once(": ").map_or("", |(need, _)| need);
            // What is put in at run time is not known here.
            if !said.starts_with(['{', '$']) && !needs.contains(need) {
                wrong.push(format!("{path}:{}: no need that tools/skips knows: {}", number + 1, line.trim()));
            }
        }
    }
    none(&wrong);
}

/// Where what a test needed and did not have is said: in Rust and in scripts, and in Python.
const SKIPPING: [&str; 4] = ["\"skipped: ", "pytest.skip(", "reason=\"", "lacking = \""];

fn skips(path: &str) -> bool {
    let is_script = path.starts_with("tools/check-");
    let is_python = path.ends_with(".py") && path.contains("/test");
    (is_script || is_python || path.ends_with(".rs"))
        && !path.starts_with("crates/tidy/")
        && !path.contains("third-party")
}

/// The words of the table `could`.
fn needs(table: &str) -> BTreeSet<&str> {
    let (_, table) = table.split_once("\ncould() {").expect("there is a table");
    let (table, _) = table.split_once("\n}").expect("it ends");
    let patterns =
        table.lines().filter_map(|line| line.strip_prefix("        ")?.split_once(") ").map(|(words, _)| words));
    patterns.flat_map(|words| words.split(" | ")).collect()
}

/// ARCHITECTURE.md draws which of our crates builds on which: a line each, floor by floor.
#[test]
fn the_drawn_crates_are_those_that_are_there() {
    const BEGINS: &str = "<!-- crates: written by `LIGHTER_UPDATE=1 cargo test -p tidy` -->\n```text\n";
    let path = Path::new(ROOT).join("ARCHITECTURE.md");
    let text = fs::read_to_string(&path).unwrap();
    let (before, after) = text.split_once(BEGINS).expect("ARCHITECTURE.md has a place for the drawing");
    let (drawn, after) = after.split_once("```").expect("the drawing ends");
    let drawing = drawing(&crates());
    if std::env::var_os("LIGHTER_UPDATE").is_some() {
        fs::write(&path, [before, BEGINS, &drawing, "```", after].concat()).unwrap();
        return;
    }
    assert_eq!(drawn, drawing, "run LIGHTER_UPDATE=1 cargo test -p tidy");
}

/// What cargo knows of each package of the workspace.
fn packages() -> Vec<serde_json::Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1", "--manifest-path"])
        .arg(Path::new(ROOT).join("Cargo.toml"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    serde_json::from_value(metadata["packages"].take()).unwrap()
}

/// Our crates of the node, and those of ours that each builds on.
fn crates() -> BTreeMap<String, BTreeSet<String>> {
    let packages = packages();
    let is_drawn = |package: &&serde_json::Value| {
        let path = package["manifest_path"].as_str().unwrap();
        path.contains("/crates/") && !path.contains("/crates/tidy/")
    };
    let name = |value: &serde_json::Value| value["name"].as_str().unwrap().to_owned();
    let ours: BTreeSet<String> = packages.iter().filter(is_drawn).map(name).collect();
    let uses = |package: &serde_json::Value| {
        let all = package["dependencies"].as_array().unwrap().iter();
        all.filter(|one| one["kind"].is_null()).map(name).filter(|one| ours.contains(one)).collect()
    };
    packages.iter().filter(is_drawn).map(|package| (name(package), uses(package))).collect()
}

/// A feature that only a test asks for has everything above its crate compiled once for the program and once for tests:
/// below the compiler of units, that was six minutes on two cores.
#[test]
fn tests_compile_the_libraries_of_the_program() {
    // Only the simulated sensors stand on it: theirs speaks no TLS, that of the tests does.
    const TWICE: [&str; 1] = ["rumqttc"];
    let tested = resolved("normal,build,dev");
    let twice = resolved("no-dev").into_iter().filter(|one| {
        let name = one.split(' ').next().unwrap_or_default();
        !tested.contains(one) && !TWICE.contains(&name)
    });
    none(&twice.map(|one| format!("tests ask for other features of it: {one}")).collect::<Vec<_>>());
}

/// Every crate that is compiled along these edges, with its version and its features.
fn resolved(edges: &str) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--workspace", "--offline", "--prefix", "none", "--format", "{p} {f}"])
        .args(["--edges", edges, "--manifest-path"])
        .arg(Path::new(ROOT).join("Cargo.toml"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // A star says that what is below it was printed before.
    let printed = String::from_utf8(output.stdout).expect("names are UTF-8");
    printed.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
}

#[test]
fn a_dependency_is_named_in_the_sources() {
    // Only its features are wanted: the instruction sets that are compiled for.
    const FOR_FEATURES: [(&str, &str); 1] = [("kernel-code", "cranelift-codegen")];
    let root = fs::canonicalize(ROOT).unwrap();
    let sources = sources();
    let mut unnamed = Vec::new();
    for package in packages() {
        let name = package["name"].as_str().unwrap();
        let folder = Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap();
        let is_its_own = |path: &str| root.join(path).starts_with(folder);
        let words: BTreeSet<&str> = sources
            .iter()
            .filter(|(path, _)| is_its_own(path))
            .flat_map(|(_, text)| text.split(|one: char| !(one.is_alphanumeric() || one == '_')))
            .collect();
        for dependency in package["dependencies"].as_array().unwrap() {
            let word = dependency["name"].as_str().unwrap();
            let named = dependency["rename"].as_str().unwrap_or(word).replace('-', "_");
            if !words.contains(named.as_str()) && !FOR_FEATURES.contains(&(name, word)) {
                unnamed.push(format!("{name}: no source names {word}"));
            }
        }
    }
    none(&unnamed);
}

/// The command line talks to a node over HTTP and has no way around it; and what an isolation class brings, its file in
/// `crates/lighter/src/classes` brings. What boards are told is known to their class alone.
#[test]
fn walls_stand_between_the_command_line_the_node_and_the_classes() {
    let crates = crates();
    let mut through = Vec::new();
    for (name, walled_off) in
        [("cli", &["node", "api", "state", "lighter"][..]), ("api", &["cli"]), ("node", &["api", "cli", "board-link"])]
    {
        let reached = all_below(&crates, name);
        let is_through = |one: &&String| walled_off.contains(&one.as_str()) || is_class(one);
        through.extend(reached.into_iter().filter(is_through).map(|one| format!("{name} reaches {one}")));
    }
    none(&through);
}

/// The crates of classes; what they share is nobody's own.
fn is_class(name: &str) -> bool {
    ["unit-wasm", "unit-process", "unit-microvm", "unit-metal"].contains(&name)
}

/// A new class is a line in `crates/lighter/src/classes/mod.rs`, and nothing in these crates asks which it is.
#[test]
fn no_class_is_named_where_all_are_served() {
    const SERVE_ALL: [&str; 4] = ["crates/api-types/src/", "crates/node/src/", "crates/api/src/", "crates/cli/src/"];
    const CLASSES: [&str; 4] = ["wasm", "process", "microvm", "metal"];
    let names_one = |line: &&str| {
        let is_comment = line.trim_start().starts_with("//");
        let is_named = |class: &str| {
            let (first, rest) = class.split_at(1);
            let word = format!("Isolation::{}{rest}", first.to_uppercase());
            line.contains(&word) || line.contains(&format!("\"{class}\"")) || line.contains(&format!("unit_{class}"))
        };
        !is_comment && CLASSES.iter().any(|class| is_named(class))
    };
    let mut named = Vec::new();
    for (path, text) in sources().into_iter().filter(|(path, _)| SERVE_ALL.iter().any(|one| path.starts_with(one))) {
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let of_this = if is_test(&path) { "" } else { code };
        named.extend(of_this.lines().filter(names_one).map(|line| format!("{path}: {}", line.trim())));
    }
    none(&named);
}

/// Floors from the ground up; on each, every crate with those it stands on directly. What a crate reaches through
/// another is not said again.
fn drawing(crates: &BTreeMap<String, BTreeSet<String>>) -> String {
    let mut floors: BTreeMap<&str, usize> = BTreeMap::new();
    while floors.len() < crates.len() {
        let known = floors.clone();
        for (name, uses) in crates.iter().filter(|(name, _)| !known.contains_key(name.as_str())) {
            let below: Option<Vec<usize>> = uses.iter().map(|one| known.get(one.as_str()).copied()).collect();
            if let Some(below) = below {
                floors.insert(name, below.into_iter().max().map_or(0, |highest| highest + 1));
            }
        }
        assert!(floors.len() > known.len(), "crates that build on each other");
    }
    let highest = floors.values().copied().max().unwrap_or_default();
    let mut drawn = String::new();
    for floor in (0..=highest).rev() {
        for (name, _) in floors.iter().filter(|(_, on)| **on == floor) {
            let uses = direct(crates, name);
            let arrow = if uses.is_empty() { String::new() } else { format!(" ─▶ {}", uses.join(" ")) };
            let line = format!("{floor}  {name:<16}{arrow}");
            drawn += line.trim_end();
            drawn.push('\n');
        }
    }
    drawn
}

/// What a crate uses and reaches through none of the others it uses.
fn direct<'a>(crates: &'a BTreeMap<String, BTreeSet<String>>, name: &str) -> Vec<&'a str> {
    let uses = &crates[name];
    let reached: BTreeSet<&String> = uses.iter().flat_map(|one| all_below(crates, one)).collect();
    uses.iter().filter(|one| !reached.contains(one)).map(String::as_str).collect()
}

fn all_below<'a>(crates: &'a BTreeMap<String, BTreeSet<String>>, name: &str) -> BTreeSet<&'a String> {
    let mut below: BTreeSet<&String> = crates[name].iter().collect();
    let further: Vec<_> = crates[name].iter().flat_map(|one| all_below(crates, one)).collect();
    below.extend(further);
    below
}
