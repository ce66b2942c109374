//! What a deployer wants of a fleet, signed with the deployer's key: any node passes it on, and an anchor decides.

use crate::deployers::DeployerKey;
use crate::sealed::Document;
use fleet_trust::PublicKey;
use manifest::{Manifest, Name};
use problem::{Code, Problem};
use serde::{Deserialize, Serialize};

const DOCUMENT: Document = Document { magic: *b"LORD", purpose: "lighterage order 1", word: "order of a deployer" };

/// What is wanted of one deployment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// The fleet's id. No other fleet takes the order.
    pub fleet: String,
    /// Of the deployment.
    pub name: Name,
    /// The serial of the record that it was made from; 0: there was none. Of two orders that were made from the same
    /// record the second one is refused, and so is one that is sent again.
    pub after: u64,
    /// The name of the key.
    pub deployer: String,
    pub wish: Wish,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Wish {
    /// Run this. `image` of each function is a hash.
    Deploy(Box<Manifest>),
    /// Run what an earlier revision had; without a number, the one before.
    RollBack { to: Option<u64> },
    /// Run it nowhere.
    Remove,
}

/// An order as it travels. Nothing of it is to be believed before [`SignedOrder::check`].
#[derive(Debug, Clone, PartialEq)]
pub struct SignedOrder {
    order: Order,
    bytes: Vec<u8>,
}

impl SignedOrder {
    /// # Errors
    /// [`Code::DeploymentFull`]: it is too large.
    pub fn sign(order: Order, key: &DeployerKey) -> Result<Self, Problem> {
        let bytes = DOCUMENT.seal(&order, |purpose, parts| key.sign(purpose, parts))?;
        Ok(Self { order, bytes })
    }

    /// # Errors
    /// [`Code::DeploymentGarbled`].
    pub fn read(bytes: &[u8]) -> Result<Self, Problem> {
        let order = DOCUMENT.read(&DOCUMENT.look(bytes)?)?;
        Ok(Self { order, bytes: bytes.to_vec() })
    }

    /// Which key it has to be signed with, as it says itself.
    pub fn deployer(&self) -> &str {
        &self.order.deployer
    }

    /// The order, if it was signed with this key.
    ///
    /// # Errors
    /// [`Code::DeployerUnknown`].
    pub fn check(&self, key: &PublicKey) -> Result<&Order, Problem> {
        if DOCUMENT.is_signed(&DOCUMENT.look(&self.bytes)?, key) {
            return Ok(&self.order);
        }
        let detail = format!("the order is not signed with the key of the deployer {:?}", self.order.deployer);
        Err(Problem::new(Code::DeployerUnknown, detail))
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
