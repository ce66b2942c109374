//! Secrets: values functions may be granted by name. They live in the state only, in a folder nobody else can read, and
//! never stand in a log, a list or an error.

use super::super::records;
use manifest::{Function, Name};
use problem::{Code, Problem};
use state::{Records, State};
use std::collections::BTreeMap;

/// Table of the secrets in the state, by name.
pub const TABLE: &str = "secrets";

/// Secrets of one node; the next one is refused.
const SECRETS_MAX: usize = 10_000;

/// Bytes of one value.
pub const SECRET_BYTES_MAX: usize = 64 << 10;

#[derive(Clone)]
pub struct Secrets {
    records: Records,
}

impl Secrets {
    pub fn new(state: &State) -> Self {
        Self { records: state.records(TABLE) }
    }

    pub fn names(&self) -> Result<Vec<String>, Problem> {
        let mut names = Vec::new();
        records::each(&self.records, |name, _| {
            names.push(name.to_owned());
            Ok(())
        })?;
        Ok(names)
    }

    /// Durable when it returns.
    ///
    /// # Errors
    /// [`Code::ApiRequest`]: the name or the value cannot be one, or there are too many.
    pub async fn set(&self, name: &str, value: &[u8]) -> Result<(), Problem> {
        let bad = |detail: String| Err(Problem::new(Code::ApiRequest, detail));
        if !manifest::is_secret_name(name) {
            return bad(format!("{name:?} is not a name for a secret: 1 to 64 of A-Z, a-z, 0-9 and '_'"));
        }
        if value.len() > SECRET_BYTES_MAX {
            return bad(format!("the secret {name} has {} bytes, the limit is {SECRET_BYTES_MAX}", value.len()));
        }
        if std::str::from_utf8(value).is_err() {
            return bad(format!("the secret {name} is not UTF-8 text"));
        }
        if self.records.get(name)?.is_none() && self.names()?.len() >= SECRETS_MAX {
            return bad(format!("there are {SECRETS_MAX} secrets, which is the limit"));
        }
        self.records.put(&[(name, value)]).await
    }

    /// # Errors
    /// [`Code::SecretUnknown`]: there is none of this name.
    pub async fn remove(&self, name: &str) -> Result<(), Problem> {
        if !manifest::is_secret_name(name) || self.records.get(name)?.is_none() {
            // Somebody may have removed it a moment ago, and that is what this answer says.
            self.records.settled().await?;
            return Err(Problem::new(Code::SecretUnknown, format!("there is no secret {name:?}")));
        }
        self.records.delete(&[name]).await
    }

    /// The value of one, if there is one of this name.
    pub fn get(&self, name: &str) -> Result<Option<String>, Problem> {
        let value = self.records.get(name)?;
        Ok(value.map(|value| String::from_utf8_lossy(&value).into_owned()))
    }

    /// The secrets a function is granted, as far as they exist.
    pub fn granted(&self, function: &Function) -> Result<BTreeMap<String, String>, Problem> {
        let mut granted = BTreeMap::new();
        for name in &function.grants.secrets {
            if let Some(value) = self.records.get(name)? {
                granted.insert(name.clone(), String::from_utf8_lossy(&value).into_owned());
            }
        }
        Ok(granted)
    }

    /// # Errors
    /// [`Code::SecretUnknown`]: the function is granted a secret this node does not have.
    pub fn check_granted(&self, name: &Name, function: &Function) -> Result<(), Problem> {
        for secret in &function.grants.secrets {
            if self.records.get(secret)?.is_none() {
                let detail = format!(
                    "function {:?} is granted the secret {secret:?}, which this node does not have",
                    name.as_str()
                );
                let hint = format!("`lighter secret set {secret}` keeps its value on the node");
                return Err(Problem::new(Code::SecretUnknown, detail).with_hint(hint));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_function_gets_the_secrets_it_is_granted_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let secrets = Secrets::new(&State::open(folder.path(), state::Options::default()).unwrap());
        secrets.set("API_KEY", b"k").await.unwrap();
        secrets.set("OTHER", b"o").await.unwrap();
        let mut function = Function::new("x.wasm");
        function.grants.secrets = vec!["API_KEY".to_owned()];
        assert_eq!(secrets.granted(&function).unwrap(), BTreeMap::from([("API_KEY".to_owned(), "k".to_owned())]));
        assert_eq!(secrets.names().unwrap(), ["API_KEY", "OTHER"]);

        let name: Name = "f".parse().unwrap();
        assert!(secrets.check_granted(&name, &function).is_ok());
        secrets.remove("API_KEY").await.unwrap();
        assert_eq!(secrets.check_granted(&name, &function).unwrap_err().code, Code::SecretUnknown);
        assert_eq!(secrets.remove("API_KEY").await.unwrap_err().code, Code::SecretUnknown);
    }

    #[tokio::test]
    async fn bad_names_and_values_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let secrets = Secrets::new(&State::open(folder.path(), state::Options::default()).unwrap());
        let big = vec![b'x'; SECRET_BYTES_MAX + 1];
        for (name, value) in [("", &b"x"[..]), ("a b", b"x"), ("A", &big), ("A", b"\xff")] {
            assert_eq!(secrets.set(name, value).await.unwrap_err().code, Code::ApiRequest, "{name:?}");
        }
    }
}
