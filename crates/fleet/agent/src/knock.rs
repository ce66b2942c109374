//! Joining without an invitation: find the anchor, show digits, and join once a person has said that they are right.
//!
//! ```text
//!   new node                                                   anchor
//!   knock: seek, or an address ─▶ Knock, Reveal ─────────────▶ waits for a person
//!   shows digits ─ a person carries them over ───────────────▶ admit(digits): one node waits with them
//!   confirmed: a person says that the anchor took them ◀────── certificate
//! ```
//! The person types the digits on the anchor and only then says so on the node. An anchor that is none of theirs would
//! let the node in as well: the node must not believe it before the right one has taken its digits.

use crate::agent::{Agent, Status};
use crate::beacon;
use crate::places::{self, with_id};
use fleet_trust::anchor::Knocking;
use fleet_trust::digits::Digits;
use fleet_trust::folder::Folder;
use fleet_trust::link::{self, KNOCK_TIMEOUT, Knock};
use fleet_trust::{Address, FleetId, NodeKey};
use problem::{Code, Problem};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Instant;

/// What a new node shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// The fleet's name, as the beacon said it. None: the address was given.
    pub fleet: Option<String>,
    pub anchor: Address,
    /// The name that this node will have.
    pub name: String,
    pub digits: Digits,
}

/// A node that has shown its digits.
pub(crate) struct ShownDigits {
    knock: Knock,
    folder: Folder,
    name: String,
    since: Instant,
}

impl Agent {
    /// Knocks at an anchor: at the one at `at`, or at that of the only fleet that the beacon finds. What was shown
    /// before counts no more.
    ///
    /// # Errors
    /// [`Code::FleetAlready`]; [`Code::AnchorsAway`]: none is found, or none answers. [`Code::AnchorsSeveral`].
    /// [`Code::NotAdmitted`]: the name is another node's. [`Code::AnchorBusy`].
    pub async fn knock(&self, at: Option<Address>) -> Result<Shown, Problem> {
        self.check_own_name()?;
        self.check_alone()?;
        *self.waiting.lock() = None;
        let (fleet, anchor) = match at {
            Some(address) => (None, address),
            None => {
                let asked = self.settings().seek.clone().unwrap_or_else(beacon::around);
                let (address, name) = only(beacon::seek(&asked).await?)?;
                (Some(name), Address::Ip(address))
            }
        };
        let (folder, key) = self.own_key().await?;
        let (knock, name) = self.knock_at(&anchor, &key).await?;
        let digits = knock.digits();
        *self.waiting.lock() = Some(ShownDigits { knock, folder, name: name.clone(), since: Instant::now() });
        Ok(Shown { fleet, anchor, name, digits })
    }

    /// A person says that the anchor took these digits: waits until it lets this node in.
    ///
    /// # Errors
    /// [`Code::NotAdmitted`]: this node does not wait with them, or nobody let it in in time. [`Code::FleetAlready`].
    /// As [`Agent::open`].
    pub async fn confirm(&self, digits: Digits) -> Result<Status, Problem> {
        let refused = |detail: &str| {
            Problem::new(Code::NotAdmitted, detail.to_owned())
                .with_hint("ask again: `lighter fleet join` shows new digits")
        };
        let waiting = {
            let mut waiting = self.waiting.lock();
            let is_meant = waiting.as_ref().is_some_and(|waiting| waiting.knock.digits() == digits);
            waiting.take_if(|_| is_meant).ok_or_else(|| refused("this node does not wait with these digits"))?
        };
        let ShownDigits { knock, folder, name, since } = waiting;
        if since.elapsed() >= KNOCK_TIMEOUT {
            return Err(refused("nobody let this node in within five minutes"));
        }
        // First of all: a node that then cannot listen is not let in.
        let listener = self.bind().await?;
        let joined = knock.confirmed().await?;
        let _joining = self.joining().await;
        self.check_alone()?;
        self.become_member(folder, name, joined, listener).await
    }

    /// The nodes that wait here for a person. Their digits are not among it: a person reads those on the node.
    ///
    /// # Errors
    /// [`Code::NoFleet`], [`Code::NotAnchor`].
    pub fn knocking(&self) -> Result<Vec<Knocking>, Problem> {
        Ok(self.anchor()?.1.knocking())
    }

    /// Lets the node in that shows these digits.
    ///
    /// # Errors
    /// [`Code::NoFleet`], [`Code::NotAnchor`]; as [`fleet_trust::Anchor::admit`].
    pub async fn admit(&self, digits: Digits) -> Result<Knocking, Problem> {
        let (_, anchor) = self.anchor()?;
        crate::agent::blocking(move || anchor.admit(digits)).await
    }

    /// Under its own name; where that is the machine's and another node has it, under one that nobody else has.
    async fn knock_at(&self, anchor: &Address, key: &NodeKey) -> Result<(Knock, String), Problem> {
        let own = self.settings().name.clone();
        let name = own.clone().unwrap_or_else(places::machine_name);
        match link::knock(anchor, key, &name).await {
            Err(problem) if problem.code == Code::NotAdmitted && own.is_none() => {
                let name = with_id(&name, &key.id());
                link::knock(anchor, key, &name).await.map(|knock| (knock, name))
            }
            knocked => knocked.map(|knock| (knock, name)),
        }
    }
}

/// The anchor of the only fleet there is; of several anchors the first one.
fn only(found: BTreeMap<SocketAddr, (FleetId, String)>) -> Result<(SocketAddr, String), Problem> {
    let mut fleets: BTreeMap<FleetId, (SocketAddr, String)> = BTreeMap::new();
    for (address, (fleet, name)) in found {
        fleets.entry(fleet).or_insert((address, name));
    }
    let listed: Vec<String> = fleets.values().map(|(address, name)| format!("{name} at {address}")).collect();
    let mut fleets = fleets.into_values();
    match (fleets.next(), fleets.next()) {
        (Some(one), None) => Ok(one),
        (None, _) => {
            let problem = Problem::new(Code::AnchorsAway, "no anchor of a fleet answers in the networks around");
            Err(problem.with_hint("name it: `lighter fleet join --at HOST:PORT`; or join by an invitation"))
        }
        (Some(_), Some(_)) => {
            Err(Problem::new(Code::AnchorsSeveral, format!("several fleets answer: {}", listed.join(", "))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(number: u8, fleet: u8) -> (SocketAddr, (FleetId, String)) {
        (SocketAddr::from(([192, 168, 1, number], 8_702)), (FleetId([fleet; 8]), format!("fleet-{fleet}")))
    }

    #[test]
    fn one_fleet_is_chosen_whatever_the_number_of_its_anchors_and_of_several_a_person_chooses() {
        let (address, name) = only(BTreeMap::from([found(3, 1), found(2, 1)])).unwrap();
        assert_eq!((address.to_string().as_str(), name.as_str()), ("192.168.1.2:8702", "fleet-1"));
        assert_eq!(only(BTreeMap::new()).unwrap_err().code, Code::AnchorsAway);
        let problem = only(BTreeMap::from([found(2, 1), found(3, 2)])).unwrap_err();
        assert_eq!(problem.code, Code::AnchorsSeveral);
        assert!(problem.detail.contains("fleet-1 at 192.168.1.2:8702, fleet-2 at"), "{}", problem.detail);
    }
}
