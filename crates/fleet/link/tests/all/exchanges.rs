//! Questions that are neither calls nor reports.

use crate::world::{LONG, TestNode, Town};
use bytes::Bytes;
use fleet_link::whole;
use http::Request;
use problem::{Code, Problem};
use std::time::Duration;
use tokio::time::timeout;

async fn ask(one: &TestNode, other: &TestNode, path: &str, body: Bytes, bytes_max: usize) -> Result<Bytes, Problem> {
    let request = Request::post(path).body(body).unwrap();
    whole(one.link.exchange(other.id, request, LONG).await?, bytes_max).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_answers_what_another_asks() {
    let town = Town::new(1);
    let (one, other) = (town.node(1).await, town.node(2).await);
    let who = ask(&one, &other, "/who", Bytes::new(), 100).await.unwrap();
    assert_eq!(who, one.id.to_string(), "the certificate says who asks");
    // More than all windows.
    let long = Bytes::from(vec![7; 3 << 20]);
    assert_eq!(ask(&one, &other, "/echo", long.clone(), long.len()).await.unwrap(), long);
    let refused = ask(&one, &other, "/echo", long.clone(), long.len() - 1).await.unwrap_err();
    assert_eq!(refused.code, Code::FleetMessage, "more than was wanted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_problem_comes_back_as_it_was_and_silence_is_away() {
    let town = Town::new(1);
    let (one, mut other) = (town.node(1).await, town.node(2).await);
    let code = async |other: &TestNode, path| ask(&one, other, path, Bytes::new(), 100).await.unwrap_err().code;
    assert_eq!(code(&other, "/refused").await, Code::NothingFits);
    assert_eq!(code(&other, "/unknown").await, Code::FleetMessage);
    other.kill();
    assert_eq!(code(&other, "/who").await, Code::MemberAway);
}

/// One that refused with a byte a minute used to hold whoever had asked it for half a year.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_refuses_without_end_is_away() {
    let town = Town::new(1);
    let (one, other) = (town.node(1).await, town.node(2).await);
    let request = Request::get("/refused/slowly").body(Bytes::new()).unwrap();
    let asked = one.link.exchange(other.id, request, Duration::from_secs(2));
    let refused = timeout(LONG, asked).await.expect("it is given up").unwrap_err();
    assert_eq!(refused.code, Code::MemberAway);
}
