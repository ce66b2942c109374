//! The keys of a fleet's engine, and what they sign: who may connect, and with which rights.
//!
//! ```text
//!  operator ─signs─▶ account of the fleet ─signs─▶ a node's key, with its rights
//!           ─signs─▶ account of the system (nobody is in it)
//! ```
//! A node that joins needs no change of the servers' configuration: they believe what the account has signed.

use crate::rights::Rights;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use facts::NodeName;
use nkeys::{KeyPair, KeyPairType};
use serde_json::{Value, json};
use std::fmt;
use std::time::SystemTime;

/// The secret keys that all anchors have and no other node has.
pub struct FleetKeys {
    operator: KeyPair,
    system: KeyPair,
    account: KeyPair,
}

/// What one node shows when it connects.
#[derive(Clone)]
pub struct Credentials {
    /// Its public key and its rights, signed by the account of the fleet.
    pub jwt: String,
    /// Its secret key.
    pub seed: String,
}

/// Keys that were not written by [`FleetKeys::to_text`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeysUnreadable;

/// What every server of the fleet believes.
pub struct Believed {
    pub operator: String,
    pub system_account: String,
    /// Public keys of accounts, with what the operator signed of them.
    pub accounts: Vec<(String, String)>,
}

impl FleetKeys {
    /// New keys, from the system's randomness.
    pub fn generate() -> Self {
        Self { operator: KeyPair::new_operator(), system: KeyPair::new_account(), account: KeyPair::new_account() }
    }

    /// Three lines: for a file that only the node can read.
    pub fn to_text(&self) -> String {
        let seeds = [&self.operator, &self.system, &self.account].map(|key| key.seed().expect("it was made with one"));
        seeds.map(|seed| seed + "\n").concat()
    }

    /// # Errors
    /// They are not what [`FleetKeys::to_text`] wrote.
    pub fn from_text(text: &str) -> Result<Self, KeysUnreadable> {
        let kinds = [KeyPairType::Operator, KeyPairType::Account, KeyPairType::Account];
        let read = |line: &str| KeyPair::from_seed(line).map_err(|_| KeysUnreadable);
        let keys = text.lines().map(read).collect::<Result<Vec<_>, _>>()?;
        let is_as_written = keys.iter().map(KeyPair::key_pair_type).eq(kinds);
        match <[KeyPair; 3]>::try_from(keys) {
            Ok([operator, system, account]) if is_as_written => Ok(Self { operator, system, account }),
            _ => Err(KeysUnreadable),
        }
    }

    /// Lets a node in that has a new key. An anchor may do everything in the account of the fleet.
    pub fn admit(&self, node: &NodeName, is_anchor: bool, now: SystemTime) -> Credentials {
        let key = KeyPair::new_user();
        let rights = (!is_anchor).then(|| Rights::of(node));
        let mut claims = json!({ "type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1 });
        if let Some(Rights { publish, subscribe }) = rights {
            claims["pub"] = json!({ "allow": publish });
            claims["sub"] = json!({ "allow": subscribe });
        }
        let jwt = signed(&self.account, &key.public_key(), node.as_str(), claims, now);
        Credentials { jwt, seed: key.seed().expect("it was made with one") }
    }

    pub(crate) fn believed(&self, now: SystemTime) -> Believed {
        let system_account = self.system.public_key();
        let claims = json!({ "type": "operator", "version": 2, "system_account": system_account });
        let operator = signed(&self.operator, &self.operator.public_key(), "fleet", claims, now);
        let account = |key: &KeyPair, name: &str, stored: i64| {
            let limits = json!({
                "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1,
                "leaf": -1, "mem_storage": stored, "disk_storage": stored, "streams": stored, "consumer": stored,
            });
            let claims = json!({ "type": "account", "version": 2, "limits": limits });
            (key.public_key(), signed(&self.operator, &key.public_key(), name, claims, now))
        };
        let accounts = vec![account(&self.system, "system", 0), account(&self.account, "fleet", -1)];
        Believed { operator, system_account, accounts }
    }
}

impl Credentials {
    /// The answer to a server's question who is there.
    pub(crate) fn sign(&self, nonce: &[u8]) -> Result<Vec<u8>, nkeys::error::Error> {
        KeyPair::from_seed(&self.seed)?.sign(nonce)
    }
}

/// A JWT as NATS has them.
fn signed(by: &KeyPair, subject: &str, name: &str, claims: Value, now: SystemTime) -> String {
    let issued = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let body = json!({
        "jti": subject, "iat": issued, "iss": by.public_key(), "name": name, "sub": subject, "nats": claims,
    });
    let head = json!({ "typ": "JWT", "alg": "ed25519-nkey" });
    let text = [head, body].map(|part| URL_SAFE_NO_PAD.encode(part.to_string())).join(".");
    let signature = by.sign(text.as_bytes()).expect("it has its secret part");
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
}

impl fmt::Debug for FleetKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FleetKeys({})", self.account.public_key())
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

impl fmt::Display for KeysUnreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the keys of the fleet's engine are not as they were written")
    }
}

impl std::error::Error for KeysUnreadable {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_they_were_written() {
        let keys = FleetKeys::generate();
        let text = keys.to_text();
        let read = FleetKeys::from_text(&text).expect("they are as written");
        assert_eq!(read.to_text(), text);
        let other = FleetKeys::generate().to_text();
        let lines: Vec<&str> = text.lines().chain(other.lines()).collect();
        for wrong in [lines[1..4].join("\n"), lines[..2].join("\n"), lines[..4].join("\n"), String::new()] {
            assert_eq!(FleetKeys::from_text(&wrong).err(), Some(KeysUnreadable), "{wrong}");
        }
    }

    #[test]
    fn nobody_sees_a_secret_in_a_log() {
        let keys = FleetKeys::generate();
        let node = keys.admit(&NodeName::new("a").expect("it is a name"), false, SystemTime::UNIX_EPOCH);
        let logged = format!("{keys:?} {node:?}");
        assert!(!logged.contains(&node.seed) && keys.to_text().lines().all(|seed| !logged.contains(seed)), "{logged}");
    }
}
