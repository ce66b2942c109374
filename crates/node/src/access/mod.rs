//! Who may do what: tokens for callers, secrets for functions, and the guard that keeps web pages out of the API.

mod attempts;
mod guard;
mod secrets;
mod shared;
mod tokens;

pub use guard::Guard;
pub use secrets::{SECRET_BYTES_MAX, Secrets, TABLE as SECRETS_TABLE};
pub use shared::SharedTokens;

use super::records;
use api_types::{Scope, TokenCreated, TokenInfo, TokenRequest};
use attempts::{Attempts, Verdict};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use parking_lot::RwLock;
use problem::{Code, Problem};
use state::{Records, State};
use std::sync::Arc;
use tokens::{Token, Tokens};

/// Table of the tokens in the state, by name.
const TABLE: &str = "tokens";

/// The tokens of this node, kept in the state, and those of its fleet, which [`crate::deployments`] keeps.
pub struct Access {
    tokens: RwLock<Tokens>,
    shared: RwLock<Tokens>,
    records: Records,
    /// Held while tokens change, so that a name is given once.
    changing: tokio::sync::Mutex<()>,
    attempts: Attempts,
}

impl Access {
    /// # Errors
    /// A token cannot be read: rather no node than one that lost a limit.
    pub fn open(state: &State) -> Result<Self, Problem> {
        let records = state.records(TABLE);
        let mut tokens = Tokens::default();
        records::each(&records, |name, value| {
            let token = Token::from_record(value)
                .ok_or_else(|| Problem::new(Code::StateCorrupt, format!("the token {name:?} cannot be read")))?;
            tokens.insert(token);
            Ok(())
        })?;
        Ok(Self {
            tokens: RwLock::new(tokens),
            shared: RwLock::default(),
            records,
            changing: tokio::sync::Mutex::default(),
            attempts: Attempts::default(),
        })
    }

    /// The token that the request carries, if it covers `needed`.
    ///
    /// # Errors
    /// [`Code::TokenMissing`], [`Code::TokenInvalid`], [`Code::ScopeMissing`]; [`Code::RateExceeded`] when wrong tokens
    /// come too fast.
    pub fn check(&self, headers: &HeaderMap, needed: Scope, now_ms: u64) -> Result<Arc<TokenInfo>, Problem> {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let Some(value) = values.next() else {
            return Err(Problem::new(Code::TokenMissing, "the request has no token"));
        };
        if values.next().is_some() {
            // A proxy in front may have looked at the other one.
            let problem = Problem::new(Code::TokenInvalid, "the request has more than one `authorization` header");
            return Err(problem.with_hint("send one"));
        }
        let token = bearer(value.as_bytes()).and_then(|text| self.find(text, now_ms));
        match token {
            Some(token) if token.scope.covers(needed) => Ok(token),
            Some(token) => {
                let (held, needed) = (word(token.scope), word(needed));
                Err(Problem::new(Code::ScopeMissing, format!("the token has the scope {held}, this needs {needed}")))
            }
            None => Err(self.wrong_token(now_ms / 1_000)),
        }
    }

    /// Whether this is a token that covers `needed`.
    pub fn is_valid(&self, text: &str, needed: Scope, now_ms: u64) -> bool {
        self.find(text, now_ms).is_some_and(|token| token.scope.covers(needed))
    }

    /// The token that a text proves: of this node, or of its fleet.
    fn find(&self, text: &str, now_ms: u64) -> Option<Arc<TokenInfo>> {
        let own = self.tokens.read().find(text, now_ms).cloned();
        own.or_else(|| self.shared.read().find(text, now_ms).cloned())
    }

    /// From now on these are the tokens of the fleet, and no others.
    pub fn set_shared(&self, tokens: Option<&SharedTokens>) {
        *self.shared.write() = tokens.map(SharedTokens::tokens).unwrap_or_default();
    }

    /// The hash of the fleet's token whose hash begins so: for a proof that this node knows it, before it is sent.
    pub fn shared_hash(&self, start: &str, now_ms: u64) -> Option<String> {
        self.shared.read().hash_of(start, now_ms)
    }

    /// Whether the value of an `authorization` header holds a token that may call the function. A wrong one costs its
    /// sender nothing: whoever reaches a public route may have a use of their own for the header.
    pub fn may_call(&self, authorization: &HeaderValue, function: &str, now_ms: u64) -> bool {
        let token = bearer(authorization.as_bytes()).and_then(|text| self.find(text, now_ms));
        token.is_some_and(|token| token.scope.covers(Scope::Call) && token.covers_function(function))
    }

    pub fn list(&self) -> Vec<TokenInfo> {
        self.tokens.read().list()
    }

    /// Makes a token; durable when it returns.
    ///
    /// # Errors
    /// [`Code::ApiRequest`] for a name that is taken or none; those of the state.
    pub async fn create(&self, request: TokenRequest, now_ms: u64) -> Result<TokenCreated, Problem> {
        let _changing = self.changing.lock().await;
        self.tokens.read().check_new(&request)?;
        self.add(request, now_ms).await
    }

    /// As [`Access::create`], for a name whose earlier token ends by this.
    pub async fn replace(&self, request: TokenRequest, now_ms: u64) -> Result<TokenCreated, Problem> {
        let _changing = self.changing.lock().await;
        self.add(request, now_ms).await
    }

    /// # Errors
    /// [`Code::TokenUnknown`]: there is none of this name.
    pub async fn remove(&self, name: &str) -> Result<(), Problem> {
        let _changing = self.changing.lock().await;
        if !self.tokens.read().list().iter().any(|token| token.name == name) {
            return Err(Problem::new(Code::TokenUnknown, format!("there is no token {name:?}")));
        }
        // Durable first: a token that was said to be gone does not come back with a restart.
        self.records.delete(&[name]).await?;
        self.tokens.write().remove(name);
        Ok(())
    }

