//! Who may connect, and which topics each may publish and subscribe to.

use crate::codec::Reason;
use crate::topic;
use argon2::Argon2;
use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use parking_lot::Mutex;
use problem::{Code, Problem};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use subtle::ConstantTimeEq;

/// Bytes of a password; a longer one is wrong.
const PASSWORD_BYTES_MAX: usize = 1_024;

/// A user as it is configured. `{user}` and `{client}` in filters stand for the names of who connects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// As [`hash_password`] makes it.
    pub password: String,
    /// Filters of topics it may publish under.
    pub publish: Vec<String>,
    /// Filters it may subscribe to, with everything they cover.
    pub subscribe: Vec<String>,
}

/// All users.
pub struct Users {
    known: BTreeMap<String, User>,
    /// What those who give no name may do; none: they are refused.
    anonymous: Option<User>,
    /// Nobody is asked for anything.
    is_open: bool,
    /// Passwords that were right, as a quick hash with a salt of this run: the slow one is for thieves of the file, not
    /// for a thousand devices that come back at once.
    remembered: Mutex<HashMap<String, [u8; 32]>>,
    salt: [u8; 16],
}

/// Who is connected, and what it may do.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Identity {
    pub user: Option<Arc<str>>,
    /// Where there are no users.
    may_all: bool,
    publish: Vec<String>,
    subscribe: Vec<String>,
}

impl Users {
    /// # Errors
    /// L9003 names the user whose password hash or filters cannot be used.
    pub fn new(known: BTreeMap<String, User>, anonymous: Option<User>) -> Result<Self, Problem> {
        let invalid = |detail: String| Problem::new(Code::ConfigInvalid, detail);
        for (name, user) in
            known.iter().map(|(name, user)| (name.as_str(), user)).chain(anonymous.as_ref().map(|user| ("", user)))
        {
            let has_password = !name.is_empty();
            if has_password && PasswordHash::new(&user.password).is_err() {
                return Err(invalid(format!("mqtt user {name:?}: the password is no hash"))
                    .with_hint("`lighter mqtt-password` makes one"));
            }
            let wrong = user.publish.iter().chain(&user.subscribe).find(|filter| !topic::is_filter(filter, usize::MAX));
            if let Some(filter) = wrong {
                return Err(invalid(format!("mqtt user {name:?}: {filter:?} is no topic filter")));
            }
        }
        let mut salt = [0; 16];
        getrandom::fill(&mut salt)
            .map_err(|error| Problem::new(Code::Internal, format!("no random numbers: {error}")))?;
        Ok(Self { known, anonymous, is_open: false, remembered: Mutex::default(), salt })
    }

    /// Everyone may do everything.
    pub fn open() -> Self {
        Self { known: BTreeMap::new(), anonymous: None, is_open: true, remembered: Mutex::default(), salt: [0; 16] }
    }

    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Whether [`Users::check`] will take long (some 30 ms of CPU and 19 MiB), so that it must not run where others wait.
    pub fn is_slow(&self, name: Option<&str>, password: Option<&[u8]>) -> bool {
        let (Some(name), Some(password)) = (name, password) else { return false };
        password.len() <= PASSWORD_BYTES_MAX
            && self.remembered.lock().get(name).is_none_or(|known| !self.is_same(known, name, password))
    }

    /// # Errors
    /// `BAD_USER`: no such user, or another password; `NOT_AUTHORIZED`: a name is needed.
    pub fn check(&self, name: Option<&str>, password: Option<&[u8]>, client: &str) -> Result<Identity, Reason> {
        if self.is_open {
            return Ok(Identity { user: name.map(Into::into), may_all: true, ..Identity::default() });
        }
        let Some(name) = name else {
            let user = self.anonymous.as_ref().ok_or(Reason::NOT_AUTHORIZED)?;
            return Ok(user.identity(None, client));
        };
        let password = password.unwrap_or_default();
        // Who does not exist takes as long as who does.
        let user = self.known.get(name).or_else(|| self.known.values().next()).ok_or(Reason::BAD_USER)?;
        let is_right = password.len() <= PASSWORD_BYTES_MAX && self.is_right(user, name, password);
        if is_right && self.known.contains_key(name) {
            Ok(user.identity(Some(name), client))
        } else {
            Err(Reason::BAD_USER)
        }
    }

    fn is_right(&self, user: &User, name: &str, password: &[u8]) -> bool {
        let remembered = self.remembered.lock().get(name).copied();
        if remembered.is_some_and(|known| self.is_same(&known, name, password)) {
            return true;
        }
        let hash = PasswordHash::new(&user.password).expect("it was checked when the users were read");
        let is_right = Argon2::default().verify_password(password, &hash).is_ok();
        if is_right && self.known.contains_key(name) {
            self.remembered.lock().insert(name.to_owned(), self.quick(name, password));
        }
        is_right
    }

    fn is_same(&self, known: &[u8; 32], name: &str, password: &[u8]) -> bool {
        known.ct_eq(&self.quick(name, password)).into()
    }

