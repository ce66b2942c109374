//! `lighter fleet anchor`: which nodes are anchors.

use super::super::Session;
use super::super::client::encoded;
use super::super::stop::Result;
use api_types::{FleetAnchor, FleetAnchors};
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub enum Anchors {
    /// Make two members anchors beside this one: two anchors alone have no majority
    Add {
        /// Id, beginning of the id, or name of each node
        #[arg(value_name = "NODE", required = true, num_args = 1..=2)]
        nodes: Vec<String>,
    },
    /// Turn an anchor back into an ordinary member
    Rm {
        /// Id, beginning of the id, or name of the node
        #[arg(value_name = "NODE")]
        which: String,
    },
}

impl Anchors {
    pub fn run(self, session: &Session) -> Result {
        match self {
            Self::Add { nodes } => add(session, nodes),
            Self::Rm { which } => remove(session, &which),
        }
    }
}

fn add(session: &Session, nodes: Vec<String>) -> Result {
    let (out, client) = (session.out, session.client()?);
    let added: Vec<FleetAnchor> = client.post("/v1/fleet/anchors", &FleetAnchors { nodes })?;
    if out.json {
        return out.json(&added);
    }
    let names: Vec<&str> = added.iter().map(|one| one.name.as_str()).collect();
    out.say(format!("anchors now, beside this node: {}", names.join(", ")));
    out.say("  they have the key of the fleet's CA: look after their disks as after this one's");
    Ok(())
}

fn remove(session: &Session, which: &str) -> Result {
    let (out, client) = (session.out, session.client()?);
    let removed: FleetAnchor = client.document_of("DELETE", &format!("/v1/fleet/anchors/{}", encoded(which)))?;
    if out.json {
        return out.json(&removed);
    }
    out.say(format!(
        "{} is no anchor any more, and deletes the key of the fleet's CA when it hears of it",
        removed.name
    ));
    out.say("  where there were three, make another node one: with two, both have to be there to change anything");
    Ok(())
}
