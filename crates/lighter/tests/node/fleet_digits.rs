//! A node joins a fleet without an invitation: a person carries digits from one terminal to the other.

use crate::fleet::{ANY, address, done, heard, refused, start, until};
use crate::support::{Node, PROGRAM, send};
use serde_json::json;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};

/// `lighter fleet join` at a terminal, once it has shown its digits.
struct Joining {
    command: Child,
    answer: ChildStdin,
    digits: String,
}

impl Joining {
    fn begin(node: &Node, anchor: &str) -> Self {
        let mut command = Command::new("timeout");
        command.args(["600", PROGRAM, "fleet", "join", "--at", anchor]).env("LIGHTER_DATA", &node.data);
        command.env_remove("LIGHTER_NODE").env_remove("LIGHTER_TOKEN");
        let mut command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut digits = String::new();
        BufReader::new(command.stdout.as_mut().unwrap()).read_line(&mut digits).unwrap();
        let answer = command.stdin.take().unwrap();
        Self { command, answer, digits: digits.trim().to_owned() }
    }

    /// Whether the node has joined.
    fn answer(mut self, line: &str) -> bool {
        self.answer.write_all(line.as_bytes()).unwrap();
        drop(self.answer);
        self.command.wait().unwrap().success()
    }
}

#[test]
fn a_node_joins_by_digits_and_nobody_joins_without_a_person_at_each_end() {
    let folder = tempfile::tempdir().unwrap();
    let [anchor, pi, stranger] =
        ["server-1", "pi-7", "pi-8"].map(|name| start(&folder.path().join(name), name, ANY, &[]));
    assert_eq!(refused(&anchor, &["fleet", "admit"]), "L9116");
    done(&anchor, &["fleet", "new", "campus"]);
    let at = address(&anchor);
    assert_eq!(done(&anchor, &["fleet", "admit"]), "");

    // A second one waits beside it, whose digits nobody types.
    let waits = Joining::begin(&stranger, &at);
    let joining = Joining::begin(&pi, &at);
    until("two that wait", || done(&anchor, &["fleet", "admit"]).lines().count() == 3);
    let listed = done(&anchor, &["fleet", "admit"]);
    assert!(listed.contains("pi-7") && listed.contains("pi-8") && listed.lines().count() == 3, "{listed}");
    assert!(!listed.contains(&joining.digits), "digits are read on the new node: {listed}");
    let wrong = if waits.digits == "000 000" || joining.digits == "000 000" { "000001" } else { "000000" };
    assert_eq!(refused(&anchor, &["fleet", "admit", wrong]), "L9102");
    assert_eq!(refused(&anchor, &["fleet", "admit", "12345"]), "L1101");
    assert_eq!(refused(&pi, &["fleet", "admit", &joining.digits]), "L9116");
    let (one, other) = joining.digits.split_once(' ').unwrap();
    done(&anchor, &["fleet", "admit", one, other]);
    assert_eq!(refused(&anchor, &["fleet", "admit", &joining.digits]), "L9102", "they are used up");
    assert!(joining.answer("yes\n"));
    for node in [&anchor, &pi] {
        until("a fleet of two", || heard(node) == ["pi-7", "server-1"]);
    }

    // An anchor that lets a node in which nobody has confirmed has gained nothing.
    done(&anchor, &["fleet", "admit", &waits.digits]);
    assert!(!waits.answer("no\n"));
    assert_eq!(refused(&stranger, &["fleet"]), "L9116");
    let confirm = json!({ "digits": "123456" }).to_string();
    assert_eq!(stranger.api("POST", "/v1/fleet/knock/confirm", confirm.as_bytes()).code(), "L9102");
    assert_eq!(refused(&stranger, &["fleet", "join", "--at", "127.0.77.1:1"]), "L9105");
    assert_eq!(refused(&stranger, &["fleet", "join", "--at", "nowhere"]), "L1101");
    assert_eq!(refused(&pi, &["fleet", "join", "--at", &at]), "L9117");

    // It is for administrators, and the audit tells of it.
    let made = anchor.api("POST", "/v1/tokens", json!({ "name": "ci", "scope": "deploy" }).to_string().as_bytes());
    let bearer = format!("Bearer {}", made.json()["token"].as_str().unwrap());
    for (method, path) in [
        ("GET", "/v1/fleet/knocking"),
        ("POST", "/v1/fleet/admit"),
        ("POST", "/v1/fleet/knock"),
        ("POST", "/v1/fleet/knock/confirm"),
    ] {
        let reply = send(method, &format!("{}{path}", anchor.api), &[("authorization", &bearer)], confirm.as_bytes());
        assert_eq!(reply.code(), "L4006", "{method} {path}");
    }
    let audit = done(&anchor, &["audit", "--json"]);
    assert!(audit.contains("fleet admit") && audit.contains("pi-7 (") && audit.contains("L9102"), "{audit}");
    let audit = done(&pi, &["audit", "--json"]);
    assert!(audit.contains("fleet knock") && audit.contains(&at) && audit.contains("fleet join"), "{audit}");
}
