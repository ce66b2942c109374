//! The shell: who is woken when, what a caller that goes away leaves behind, how a drain ends. Time is tokio's own.

use dispatch::{Admission, Limits, NodeTurns, Permit, Rate, Refusal};
use problem::Code;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::time::{Instant, advance};

const SECOND: Duration = Duration::from_secs(1);
const ONE: Limits = Limits { running_max: 1, waiting_max: 2, wait_max: SECOND, rate: None };

#[tokio::test(start_paused = true)]
async fn those_who_wait_run_in_their_order_and_know_how_long_they_waited() {
    let function = Admission::new(ONE, &big());
    let first = admit(&function).await.unwrap();
    assert_eq!(first.waited(), Duration::ZERO);
    let (mut second, mut third) = (pin!(admit(&function)), pin!(admit(&function)));
    assert!(is_pending(second.as_mut()) && is_pending(third.as_mut()));
    assert_eq!((function.counts().running, function.counts().waiting), (1, 2));
    advance(SECOND / 4).await;
    drop(first);
    assert!(is_pending(third.as_mut()));
    let second = second.await.unwrap();
    assert_eq!(second.waited(), SECOND / 4);
    advance(SECOND / 4).await;
    drop(second);
    assert_eq!(third.await.unwrap().waited(), SECOND / 2);
    assert_eq!((function.counts().running, function.counts().admitted), (0, 3));
}

