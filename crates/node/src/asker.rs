//! Who asks at the gate, and how much of a failure they may read.
//!
//! The text of a failure may hold anything: lines of source, values, secrets. Anybody who reaches a public route gets
//! only the code of a problem and its title. Holders of a token, and callers of a function with `errors = "full"` in
//! its manifest, get all of it. The function's log has it in any case.

use super::functions::Target;
use super::{Node, clock, hide_token};
use api_types::Scope;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use manifest::Errors;
use problem::Problem;

/// Who sent a request.
pub struct Asker {
    /// The name of the token that opened the route; empty where none was needed.
    pub name: String,
    /// What came in `authorization` to a route that needs nothing there. It is the function's to read.
    unread: Option<HeaderValue>,
}

impl Asker {
    /// Takes out of the headers what is for the node alone: the token that opened the route.
    ///
    /// # Errors
    /// The route needs a token, and there is none that opens it.
    pub fn of(node: &Node, target: &Target, headers: &mut HeaderMap) -> Result<Self, Problem> {
        if !target.needs_token {
            return Ok(Self { name: String::new(), unread: headers.get(AUTHORIZATION).cloned() });
        }
        let token = node.access.check(headers, Scope::Call, clock::now_ms())?;
        token.may_call(target.live.name().as_str())?;
        hide_token(headers);
        Ok(Self { name: token.name.clone(), unread: None })
    }

    /// Whether the details of a failure are theirs to read.
    pub fn reads_details(&self, node: &Node, target: &Target) -> bool {
        let now_ms = clock::now_ms();
        let has_token = |value: &HeaderValue| node.access.may_call(value, target.live.name().as_str(), now_ms);
        target.needs_token || target.live.function.errors == Errors::Full || self.unread.as_ref().is_some_and(has_token)
    }
}
