//! `lighter fleet`: the nodes of a fleet; found one, let nodes in, join, take nodes out; look at one, at all, at why.

mod anchor;
mod knock;
mod map;
mod show;

use super::client::encoded;
use super::deployment::{self, Deployer};
use super::screen::Looks;
use super::stop::{Result, Stop};
use super::table::Table;
use super::token::{self, Whose, seconds};
use super::{Session, deployers, words};
use api_types::{
    FleetCopies, FleetDrain, FleetInfo, FleetLeft, FleetNode, FleetRemoved, FleetRequest, FleetTrouble,
    InvitationCreated, InvitationRequest, JoinRequest,
};
use clap::{Args, Subcommand};
use fleet_deploy::Wish;
use fleet_trust::Token;
use fleet_trust::picture::picture;
use problem::Code;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Characters of an id that are shown. `--json` has all of it.
const ID_CHARS: usize = 8;
/// How often a node that is being drained is asked what still runs.
const DRAIN_POLL: Duration = Duration::from_millis(200);
/// Characters of an id that name a node.
const ID_CHARS_MIN: usize = 4;

#[derive(Debug, Args)]
pub struct Fleet {
    #[command(subcommand)]
    command: Option<Asked>,
}

#[derive(Debug, Subcommand)]
enum Asked {
    /// Found a fleet, of which this node is the anchor
    New {
        /// Name of the fleet
        name: String,
    },
    /// Make an invitation and print it, as text and on a terminal as a QR code
    Invite {
        /// How many nodes may join with it
        #[arg(long, value_name = "N", default_value_t = 1)]
        times: u32,
        /// How long it is valid, such as 15min, 8h or 7d
        #[arg(long = "for", value_name = "TIME", value_parser = seconds, default_value = "1h")]
        seconds: u64,
    },
    /// Print what this node knows of one node
    Show {
        /// Id, beginning of the id, or name of the node
        #[arg(value_name = "NODE")]
        which: String,
    },
    /// Watch the nodes around this one live: how far, how busy, how many calls go there
    Map {
        #[command(flatten)]
        looks: Looks,
    },
    /// Print where a call of a function that comes in here would run, and why
    Why {
        /// Name of the function
        function: String,
        /// Bytes of the call's body
        #[arg(long, value_name = "N", default_value_t = 0)]
        bytes: u64,
    },
    /// Join a fleet with an invitation, or with digits that someone types on its anchor
    Join {
        /// The invitation: lighter-join-1.… [default: look for an anchor around, and show digits]
        #[arg(conflicts_with = "at")]
        token: Option<String>,
        /// Where the anchor listens, so that it need not be searched for
        #[arg(long, value_name = "HOST:PORT")]
        at: Option<String>,
    },
    /// Admit the node that shows these digits, or list the nodes that wait; run it on an anchor
    Admit {
        /// The six digits that the new node shows
        #[arg(value_name = "DIGITS", num_args = 0..=2)]
        digits: Vec<String>,
    },
    /// Take no new work on this node, and wait until nothing runs on it and it can be switched off
    Drain {
        /// How long to wait, such as 90s or 15min
        #[arg(long = "for", value_name = "TIME", value_parser = seconds, default_value = "10min")]
        seconds: u64,
    },
    /// Leave the fleet: the node runs alone afterwards, and its key is revoked
    Leave,
    /// List what the fleet should run, and how far its nodes have got
    Deployments,
    /// Go back to an earlier revision of a deployment on the whole fleet
    Rollback {
        /// Name of the deployment
        name: String,
        /// Revision to go back to [default: the one before]
        #[arg(long, value_name = "REVISION")]
        to: Option<u64>,
        #[command(flatten)]
        deployer: Deployer,
    },
    /// Remove a deployment from the whole fleet; the data of its functions stays on their nodes
    Undeploy {
        /// Name of the deployment
        name: String,
        #[command(flatten)]
        deployer: Deployer,
    },
    /// Manage the keys of people who may deploy to the fleet; run it on an anchor
    #[command(subcommand)]
    Deployer(deployers::Deployers),
    /// Manage tokens for devices, which every node of the fleet accepts; run it on an anchor
    #[command(subcommand)]
    Token(token::Token),
    /// Choose the anchors: one, or three, of which any one may be lost; run it on an anchor
    #[command(subcommand)]
    Anchor(anchor::Anchors),
    /// Take a node out of the fleet for good
    Rm {
        /// Id, beginning of the id, or name of the node
        #[arg(value_name = "NODE")]
        which: String,
        /// Record in the audit that the node was stolen, and print what to do next
        #[arg(long)]
        stolen: bool,
    },
}

