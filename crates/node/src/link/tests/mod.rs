//! Two nodes with gates, links and certificates of their own, whose functions say where they ran.

pub(crate) mod town;

use std::time::Duration;
use tokio::time::{sleep, timeout};
use town::{Town, TownNode};

pub(crate) const LONG: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_that_is_not_here_runs_where_it_is() {
    let town = Town::new().await;
    let [one, two] = &town.nodes;
    two.deploy("[function.plate]\nhttp = [\"/plate\", \"/plates/*\"]\nimage = \"x\"").await;
    assert_eq!(one.until_found("/plate").await, "two/plate/hello");
    let reply = one.ask("POST", "/plates/7?fast=yes", "", "a body").await;
    assert_eq!((reply.status, reply.body.as_str()), (200, "two/plate/a body"));
    let timing = reply.head("server-timing").unwrap();
    assert!(
        timing.contains("fleet;dur=") && timing.contains("desc=\"two\"") && timing.contains("run;dur="),
        "{timing}"
    );
    assert_eq!(one.ask("GET", "/else", "", "").await.status, 404);
    let page = crate::metrics::page(&one.node);
    assert!(page.contains(r#"lighter_fleet_calls_total{way="out",outcome="ran"} 2"#), "{page}");
    let page = crate::metrics::page(&two.node);
    assert!(page.contains(r#"lighter_fleet_calls_total{way="in",outcome="ran"} 2"#), "{page}");
    // It is counted where it ran.
    assert_eq!(two.node.functions.get("plate").unwrap().live.identity.counters.ok_count(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_that_was_removed_there_is_refused_and_then_unknown() {
    let town = Town::new().await;
    let [one, two] = &town.nodes;
    two.deploy("[function.plate]\nhttp = \"/plate\"\nimage = \"x\"").await;
    one.until_found("/plate").await;
    two.node.functions.remove(&"plate".parse().unwrap()).await.unwrap();
    let gone = async {
        loop {
            match one.ask("POST", "/plate", "", "x").await.status {
                404 => return,
                // It was heard of a moment ago.
                503 => sleep(Duration::from_millis(50)).await,
                status => panic!("{status}"),
            }
        }
    };
    timeout(LONG, gone).await.expect("it is noticed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_token_of_a_call_is_checked_where_the_function_is() {
    let town = Town::new().await;
    let [one, two] = &town.nodes;
    two.deploy("[function.safe]\nhttp = { route = \"/safe\", auth = \"token\" }\nimage = \"x\"").await;
    let (here, there) = (one.token().await, two.token().await);
    let closed = async {
        while one.ask("POST", "/safe", "", "x").await.status == 404 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(LONG, closed).await.expect("it is heard of");
    for (token, status, code) in [("", 401, "L4004"), (&*here, 401, "L4005"), (&*there, 200, "two/safe/x")] {
        let reply = one.ask("POST", "/safe", token, "x").await;
        assert_eq!(reply.status, status, "{}", reply.body);
        assert!(reply.body.contains(code), "{}", reply.body);
    }
    assert_eq!(two.node.functions.get("safe").unwrap().live.identity.counters.ok_count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_runs_elsewhere_while_this_node_is_busy_and_here_when_it_is_not() {
    let town = Town::new().await;
    let [one, two] = &town.nodes;
    let manifest = "[function.slow]\nhttp = \"/slow\"\nimage = \"x\"\nlimits = { concurrency = 1, waiting = 10 }";
    one.deploy(manifest).await;
    two.deploy(manifest).await;
    one.until_knows("slow").await;
    // A call shows how long they take, and then one keeps the only place. Both run where they came in.
    let begin = || {
        let one = one.clone();
        tokio::spawn(async move { one.ask("POST", "/slow", "", "wait").await.body })
    };
    let first = begin();
    one.until_running("slow", 1).await;
    sleep(Duration::from_millis(300)).await;
    one.let_through(1);
    assert_eq!(first.await.unwrap(), "one/slow/wait");
    let second = begin();
    one.until_running("slow", 1).await;
    assert_eq!(one.ask("POST", "/slow", "", "x").await.body, "two/slow/x");
    one.let_through(1);
    assert_eq!(second.await.unwrap(), "one/slow/wait");
    // With another image it is another function.
    two.deploy(&manifest.replace("\"x\"", "\"y\"")).await;
    let other = async {
        while one.knows("slow") {
            sleep(Duration::from_millis(20)).await
        }
    };
    timeout(LONG, other).await.expect("it is noticed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_left_its_fleet_is_alone() {
    let town = Town::new().await;
    let [one, two] = &town.nodes;
    two.deploy("[function.plate]\nhttp = \"/plate\"\nimage = \"x\"").await;
    one.until_found("/plate").await;
    one.node.set_link(None);
    assert_eq!(one.ask("POST", "/plate", "", "x").await.status, 404);
    assert_eq!(two.ask("POST", "/plate", "", "x").await.body, "two/plate/x");
    assert!(!crate::metrics::page(&one.node).contains("lighter_fleet"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_join_a_fleet_run_each_others_calls() {
    let [one, two] = ["one", "two"].map(TownNode::start);
    let (one, two) = (one.await, two.await);
    for node in [&one, &two] {
        crate::fleet::take_part(&node.node, |_| None);
    }
    one.node.fleet.found("campus").await.unwrap();
    let invitation = one.node.fleet.invite(1, 3_600).await.unwrap();
    two.node.fleet.join(&invitation).await.unwrap();
    two.deploy("[function.plate]\nhttp = \"/plate\"\nimage = \"x\"").await;
    assert_eq!(one.until_found("/plate").await, "two/plate/hello");
    one.deploy("[function.sum]\nhttp = \"/sum\"\nimage = \"x\"").await;
    assert_eq!(two.until_found("/sum").await, "one/sum/hello");
    // One that is taken out is called no more, and calls no more.
    one.node.fleet.remove("two").await.unwrap();
    assert_ne!(one.ask("POST", "/plate", "", "x").await.status, 200);
    assert_ne!(two.ask("POST", "/sum", "", "x").await.status, 200);
}
