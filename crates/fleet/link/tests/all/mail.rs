//! Messages of mail: whole, in order, and held by nobody when they are refused.

use crate::hostile::raw;
use crate::world::{LONG, TestNode, Town, until};
use budget::{Budget, Purpose};
use bytes::Bytes;
use fleet_link::limits::{MAIL_BYTES_MAX, MAIL_REST_MAX};
use http::Request;
use http_body_util::Full;
use problem::Code;
use tokio::time::timeout;

fn heard(node: &TestNode) -> Vec<(fleet_trust::NodeId, Vec<u8>)> {
    node.tested.mail.lock().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_arrives_whole_and_tells_who_sent_it() {
    let town = Town::new(1);
    let (one, other) = (town.node(1).await, town.node(2).await);
    let large = vec![7; MAIL_BYTES_MAX];
    for message in [&b"first"[..], b"", &large] {
        one.link.send_mail(other.id, Bytes::copy_from_slice(message)).await.unwrap();
    }
    let arrived = heard(&other);
    assert_eq!(arrived.iter().map(|(_, message)| message.len()).collect::<Vec<_>>(), [5, 0, MAIL_BYTES_MAX]);
    assert!(arrived.iter().all(|(from, _)| *from == one.id));
    assert_eq!((arrived[0].1.as_slice(), &arrived[2].1), (&b"first"[..], &large));
    until(|| other.budget.used_bytes(Purpose::Bodies) == 0 && one.budget.used_bytes(Purpose::Bodies) == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_is_not_taken_is_an_error_and_so_is_a_node_that_is_away() {
    let town = Town::new(1);
    let one = town.node(1).await;
    let mut other = town.node(2).await;
    let send = |message: &'static [u8]| one.link.send_mail(other.id, Bytes::from_static(message));
    assert_eq!(send(b"not now").await.unwrap_err().code, Code::MemberAway);
    send(b"now").await.unwrap();
    let small = town.node_with(3, Budget::new(400 << 10)).await;
    let large = Bytes::from(vec![7; MAIL_BYTES_MAX]);
    assert!(one.link.send_mail(small.id, large).await.is_err(), "it has no memory for so much");
    assert!(heard(&small).is_empty());
    let away = other.id;
    other.kill();
    // It may take one more while it dies.
    let fails = async { while one.link.send_mail(away, Bytes::from("lost")).await.is_ok() {} };
    timeout(LONG, fails).await.expect("who is away takes nothing");
    town.book.remove(&away);
    assert_eq!(one.link.send_mail(away, Bytes::from("lost")).await.unwrap_err().code, Code::MemberAway);
}

/// The receiver asks for an hour: the answer comes after a second, and the message was there at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_rests_holds_its_answer_back_and_not_for_long() {
    let town = Town::new(1);
    let (one, other) = (town.node(1).await, town.node(2).await);
    let began = std::time::Instant::now();
    let send = one.link.send_mail(other.id, Bytes::from_static(b"rest"));
    let (sent, ()) = tokio::join!(send, until(|| heard(&other).len() == 1));
    sent.unwrap();
    assert!(began.elapsed() >= MAIL_REST_MAX);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_is_too_large_is_refused_unread() {
    let town = Town::new(1);
    let (one, other) = (town.node(1).await, town.node(2).await);
    let mut sender = raw(&one, &other).await;
    let body = Full::new(Bytes::from(vec![7; MAIL_BYTES_MAX + 1]));
    let request = Request::post("http://x/").header("lighter-fleet-mail", "1").body(body).unwrap();
    let response = timeout(LONG, sender.send_request(request)).await.expect("it is answered").unwrap();
    assert_eq!(response.status().as_u16(), 413);
    assert!(heard(&other).is_empty());
    until(|| other.budget.used_bytes(Purpose::Bodies) == 0).await;
}
