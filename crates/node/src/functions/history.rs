//! What the state keeps of one function: its last versions, and which of them takes calls.
//!
//! One record for each function, written in one batch for all functions of a deployment: after a crash either all of
//! them have their new version or none has.

use manifest::{Function, Name};
use problem::{Code, Problem};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use unit::Contract;

/// Table of the functions in the state, by name.
pub const TABLE: &str = "functions";

/// Versions kept of one function, the current one included; fewer when their manifests are very large.
pub const VERSIONS_MAX: usize = 5;

/// The versions of one function.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct History {
    /// The version that takes calls.
    pub current: u32,
    /// The number of the next version; never used before, not even by a version that is forgotten.
    next: u32,
    /// Newest first.
    pub versions: Vec<Version>,
}

/// One deployed version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Version {
    pub version: u32,
    pub image_bytes: u64,
    pub deployed_ms: u64,
    #[serde(with = "contract_word")]
    pub contract: Contract,
    /// `image` is the hash of the image.
    pub function: Arc<Function>,
}

/// What a deployment adds.
pub struct NewVersion {
    pub image_bytes: u64,
    pub deployed_ms: u64,
    pub contract: Contract,
    pub function: Arc<Function>,
}

impl History {
    /// The history after one more version, which is then the current one.
    pub fn deployed(before: Option<&Self>, new: NewVersion) -> Self {
        let version = before.map_or(1, |history| history.next);
        let NewVersion { image_bytes, deployed_ms, contract, function } = new;
        let mut versions = vec![Version { version, image_bytes, deployed_ms, contract, function }];
        // The version that takes calls now is what a rollback most likely goes to: it stays, however old it is.
        let old = before.map_or(&[][..], |history| &history.versions);
        let current = before.map_or(0, |history| history.current);
        let others = old.iter().filter(|version| version.version != current);
        let mut kept: Vec<&Version> = old.iter().filter(|version| version.version == current).collect();
        kept.extend(others.take(VERSIONS_MAX - 1 - kept.len()));
        kept.sort_by_key(|version| std::cmp::Reverse(version.version));
        versions.extend(kept.into_iter().cloned());
        Self { current: version, next: version + 1, versions }
    }

    /// The history after going back to `version`, or to the one before the current one.
    ///
    /// # Errors
    /// [`Code::VersionUnknown`], with the versions there are.
    pub fn rolled_back(&self, name: &Name, version: Option<u32>) -> Result<Self, Problem> {
        let found = match version {
            Some(wanted) => self.versions.iter().find(|version| version.version == wanted),
            None => self.versions.iter().find(|version| version.version < self.current),
        };
        match found {
            Some(found) => Ok(Self { current: found.version, ..self.clone() }),
            None => {
                let kept: Vec<String> = self.versions.iter().map(|version| version.version.to_string()).collect();
                let wanted = version.map_or_else(|| format!("before {}", self.current), |version| version.to_string());
                let detail =
                    format!("function {:?} has no version {wanted}; kept are {}", name.as_str(), kept.join(", "));
                Err(Problem::new(Code::VersionUnknown, detail))
            }
        }
    }

    pub fn current(&self) -> &Version {
        let current = self.versions.iter().find(|version| version.version == self.current);
        current.expect("a history holds its current version: checked when it was read")
    }

    /// The record, without its oldest versions if it would be too large.
    ///
    /// # Errors
    /// [`Code::ManifestValue`]: one version alone is too large.
    pub fn to_record(&self, name: &Name) -> Result<Vec<u8>, Problem> {
        let mut fitting = self.clone();
        loop {
            let record = serde_json::to_vec(&fitting).expect("a history has only strings, numbers and lists");
            if record.len() <= state::VALUE_BYTES_MAX {
                return Ok(record);
            }
            let Some(oldest) = fitting.versions.iter().rposition(|version| version.version != fitting.current) else {
                let (bytes, limit) = (record.len(), state::VALUE_BYTES_MAX);
                let detail = format!("function {:?} takes {bytes} bytes as JSON, the limit is {limit}", name.as_str());
                return Err(Problem::new(Code::ManifestValue, detail));
            };
            fitting.versions.remove(oldest);
        }
    }

