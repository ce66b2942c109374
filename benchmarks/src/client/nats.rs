//! A JetStream client: publishes to a work queue; pulls, handles and acks.

use super::message::{message, now_ns};
use super::pump::SILENCE_MAX;
use super::tally::{Handled, Handling, Sending, Sent};
use super::{Flow, say_ready};
use anyhow::{Context as _, anyhow, bail};
use async_nats::jetstream::{self, consumer, context::PublishAckFuture, stream};
use futures_util::StreamExt as _;
use std::future::IntoFuture as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{sleep_until, timeout};

const QUEUE: &str = "queue";
/// Of an open loop: the client itself stops at 5,000.
const UNCONFIRMED_MAX: u64 = 4_000;

async fn connect(address: SocketAddr) -> anyhow::Result<jetstream::Context> {
    Ok(jetstream::new(async_nats::connect(address.to_string()).await?))
}

/// Makes a new work queue.
async fn queue(context: &jetstream::Context) -> anyhow::Result<stream::Stream> {
    // The one of an earlier run, if there is one: what that run asked for and did not wait for must not be delivered.
    let _ = context.delete_stream(QUEUE).await;
    let config = stream::Config {
        name: QUEUE.to_owned(),
        subjects: vec![QUEUE.to_owned()],
        retention: stream::RetentionPolicy::WorkQueue,
        storage: stream::StorageType::File,
        ..stream::Config::default()
    };
    Ok(context.create_stream(config).await?)
}

/// Pushes the events; each is confirmed by the server when it has stored it.
pub fn push(flow: &Flow) -> anyhow::Result<Sent> {
    runtime()?.block_on(async {
        let context = connect(flow.address).await?;
        let begin = tokio::time::Instant::now();
        let begin_ns = now_ns();
        // The client's own bound on what is unconfirmed is far above the window.
        let in_flight = flow.rate.map_or(flow.window, |_| UNCONFIRMED_MAX);
        let places = Arc::new(Semaphore::new(usize::try_from(in_flight)?));
        let (handed, unconfirmed) = mpsc::unbounded_channel();
        let confirmations = tokio::spawn(confirmations(unconfirmed));
        for number in 0..flow.events {
            let after = flow.rate.map(|rate| Duration::from_secs_f64(number as f64 / rate));
            if let Some(after) = after {
                sleep_until(begin + after).await;
            }
            let place = Arc::clone(&places).acquire_owned().await?;
            let due = after.map_or_else(now_ns, |after| begin_ns + after.as_nanos() as u64);
            let confirmation = context.publish(QUEUE, message(number, due).into()).await?;
            if handed.send((confirmation, due, place)).is_err() {
                // It has failed; why comes below.
                break;
            }
        }
        drop(handed);
        confirmations.await?
    })
}

/// Waits for the confirmations, which come in the order of the events; each gives its place back.
async fn confirmations(
    mut unconfirmed: mpsc::UnboundedReceiver<(PublishAckFuture, u64, OwnedSemaphorePermit)>,
) -> anyhow::Result<Sent> {
    let mut sending = Sending::new();
    while let Some((confirmation, due, _place)) = unconfirmed.recv().await {
        timeout(SILENCE_MAX, confirmation.into_future()).await.context("the server confirms nothing")??;
        sending.confirmed(due);
    }
    Ok(sending.done())
}

/// Handles events until all are acked. An ack is sent and not confirmed, as the client's own examples have it; the
/// flush at the end is.
pub fn handle(flow: &Flow) -> anyhow::Result<Handled> {
    runtime()?.block_on(async {
        let context = connect(flow.address).await?;
        let stream = queue(&context).await?;
        let config = consumer::pull::Config {
            durable_name: Some("handler".to_owned()),
            ack_policy: consumer::AckPolicy::Explicit,
            max_ack_pending: i64::try_from(flow.window)?,
            ..consumer::pull::Config::default()
        };
        let consumer = stream.create_consumer(config).await?;
        let batch = usize::try_from(flow.window)?;
        let mut messages = consumer.stream().max_messages_per_batch(batch).messages().await?;
        say_ready()?;
        let mut handling = Handling::new(flow.events);
        let mut count = 0;
        while count < flow.events {
            let Some(message) = timeout(SILENCE_MAX, messages.next()).await.context("nothing to take")? else {
                bail!("the server ended the stream of messages")
            };
            let message = message?;
            let due = handling.handle(&message.payload)?;
            message.ack().await.map_err(|why| anyhow!("could not ack: {why}"))?;
            handling.acked(due);
            count += 1;
        }
        context.client().flush().await?;
        Ok(handling.done())
    })
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}
