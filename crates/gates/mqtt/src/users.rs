//! Who may connect, and which topics each may publish and subscribe to.

use crate::codec::Reason;
use crate::topic;
use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use argon2::{Argon2, Params};
use parking_lot::Mutex;
use problem::{Code, Problem};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use subtle::ConstantTimeEq;

/// Bytes of a password; a longer one is wrong.
const PASSWORD_BYTES_MAX: usize = 1_024;

/// Bytes of a user's name; a user with a longer one is not let in.
const USER_BYTES_MAX: usize = 256;

/// A user as it is configured. `{user}` and `{client}` in filters stand for the names of who connects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// As [`hash_password`] makes it.
    pub password: String,
    /// Filters of topics it may publish under.
    pub publish: Vec<String>,
    /// Filters it may subscribe to, with everything they cover.
    pub subscribe: Vec<String>,
    /// Filters of topics it may not publish under, whatever `publish` says.
    pub deny_publish: Vec<String>,
    /// Filters of topics it gets no messages of, whatever `subscribe` says.
    pub deny_subscribe: Vec<String>,
    /// Client ids that are this user's alone, and the only ones it may use; one that ends in `*` stands for all that
    /// begin so. None: any that is no other user's.
    pub client_ids: Vec<String>,
}

/// All users.
pub struct Users {
    known: BTreeMap<String, User>,
    /// What those who give no name may do; none: they are refused.
    anonymous: Option<User>,
    /// Nobody is asked for anything.
    is_open: bool,
    /// Passwords that were right, one a user, as a quick hash with a secret of this run: the slow one is for thieves of
    /// the file, not for a thousand devices that come back at once, nor for who tries passwords. Users are read at the
    /// start, so none of them can be out of date.
    remembered: Mutex<HashMap<String, Quick>>,
    salt: [u8; 32],
}

/// A name and a password, as they are remembered.
pub(crate) type Quick = [u8; 32];

/// Who is connected, and what it may do.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Identity {
    pub user: Option<Arc<str>>,
    rights: Rights,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Rights {
    #[default]
    None,
    /// Where there are no users.
    All,
    Some(Box<Filters>),
}