    /// # Errors
    /// [`Code::StateCorrupt`]: it is not a history.
    pub fn from_record(name: &str, record: &[u8]) -> Result<Self, Problem> {
        let corrupt = |why: String| Problem::new(Code::StateCorrupt, format!("the record of function {name:?}: {why}"));
        let history: Self = serde_json::from_slice(record).map_err(|error| corrupt(error.to_string()))?;
        if !history.versions.iter().any(|version| version.version == history.current) {
            return Err(corrupt(format!("version {} is missing", history.current)));
        }
        Ok(history)
    }
}

mod contract_word {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use unit::Contract;

    pub fn serialize<S: Serializer>(contract: &Contract, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(contract.as_str())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Contract, D::Error> {
        let word = String::deserialize(deserializer)?;
        let known =
            [Contract::Unit, Contract::WasiHttp, Contract::Call].into_iter().find(|contract| contract.as_str() == word);
        known.ok_or_else(|| D::Error::custom(format!("no contract is called {word:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(image: &str) -> NewVersion {
        let function = Arc::new(Function::new(image));
        NewVersion { image_bytes: 1, deployed_ms: 2, contract: Contract::Unit, function }
    }

    fn name() -> Name {
        "f".parse().unwrap()
    }

    fn after(deployments: usize) -> History {
        let mut history = History::deployed(None, new("1"));
        for number in 2..=deployments {
            history = History::deployed(Some(&history), new(&number.to_string()));
        }
        history
    }

    fn versions(history: &History) -> Vec<u32> {
        history.versions.iter().map(|version| version.version).collect()
    }

    #[test]
    fn the_last_versions_are_kept_and_numbers_only_rise() {
        assert_eq!(versions(&after(1)), [1]);
        let history = after(7);
        assert_eq!((history.current, versions(&history)), (7, vec![7, 6, 5, 4, 3]));
    }

    #[test]
    fn the_version_that_takes_calls_is_kept_however_old() {
        let back = after(5).rolled_back(&name(), Some(1)).unwrap();
        let history = History::deployed(Some(&back), new("6"));
        assert_eq!((history.current, versions(&history)), (6, vec![6, 5, 4, 3, 1]));
    }

    #[test]
    fn a_rollback_goes_one_back_or_to_a_version_that_is_kept() {
        let history = after(6);
        assert_eq!(history.rolled_back(&name(), None).unwrap().current, 5);
        let back = history.rolled_back(&name(), Some(2)).unwrap();
        assert_eq!((back.current, versions(&back)), (2, vec![6, 5, 4, 3, 2]));
        assert_eq!(back.rolled_back(&name(), Some(6)).unwrap().current, 6);
        for version in [Some(1), Some(7)] {
            let problem = history.rolled_back(&name(), version).unwrap_err();
            assert_eq!(problem.code, Code::VersionUnknown);
            assert!(problem.detail.contains("6, 5, 4, 3, 2"), "{}", problem.detail);
        }
        assert!(back.rolled_back(&name(), None).is_err());
    }

    #[test]
    fn a_record_reads_back_and_a_broken_one_is_refused() {
        let history = after(3);
        let record = history.to_record(&name()).unwrap();
        assert_eq!(History::from_record("f", &record).unwrap(), history);
        let missing = String::from_utf8(record).unwrap().replace("\"current\":3", "\"current\":9");
        for broken in ["", "{}", &missing] {
            assert_eq!(History::from_record("f", broken.as_bytes()).unwrap_err().code, Code::StateCorrupt);
        }
    }

    #[test]
    fn a_large_record_loses_its_oldest_versions_first() {
        let mut history = after(4);
        for version in &mut history.versions {
            let value = "x".repeat(60_000);
            let config = (0..6).map(|number| (format!("key{number}"), value.clone())).collect();
            version.function = Arc::new(Function { config, ..Function::new("x") });
        }
        let record = history.to_record(&name()).unwrap();
        assert_eq!(versions(&History::from_record("f", &record).unwrap()), [4, 3]);
    }
}
