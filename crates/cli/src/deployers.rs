//! `lighter fleet deployer`: keys of those who may deploy to the fleet.

use super::Session;
use super::client::encoded;
use super::stop::Result;
use super::table::Table;
use api_types::{DeployerCreated, DeployerInfo, DeployerRequest};
use clap::Subcommand;
use std::time::{Duration, SystemTime};

#[derive(Debug, Subcommand)]
pub enum Deployers {
    /// Make a key and print it once; anybody who has it may deploy to the whole fleet
    Add {
        /// Name of the deployer: 1 to 32 of a-z, 0-9 and -
        name: String,
    },
    /// List the deployers
    Ls,
    /// Take a key back; what it has deployed stays
    Rm {
        /// Name of the deployer
        name: String,
    },
}

impl Deployers {
    pub fn run(self, session: &Session) -> Result {
        match self {
            Self::Add { name } => add(session, name),
            Self::Ls => list(session),
            Self::Rm { name } => remove(session, &name),
        }
    }
}

fn add(session: &Session, name: String) -> Result {
    let (out, client) = (session.out, session.client()?);
    let made: DeployerCreated = client.post("/v1/fleet/deployers", &DeployerRequest { name })?;
    if out.json {
        return out.json(&made);
    }
    out.raw(format!("{}\n", made.key).as_bytes())?;
    out.advise("keep it in a file for yourself alone, and name that: lighter deploy --fleet --deployer FILE");
    Ok(())
}

fn list(session: &Session) -> Result {
    let (out, client) = (session.out, session.client()?);
    let deployers: Vec<DeployerInfo> = client.get("/v1/fleet/deployers")?;
    if out.json {
        return out.json(&deployers);
    }
    let mut table = Table::new(&["NAME", "ADDED"]);
    for one in deployers {
        let added = SystemTime::UNIX_EPOCH + Duration::from_secs(one.added_s);
        let ago = SystemTime::now().duration_since(added).unwrap_or_default();
        table.row([one.name, format!("{} d ago", ago.as_secs() / 86_400)]);
    }
    out.table(&table)
}

fn remove(session: &Session, name: &str) -> Result {
    session.client()?.send("DELETE", &format!("/v1/fleet/deployers/{}", encoded(name)), ())?;
    session.out.say(format!("{name} may deploy to the fleet no more"));
    Ok(())
}
