//! `lighter mqtt-password`: the hash that stands in `node.toml` instead of an MQTT user's password. The password is
//! read from standard input or a prompt, as secrets are.

use clap::Args;
use cli::stop::Result;
use cli::{Run, Session, secret};

const HINT: &str = "write it to standard input: `pass show x | lighter mqtt-password`";

#[derive(Debug, Args)]
pub struct MqttPassword {}

impl Run for MqttPassword {
    fn run(self, session: &Session) -> Result {
        let hash = gate_mqtt::hash_password(&secret::value("the password", HINT)?)?;
        match session.out.json {
            true => session.out.json(&serde_json::json!({ "password": hash })),
            false => session.out.line(&hash),
        }
    }
}
