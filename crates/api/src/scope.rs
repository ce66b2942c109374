//! The scope a handler needs is the type of its first argument: the signature shows who may call it.

use super::reply::Refused;
use api_types::{AuditEntry, Scope, TokenInfo};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use gate_http::{Peer, Trust};
use node::audit::{Door, is_failed_login};
use node::{Node, blocking, clock};
use problem::{Code, Problem};
use std::net::SocketAddr;
use std::sync::Arc;

/// Who asks.
pub struct Who {
    pub token: Arc<TokenInfo>,
    peer: Option<SocketAddr>,
}

/// A token that is not bound: what a handler shows of the whole node is not for one that is.
pub struct MayLook;
/// A token that may be bound: the handler shows what it is for.
pub struct MayLookSome(pub Who);
/// A token that may be bound: the handler looks at what it is for.
pub struct MayCallSome(pub Who);
/// A token that takes events: the handler looks at which queues it is for.
pub struct MayWorkSome(pub Who);
pub struct MayDeploy(pub Who);
pub struct MayAdmin(pub Who);

impl Who {
    fn check(parts: &Parts, node: &Node, needed: Scope) -> Result<Self, Problem> {
        let peer = parts.extensions.get::<Peer>().map(|peer| peer.address);
        let now_ms = clock::now_ms();
        let token = node.access.check(&parts.headers, needed, now_ms).inspect_err(|problem| {
            if let (true, Some(peer)) = (is_failed_login(problem.code), peer) {
                node.audit.failed_login(Door::Api, peer.ip(), None, now_ms);
            }
        })?;
        if let Some(trust) = parts.extensions.get::<Trust>() {
            trust.give();
        }
        Ok(Self { token, peer })
    }

    /// Writes into the audit what was done and what became of it, and hands that on. Durable when it returns.
    pub async fn did<T>(
        &self,
        node: &Node,
        action: &str,
        target: &str,
        result: Result<T, Problem>,
    ) -> Result<T, Problem> {
        let entry = AuditEntry {
            time_ms: clock::now_ms(),
            action: action.to_owned(),
            token: Some(self.token.name.clone()),
            peer: self.peer.map(|peer| peer.to_string()),
            target: target.to_owned(),
            outcome: result.as_ref().map_or_else(|problem| problem.code.to_string(), |_| "done".to_owned()),
            count: 1,
        };
        let audit = node.audit.clone();
        // It tells of its own failure.
        let keep = move || {
            audit.keep(entry);
            Ok(())
        };
        blocking(keep).await.ok();
        result
    }
}

impl FromRequestParts<Arc<Node>> for MayLook {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, node: &Arc<Node>) -> Result<Self, Refused> {
        match Who::check(parts, node, Scope::Look)?.token.is_bound() {
            false => Ok(Self),
            true => Err(Problem::new(Code::ScopeMissing, "the token is for some functions and queues only").into()),
        }
    }
}

macro_rules! needs {
    ($($who:ident $scope:ident),*) => {$(
        impl FromRequestParts<Arc<Node>> for $who {
            type Rejection = Refused;

            async fn from_request_parts(parts: &mut Parts, node: &Arc<Node>) -> Result<Self, Refused> {
                Ok(Self(Who::check(parts, node, Scope::$scope)?))
            }
        }
    )*};
}

needs!(MayLookSome Look, MayCallSome Call, MayWorkSome Work, MayDeploy Deploy, MayAdmin Admin);
