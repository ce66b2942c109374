//! What handles the events of a queue whose home is another node: makes letters of them.

use super::Mail;
use super::desk::NotPosted;
use super::names::household;
use crate::events::{Consumer, Outcome, Tried};
use ::mail::{LETTER_BYTES_MAX, Letter};
use fleet_trust::NodeId;
use futures_util::future::BoxFuture;
use manifest::Retry;
use parking_lot::Mutex;
use problem::{Code, Problem};
use state::Leased;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long an event may take to become a letter.
const TIME_MAX: Duration = Duration::from_secs(10);
/// How long it is remembered which node has the home's name.
const REMEMBERED: Duration = Duration::from_secs(2);
/// How long the queue rests while the outbox is full, and while no node has the home's name.
const FULL_REST: Duration = Duration::from_millis(200);
const UNKNOWN_REST: Duration = Duration::from_secs(1);

pub struct MailConsumer {
    mail: Arc<Mail>,
    home: String,
    retry: Retry,
    found: Mutex<Option<(Instant, NodeId)>>,
}

impl MailConsumer {
    pub fn new(mail: Arc<Mail>, home: String) -> Self {
        Self { mail, home, retry: Retry::default(), found: Mutex::default() }
    }

    fn post(&self, leased: &Leased) -> Outcome {
        let Some(to) = self.find() else {
            if let Some(node) = self.gone() {
                let detail = format!("the node {node}, which was {:?}, is out of the fleet", self.home);
                return Outcome::Dead(Problem::new(Code::HomeGone, detail));
            }
            let problem = Problem::new(Code::MailWaits, format!("no node {:?} of the fleet is known here", self.home));
            return Outcome::Postponed { problem, after: Some(UNKNOWN_REST) };
        };
        let mut event = leased.event.clone();
        event.attempt = 1;
        let letter = Letter { queue: leased.queue.to_string(), delay: Duration::ZERO, life: None, event };
        let posted = match letter.write() {
            Ok(letter) => self.mail.desk.post(leased, &household(&to), letter),
            Err(error) => return unfit(error.to_string()),
        };
        match posted {
            Ok(()) => Outcome::Acked,
            Err(NotPosted::LeaseLost) => Outcome::Lost,
            Err(NotPosted::Unfit(error)) => unfit(error.to_string()),
            Err(NotPosted::Full(error)) => {
                let problem = Problem::new(Code::MailWaits, error.to_string());
                Outcome::Postponed { problem, after: Some(FULL_REST) }
            }
            Err(NotPosted::Unavailable(problem)) => Outcome::Postponed { problem, after: None },
        }
    }

    fn find(&self) -> Option<NodeId> {
        let mut found = self.found.lock();
        match *found {
            Some((at, node)) if at.elapsed() < REMEMBERED => Some(node),
            _ => {
                let node = self.mail.book.find(&self.home)?;
                self.mail.desk.keep_home(&self.home, node);
                *found = Some((Instant::now(), node));
                Some(node)
            }
        }
    }

    /// The node that had the home's name, if it is out of the fleet for good.
    fn gone(&self) -> Option<NodeId> {
        let node = NodeId::read(&self.home).or_else(|| self.mail.desk.home_before(&self.home))?;
        self.mail.book.is_out(&node).then_some(node)
    }
}

fn unfit(why: String) -> Outcome {
    Outcome::Dead(Problem::new(Code::LetterTooLarge, format!("{why}; a letter has at most {LETTER_BYTES_MAX}")))
}

impl Consumer for MailConsumer {
    fn time_max(&self) -> Duration {
        TIME_MAX
    }

    /// One, so that events leave in their order.
    fn workers_max(&self) -> u32 {
        1
    }

    fn retry(&self) -> &Retry {
        &self.retry
    }

    /// A letter leaves the node when it is durable: then the event is too.
    fn is_outward(&self) -> bool {
        false
    }

    /// An event that was becoming a letter goes before those behind it, whatever ended the node.
    fn may_end_node(&self) -> bool {
        false
    }

    fn handle(self: Arc<Self>, leased: Arc<Leased>) -> BoxFuture<'static, Tried> {
        Box::pin(async move {
            if !self.mail.desk.is_busy() {
                return self.post(&leased).into();
            }
            // Who waits at the desk keeps a thread from calls.
            let mail = self.mail.clone();
            let posted = mail.clerk.does(move || self.post(&leased)).await;
            let gave_up = || Outcome::Postponed { problem: Problem::new(Code::Internal, "mail gave up"), after: None };
            posted.unwrap_or_else(gave_up).into()
        })
    }
}
