//! Tokens: 256 random bits, shown once, kept as SHA-256, compared in constant time.
//!
//! A token is `lighter_` and 64 hexadecimal digits, easy to find for tools that look for leaked secrets. The first
//! bytes of its hash find the record; the whole hash is compared in constant time.

use api_types::{Scope, TokenInfo, TokenRequest};
use manifest::Name;
use problem::{Code, Problem};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::Arc;
use subtle::ConstantTimeEq;

/// Tokens one node knows; the next one is refused.
pub const TOKENS_MAX: usize = 1_000;

/// When a token ends whose maker says nothing of it.
const EXPIRES_SECONDS: u64 = 90 * 86_400;

/// Functions, and queues, one token is bound to.
const BOUND_TO_MAX: usize = 256;

/// Bytes of a token's name.
const NAME_BYTES_MAX: usize = 64;

const PREFIX: &str = "lighter_";
const SECRET_BYTES: usize = 32;

type Hash = [u8; 32];
type HashStart = [u8; 8];

/// All tokens, for answering one question fast: what may the holder of this text do?
#[derive(Default)]
pub struct Tokens {
    by_hash: HashMap<HashStart, Token>,
}

/// A token as the node keeps it: without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub info: Arc<TokenInfo>,
    hash: Hash,
}

/// The durable form of a token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    pub info: TokenInfo,
    sha256: String,
}

impl Tokens {
    pub fn insert(&mut self, token: Token) {
        self.by_hash.insert(start(&token.hash), token);
    }

    /// Whether there was one of this name.
    pub fn remove(&mut self, name: &str) -> bool {
        let before = self.by_hash.len();
        self.by_hash.retain(|_, token| token.info.name != name);
        self.by_hash.len() < before
    }

    pub fn list(&self) -> Vec<TokenInfo> {
        let mut list: Vec<TokenInfo> = self.by_hash.values().map(|token| (*token.info).clone()).collect();
        list.sort_by(|a, b| a.name.cmp(&b.name));
        list
    }

    /// The token that `text` proves; none for a text that is no token, or one that has ended.
    pub fn find(&self, text: &str, now_ms: u64) -> Option<&Arc<TokenInfo>> {
        let hash = hash(text);
        let token = self.by_hash.get(&start(&hash))?;
        let same: bool = token.hash.ct_eq(&hash).into();
        (same && token.is_open(now_ms)).then_some(&token.info)
    }

    /// The whole hash of the token whose hash begins so, in hexadecimal digits.
    pub fn hash_of(&self, start: &str, now_ms: u64) -> Option<String> {
        let token = self.by_hash.get(&HashStart::try_from(unhex(start)?).ok()?)?;
        token.is_open(now_ms).then(|| hex(&token.hash))
    }

    /// # Errors
    /// [`Code::ApiRequest`]: a name that is taken or cannot be one, or too many tokens.
    pub fn check_new(&self, request: &TokenRequest) -> Result<(), Problem> {
        let bad = |what: String| Err(Problem::new(Code::ApiRequest, what));
        let name = &request.name;
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        if !(1..=NAME_BYTES_MAX).contains(&name.len()) || !name.bytes().all(plain) {
            return bad(format!(
                "{name:?} is not a name for a token: 1 to {NAME_BYTES_MAX} of a-z, A-Z, 0-9, '.', '_', '-'"
            ));
        }
        let TokenRequest { functions, queues, scope, .. } = request;
        let bound = [functions, queues];
        match scope {
            Scope::Work if queues.is_empty() || !functions.is_empty() => {
                return bad("a token of the scope work names the queues it is for, and no functions".to_owned());
            }
            Scope::Call | Scope::Work => {}
            _ if bound.iter().any(|names| !names.is_empty()) => {
                return bad("only tokens of the scopes call and work can be bound to functions and queues".to_owned());
            }
            _ => {}
        }
        if bound.iter().any(|names| names.len() > BOUND_TO_MAX) {
            return bad(format!("a token can be bound to {BOUND_TO_MAX} functions and as many queues"));
        }
        if let Some(wrong) = bound.into_iter().flatten().find(|name| name.parse::<Name>().is_err()) {
            return bad(format!("{wrong:?} is no name of a function or queue"));
        }
        if self.by_hash.values().any(|token| token.info.name == *name) {
            return bad(format!("there is a token {name:?} already"));
        }
        if self.by_hash.len() >= TOKENS_MAX {
            return bad(format!("there are {TOKENS_MAX} tokens, which is the limit"));
        }
        Ok(())
    }
}

