//! Deployments of a fleet of three real nodes: made once, entered anywhere, there again after anybody was killed.

use crate::fleet::{ANY, address, done, heard, lighter, refused, start, until};
use crate::support::{Node, fixture};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A fleet of `server-1`, `pi-7` in the harbour and `pi-8` at the bridge, and a folder to deploy from.
pub struct Campus {
    pub folder: TempDir,
    pub anchor: Node,
    pub one: Node,
    pub other: Node,
}

pub const NAMES: [&str; 3] = ["server-1", "pi-7", "pi-8"];
const SITES: [&[&str]; 3] = [&[], &["--label", "site=harbour"], &["--label", "site=bridge"]];

impl Campus {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |number: usize, listen: &str| {
            start(&folder.path().join(NAMES[number]), NAMES[number], listen, SITES[number])
        };
        let [anchor, one, other] = [0, 1, 2].map(|number| at(number, ANY));
        done(&anchor, &["fleet", "new", "campus"]);
        let token = done(&anchor, &["fleet", "invite", "--times", "2"]);
        for node in [&one, &other] {
            done(node, &["fleet", "join", token.trim()]);
        }
        for node in [&anchor, &one, &other] {
            until("a fleet of three", || heard(node).len() == 3);
        }
        let campus = Self { folder, anchor, one, other };
        campus.write("hello", "");
        campus
    }

    pub fn app(&self) -> PathBuf {
        self.folder.path().join("app")
    }

    /// The manifest of the app: a function everywhere, one in the harbour, and one that keeps something.
    fn write(&self, image: &str, more: &str) {
        fs::create_dir_all(self.app()).unwrap();
        for name in ["hello", "hello-http", "counter"] {
            fs::write(self.app().join(format!("{name}.wasm")), fixture(name)).unwrap();
        }
        let text = format!(
            "[function.hello]\nimage = \"{image}.wasm\"\nhttp = \"/hello\"\n\
             [function.plate]\nimage = \"hello-http.wasm\"\nhttp = \"/plate\"\nplace.where = [\"site=harbour\"]\n\
             [function.count]\nimage = \"counter.wasm\"\nhttp = \"/count\"\ngrants.stores = [\"counters\"]\n{more}"
        );
        fs::write(self.app().join("lighter.toml"), text).unwrap();
    }

    /// The words of a command that deploys, with the anchor's key.
    fn with_key<'a>(&'a self, words: &[&'a str], key: &'a Path) -> Vec<&'a str> {
        [words, &["--deployer", key.to_str().unwrap()]].concat()
    }

    pub fn key(&self) -> PathBuf {
        self.folder.path().join("server-1/fleet/deployer.key")
    }

    /// Deploys the app from the data folder of a node, and returns what the command prints as JSON.
    #[track_caller]
    pub fn deploy(&self, node: &Node) -> Value {
        let (app, key) = (self.app(), self.key());
        let words = self.with_key(&["deploy", app.to_str().unwrap(), "--fleet", "--json"], &key);
        serde_json::from_str(&done(node, &words)).unwrap()
    }
}

/// The names of the functions that a node has itself.
pub fn functions(node: &Node) -> Vec<String> {
    let all = node.api("GET", "/v1/functions", &[]).json();
    all.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
}

pub fn image(node: &Node, function: &str) -> String {
    let info = node.api("GET", &format!("/v1/functions/{function}"), &[]).json();
    let (version, versions) = (&info["version"], info["versions"].as_array());
    let current = versions.and_then(|all| all.iter().find(|one| one["version"] == *version));
    current.map(|one| one["image"].as_str().unwrap().to_owned()).unwrap_or_default()
}

#[test]
fn a_deployment_entered_anywhere_is_where_it_fits_and_goes_back() {
    let campus = Campus::new();
    let Campus { anchor, one, other, .. } = &campus;
    // The command ends when all have it. It talked to a node that is neither an anchor nor where all of it runs.
    let made = campus.deploy(other);
    assert_eq!((made["revision"].as_u64(), made["name"].as_str()), (Some(1), Some("app")), "{made}");
    let has = |node: &Node, name: &str| functions(node).contains(&name.to_owned());
    assert!([anchor, one, other].into_iter().all(|node| has(node, "hello")));
    assert_eq!([anchor, one, other].map(|node| has(node, "plate")), [false, true, false]);
    let homes = [anchor, one, other].into_iter().filter(|node| has(node, "count")).count();
    assert_eq!(homes, 1, "what keeps something is on one node");
    // Any node answers for all of it.
    for node in [anchor, one, other] {
        for route in ["/hello", "/plate", "/count"] {
            until(route, || node.get(route).status == 200);
        }
    }
    let image_before = image(other, "hello");

    campus.write("hello-http", "");
    assert_eq!(campus.deploy(one)["revision"], 2);
    assert!([anchor, one, other].into_iter().all(|node| image(node, "hello") != image_before));
    let listed: Value = serde_json::from_str(&done(one, &["fleet", "deployments", "--json"])).unwrap();
    assert_eq!((&listed["told_by"], &listed["deployments"][0]["earlier"]), (&json!("server-1"), &json!([1])));
    assert!(done(one, &["fleet", "deployments"]).contains("3 of 3 ready"));

    // By hand it is not changed: the fleet would not know.
    for words in [&["rm", "hello"][..], &["rollback", "hello"], &["deploy", campus.app().to_str().unwrap()]] {
        assert_eq!(refused(one, words), "L9136", "{words:?}");
    }
    assert_eq!(one.api("DELETE", "/v1/sinks/hello", &[]).code(), "L9136");
    let key = campus.key();
    let back = campus.with_key(&["fleet", "rollback", "app", "--json"], &key);
    let back: Value = serde_json::from_str(&done(one, &back)).unwrap();
    assert_eq!(back["revision"], 1);
    assert!([anchor, one, other].into_iter().all(|node| image(node, "hello") == image_before));
    assert_eq!(refused(one, &campus.with_key(&["fleet", "rollback", "app", "--to", "7"], &key)), "L2002");

    done(other, &campus.with_key(&["fleet", "undeploy", "app"], &key));
    for node in [anchor, one, other] {
        until("an end", || functions(node).is_empty());
    }
    let audit = done(anchor, &["audit", "--json"]);
    assert!(audit.contains("fleet order") && audit.contains("deployer local"), "{audit}");
    assert!(!audit.contains("lighter-deployer-1."), "a key is a secret");
}