    fn quick(&self, name: &str, password: &[u8]) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(self.salt);
        hash.update((name.len() as u64).to_be_bytes());
        hash.update(name);
        hash.update(password);
        hash.finalize().into()
    }
}

impl User {
    fn identity(&self, name: Option<&str>, client: &str) -> Identity {
        // A name with a wildcard or a level of its own would widen what it is put into.
        let safe = |text: &str| !text.contains(['+', '#', '/']);
        let fill = |filters: &[String]| {
            let filled = filters.iter().filter_map(|filter| {
                let user = name.filter(|name| safe(name) && !name.is_empty());
                if filter.contains("{user}") && user.is_none()
                    || filter.contains("{client}") && (!safe(client) || client.is_empty())
                {
                    return None;
                }
                Some(filter.replace("{user}", user.unwrap_or_default()).replace("{client}", client))
            });
            filled.collect()
        };
        let user = name.map(Into::into);
        Identity { user, may_all: false, publish: fill(&self.publish), subscribe: fill(&self.subscribe) }
    }
}

impl Identity {
    /// Under `$SYS` only the node itself would publish.
    pub fn may_publish(&self, topic: &str) -> bool {
        !topic.starts_with("$SYS/")
            && !topic.starts_with("$share/")
            && (self.may_all || self.publish.iter().any(|filter| topic::matches(filter, topic)))
    }

    /// `filter` is without `$share`.
    pub fn may_subscribe(&self, filter: &str) -> bool {
        self.may_all || self.subscribe.iter().any(|allowed| topic::covers(allowed, filter))
    }
}

/// The hash to keep instead of a password: Argon2id, in the form that carries its own parameters and salt.
///
/// # Errors
/// The password is longer than 1,024 bytes, or the system has no random numbers.
pub fn hash_password(password: &[u8]) -> Result<String, Problem> {
    if password.len() > PASSWORD_BYTES_MAX {
        let detail = format!("the password has {} bytes, the limit is {PASSWORD_BYTES_MAX}", password.len());
        return Err(Problem::new(Code::ConfigInvalid, detail));
    }
    let internal =
        |what: &dyn std::fmt::Display| Problem::new(Code::Internal, format!("no hash of the password: {what}"));
    let mut salt = [0; 16];
    getrandom::fill(&mut salt).map_err(|error| internal(&error))?;
    let salt = SaltString::encode_b64(&salt).map_err(|error| internal(&error))?;
    let hash = Argon2::default().hash_password(password, &salt).map_err(|error| internal(&error))?;
    Ok(hash.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users() -> Users {
        let user = User {
            password: hash_password(b"secret").unwrap(),
            publish: vec!["sensor/{client}/#".into(), "all/{user}".into()],
            subscribe: vec!["command/{client}".into()],
        };
        Users::new([("meter".to_owned(), user)].into(), None).unwrap()
    }

    #[test]
    fn only_the_right_password_lets_in() {
        let users = users();
        assert_eq!(users.check(None, None, "c"), Err(Reason::NOT_AUTHORIZED));
        for (name, password) in [("meter", &b"wrong"[..]), ("other", b"secret"), ("meter", b""), ("", b"secret")] {
            assert_eq!(users.check(Some(name), Some(password), "c"), Err(Reason::BAD_USER), "{name}");
        }
        assert!(users.is_slow(Some("meter"), Some(b"secret")));
        assert!(users.check(Some("meter"), Some(b"secret"), "c").is_ok());
        assert!(!users.is_slow(Some("meter"), Some(b"secret")) && users.is_slow(Some("meter"), Some(b"wrong")));
        assert_eq!(users.check(Some("meter"), Some(b"wrong"), "c"), Err(Reason::BAD_USER));
    }

    #[test]
    fn permissions_are_filled_with_the_names_of_who_connects() {
        let identity = users().check(Some("meter"), Some(b"secret"), "7").unwrap();
        assert!(identity.may_publish("sensor/7/co2") && identity.may_publish("all/meter"));
        assert!(!identity.may_publish("sensor/8/co2") && !identity.may_publish("command/7"));
        assert!(
            identity.may_subscribe("command/7") && !identity.may_subscribe("command/+") && !identity.may_subscribe("#")
        );
        for client in ["+", "#", "a/b", ""] {
            let identity = users().check(Some("meter"), Some(b"secret"), client).unwrap();
            assert!(!identity.may_publish("sensor/7/co2") && !identity.may_subscribe("command/7"), "{client:?}");
        }
    }

    #[test]
    fn what_cannot_be_used_is_refused() {
        let bad_hash = User { password: "secret".into(), ..User::default() };
        assert!(Users::new([("u".to_owned(), bad_hash)].into(), None).is_err());
        let bad_filter = User { publish: vec!["a/#/b".into()], ..User::default() };
        assert!(Users::new(BTreeMap::new(), Some(bad_filter)).is_err());
    }
}
