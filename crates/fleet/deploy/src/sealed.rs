//! A signed document: four letters that say what it is, a version, a signature, and JSON.
//!
//! ```text
//!   LORD, LREC or LTOK | version 1 | signature 64 | JSON
//! ```

use fleet_trust::{PublicKey, Signature, is_signed};
use problem::{Code, Problem};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Bytes of a signed document. A longer one is refused before it is read.
pub const DOCUMENT_BYTES_MAX: usize = 1 << 20;

const VERSION: u8 = 1;
const HEAD_BYTES: usize = 5 + 64;

/// One kind of document.
pub struct Document {
    pub magic: [u8; 4],
    /// What its signature is made for.
    pub purpose: &'static str,
    /// What people call it.
    pub word: &'static str,
}

/// Bytes that look like a document, before anything of them is believed.
pub struct Unproved<'a> {
    signature: &'a Signature,
    json: &'a [u8],
}

impl Document {
    /// Writes a document.
    ///
    /// # Errors
    /// [`Code::DeploymentFull`]: it has more than [`DOCUMENT_BYTES_MAX`].
    pub fn seal(
        &self,
        what: &impl Serialize,
        sign: impl FnOnce(&str, &[&[u8]]) -> Signature,
    ) -> Result<Vec<u8>, Problem> {
        let json = serde_json::to_vec(what).expect("it is plain data");
        let bytes = HEAD_BYTES + json.len();
        if bytes > DOCUMENT_BYTES_MAX {
            let detail = format!("the {} has {bytes} bytes, the limit is {DOCUMENT_BYTES_MAX}", self.word);
            return Err(Problem::new(Code::DeploymentFull, detail).with_hint(manifest::DIVIDE));
        }
        let signature = sign(self.purpose, &[&json]);
        Ok([&self.magic[..], &[VERSION], &signature, &json].concat())
    }

    /// Looks at the head of what came.
    ///
    /// # Errors
    /// [`Code::DeploymentGarbled`].
    pub fn look<'a>(&self, bytes: &'a [u8]) -> Result<Unproved<'a>, Problem> {
        let garbled = |what: String| Problem::new(Code::DeploymentGarbled, format!("this is no {}: {what}", self.word));
        if bytes.len() > DOCUMENT_BYTES_MAX {
            return Err(garbled(format!("{} bytes, {DOCUMENT_BYTES_MAX} at most", bytes.len())));
        }
        let (magic, rest) = bytes.split_first_chunk::<4>().ok_or_else(|| garbled("it is too short".to_owned()))?;
        if *magic != self.magic {
            return Err(garbled("it begins otherwise".to_owned()));
        }
        let (version, rest) = rest.split_first().ok_or_else(|| garbled("it is too short".to_owned()))?;
        if *version != VERSION {
            let problem = garbled(format!("it has version {version}, known is {VERSION}"));
            return Err(problem.with_hint("one of the two nodes is older: update it"));
        }
        let (signature, json) = rest.split_first_chunk().ok_or_else(|| garbled("it is too short".to_owned()))?;
        Ok(Unproved { signature, json })
    }

    /// Reads what a document says, whoever has signed it.
    ///
    /// # Errors
    /// [`Code::DeploymentGarbled`].
    pub fn read<T: DeserializeOwned>(&self, unproved: &Unproved<'_>) -> Result<T, Problem> {
        serde_json::from_slice(unproved.json).map_err(|error| {
            let detail = format!("this {} cannot be read: {error}", self.word);
            Problem::new(Code::DeploymentGarbled, detail).with_hint("perhaps one of the two nodes is older: update it")
        })
    }

    /// Whether it was signed with this key.
    pub fn is_signed(&self, unproved: &Unproved<'_>, key: &PublicKey) -> bool {
        is_signed(key, self.purpose, &[unproved.json], unproved.signature)
    }
}