#[test]
fn what_cannot_be_is_refused_and_says_why() {
    let campus = Campus::new();
    let Campus { anchor, one, .. } = &campus;
    let (app, key) = (campus.app(), campus.key());
    let deploy = ["deploy", app.to_str().unwrap(), "--fleet"];
    assert_eq!(refused(one, &deploy), "L9130", "there is no key");

    // A key that the anchor made, and then takes back.
    let made = done(anchor, &["fleet", "deployer", "add", "ci"]);
    let file = campus.folder.path().join("ci.key");
    fs::write(&file, &made).unwrap();
    done(one, &campus.with_key(&deploy, &file));
    assert!(done(anchor, &["fleet", "deployer", "ls"]).contains("ci"));
    assert_eq!(refused(one, &["fleet", "deployer", "ls"]), "L9118");
    done(anchor, &["fleet", "deployer", "rm", "ci"]);
    campus.write("hello-http", "");
    assert_eq!(refused(one, &campus.with_key(&deploy, &file)), "L9130");

    campus.write("hello", "[function.far]\nimage = \"hello.wasm\"\nplace.where = [\"site=moon\"]\n");
    let said = lighter(&one.data, &campus.with_key(&deploy, &key));
    assert!(!said.is_done && said.err.contains("error[L9110]"), "{}", said.err);
    for near in ["pi-7 lacks site=moon (site is harbour)", "pi-8 lacks", "server-1 lacks"] {
        assert!(said.err.contains(near), "{}", said.err);
    }
    // Under another name the same functions are somebody else's.
    campus.write("hello", "");
    let other = ["deploy", app.to_str().unwrap(), "--fleet", "--name", "other"];
    assert_eq!(refused(one, &campus.with_key(&other, &key)), "L9136");
    // An order that is none, and one that is sent by a node without a deployer's key.
    for order in [&b"LORD"[..], b"", &[b"LORD\x01".as_slice(), &[0; 64], b"{}"].concat()] {
        assert_eq!(one.api("POST", "/v1/fleet/orders", order).code(), "L9131", "{order:?}");
    }
    // A function that does not start is a node's problem: the command tells it, and what ran runs on.
    fs::write(app.join("hello.wasm"), fixture("start-trap")).unwrap();
    let text = fs::read_to_string(app.join("lighter.toml")).unwrap();
    fs::write(app.join("lighter.toml"), text).unwrap();
    let said = lighter(&one.data, &campus.with_key(&deploy, &key));
    assert!(!said.is_done && said.err.contains("error[L2"), "{}", said.err);
    assert_eq!(one.get("/hello").status, 200);
}

#[test]
fn a_node_that_was_away_learns_of_it_from_others_and_starts_from_what_it_knows() {
    let campus = Campus::new();
    campus.deploy(&campus.anchor);
    let Campus { folder, anchor, one, other } = campus;
    let listen = [&anchor, &one, &other].map(address);
    let restart =
        |number: usize| start(&folder.path().join(NAMES[number]), NAMES[number], &listen[number], SITES[number]);
    one.kill();
    let one = restart(1);
    assert!(functions(&one).contains(&"plate".to_owned()), "it starts from its own records");

    // While it is away there is a new revision, and then the anchor is away too.
    one.kill();
    let (app, key) = (folder.path().join("app"), folder.path().join("server-1/fleet/deployer.key"));
    let text = fs::read_to_string(app.join("lighter.toml")).unwrap();
    let newer = text.replace("http = \"/hello\"", "http = \"/hello\"\nconfig.form = \"2\"");
    fs::write(app.join("lighter.toml"), newer).unwrap();
    let words = ["deploy", app.to_str().unwrap(), "--fleet", "--deployer", key.to_str().unwrap()];
    // Perhaps its death has not been noticed yet: then the command waits until it is.
    done(&other, &words);
    anchor.kill();
    let one = restart(1);
    let form = || {
        let info = one.api("GET", "/v1/functions/hello", &[]).json();
        info["versions"][0]["function"]["config"]["form"].as_str().unwrap_or_default().to_owned()
    };
    until("word of the other node", || form() == "2");
    // Deploying waits for an anchor, and says so.
    assert_eq!(refused(&one, &words), "L9105");
    assert!(done(&one, &["fleet", "deployments"]).contains("app"));
}

#[test]
fn copies_of_a_node_that_died_are_made_elsewhere() {
    let campus = Campus::new();
    let text =
        "[function.hello]\nimage = \"hello.wasm\"\nhttp = \"/hello\"\nplace.copies = 1\nplace.where = [\"site\"]\n";
    fs::write(campus.app().join("lighter.toml"), text).unwrap();
    campus.deploy(&campus.anchor);
    let Campus { anchor, one, other, .. } = campus;
    let (with, without) = if functions(&one).is_empty() { (other, one) } else { (one, other) };
    assert_eq!((functions(&with).len(), functions(&without).len()), (1, 0));
    with.kill();
    until("a copy elsewhere", || functions(&without) == ["hello"]);
    until("an answer at any node", || anchor.get("/hello").status == 200);
}