impl Token {
    /// A new token and the one text that proves it.
    pub fn new(request: TokenRequest, now_ms: u64, random: [u8; SECRET_BYTES]) -> (Self, String) {
        Self::with_prefix(PREFIX, request, now_ms, random)
    }

    pub fn with_prefix(prefix: &str, request: TokenRequest, now_ms: u64, random: [u8; SECRET_BYTES]) -> (Self, String) {
        let text = format!("{prefix}{}", hex(&random));
        let TokenRequest { name, scope, expires_seconds, functions, queues } = request;
        let seconds = Some(expires_seconds.unwrap_or(EXPIRES_SECONDS)).filter(|seconds| *seconds > 0);
        let expires_ms = seconds.map(|seconds| now_ms.saturating_add(seconds.saturating_mul(1_000)));
        let info = Arc::new(TokenInfo { name, scope, created_ms: now_ms, expires_ms, functions, queues });
        (Self { info, hash: hash(&text) }, text)
    }

    fn is_open(&self, now_ms: u64) -> bool {
        self.info.expires_ms.is_none_or(|end| now_ms < end)
    }

    pub fn record(&self) -> Record {
        Record { info: (*self.info).clone(), sha256: hex(&self.hash) }
    }

    pub fn to_record(&self) -> Vec<u8> {
        serde_json::to_vec(&self.record()).expect("a record has only strings and numbers")
    }

    pub fn from_record(bytes: &[u8]) -> Option<Self> {
        Self::of(serde_json::from_slice(bytes).ok()?)
    }

    /// None: that is no hash.
    pub fn of(record: Record) -> Option<Self> {
        let hash = unhex(&record.sha256)?.try_into().ok()?;
        Some(Self { info: Arc::new(record.info), hash })
    }
}

fn hash(text: &str) -> Hash {
    Sha256::digest(text.as_bytes()).into()
}