    async fn add(&self, request: TokenRequest, now_ms: u64) -> Result<TokenCreated, Problem> {
        let mut random = [0; 32];
        getrandom::fill(&mut random)
            .map_err(|error| Problem::new(Code::Internal, format!("no random numbers for a token: {error}")))?;
        let (token, text) = Token::new(request, now_ms, random);
        let info = token.info.clone();
        self.records.put(&[(&info.name, &token.to_record())]).await?;
        let mut tokens = self.tokens.write();
        tokens.remove(&info.name);
        tokens.insert(token);
        Ok(TokenCreated { token: text, info: (*info).clone() })
    }

    fn wrong_token(&self, second: u64) -> Problem {
        match self.attempts.wrong(second) {
            Verdict::TooMany => {
                let detail = "too many requests with wrong tokens";
                return Problem::new(Code::RateExceeded, detail).with_hint("check the token of your clients");
            }
            Verdict::First => tracing::warn!("a request came with a wrong token"),
            Verdict::Wrong => {}
        }
        Problem::new(Code::TokenInvalid, "the token is unknown, or its time is over")
    }
}

fn word(scope: Scope) -> &'static str {
    match scope {
        Scope::Look => "look",
        Scope::Work => "work",
        Scope::Call => "call",
        Scope::Deploy => "deploy",
        Scope::Admin => "admin",
    }
}

/// The token in `Bearer TOKEN`.
fn bearer(value: &[u8]) -> Option<&str> {
    let (scheme, token) = std::str::from_utf8(value).ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn open(folder: &tempfile::TempDir) -> (State, Access) {
        let state = State::open(folder.path(), state::Options::default()).unwrap();
        let access = Access::open(&state).unwrap();
        (state, access)
    }

    fn with_token(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())])
    }

    fn request(name: &str, scope: Scope) -> TokenRequest {
        TokenRequest { name: name.to_owned(), scope, expires_seconds: None, functions: vec![], queues: vec![] }
    }

    #[tokio::test]
    async fn a_token_works_until_it_is_removed_and_across_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let (state, access) = open(&folder).await;
        let created = access.create(request("ci", Scope::Deploy), 1).await.unwrap();
        drop((state, access));
        let (_state, access) = open(&folder).await;
        let headers = with_token(&format!("Bearer {}", created.token));
        let code = |needed| access.check(&headers, needed, 2).err().map(|problem| problem.code);
        assert_eq!(
            [code(Scope::Call), code(Scope::Deploy), code(Scope::Admin)],
            [None, None, Some(Code::ScopeMissing)]
        );
        assert!(access.create(request("ci", Scope::Call), 2).await.is_err());
        access.remove("ci").await.unwrap();
        assert_eq!(code(Scope::Call), Some(Code::TokenInvalid));
        assert_eq!(access.remove("ci").await.unwrap_err().code, Code::TokenUnknown);
    }

    #[tokio::test]
    async fn what_is_no_token_is_told_apart_from_none_and_from_too_many() {
        let folder = tempfile::tempdir().unwrap();
        let (_state, access) = open(&folder).await;
        let code = |headers: &HeaderMap| access.check(headers, Scope::Call, 5_000).unwrap_err().code;
        assert_eq!(code(&HeaderMap::new()), Code::TokenMissing);
        for value in ["Bearer x", "Basic eDp5", "Bearer", "lighter_00"] {
            assert_eq!(code(&with_token(value)), Code::TokenInvalid, "{value:?}");
        }
        let mut twice = with_token("Bearer x");
        twice.append(AUTHORIZATION, "Bearer y".parse().unwrap());
        assert_eq!(code(&twice), Code::TokenInvalid);
        for _ in 0..100 {
            code(&with_token("Bearer x"));
        }
        assert_eq!(code(&with_token("Bearer x")), Code::RateExceeded);
    }

    #[tokio::test]
    async fn a_token_for_work_takes_events_of_its_queues_and_does_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let (_state, access) = open(&folder).await;
        let work = |queues: &[&str], functions: &[&str]| {
            let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
            let request = request("w", Scope::Work);
            access.create(TokenRequest { functions: names(functions), queues: names(queues), ..request }, 1)
        };
        assert_eq!(work(&[], &[]).await.unwrap_err().code, Code::ApiRequest);
        assert_eq!(work(&["q"], &["f"]).await.unwrap_err().code, Code::ApiRequest);
        let worker = work(&["q"], &[]).await.unwrap();
        assert!(worker.info.may_take("q").is_ok() && worker.info.may_take("r").is_err());
        let caller = access.create(request("c", Scope::Call), 1).await.unwrap();
        let may = |token: &str, needed| access.check(&with_token(&format!("Bearer {token}")), needed, 2).is_ok();
        assert_eq!([Scope::Look, Scope::Work, Scope::Call].map(|scope| may(&worker.token, scope)), [true, true, false]);
        assert_eq!([Scope::Look, Scope::Work, Scope::Call].map(|scope| may(&caller.token, scope)), [true, false, true]);
    }

    #[tokio::test]
    async fn replacing_ends_the_earlier_token() {
        let folder = tempfile::tempdir().unwrap();
        let (_state, access) = open(&folder).await;
        let first = access.replace(request("local", Scope::Admin), 1).await.unwrap();
        let second = access.replace(request("local", Scope::Admin), 2).await.unwrap();
        let check = |token: &str| access.check(&with_token(&format!("bearer {token}")), Scope::Admin, 3);
        assert!(check(&first.token).is_err() && check(&second.token).is_ok());
    }
}
