//! `lighter mqtt`: the sessions of MQTT clients, and an end to one.

use super::client::encoded;
use super::stop::Result;
use super::table::Table;
use super::{Session, words};
use api_types::MqttSession;
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub enum Mqtt {
    /// List the broker's sessions, or end one
    #[command(subcommand)]
    Sessions(Sessions),
}

#[derive(Debug, Subcommand)]
pub enum Sessions {
    /// List the sessions, with their users and contents
    Ls,
    /// End a session and drop its contents; its client is disconnected
    Rm {
        /// Id of the client
        client: String,
        /// User of the client [default: none, for clients that gave no name]
        #[arg(long, value_name = "NAME")]
        user: Option<String>,
    },
}

impl Mqtt {
    pub fn run(self, session: &Session) -> Result {
        let (out, client) = (session.out, session.client()?);
        let Self::Sessions(sessions) = self;
        match sessions {
            Sessions::Ls => {
                let sessions: Vec<MqttSession> = client.get("/v1/mqtt/sessions")?;
                match out.json {
                    true => out.json(&sessions),
                    false => out.table(&table(&sessions)),
                }
            }
            Sessions::Rm { client: id, user } => {
                let of_user = user.as_ref().map_or(String::new(), |user| format!("&user={}", encoded(user)));
                client.send("DELETE", &format!("/v1/mqtt/sessions?client={}{of_user}", encoded(&id)), ())?;
                match out.json {
                    true => out.json(&serde_json::json!({ "removed": { "client": id, "user": user } })),
                    false => {
                        out.say(format!("ended the session of {}", words::harmless(&id)));
                        Ok(())
                    }
                }
            }
        }
    }
}

fn table(sessions: &[MqttSession]) -> Table {
    let mut table = Table::new(&["CLIENT", "USER", "CONNECTED", "ENDS (UTC)", "SUBSCRIPTIONS", "MESSAGES", "SIZE"]);
    for session in sessions {
        let ends = match (session.kept, session.expires_ms) {
            (false, _) => "with the connection".to_owned(),
            (true, None) => "-".to_owned(),
            (true, Some(ms)) => words::time(ms).chars().take("2026-11-21 03:54:19".len()).collect(),
        };
        table.row([
            session.client.clone(),
            session.user.clone().unwrap_or_else(|| "-".to_owned()),
            if session.connected { "yes" } else { "no" }.to_owned(),
            ends,
            session.subscriptions.to_string(),
            session.messages.to_string(),
            words::bytes(session.bytes as u64),
        ]);
    }
    table
}
