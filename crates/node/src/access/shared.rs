//! Tokens that count at every node of a fleet: a list that an anchor makes, the CA signs and all nodes keep.
//!
//! ```text
//!   LTOK | version 1 | signature 64 | {"fleet", "revision", "tokens": [{"info", "sha256"}]}
//! ```
//! Of a token there is its SHA-256, what it may do, and when it ends. Of two lists the one with the higher revision
//! holds. Nodes pass it on when they talk of deployments. A token goes through the hands of each node that it is shown
//! to, so none of them has the scope `admin`: a stolen node would learn how to own the others.

use super::tokens::{Record, Token, Tokens};
use api_types::{Scope, TokenCreated, TokenInfo, TokenRequest};
use fleet_deploy::sealed::Document;
use fleet_trust::{PublicKey, Signature};
use problem::{Code, Problem};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Tokens of one fleet. Another one is refused.
pub const SHARED_MAX: usize = 256;

/// What a token of a fleet begins with: a client may show it to every node of the fleet.
const PREFIX: &str = "lighter_fleet_";
/// What stands before its name where a node tells who did something.
const NAMED: &str = "fleet:";

const DOCUMENT: Document = Document { magic: *b"LTOK", purpose: "lighterage tokens 1", word: "list of tokens" };

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    fleet: String,
    revision: u64,
    tokens: Vec<Record>,
}

/// A list whose signature was checked.
#[derive(Debug, Clone, PartialEq)]
pub struct SharedTokens {
    list: List,
    bytes: Vec<u8>,
}

impl SharedTokens {
    /// Reads a list of this fleet.
    ///
    /// # Errors
    /// [`Code::DeploymentGarbled`]. Nothing of it is to be believed.
    pub fn read(bytes: &[u8], fleet: &str, ca: &PublicKey) -> Result<Self, Problem> {
        let unproved = DOCUMENT.look(bytes)?;
        let list: List = DOCUMENT.read(&unproved)?;
        let garbled = |what: &str| Err(Problem::new(Code::DeploymentGarbled, format!("this list of tokens {what}")));
        if list.fleet != fleet {
            return garbled("is of another fleet");
        }
        if list.revision == 0 || list.tokens.len() > SHARED_MAX {
            return garbled("is none that an anchor makes");
        }
        let is_good = |record: &Record| record.info.scope != Scope::Admin && Token::of(record.clone()).is_some();
        if !list.tokens.iter().all(is_good) {
            return garbled("has a token that no anchor makes");
        }
        if !DOCUMENT.is_signed(&unproved, ca) {
            return garbled("is not signed by an anchor of this fleet");
        }
        Ok(Self { list, bytes: bytes.to_vec() })
    }

    /// The next list, with one token more, and what its holder is told, once. Tokens that have ended are left out.
    ///
    /// # Errors
    /// [`Code::ApiRequest`]: the name is taken or none, the scope is `admin`, or there are too many.
    pub fn with(
        before: Option<&Self>,
        of: (&str, Option<u64>),
        (request, now_ms, random): (TokenRequest, u64, [u8; 32]),
        sign: impl FnOnce(&str, &[&[u8]]) -> Signature,
    ) -> Result<(Self, TokenCreated), Problem> {
        let mut list = Self::next(before, of, now_ms);
        if request.scope == Scope::Admin {
            let problem = Problem::new(Code::ApiRequest, "no token of a fleet has the scope admin");
            return Err(problem.with_hint("to administer a node takes a token of that node: `lighter token create`"));
        }
        let taken = "`lighter fleet token ls` lists those that there are; another name, or fewer bounds, may do";
        list.known().check_new(&request).map_err(|problem| problem.with_hint(taken))?;
        if list.tokens.len() >= SHARED_MAX {
            let detail = format!("the fleet has {SHARED_MAX} tokens, which is the limit");
            return Err(Problem::new(Code::ApiRequest, detail)
                .with_hint("remove one that nobody uses: `lighter fleet token ls`"));
        }
        let (token, text) = Token::with_prefix(PREFIX, request, now_ms, random);
        list.tokens.push(token.record());
        let info = (*token.info).clone();
        Ok((Self::seal(list, sign)?, TokenCreated { token: text, info }))
    }

    /// The next list, without one token.
    ///
    /// # Errors
    /// [`Code::TokenUnknown`].
    pub fn without(
        before: Option<&Self>,
        of: (&str, Option<u64>),
        (name, now_ms): (&str, u64),
        sign: impl FnOnce(&str, &[&[u8]]) -> Signature,
    ) -> Result<Self, Problem> {
        let unknown = || {
            let problem = Problem::new(Code::TokenUnknown, format!("the fleet has no token {name:?}"));
            problem.with_hint("`lighter fleet token ls` lists them")
        };
        let known = before.filter(|list| list.infos().any(|info| info.name == name)).ok_or_else(unknown)?;
        let mut list = Self::next(Some(known), of, now_ms);
        list.tokens.retain(|record| record.info.name != name);
        Self::seal(list, sign)
    }

    /// `of`: the fleet, and the number of the list where several anchors have agreed on it.
    fn next(before: Option<&Self>, of: (&str, Option<u64>), now_ms: u64) -> List {
        let (fleet, number) = of;
        let mut tokens = before.map(|before| before.list.tokens.clone()).unwrap_or_default();
        tokens.retain(|record| record.info.expires_ms.is_none_or(|end| now_ms < end));
        let revision = number.unwrap_or(before.map_or(0, Self::revision) + 1);
        List { fleet: fleet.to_owned(), revision, tokens }
    }