impl Fleet {
    pub fn run(self, session: &Session) -> Result {
        match self.command {
            None => list(session),
            Some(Asked::New { name }) => found(session, name),
            Some(Asked::Invite { times, seconds }) => invite(session, times, seconds),
            Some(Asked::Show { which }) => show::show(session, &which),
            Some(Asked::Map { looks }) => map::run(session, &looks),
            Some(Asked::Why { function, bytes }) => show::why(session, &function, bytes),
            Some(Asked::Join { token: Some(token), .. }) => join(session, token),
            Some(Asked::Join { token: None, at }) => knock::join(session, at),
            Some(Asked::Admit { digits }) if digits.is_empty() => knock::list(session),
            Some(Asked::Admit { digits }) => knock::admit(session, digits.concat()),
            Some(Asked::Drain { seconds }) => drain(session, Duration::from_secs(seconds)),
            Some(Asked::Leave) => leave(session),
            Some(Asked::Deployments) => deployment::list(session),
            Some(Asked::Rollback { name, to, deployer }) => {
                let name = deployment::name(Some(&name), Path::new(""))?;
                deployment::order(session, &deployer, &name, Wish::RollBack { to })
            }
            Some(Asked::Undeploy { name, deployer }) => {
                let name = deployment::name(Some(&name), Path::new(""))?;
                deployment::order(session, &deployer, &name, Wish::Remove)
            }
            Some(Asked::Deployer(deployers)) => deployers.run(session),
            Some(Asked::Token(tokens)) => tokens.run(session, Whose::Fleet),
            Some(Asked::Anchor(anchors)) => anchors.run(session),
            Some(Asked::Rm { which, stolen }) => remove(session, &which, stolen),
        }
    }
}

fn list(session: &Session) -> Result {
    let (out, client) = (session.out, session.client()?);
    let fleet: FleetInfo = client.get("/v1/fleet")?;
    if out.json {
        return out.json(&fleet);
    }
    out.table(&table(&fleet.nodes))?;
    if !fleet.copies.is_empty() {
        out.line("")?;
        out.table(&copies(&fleet))?;
    }
    let of_engine = fleet.engine.as_ref().and_then(|engine| engine.trouble.as_ref());
    fleet.trouble.iter().chain(of_engine).for_each(|trouble| say(session, trouble));
    if fleet.doubled {
        out.say(
            "another machine had the key of this node in the last hour, and was refused: its data folder is a copy",
        );
    }
    Ok(())
}

/// A problem that lasts.
fn say(session: &Session, trouble: &FleetTrouble) {
    session.out.say(format!("{}: {}", trouble.code, words::harmless(&trouble.detail)));
    session.out.say(format!("  hint: {}", words::harmless(&trouble.hint)));
}

fn found(session: &Session, name: String) -> Result {
    let (out, client) = (session.out, session.client()?);
    let fleet: FleetInfo = client.post("/v1/fleet", &FleetRequest { name })?;
    if out.json {
        return out.json(&fleet);
    }
    let address = fleet.nodes.first().and_then(|node| node.address.clone()).unwrap_or_default();
    out.say(format!("founded the fleet {}; this node is its anchor, at {address}", fleet.name));
    if let Some(trouble) = fleet.engine.as_ref().and_then(|engine| engine.trouble.as_ref()) {
        say(session, trouble);
        out.say("  calls go on without an engine; it is started as soon as it is there");
    }
    out.say("  let another in:  lighter fleet invite");
    Ok(())
}

