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
use parking_lot::RwLock;
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

/// Characters of a public key, as NATS writes it.
pub const PUBLIC_KEY_CHARS: usize = 56;

/// The secret keys that all anchors have and no other node has.
pub struct FleetKeys {
    operator: KeyPair,
    system: KeyPair,
    account: KeyPair,
    /// What servers show each other.
    routes: [u8; 32],
}

/// What one node shows when it connects: its secret key, and what was signed of it. Clones show what was signed last.
#[derive(Clone)]
pub struct Credentials {
    key: Arc<KeyPair>,
    /// Its public key and its rights, signed by the account of the fleet. Empty: nothing was signed yet.
    jwt: Arc<RwLock<String>>,
}

/// Not what it was said to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeysUnreadable {
    /// A public key of a node.
    PublicKey,
    /// A file with credentials, as NATS' own tools write it.
    Credentials,
}

/// What every server of the fleet believes.
pub struct Believed {
    pub operator: String,
    pub system_account: String,
    /// Public keys of accounts, with what the operator signed of them.
    pub accounts: Vec<(String, String)>,
}

impl FleetKeys {
    /// The keys of a fleet. `secret_for` gives 32 secret bytes for each purpose, the same ones on every anchor.
    pub fn derived(secret_for: impl Fn(&str) -> [u8; 32]) -> Self {
        let key = |kind, purpose| KeyPair::new_from_raw(kind, secret_for(purpose)).expect("32 bytes are a key");
        Self {
            operator: key(KeyPairType::Operator, "lighterage engine operator 1"),
            system: key(KeyPairType::Account, "lighterage engine system 1"),
            account: key(KeyPairType::Account, "lighterage engine account 1"),
            routes: secret_for("lighterage engine routes 1"),
        }
    }

