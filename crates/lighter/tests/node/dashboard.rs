//! The dashboard as a browser asks for it, and the link that leads there. `tools/check-dashboard` looks at it in one.

use crate::support::{Node, PROGRAM, Reply, send, wait_for};
use serde_json::Value;
use std::fs;
use std::process::Command;

fn get(node: &Node, path: &str, headers: &[(&str, &str)]) -> Reply {
    send("GET", &format!("{}{path}", node.api), headers, &[])
}

/// What `lighter dashboard` prints as JSON.
fn link(node: &Node, options: &[&str]) -> Value {
    let mut command = Command::new(PROGRAM);
    command.args(["dashboard", "--json"]).args(options).env("LIGHTER_DATA", &node.data);
    let output = command.env_remove("LIGHTER_NODE").env_remove("LIGHTER_TOKEN").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_page_and_its_files_are_served_to_all_under_a_strict_policy() {
    let node = Node::start();
    let page = get(&node, "/", &[]);
    assert_eq!((page.status, page.headers["content-type"].as_str()), (200, "text/html; charset=utf-8"));
    let policy = &page.headers["content-security-policy"];
    for part in [
        "default-src 'none'",
        "script-src 'self';",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    // All that the page names is there, and of the type that a browser insists on.
    let text = page.text();
    let named = text.split('"').filter(|word| word.starts_with("dashboard/"));
    for (file, is) in named.map(|file| (file, file.rsplit_once('.').unwrap().1)) {
        let reply = get(&node, &format!("/{file}"), &[]);
        let kind = [("js", "text/javascript"), ("css", "text/css"), ("svg", "image/svg+xml")];
        let kind = kind.iter().find(|(ending, _)| *ending == is).unwrap().1;
        assert_eq!(reply.status, 200, "{file}");
        assert!(reply.headers["content-type"].starts_with(kind), "{file}");
        assert_eq!(reply.headers["x-content-type-options"], "nosniff");
        assert_eq!(reply.headers["content-security-policy"], *policy);
    }
    let etag = page.headers["etag"].as_str();
    assert_eq!(get(&node, "/", &[("if-none-match", etag)]).status, 304);
    for (unknown, status) in [
        ("/dashboard/other.js", 404),
        ("/dashboard/.main.js", 404),
        ("/dashboard/", 404),
        ("/dashboard/..%2fCargo.toml", 400),
    ] {
        assert_eq!(get(&node, unknown, &[]).status, status, "{unknown}");
    }
    assert_eq!(send("POST", &format!("{}/", node.api), &[], &[]).status, 405);
}

#[test]
fn a_link_of_another_site_leads_to_the_page_and_to_nothing_below_v1() {
    let node = Node::start();
    let link = [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
    assert_eq!(get(&node, "/", &link).status, 200);
    let token = format!("Bearer {}", node.token);
    let asked = [&link[..], &[("authorization", token.as_str())]].concat();
    for path in ["/v1/node", "/v1/openapi.json", "/healthz", "/metrics"] {
        assert_eq!(get(&node, path, &asked).code(), "L4007", "{path}");
    }
    let script = [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors"), ("sec-fetch-dest", "script")];
    assert_eq!(get(&node, "/dashboard/main.js", &script).code(), "L4007");
}

#[test]
fn a_folder_is_served_in_place_of_the_files_in_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    file("index.html", "mine");
    file("notes.txt", "not for a browser");
    let node = Node::start_with(&["--dashboard", folder.path().to_str().unwrap()]);
    let page = get(&node, "/", &[]);
    assert_eq!((page.text().as_str(), page.headers.contains_key("content-security-policy")), ("mine", true));
    file("index.html", "changed");
    assert_eq!(get(&node, "/", &[]).text(), "changed");
    for unknown in ["notes.txt", "main.js"] {
        assert_eq!(get(&node, &format!("/dashboard/{unknown}"), &[]).status, 404, "{unknown}");
    }
    let refused = Node::try_start(&folder.path().join("data"), &["--dashboard", "/nowhere"]).err().unwrap();
    assert!(refused.contains("which is no folder"), "{refused}");
}

#[test]
fn the_link_has_a_token_of_its_own_that_ends() {
    let node = Node::start();
    let made = link(&node, &["--expires", "1s"]);
    let short = made["token"]["name"].as_str().unwrap().to_owned();
    let made = link(&node, &[]);
    let (page, token) = made["url"].as_str().unwrap().split_once("/#token=").unwrap();
    assert_eq!(page, node.api);
    let token = format!("Bearer {token}");
    let about = get(&node, "/v1/node", &[("authorization", &token)]).json();
    assert_eq!(about["token"], made["token"]);
    assert_eq!(about["token"]["scope"], "deploy");
    assert_eq!(get(&node, "/v1/tokens", &[("authorization", &token)]).code(), "L4006");
    let names = || -> Vec<String> {
        let tokens = node.api("GET", "/v1/tokens", &[]).json();
        tokens.as_array().unwrap().iter().map(|token| token["name"].as_str().unwrap().to_owned()).collect()
    };
    // A later link takes those with it that have ended.
    wait_for("a link that removes the one that has ended", || {
        link(&node, &["--scope", "call"]);
        (!names().contains(&short)).then_some(())
    });
    assert!(names().iter().any(|name| made["token"]["name"] == **name));
}