fn invite(session: &Session, times: u32, seconds: u64) -> Result {
    let (out, client) = (session.out, session.client()?);
    let made: InvitationCreated = client.post("/v1/fleet/invitations", &InvitationRequest { times, seconds })?;
    if out.json {
        return out.json(&made);
    }
    let token = Token::read(&made.token).map_err(|fault| Stop::from(problem::Problem::from(fault)))?;
    if out.is_terminal() {
        // Too long for a picture: the text does it.
        picture(&token).map_or(Ok(()), |picture| out.raw(picture.as_bytes()))?;
    }
    out.raw(format!("{}\n", made.token).as_bytes())?;
    let (nodes, time) = (if times == 1 { "one node".to_owned() } else { format!("{times} nodes") }, words_of(seconds));
    out.say(format!("for {nodes} within {time}; on the new machine: lighter up --join {}", made.token));
    Ok(())
}

fn join(session: &Session, token: String) -> Result {
    let client = session.client()?;
    let fleet: FleetInfo = client.post("/v1/fleet/join", &JoinRequest { token })?;
    say_joined(session, &fleet)
}

fn say_joined(session: &Session, fleet: &FleetInfo) -> Result {
    let out = session.out;
    if out.json {
        return out.json(fleet);
    }
    let name = fleet.nodes.first().map_or("", |node| node.name.as_str());
    out.say(format!("this node is {name} of the fleet {}", fleet.name));
    Ok(())
}

fn drain(session: &Session, at_most: Duration) -> Result {
    let (out, client) = (session.out, session.client()?);
    let began = Instant::now();
    let mut is_told = false;
    loop {
        let left: FleetDrain = client.post("/v1/fleet/drain", &())?;
        let FleetDrain { running, waiting, queues } = left;
        if running == 0 && waiting == 0 && queues == 0 {
            if out.json {
                return out.json(&left);
            }
            out.say("nothing runs on this node any more: it may be switched off (lighter down)");
            return Ok(());
        }
        let words = format!("{running} calls run, {waiting} wait, events of {queues} queues are handled");
        if began.elapsed() >= at_most {
            return Err(Stop::new(Code::DrainUnfinished, words));
        }
        if !is_told {
            out.say(format!("this node takes nothing new; {words}"));
            is_told = true;
        }
        thread::sleep(DRAIN_POLL);
    }
}

fn leave(session: &Session) -> Result {
    let (out, client) = (session.out, session.client()?);
    let left: FleetLeft = client.post("/v1/fleet/leave", &())?;
    if out.json {
        return out.json(&left);
    }
    out.say(format!("this node has left the fleet {}: its key is revoked, and what it keeps stays here", left.name));
    Ok(())
}

fn remove(session: &Session, node: &str, is_stolen: bool) -> Result {
    let (out, client) = (session.out, session.client()?);
    let path = format!("/v1/fleet/nodes/{}?stolen={is_stolen}", encoded(node));
    let removed: FleetRemoved = client.document_of("DELETE", &path)?;
    if out.json {
        return out.json(&removed);
    }
    out.say(format!("{} is no node of the fleet any more: its key is revoked", removed.name));
    if is_stolen {
        out.say("  what was on it the thief has: change its secrets where they are valid, and remove its tokens");
    }
    Ok(())
}