    /// In hexadecimal digits.
    pub(crate) fn routes_password(&self) -> String {
        self.routes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Lets a node in that has a new key. An anchor may do everything in the account of the fleet.
    pub fn admit(&self, node: &NodeName, is_anchor: bool, now: SystemTime) -> Credentials {
        let credentials = Credentials::generate();
        let signed = self.sign(&credentials.public_key(), node, is_anchor, now);
        credentials.show(signed.expect("it is a public key"));
        credentials
    }

    /// What a node shows that has the secret half of this key.
    ///
    /// # Errors
    /// It is no public key of a node.
    pub fn sign(
        &self,
        public_key: &str,
        node: &NodeName,
        is_anchor: bool,
        now: SystemTime,
    ) -> Result<String, KeysUnreadable> {
        match KeyPair::from_public_key(public_key) {
            Ok(key) if key.key_pair_type() == KeyPairType::User => {}
            _ => return Err(KeysUnreadable::PublicKey),
        }
        let rights = (!is_anchor).then(|| Rights::of(node));
        let mut claims = json!({ "type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1 });
        if let Some(Rights { publish, subscribe }) = rights {
            claims["pub"] = json!({ "allow": publish });
            claims["sub"] = json!({ "allow": subscribe });
        }
        Ok(signed(&self.account, public_key, node.as_str(), claims, now))
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
    /// A new key, of which nothing is signed yet.
    pub fn generate() -> Self {
        Self { key: Arc::new(KeyPair::new_user()), jwt: Arc::default() }
    }

    /// Reads a file of credentials, as NATS' own tools write it.
    ///
    /// # Errors
    /// It is none.
    pub fn read(file: &str) -> Result<Self, KeysUnreadable> {
        let between = |what: &str| {
            let (_, rest) = file.split_once(&format!("BEGIN {what}-----"))?;
            rest.split_once("---").map(|(inside, _)| inside.trim())
        };
        let (jwt, seed) = between("NATS USER JWT").zip(between("USER NKEY SEED")).ok_or(KeysUnreadable::Credentials)?;
        let key = KeyPair::from_seed(seed).map_err(|_| KeysUnreadable::Credentials)?;
        let is_user = key.key_pair_type() == KeyPairType::User && !jwt.is_empty() && !jwt.contains(char::is_whitespace);
        let jwt = Arc::new(RwLock::new(jwt.to_owned()));
        is_user.then(|| Self { key: Arc::new(key), jwt }).ok_or(KeysUnreadable::Credentials)
    }

    pub fn public_key(&self) -> String {
        self.key.public_key()
    }

    /// Shows this from now on.
    pub fn show(&self, jwt: String) {
        *self.jwt.write() = jwt;
    }

    /// What is shown.
    pub fn jwt(&self) -> String {
        self.jwt.read().clone()
    }

    /// What [`Credentials::read`] reads. It has the secret half of the key.
    pub fn to_file(&self) -> String {
        let (jwt, seed) = (self.jwt(), self.key.seed().expect("it was made with one"));
        format!(
            "-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        )
    }

    /// The answer to a server's question who is there.
    pub(crate) fn sign(&self, nonce: &[u8]) -> Result<Vec<u8>, nkeys::error::Error> {
        self.key.sign(nonce)
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
        f.write_str(match self {
            Self::PublicKey => "it is no public key of a node",
            Self::Credentials => "it is no file of credentials for NATS",
        })
    }
}

impl std::error::Error for KeysUnreadable {}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(fleet: u8) -> FleetKeys {
        FleetKeys::derived(|purpose| std::array::from_fn(|at| fleet ^ purpose.as_bytes()[(at + 11) % purpose.len()]))
    }

    #[test]
    fn anchors_with_one_secret_have_the_same_keys() {
        let public = |keys: &FleetKeys| [&keys.operator, &keys.system, &keys.account].map(KeyPair::public_key);
        assert_eq!(public(&keys(1)), public(&keys(1)));
        assert!(public(&keys(1)).iter().all(|key| !public(&keys(2)).contains(key)));
    }

    #[test]
    fn a_file_of_credentials_is_read_and_nothing_else() {
        let node = keys(1).admit(&NodeName::new("a").expect("it is a name"), false, SystemTime::UNIX_EPOCH);
        let read = Credentials::read(&node.to_file()).expect("it is one");
        assert_eq!((read.jwt(), read.public_key()), (node.jwt(), node.public_key()));
        let seed = |key: &KeyPair| key.seed().expect("it has one");
        let account = node.to_file().replace(&seed(&node.key), &seed(&keys(1).account));
        let two = node.to_file().replace(&node.jwt(), "two words");
        for wrong in ["", "-----BEGIN NATS USER JWT-----", &node.to_file()[..120], &account, &two] {
            assert_eq!(Credentials::read(wrong).err(), Some(KeysUnreadable::Credentials), "{wrong}");
        }
    }

    #[test]
    fn only_a_nodes_public_key_is_signed() {
        let (keys, node) = (keys(1), NodeName::new("a").expect("it is a name"));
        let user = Credentials::generate();
        assert!(keys.sign(&user.public_key(), &node, false, SystemTime::UNIX_EPOCH).is_ok());
        for wrong in ["", "U", &keys.account.public_key(), &user.public_key().to_lowercase()] {
            let signed = keys.sign(wrong, &node, false, SystemTime::UNIX_EPOCH);
            assert_eq!(signed, Err(KeysUnreadable::PublicKey), "{wrong}");
        }
    }

    #[test]
    fn nobody_sees_a_secret_in_a_log() {
        let keys = keys(1);
        let node = keys.admit(&NodeName::new("a").expect("it is a name"), false, SystemTime::UNIX_EPOCH);
        let secrets = [&keys.operator, &keys.system, &keys.account].map(|key| key.seed().expect("it has one"));
        let logged = format!("{keys:?} {node:?}");
        assert!(
            !logged.contains(&node.key.seed().expect("it has one"))
                && secrets.iter().all(|seed| !logged.contains(seed)),
            "{logged}"
        );
    }
}