/// What somebody may do, and of that may not.
#[derive(Debug, Default, PartialEq, Eq)]
struct Filters {
    publish: Vec<String>,
    subscribe: Vec<String>,
    deny_publish: Vec<String>,
    deny_subscribe: Vec<String>,
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
                return Err(invalid(format!("mqtt user {name:?}: the password is not a hash"))
                    .with_hint("`lighter mqtt-password` makes one"));
            }
            if name.len() > USER_BYTES_MAX {
                return Err(invalid(format!("the name of mqtt user {name:?} is longer than {USER_BYTES_MAX} bytes")));
            }
            let filters = [&user.publish, &user.subscribe, &user.deny_publish, &user.deny_subscribe];
            let wrong = filters.into_iter().flatten().find(|filter| !topic::is_filter(filter, usize::MAX));
            if let Some(filter) = wrong {
                return Err(invalid(format!("mqtt user {name:?}: {filter:?} is not a topic filter")));
            }
        }
        let mut salt = [0; 32];
        getrandom::fill(&mut salt)
            .map_err(|error| Problem::new(Code::Internal, format!("no random numbers: {error}")))?;
        Ok(Self { known, anonymous, is_open: false, remembered: Mutex::default(), salt })
    }

    /// Everyone may do everything.
    pub fn open() -> Self {
        Self { known: BTreeMap::new(), anonymous: None, is_open: true, remembered: Mutex::default(), salt: [0; 32] }
    }

    /// Whether nobody is asked for a password.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Who comes to a gate that asks for no password, or gives no name to one that does.
    ///
    /// # Errors
    /// `NOT_AUTHORIZED`: a password is needed.
    pub fn unasked(&self, name: Option<&str>, client: &str) -> Result<Identity, Reason> {
        if name.is_some_and(|name| name.len() > USER_BYTES_MAX) {
            return Err(Reason::BAD_USER);
        }
        let is_asked = name.is_some() && !self.is_open;
        self.identity(name, client).filter(|_| !is_asked).ok_or(Reason::NOT_AUTHORIZED)
    }

    /// The user of this name.
    pub(crate) fn named(&self, name: &str) -> Option<Arc<str>> {
        self.known.get_key_value(name).map(|(name, _)| name.as_str().into())
    }

    /// Who it is that has shown the password, or needs none; nobody if there is no such user.
    pub fn identity(&self, name: Option<&str>, client: &str) -> Option<Identity> {
        if self.is_open {
            return Some(Identity { user: name.map(Into::into), rights: Rights::All });
        }
        let user = match name {
            Some(name) => self.known.get(name),
            None => self.anonymous.as_ref(),
        };
        user.map(|user| user.identity(name, client))
    }

    /// Whether this client id is this user's to use.
    pub fn may_be(&self, name: Option<&str>, client: &str) -> bool {
        let names = |user: &User| user.client_ids.iter().any(|pattern| fits(pattern, client));
        let own = name.and_then(|name| self.known.get(name));
        match own.filter(|user| !user.client_ids.is_empty()) {
            Some(user) => names(user),
            None => !self.known.values().any(names),
        }
    }

    /// How many users there are; those who give no name are one.
    pub fn count(&self) -> usize {
        self.known.len() + usize::from(self.anonymous.is_some() || self.is_open)
    }

    /// Whether the password is the user's, where that is known without hashing: a user that does not exist has none,
    /// and what differs from a password that was right is wrong.
    pub fn recall(&self, name: &str, password: &[u8]) -> Option<bool> {
        if password.len() > PASSWORD_BYTES_MAX || !self.known.contains_key(name) {
            return Some(false);
        }
        let remembered = self.remembered.lock().get(name).copied()?;
        Some(remembered.ct_eq(&self.quick(name, password)).into())
    }

    /// Hashes the password, which takes some 30 ms of CPU and [`Users::hash_bytes`], and remembers it if it is right.
    pub fn verify(&self, name: &str, password: &[u8]) -> bool {
        let Some(user) = self.known.get(name) else { return false };
        let hash = PasswordHash::new(&user.password).expect("it was checked when the users were read");
        let is_right = Argon2::default().verify_password(password, &hash).is_ok();
        if is_right {
            self.remembered.lock().insert(name.to_owned(), self.quick(name, password));
        }
        is_right
    }

    /// Memory that the most demanding user's hash takes.
    pub fn hash_bytes(&self) -> u64 {
        let memory_bytes = |user: &User| {
            let params = PasswordHash::new(&user.password).ok().and_then(|hash| Params::try_from(&hash).ok())?;
            Some(u64::from(params.m_cost()) * 1_024)
        };
        self.known.values().filter_map(memory_bytes).max().unwrap_or(0)
    }

    /// A hash with a secret of this run.
    pub(crate) fn quick(&self, name: &str, password: &[u8]) -> Quick {
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
        // What names somebody who has no such name denies nothing to anybody else.
        let filters = Filters {
            publish: fill(&self.publish),
            subscribe: fill(&self.subscribe),
            deny_publish: fill(&self.deny_publish),
            deny_subscribe: fill(&self.deny_subscribe),
        };
        Identity { user, rights: Rights::Some(Box::new(filters)) }
    }
}

impl Identity {
    /// Somebody who may do nothing.
    pub fn without_rights(user: Option<Arc<str>>) -> Self {
        Self { user, ..Self::default() }
    }

    /// Under `$SYS` only the node itself would publish.
    pub fn may_publish(&self, topic: &str) -> bool {
        !topic.starts_with("$SYS/")
            && !topic.starts_with("$share/")
            && self
                .rights
                .say(|filters| any_matches(&filters.publish, topic) && !any_matches(&filters.deny_publish, topic))
    }

    /// `filter` is without `$share`. What it covers and is denied is left out: see [`Identity::may_receive`].
    pub fn may_subscribe(&self, filter: &str) -> bool {
        self.rights.say(|filters| {
            filters.subscribe.iter().any(|allowed| topic::covers(allowed, filter))
                && !filters.deny_subscribe.iter().any(|denied| topic::covers(denied, filter))
        })
    }

    /// Whether some topic of the filter is denied, so that each message has to be looked at.
    pub fn is_denied_some(&self, filter: &str) -> bool {
        match &self.rights {
            Rights::Some(filters) => filters.deny_subscribe.iter().any(|denied| topic::overlaps(denied, filter)),
            Rights::None | Rights::All => false,
        }
    }

    pub fn may_receive(&self, topic: &str) -> bool {
        self.rights
            .say(|filters| any_matches(&filters.subscribe, topic) && !any_matches(&filters.deny_subscribe, topic))
    }
}

impl Rights {
    /// What the filters say; without any, all or nothing.
    fn say(&self, say: impl FnOnce(&Filters) -> bool) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Some(filters) => say(filters),
        }
    }
}

