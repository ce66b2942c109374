//! Tokens: what each may do, and to what.

use problem::{Code, Problem};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a token may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// See what there is and how it does: functions, counts of queues, units, boards, statistics, metrics. No event's
    /// data, no log, no call.
    Look,
    /// Also take events out of the queues it names, as a worker outside of the node. No call, no push.
    Work,
    /// As `look`, and call functions and push to queues.
    Call,
    /// Also deploy, roll back, remove, read logs and dumps.
    Deploy,
    /// Also tokens, secrets and stopping the node.
    Admin,
}

impl Scope {
    /// Whether a token of this scope may do what needs the other.
    pub fn covers(self, needed: Self) -> bool {
        match (self, needed) {
            // What is pushed by one token is not for another to read.
            (Self::Call, Self::Work) => false,
            _ => self as u8 >= needed as u8,
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TokenRequest {
    pub name: String,
    pub scope: Scope,
    /// Seconds until it ends; none: 90 days; 0: never.
    #[serde(default)]
    pub expires_seconds: Option<u64>,
    /// With the scope `call`: the functions it may call, and no others. None of either kind: all of them.
    #[serde(default)]
    pub functions: Vec<String>,
    /// And the queues it may push to. With the scope `work`: the queues whose events it may take, at least one.
    #[serde(default)]
    pub queues: Vec<String>,
}

/// A token as kept: without the secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenInfo {
    pub name: String,
    pub scope: Scope,
    pub created_ms: u64,
    pub expires_ms: Option<u64>,
    /// What it is bound to; none of either kind: it may call all there is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<String>,
}

impl TokenInfo {
    /// Whether it may call some functions and push to some queues only.
    pub fn is_bound(&self) -> bool {
        !self.functions.is_empty() || !self.queues.is_empty()
    }

    /// Whether its scope covers `needed`.
    pub fn may(&self, needed: Scope) -> bool {
        self.scope.covers(needed)
    }

    pub fn covers_function(&self, name: &str) -> bool {
        !self.is_bound() || self.functions.iter().any(|function| function == name)
    }

    pub fn covers_queue(&self, name: &str) -> bool {
        !self.is_bound() || self.queues.iter().any(|queue| queue == name)
    }

    /// # Errors
    /// [`Code::ScopeMissing`]: it is bound to others.
    pub fn may_call(&self, function: &str) -> Result<(), Problem> {
        self.bound(self.covers_function(function), "function", function)
    }

    /// # Errors
    /// [`Code::ScopeMissing`]: it is bound to others.
    pub fn may_take(&self, queue: &str) -> Result<(), Problem> {
        self.bound(self.covers_queue(queue), "queue", queue)
    }

    /// # Errors
    /// [`Code::ScopeMissing`]: it is bound to others.
    pub fn may_push(&self, queue: &str) -> Result<(), Problem> {
        self.bound(self.covers_queue(queue), "queue", queue)
    }

    fn bound(&self, covers: bool, what: &str, name: &str) -> Result<(), Problem> {
        match covers {
            true => Ok(()),
            false => {
                let problem = Problem::new(Code::ScopeMissing, format!("the token is not for the {what} {name:?}"));
                Err(problem.with_hint("`lighter token ls` says what it is for"))
            }
        }
    }
}

/// A new token, the one time its secret is shown.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TokenCreated {
    pub token: String,
    pub info: TokenInfo,
}
