//! Who may deploy to a fleet: keys with names. An anchor keeps their public halves.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fleet_trust::{NodeKey, PublicKey, Seed, Signature, check_name};
use problem::{Code, Problem};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Deployers of one fleet. Another one is refused.
const DEPLOYERS_MAX: usize = 256;

/// What a key's text begins with.
const PREFIX: &str = "lighter-deployer-1.";

/// The secret of a deployer, with its name.
pub struct DeployerKey {
    pub name: String,
    seed: Seed,
    key: NodeKey,
}

/// Those whose orders count.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Deployers(BTreeMap<String, Deployer>);

/// One of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deployer {
    /// The public half, in base64url.
    key: String,
    /// In seconds since 1970, by the anchor's clock.
    pub added_at: u64,
}

impl DeployerKey {
    /// # Errors
    /// [`Code::Usage`]: the name is none.
    pub fn new(name: &str, seed: Seed) -> Result<Self, Problem> {
        check_name(name)?;
        Ok(Self { name: name.to_owned(), key: NodeKey::from_seed(&seed), seed })
    }

    /// Reads what [`DeployerKey::secret_text`] writes.
    ///
    /// # Errors
    /// [`Code::DeployerUnknown`].
    pub fn read(text: &str) -> Result<Self, Problem> {
        let parts = text.trim().strip_prefix(PREFIX).and_then(|rest| rest.split_once('.'));
        let seed = |(name, seed): (&str, &str)| Some((name.to_owned(), URL_SAFE_NO_PAD.decode(seed).ok()?));
        let whole = parts.and_then(seed).and_then(|(name, seed)| Self::new(&name, seed.try_into().ok()?).ok());
        whole.ok_or_else(|| {
            let problem = Problem::new(Code::DeployerUnknown, "the text is no key of a deployer");
            problem.with_hint(format!("it begins with {PREFIX}; `lighter fleet deployer add NAME` makes one"))
        })
    }

    /// Whoever has this text may deploy to the fleet.
    pub fn secret_text(&self) -> String {
        format!("{PREFIX}{}.{}", self.name, URL_SAFE_NO_PAD.encode(self.seed))
    }

    pub fn public(&self) -> PublicKey {
        self.key.public()
    }

    pub(crate) fn sign(&self, purpose: &str, parts: &[&[u8]]) -> Signature {
        self.key.sign(purpose, parts)
    }
}

impl fmt::Debug for DeployerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeployerKey({})", self.name)
    }
}

impl Deployers {
    /// # Errors
    /// [`Code::DeploymentFull`]; [`Code::Usage`]: another key has the name.
    pub fn add(&mut self, name: &str, key: &PublicKey, now: u64) -> Result<(), Problem> {
        check_name(name)?;
        if self.0.contains_key(name) {
            let problem = Problem::new(Code::Usage, format!("there is a deployer {name:?} already"));
            return Err(problem.with_hint(format!("choose another name, or `lighter fleet deployer rm {name}` first")));
        }
        if self.0.len() >= DEPLOYERS_MAX {
            let detail = format!("the fleet has {DEPLOYERS_MAX} deployers, which is the limit");
            return Err(Problem::new(Code::DeploymentFull, detail));
        }
        self.0.insert(name.to_owned(), Deployer { key: URL_SAFE_NO_PAD.encode(key), added_at: now });
        Ok(())
    }

    /// # Errors
    /// [`Code::DeployerUnknown`].
    pub fn remove(&mut self, name: &str) -> Result<(), Problem> {
        self.0.remove(name).map(|_| ()).ok_or_else(|| unknown(name))
    }

    /// The key of a name.
    ///
    /// # Errors
    /// [`Code::DeployerUnknown`].
    pub fn key(&self, name: &str) -> Result<PublicKey, Problem> {
        let key = self.0.get(name).and_then(|one| URL_SAFE_NO_PAD.decode(&one.key).ok()?.try_into().ok());
        key.ok_or_else(|| unknown(name))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &Deployer)> {
        self.0.iter().map(|(name, one)| (name.as_str(), one))
    }
}

fn unknown(name: &str) -> Problem {
    Problem::new(Code::DeployerUnknown, format!("the fleet has no deployer {name:?}"))
}
