//! The folder `fleet` in a node's data: small files, each there whole or not at all, for its owner alone.
//!
//! ```text
//!   fleet/node.key        32 secret bytes: who this node is. A copy of it is another machine with the same name
//!         member.json     fleet, CA, certificate, anchors, incarnation
//!         revoked         the newest signed list
//!         nodes.json      what the node knows of the others, as its caller writes it
//!   on anchors also
//!         ca.key          32 secret bytes: who has them can admit anybody
//!         authority.json  the fleet's name and the CA's certificate
//!         ledger.json     members, invitations, revoked nodes
//!         nats.*, js/     the engine's own (`fleet-nats`)
//! ```

use crate::anchor::Keep;
use crate::certificate::{Authority, Membership};
use crate::keys::{NodeKey, Seed, random};
use crate::ledger::Ledger;
use crate::revoked::{LIST_BYTES_MAX, Revoked};
use crate::token::Address;
use crate::verify::Ca;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use problem::{Code, Problem};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::{DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use whole_file::write_new;

/// Bytes of a file. A larger one is not what was written here.
const FILE_BYTES_MAX: u64 = 32 << 20;

/// One folder. Clones write one after the other.
#[derive(Debug, Clone)]
pub struct Folder {
    path: PathBuf,
    writing: Arc<Mutex<()>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredMembership {
    fleet: String,
    ca: String,
    certificate: String,
    anchors: Vec<Address>,
    incarnation: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredAuthority {
    fleet: String,
    ca: String,
}

impl Folder {
    /// Opens the folder, making it if it is not there.
    ///
    /// # Errors
    /// [`Code::DataUnusable`], as all of these.
    pub fn open(path: &Path) -> Result<Self, Problem> {
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|error| unusable(path, &error))?;
        Ok(Self { path: path.to_owned(), writing: Arc::default() })
    }

    /// This node's key, made now if there is none and the node has not joined with one.
    pub fn key(&self) -> Result<NodeKey, Problem> {
        let seed =
            if self.path.join("member.json").exists() { self.seed("node.key") } else { self.new_seed("node.key") };
        seed.map(|seed| NodeKey::from_seed(&seed))
    }

    pub fn membership(&self) -> Result<Option<Membership>, Problem> {
        let Some(stored) = self.json::<StoredMembership>("member.json")? else { return Ok(None) };
        Ok(Some(Membership {
            fleet_name: stored.fleet,
            ca: self.decoded("member.json", &stored.ca)?,
            certificate: self.decoded("member.json", &stored.certificate)?,
            anchors: stored.anchors,
            incarnation: stored.incarnation,
        }))
    }

    pub fn keep_membership(&self, membership: &Membership) -> Result<(), Problem> {
        let stored = StoredMembership {
            fleet: membership.fleet_name.clone(),
            ca: STANDARD.encode(&membership.ca),
            certificate: STANDARD.encode(&membership.certificate),
            anchors: membership.anchors.clone(),
            incarnation: membership.incarnation,
        };
        self.write_json("member.json", &stored)
    }

    /// The newest list that was kept.
    pub fn revoked(&self, membership: &Membership) -> Result<Option<Revoked>, Problem> {
        let Some(bytes) = self.read("revoked", LIST_BYTES_MAX as u64)? else { return Ok(None) };
        let wrong = |why: String| unusable(&self.path.join("revoked"), &io::Error::other(why));
        let ca = Ca::new(&membership.ca).map_err(|error| wrong(error.to_string()))?;
        Revoked::read(&bytes, ca.fleet, &ca.key).map(Some).map_err(|fault| wrong(fault.to_string()))
    }

    pub fn keep_revoked(&self, list: &Revoked) -> Result<(), Problem> {
        self.write("revoked", list.bytes())
    }

    /// What the node knew of the others when it last said so.
    pub fn known(&self) -> Result<Option<Vec<u8>>, Problem> {
        self.read("nodes.json", FILE_BYTES_MAX)
    }

    pub fn keep_known(&self, bytes: &[u8]) -> Result<(), Problem> {
        self.write("nodes.json", bytes)
    }

    /// The CA of this node's own fleet. `None`: it is no anchor.
    pub fn authority(&self) -> Result<Option<Authority>, Problem> {
        let Some(stored) = self.json::<StoredAuthority>("authority.json")? else { return Ok(None) };
        let seed = self.seed("ca.key")?;
        Authority::open(&stored.fleet, &seed, self.decoded("authority.json", &stored.ca)?).map(Some)
    }

    /// Founds a fleet: makes its CA here.
    ///
    /// # Errors
    /// Also [`Code::Usage`]: the name is none, or this node has a fleet already.
    pub fn found(&self, name: &str) -> Result<Authority, Problem> {
        if self.path.join("authority.json").exists() || self.path.join("member.json").exists() {
            return Err(Problem::new(Code::Usage, "this node belongs to a fleet already"));
        }
        // A crash may have left a key without a fleet. It is as good as a new one.
        let authority = Authority::found(name, &self.new_seed("ca.key")?)?;
        let stored = StoredAuthority { fleet: name.to_owned(), ca: STANDARD.encode(authority.certificate()) };
        self.write_json("authority.json", &stored)?;
        Ok(authority)
    }

    /// This node becomes an anchor of its fleet with the next start. After a crash in the middle it is none yet.
    ///
    /// # Errors
    /// [`Code::DataUnusable`], also where the key is not that of the CA.
    pub fn become_anchor(&self, membership: &Membership, seed: &Seed, ledger: &Ledger) -> Result<(), Problem> {
        Authority::open(&membership.fleet_name, seed, membership.ca.clone())?;
        self.write("ca.key", seed)?;
        self.write_json("ledger.json", ledger)?;
        let stored = StoredAuthority { fleet: membership.fleet_name.clone(), ca: STANDARD.encode(&membership.ca) };
        self.write_json("authority.json", &stored)
    }

    /// This node is a member like others with the next start. After a crash in the middle it is that already.
    pub fn cease_anchor(&self, membership: &Membership) -> Result<(), Problem> {
        self.keep_membership(membership)?;
        let _one_at_a_time = self.writing.lock();
        for name in ["authority.json", "ca.key", "ledger.json"] {
            let path = self.path.join(name);
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(unusable(&path, &error)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Deletes the whole folder. After a crash in the middle the node belongs to no fleet any more, or still to this
    /// one.
    pub fn forget(&self) -> Result<(), Problem> {
        let _one_at_a_time = self.writing.lock();
        for step in [std::fs::remove_file(self.path.join("member.json")), std::fs::remove_dir_all(&self.path)] {
            match step {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(unusable(&self.path, &error)),
                _ => {}
            }
        }
        Ok(())
    }

    pub fn ledger(&self) -> Result<Ledger, Problem> {
        Ok(self.json("ledger.json")?.unwrap_or_default())
    }

    /// 32 bytes that have to be there.
    fn seed(&self, name: &str) -> Result<Seed, Problem> {
        let wrong = || unusable(&self.path.join(name), &io::Error::other("a key of 32 bytes is wanted"));
        self.read(name, 33)?.and_then(|bytes| bytes.try_into().ok()).ok_or_else(wrong)
    }

    /// 32 bytes that are made if they are not there.
    fn new_seed(&self, name: &str) -> Result<Seed, Problem> {
        if !self.path.join(name).exists() {
            self.write(name, &random::<32>()?)?;
        }
        self.seed(name)
    }

    fn json<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Problem> {
        let Some(bytes) = self.read(name, FILE_BYTES_MAX)? else { return Ok(None) };
        serde_json::from_slice(&bytes).map(Some).map_err(|error| unusable(&self.path.join(name), &error.into()))
    }

    fn write_json(&self, name: &str, value: &impl Serialize) -> Result<(), Problem> {
        let bytes = serde_json::to_vec(value).map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
        self.write(name, &bytes)
    }

    fn decoded(&self, name: &str, text: &str) -> Result<Vec<u8>, Problem> {
        STANDARD.decode(text).map_err(|error| unusable(&self.path.join(name), &io::Error::other(error)))
    }

    fn read(&self, name: &str, bytes_max: u64) -> Result<Option<Vec<u8>>, Problem> {
        let path = self.path.join(name);
        let mut bytes = Vec::new();
        let read = File::open(&path).and_then(|file| file.take(bytes_max + 1).read_to_end(&mut bytes));
        match read {
            Ok(_) if bytes.len() as u64 > bytes_max => Err(unusable(&path, &io::Error::other("it is too large"))),
            Ok(_) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(unusable(&path, &error)),
        }
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Problem> {
        let _one_at_a_time = self.writing.lock();
        write_new(&self.path, name, bytes).map_err(|error| unusable(&self.path.join(name), &error))
    }
}

impl Keep for Folder {
    fn keep(&self, ledger: &Ledger) -> Result<(), Problem> {
        self.write_json("ledger.json", ledger)
    }
}

fn unusable(path: &Path, error: &io::Error) -> Problem {
    Problem::new(Code::DataUnusable, format!("{}: {error}", path.display()))
}