#[tokio::test(start_paused = true)]
async fn a_full_line_refuses_at_once_and_a_long_wait_in_time() {
    let function = Admission::new(ONE, &big());
    let _running = admit(&function).await.unwrap();
    let (mut a, mut b) = (pin!(admit(&function)), pin!(admit(&function)));
    assert!(is_pending(a.as_mut()) && is_pending(b.as_mut()));
    let refusal = admit(&function).await.unwrap_err();
    assert_eq!(refusal, Refusal::LineFull { running_max: 1, waiting_max: 2 });
    let start = Instant::now();
    assert_eq!(a.await.unwrap_err().code(), Code::WaitExceeded);
    assert_eq!(start.elapsed().as_secs(), 1);
    assert_eq!(b.await.unwrap_err().code(), Code::WaitExceeded);
    let counts = function.counts();
    assert_eq!((counts.refused_line_full, counts.refused_wait, counts.waiting), (1, 2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_while_it_waits_leaves_its_turn() {
    let function = Admission::new(ONE, &big());
    let running = admit(&function).await.unwrap();
    let mut gone = Box::pin(admit(&function));
    let mut next = pin!(admit(&function));
    assert!(is_pending(gone.as_mut()) && is_pending(next.as_mut()));
    drop(gone);
    assert_eq!((function.counts().waiting, function.counts().cancelled), (1, 1));
    drop(running);
    assert!(!is_pending(next.as_mut()));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_when_its_turn_has_come_hands_it_on() {
    let function = Admission::new(ONE, &big());
    let running = admit(&function).await.unwrap();
    let mut gone = Box::pin(admit(&function));
    let mut next = pin!(admit(&function));
    assert!(is_pending(gone.as_mut()) && is_pending(next.as_mut()));
    drop(running);
    // The place is its own, but it has not looked yet.
    drop(gone);
    let next = next.await.unwrap();
    assert_eq!(function.counts().running, 1);
    drop(next);
    assert_eq!(function.counts().running, 0);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_comes_as_the_time_ends_is_taken() {
    let function = Admission::new(ONE, &big());
    let running = admit(&function).await.unwrap();
    let mut late = pin!(admit(&function));
    assert!(is_pending(late.as_mut()));
    advance(2 * SECOND).await;
    drop(running);
    assert!(late.await.is_ok());
    assert_eq!((function.counts().running, function.counts().refused_wait), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn the_rate_refuses_with_the_time_to_come_back() {
    let rate = Some(Rate { per_second: 2, burst: 3 });
    let function = Admission::new(Limits { running_max: 100, rate, ..ONE }, &big());
    for _ in 0..3 {
        drop(admit(&function).await.unwrap());
    }
    let refusal = admit(&function).await.unwrap_err();
    assert_eq!((refusal.code(), refusal.retry_after_s()), (Code::RateExceeded, Some(1)));
    advance(SECOND / 2).await;
    drop(admit(&function).await.unwrap());
    assert!(admit(&function).await.is_err());
    assert_eq!(function.counts().refused_rate, 2);
}

#[tokio::test(start_paused = true)]
async fn functions_share_the_node_and_wait_for_it_within_their_own_time() {
    let node = NodeTurns::new(1, 2);
    let (a, b) = (Admission::new(ONE, &node), Admission::new(Limits { running_max: 9, ..ONE }, &node));
    let running = admit(&a).await.unwrap();
    let (mut first, mut second) = (pin!(admit(&b)), pin!(admit(&b)));
    assert!(is_pending(first.as_mut()) && is_pending(second.as_mut()));
    // The node's line is full.
    let refusal = admit(&b).await.unwrap_err();
    assert_eq!(refusal, Refusal::NodeFull { units_max: 1 });
    drop(running);
    let first = first.await.unwrap();
    // The second one's time ends.
    assert_eq!(second.await.unwrap_err().code(), Code::NodeFull);
    assert_eq!((b.counts().refused_node_full, b.counts().running, node.counts().running), (2, 1, 1));
    drop(first);
    assert_eq!((b.counts().running, node.counts().running, node.counts().waiting), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_while_it_waits_for_the_node_gives_both_places_back() {
    let node = NodeTurns::new(1, 9);
    let (a, b) = (Admission::new(ONE, &node), Admission::new(ONE, &node));
    let running = admit(&a).await.unwrap();
    let mut gone = Box::pin(admit(&b));
    assert!(is_pending(gone.as_mut()));
    assert_eq!((b.counts().running, node.counts().waiting), (1, 1));
    drop(gone);
    assert_eq!((b.counts().running, node.counts().waiting), (0, 0));
    drop(running);
    assert!(admit(&b).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn raised_limits_let_those_in_who_wait_and_lowered_ones_send_nobody_away() {
    let function = Admission::new(ONE, &big());
    let a = admit(&function).await.unwrap();
    let (mut b, mut c) = (pin!(admit(&function)), pin!(admit(&function)));
    assert!(is_pending(b.as_mut()) && is_pending(c.as_mut()));
    function.set_limits(Limits { running_max: 3, ..ONE }, Instant::now());
    let (b, c) = (b.await.unwrap(), c.await.unwrap());
    function.set_limits(Limits { running_max: 1, waiting_max: 0, ..ONE }, Instant::now());
    assert_eq!(function.counts().running, 3);
    drop((a, b));
    assert!(admit(&function).await.is_err(), "one still runs");
    drop(c);
    assert!(admit(&function).await.is_ok());
    assert_eq!(function.limits().running_max, 1);
}

#[tokio::test(start_paused = true)]
async fn more_units_on_the_node_let_those_in_who_wait_for_it() {
    let node = NodeTurns::new(0, 9);
    let function = Admission::new(ONE, &node);
    let mut waits = pin!(admit(&function));
    assert!(is_pending(waits.as_mut()));
    node.set_units_max(1, 9, Instant::now());
    assert!(waits.await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_drain_refuses_the_new_serves_the_waiting_and_ends_with_the_last() {
    let function = Admission::new(ONE, &big());
    let running = admit(&function).await.unwrap();
    let mut waits = pin!(admit(&function));
    assert!(is_pending(waits.as_mut()));
    let (mut drain, mut also) = (pin!(function.drain()), pin!(function.drain()));
    assert!(is_pending(drain.as_mut()) && is_pending(also.as_mut()));
    assert_eq!(admit(&function).await.unwrap_err().code(), Code::Draining);
    drop(running);
    let last = waits.await.unwrap();
    assert!(is_pending(drain.as_mut()));
    drop(last);
    assert!(!is_pending(drain.as_mut()) && !is_pending(also.as_mut()));
    function.drain().await;
    assert_eq!(function.counts().refused_draining, 1);
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_when_the_last_one_waiting_goes_away_or_runs_out_of_time() {
    for goes_away in [true, false] {
        let function = Admission::new(Limits { running_max: 0, ..ONE }, &big());
        let mut waits = Box::pin(admit(&function));
        assert!(is_pending(waits.as_mut()));
        let mut drain = pin!(function.drain());
        assert!(is_pending(drain.as_mut()));
        if goes_away {
            drop(waits);
        } else {
            assert!(waits.await.is_err());
        }
        assert!(!is_pending(drain.as_mut()), "goes_away: {goes_away}");
    }
}

/// Real threads: places are neither lost nor given twice, whatever callers do.
#[test]
fn many_threads_lose_no_place() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_time().build().unwrap();
    let node = NodeTurns::new(3, 1_000);
    let limits = Limits { running_max: 2, waiting_max: 1_000, wait_max: 60 * SECOND, rate: None };
    let functions = [Admission::new(limits, &node), Admission::new(limits, &node)];
    runtime.block_on(async {
        let mut tasks = Vec::new();
        for task in 0..200_usize {
            let (function, node) = (functions[task % 2].clone(), node.clone());
            tasks.push(tokio::spawn(async move {
                for round in 0..50 {
                    let mut admitted = Box::pin(admit(&function));
                    // Some look once and go away.
                    if (task + round) % 3 == 0 {
                        let _ = std::future::poll_fn(|context| Poll::Ready(admitted.as_mut().poll(context))).await;
                        continue;
                    }
                    let permit = admitted.await.unwrap();
                    assert!(function.counts().running <= 2 && node.counts().running <= 3);
                    tokio::task::yield_now().await;
                    drop(permit);
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        for function in &functions {
            function.drain().await;
            assert_eq!((function.counts().running, function.counts().waiting), (0, 0));
        }
    });
    assert_eq!((node.counts().running, node.counts().waiting), (0, 0));
}

async fn admit(function: &Admission) -> Result<Permit, Refusal> {
    function.admit(Instant::now()).await
}

fn big() -> NodeTurns {
    NodeTurns::new(1_000, 1_000)
}

fn is_pending<T>(future: Pin<&mut impl Future<Output = T>>) -> bool {
    future.poll(&mut Context::from_waker(Waker::noop())).is_pending()
}