fn any_matches(filters: &[String], topic: &str) -> bool {
    filters.iter().any(|filter| topic::matches(filter, topic))
}

/// Whether a client id is one that `pattern` stands for.
fn fits(pattern: &str, client: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => client.starts_with(beginning),
        None => pattern == client,
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
            ..User::default()
        };
        Users::new([("meter".to_owned(), user)].into(), None).unwrap()
    }

    #[test]
    fn only_the_right_password_lets_in() {
        let users = users();
        assert_eq!(
            [None, Some("meter")].map(|name| users.unasked(name, "c")),
            [const { Err(Reason::NOT_AUTHORIZED) }; 2]
        );
        for (name, password) in [("meter", &b"wrong"[..]), ("other", b"secret"), ("meter", b""), ("", b"secret")] {
            assert!(!users.verify(name, password), "{name}");
        }
        let too_long = [b'x'; PASSWORD_BYTES_MAX + 1];
        assert_eq!(
            [users.recall("meter", b"secret"), users.recall("other", b"secret"), users.recall("meter", &too_long)],
            [None, Some(false), Some(false)]
        );
        assert!(users.verify("meter", b"secret"));
        assert_eq!(
            [users.recall("meter", b"secret"), users.recall("meter", b"wrong"), users.recall("meter", b"")],
            [Some(true), Some(false), Some(false)]
        );
        assert!(users.identity(Some("meter"), "c").is_some() && users.identity(Some("other"), "c").is_none());
        assert_eq!(users.hash_bytes(), 19 << 20);
    }

    #[test]
    fn permissions_are_filled_with_the_names_of_who_connects() {
        let identity = users().identity(Some("meter"), "7").unwrap();
        assert!(identity.may_publish("sensor/7/co2") && identity.may_publish("all/meter"));
        assert!(!identity.may_publish("sensor/8/co2") && !identity.may_publish("command/7"));
        assert!(
            identity.may_subscribe("command/7") && !identity.may_subscribe("command/+") && !identity.may_subscribe("#")
        );
        for client in ["+", "#", "a/b", ""] {
            let identity = users().identity(Some("meter"), client).unwrap();
            assert!(!identity.may_publish("sensor/7/co2") && !identity.may_subscribe("command/7"), "{client:?}");
        }
    }

    #[test]
    fn what_is_denied_is_left_out_of_what_is_allowed() {
        let user = User {
            publish: vec!["#".into()],
            subscribe: vec!["#".into()],
            deny_publish: vec!["door/+/open".into()],
            deny_subscribe: vec!["secret/#".into()],
            ..User::default()
        };
        let identity = user.identity(None, "c");
        assert!(identity.may_publish("door/1") && !identity.may_publish("door/1/open"));
        assert!(identity.may_subscribe("#") && identity.may_subscribe("+/x") && !identity.may_subscribe("secret/a"));
        assert!(identity.is_denied_some("#") && identity.is_denied_some("+/x") && !identity.is_denied_some("door/#"));
        assert!(identity.may_receive("door/1") && !identity.may_receive("secret") && !identity.may_receive("secret/a"));
    }

    #[test]
    fn a_client_id_that_is_somebodys_is_nobody_elses() {
        let hash = hash_password(b"p").unwrap();
        let user = |ids: &[&str]| {
            let client_ids = ids.iter().map(|id| (*id).to_owned()).collect();
            User { password: hash.clone(), client_ids, ..User::default() }
        };
        let known = [("meter".to_owned(), user(&["meter-*", "spare"])), ("app".to_owned(), user(&[]))];
        let users = Users::new(known.into(), Some(User::default())).unwrap();
        for (name, client, expected) in [
            (Some("meter"), "meter-7", true),
            (Some("meter"), "spare", true),
            (Some("meter"), "other", false),
            (Some("app"), "other", true),
            (Some("app"), "meter-7", false),
            (None, "spare", false),
            (None, "spares", true),
        ] {
            assert_eq!(users.may_be(name, client), expected, "{name:?} {client}");
        }
        assert_eq!(users.count(), 3);
    }

    #[test]
    fn what_cannot_be_used_is_refused() {
        let bad_hash = User { password: "secret".into(), ..User::default() };
        assert!(Users::new([("u".to_owned(), bad_hash)].into(), None).is_err());
        let bad_filter = User { publish: vec!["a/#/b".into()], ..User::default() };
        assert!(Users::new(BTreeMap::new(), Some(bad_filter)).is_err());
    }
}