/// The one node that is meant.
fn named<'a>(fleet: &'a FleetInfo, which: &str) -> std::result::Result<&'a FleetNode, Stop> {
    let unknown = |detail: String| Stop::new(Code::MemberUnknown, detail);
    if let Some(node) = fleet.nodes.iter().find(|node| node.name == which) {
        return Ok(node);
    }
    let mut begins = fleet.nodes.iter().filter(|node| which.len() >= ID_CHARS_MIN && node.id.starts_with(which));
    match (begins.next(), begins.next()) {
        (Some(node), None) => Ok(node),
        (None, _) => Err(unknown(format!("this node knows none of the id or name {which:?}"))),
        (Some(_), Some(_)) => Err(unknown(format!("several ids begin with {which:?}"))),
    }
}

fn table(nodes: &[FleetNode]) -> Table {
    let mut table = Table::new(&["ID", "NAME", "ADDRESS", "ANCHOR", "HEARD", ">MAIL", "VERSION"]);
    for node in nodes {
        table.row([
            node.id.chars().take(ID_CHARS).collect(),
            node.name.clone(),
            node.address.clone().unwrap_or_else(|| "-".to_owned()),
            if node.anchor { "yes" } else { "no" }.to_owned(),
            heard(node),
            node.mail_waiting.to_string(),
            node.version.clone().unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    table
}

fn copies(fleet: &FleetInfo) -> Table {
    let mut table = Table::new(&["FUNCTION", ">COPIES", "NODES"]);
    for FleetCopies { function, nodes } in &fleet.copies {
        let named = |id: &String| {
            let node = fleet.nodes.iter().find(|node| node.id == *id);
            node.map_or_else(|| id.chars().take(ID_CHARS).collect(), |node| node.name.clone())
        };
        let names: Vec<String> = nodes.iter().map(named).collect();
        table.row([function.clone(), nodes.len().to_string(), names.join(", ")]);
    }
    table
}

fn heard(node: &FleetNode) -> String {
    match node.heard_ms {
        _ if node.this_node => "here".to_owned(),
        None => "never".to_owned(),
        Some(ms) if ms < 10_000 => "now".to_owned(),
        Some(ms) => format!("{} ago", words_of(ms / 1_000)),
    }
}

fn words_of(seconds: u64) -> String {
    match Duration::from_secs(seconds).as_secs() {
        short @ ..120 => format!("{short} s"),
        minutes @ ..7_200 => format!("{} min", minutes / 60),
        hours @ ..172_800 => format!("{} h", hours / 3_600),
        days => format!("{} d", days / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(heard_ms: Option<u64>) -> FleetNode {
        FleetNode {
            id: "3fa2".repeat(8),
            name: "pi-7".to_owned(),
            address: None,
            anchor: false,
            this_node: false,
            version: None,
            heard_ms,
            mail_waiting: 118,
            load: None,
            functions: Vec::new(),
        }
    }

    #[test]
    fn the_table_says_when_a_node_was_heard_of() {
        let times = [None, Some(9_999), Some(61_000), Some(600_000), Some(3 * 3_600_000), Some(3 * 86_400_000)];
        let said: Vec<String> = times.map(node).iter().map(heard).collect();
        assert_eq!(said, ["never", "now", "61 s ago", "10 min ago", "3 h ago", "3 d ago"]);
        assert_eq!(heard(&FleetNode { this_node: true, ..node(Some(0)) }), "here");
        assert_eq!(table(&[node(None)]).lines()[1], "3fa23fa2  pi-7  -        no      never   118  -");
    }

    #[test]
    fn the_copies_of_a_function_are_counted_and_named() {
        let pi = node(None);
        let (name, id) = ("campus".to_owned(), "0".to_owned());
        let copies_of =
            FleetCopies { function: "plate".to_owned(), nodes: vec![pi.id.clone(), "0123456789".to_owned()] };
        let fleet = FleetInfo {
            name,
            id,
            anchor: false,
            nodes: vec![pi],
            copies: vec![copies_of],
            trouble: None,
            engine: None,
            doubled: false,
        };
        assert_eq!(copies(&fleet).lines(), ["FUNCTION  COPIES  NODES", "plate          2  pi-7, 01234567"]);
    }
}