fn start(hash: &Hash) -> HashStart {
    let mut start = HashStart::default();
    start.copy_from_slice(&hash[..8]);
    start
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]])
        .map(char::from)
        .collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let is_hex = text.len() % 2 == 0 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).ok();
    if is_hex { (0..text.len()).step_by(2).map(byte).collect() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: u64 = 1_000_000;

    fn request(name: &str, scope: Scope, expires_seconds: Option<u64>) -> TokenRequest {
        TokenRequest { name: name.to_owned(), scope, expires_seconds, functions: vec![], queues: vec![] }
    }

    fn with(requests: &[(&str, Scope, Option<u64>)]) -> (Tokens, Vec<String>) {
        let mut tokens = Tokens::default();
        let texts = requests.iter().enumerate().map(|(index, (name, scope, expires))| {
            let (token, text) = Token::new(request(name, *scope, *expires), NOW_MS, [index as u8; SECRET_BYTES]);
            tokens.insert(token);
            text
        });
        let texts = texts.collect();
        (tokens, texts)
    }

    #[test]
    fn a_token_opens_what_its_scope_covers_until_it_ends() {
        let (tokens, texts) =
            with(&[("a", Scope::Admin, Some(0)), ("b", Scope::Call, Some(60)), ("c", Scope::Call, None)]);
        let scope = |index: usize, now_ms| tokens.find(&texts[index], now_ms).map(|token| token.scope);
        assert_eq!(scope(0, u64::MAX), Some(Scope::Admin));
        assert_eq!(scope(1, NOW_MS + 59_999), Some(Scope::Call));
        assert_eq!(scope(1, NOW_MS + 60_000), None);
        assert_eq!([89, 90].map(|days| scope(2, NOW_MS + days * 86_400_000)), [Some(Scope::Call), None]);
        assert!(Scope::Admin.covers(Scope::Deploy) && Scope::Call.covers(Scope::Call));
        assert!(!Scope::Call.covers(Scope::Deploy) && !Scope::Deploy.covers(Scope::Admin));
    }

    #[test]
    fn nothing_else_opens_anything() {
        let (tokens, texts) = with(&[("a", Scope::Admin, None)]);
        let almost = texts[0].replace("lighter_0", "lighter_1");
        for text in ["", "lighter_", &almost, &texts[0].to_uppercase(), &texts[0][1..]] {
            assert_eq!(tokens.find(text, NOW_MS), None, "{text:?}");
        }
    }

    #[test]
    fn a_record_reads_back_and_holds_no_secret() {
        let (token, text) = Token::new(request("a", Scope::Deploy, Some(1)), NOW_MS, [7; SECRET_BYTES]);
        let record = token.to_record();
        assert_eq!(Token::from_record(&record), Some(token));
        assert!(!String::from_utf8(record).unwrap().contains(&text[PREFIX.len()..]));
        assert_eq!(Token::from_record(b"{}"), None);
    }

    #[test]
    fn names_are_plain_and_taken_once() {
        let (mut tokens, texts) = with(&[("ci", Scope::Call, None)]);
        for name in ["", "ci", "a b", "ü", &"x".repeat(65)] {
            assert!(tokens.check_new(&request(name, Scope::Call, None)).is_err(), "{name:?}");
        }
        assert!(tokens.remove("ci") && !tokens.remove("ci"));
        assert_eq!(tokens.find(&texts[0], NOW_MS), None);
        assert!(tokens.check_new(&request("ci", Scope::Call, None)).is_ok());
    }

    #[test]
    fn a_token_may_be_bound_to_functions_and_queues() {
        let bound = |functions: &[&str], queues: &[&str], scope| TokenRequest {
            functions: functions.iter().map(ToString::to_string).collect(),
            queues: queues.iter().map(ToString::to_string).collect(),
            ..request("a", scope, None)
        };
        let token = |request| Token::new(request, NOW_MS, [1; SECRET_BYTES]).0;
        let allows = |token: &Token| {
            let info = &token.info;
            [info.covers_function("f"), info.covers_function("g"), info.covers_queue("q"), info.covers_queue("r")]
        };
        assert_eq!(allows(&token(bound(&[], &[], Scope::Call))), [true; 4]);
        assert_eq!(allows(&token(bound(&["f"], &[], Scope::Call))), [true, false, false, false]);
        assert_eq!(allows(&token(bound(&["f"], &["q"], Scope::Call))), [true, false, true, false]);
        let tokens = Tokens::default();
        for wrong in [
            bound(&["f"], &[], Scope::Deploy),
            bound(&[], &["q"], Scope::Admin),
            bound(&["No Name"], &[], Scope::Call),
            bound(&["f"; BOUND_TO_MAX + 1], &[], Scope::Call),
        ] {
            assert_eq!(tokens.check_new(&wrong).unwrap_err().code, Code::ApiRequest);
        }
        // As an earlier version wrote it: it keeps what it was.
        let (old, _) = Token::new(bound(&[], &[], Scope::Call), NOW_MS, [1; SECRET_BYTES]);
        let record = String::from_utf8(old.to_record()).unwrap();
        assert!(!record.contains("functions") && !record.contains("queues"), "{record}");
        assert!(!Token::from_record(record.as_bytes()).unwrap().info.is_bound());
    }
}