    fn seal(list: List, sign: impl FnOnce(&str, &[&[u8]]) -> Signature) -> Result<Self, Problem> {
        let shorter = "bind tokens to fewer functions and queues, or remove some";
        let bytes = DOCUMENT.seal(&list, sign).map_err(|problem| problem.with_hint(shorter))?;
        Ok(Self { list, bytes })
    }

    /// Counts the lists of a fleet, from 1. The highest one holds.
    pub fn revision(&self) -> u64 {
        self.list.revision
    }

    /// As it was signed, to be passed on.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn infos(&self) -> impl Iterator<Item = &TokenInfo> {
        self.list.tokens.iter().map(|record| &record.info)
    }

    /// Their names where a node tells who did something, or who has leased an event.
    pub fn owners(&self) -> BTreeSet<String> {
        self.infos().map(|info| format!("{NAMED}{}", info.name)).collect()
    }

    /// To find a token by its text. Their names say that they are the fleet's: no token of a node has such a name.
    pub(super) fn tokens(&self) -> Tokens {
        let mut tokens = Tokens::default();
        for mut token in self.list.tokens.iter().cloned().filter_map(Token::of) {
            let name = format!("{NAMED}{}", token.info.name);
            token.info = Arc::new(TokenInfo { name, ..(*token.info).clone() });
            tokens.insert(token);
        }
        tokens
    }
}

impl List {
    fn known(&self) -> Tokens {
        let mut tokens = Tokens::default();
        self.tokens.iter().cloned().filter_map(Token::of).for_each(|token| tokens.insert(token));
        tokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleet_trust::NodeKey;

    const NOW_MS: u64 = 1_000_000;

    fn request(name: &str, scope: Scope, expires_seconds: Option<u64>) -> TokenRequest {
        TokenRequest { name: name.to_owned(), scope, expires_seconds, functions: vec![], queues: vec![] }
    }

    fn add(before: Option<&SharedTokens>, key: &NodeKey, name: &str) -> (SharedTokens, String) {
        let seed = before.map_or(0, |list| list.revision() as u8);
        let asked = (request(name, Scope::Call, Some(60)), NOW_MS, [seed; 32]);
        let (list, made) =
            SharedTokens::with(before, ("f", None), asked, |purpose, parts| key.sign(purpose, parts)).unwrap();
        (list, made.token)
    }

    #[test]
    fn a_list_reads_back_and_any_change_of_it_is_refused() {
        let ca = NodeKey::from_seed(&[1; 32]);
        let (list, text) = add(None, &ca, "phone");
        let (list, _) = add(Some(&list), &ca, "watch");
        assert_eq!(SharedTokens::read(list.bytes(), "f", &ca.public()), Ok(list.clone()));
        assert_eq!(list.revision(), 2);
        assert!(!String::from_utf8_lossy(list.bytes()).contains(&text[PREFIX.len()..]), "no secret is in it");
        for at in 0..list.bytes().len() {
            let mut changed = list.bytes().to_vec();
            changed[at] ^= 1;
            assert!(SharedTokens::read(&changed, "f", &ca.public()).is_err(), "byte {at}");
        }
        assert!(SharedTokens::read(list.bytes(), "g", &ca.public()).is_err());
        let (of_member, _) = add(None, &NodeKey::from_seed(&[2; 32]), "phone");
        assert!(SharedTokens::read(of_member.bytes(), "f", &ca.public()).is_err());
    }

    #[test]
    fn a_token_opens_until_it_ends_or_is_removed() {
        let ca = NodeKey::from_seed(&[1; 32]);
        let (list, text) = add(None, &ca, "phone");
        let tokens = list.tokens();
        let name = |now_ms| tokens.find(&text, now_ms).map(|info| info.name.clone());
        assert_eq!((name(NOW_MS + 59_999).as_deref(), name(NOW_MS + 60_000)), (Some("fleet:phone"), None));
        let whole = serde_json::to_value(&list.list.tokens[0]).unwrap()["sha256"].as_str().unwrap().to_owned();
        assert_eq!(tokens.hash_of(&whole[..16], NOW_MS).as_deref(), Some(&*whole));
        for bad in ["", &whole[..14], &whole, "zz", &"0".repeat(16)] {
            assert_eq!(tokens.hash_of(bad, NOW_MS), None, "{bad:?}");
        }
        let sign = |purpose: &str, parts: &[&[u8]]| ca.sign(purpose, parts);
        let removed = SharedTokens::without(Some(&list), ("f", None), ("phone", NOW_MS), sign).unwrap();
        assert_eq!((removed.revision(), removed.tokens().find(&text, NOW_MS)), (2, None));
        let again = SharedTokens::without(Some(&removed), ("f", None), ("phone", NOW_MS), |_, _| [0; 64]);
        assert_eq!(again.unwrap_err().code, Code::TokenUnknown);
    }

    #[test]
    fn what_may_not_be_is_refused() {
        let ca = NodeKey::from_seed(&[1; 32]);
        let (list, _) = add(None, &ca, "phone");
        for (name, scope) in [("phone", Scope::Call), ("no name", Scope::Call), ("x", Scope::Admin)] {
            let wrong = request(name, scope, None);
            let made = SharedTokens::with(Some(&list), ("f", None), (wrong, NOW_MS, [9; 32]), |_, _| [0; 64]);
            assert_eq!(made.unwrap_err().code, Code::ApiRequest);
        }
        let mut full = list;
        for number in 1..SHARED_MAX {
            let asked = request(&format!("t{number}"), Scope::Look, None);
            full.list.tokens.push(Token::new(asked, NOW_MS, [number as u8; 32]).0.record());
        }
        let asked = (request("x", Scope::Call, None), NOW_MS, [9; 32]);
        let made = SharedTokens::with(Some(&full), ("f", None), asked, |_, _| [0; 64]);
        assert!(made.unwrap_err().detail.contains("256"));
    }
}
