//! `lighter token` and `lighter fleet token`: make, list and remove tokens. A token's secret is shown once, when it is
//! made.

use super::client::encoded;
use super::nearest::explain;
use super::stop::Result;
use super::table::Table;
use super::{Session, words};
use api_types::{Scope, TokenCreated, TokenInfo, TokenRequest};
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub enum Token {
    /// Make a token and print its secret, only this once
    Create {
        /// Name of the token
        name: String,
        /// What the token allows; each scope includes the ones before it, but `call` does not include `work`
        #[arg(long, value_enum, default_value_t = Scope::Call)]
        scope: Scope,
        /// When the token ends, such as 12h or 30d, or `never`
        #[arg(long, value_name = "TIME", value_parser = expiry, default_value = "90d")]
        expires: u64,
        /// Functions that a token with the scope `call` may call [default: all, and all queues]
        #[arg(long = "function", value_name = "NAME", num_args = 1..)]
        functions: Vec<String>,
        /// Queues that a token with the scope `call` may push to, or with the scope `work` take events from
        #[arg(long = "queue", value_name = "NAME", num_args = 1..)]
        queues: Vec<String>,
    },
    /// List the tokens, without their secrets
    Ls,
    /// Remove a token: it stops working at once
    Rm {
        /// Name of the token
        name: String,
    },
}

/// Which tokens are meant.
#[derive(Debug, Clone, Copy)]
pub enum Whose {
    Node,
    Fleet,
}

impl Whose {
    fn path(self) -> &'static str {
        match self {
            Self::Node => "/v1/tokens",
            Self::Fleet => "/v1/fleet/tokens",
        }
    }
}

impl Token {
    pub fn run(self, session: &Session, whose: Whose) -> Result {
        let (out, client, path) = (session.out, session.client()?, whose.path());
        match self {
            Self::Create { name, scope, expires, functions, queues } => {
                let request = TokenRequest { name, scope, expires_seconds: Some(expires), functions, queues };
                let created: TokenCreated = client.post(path, &request)?;
                if out.json {
                    return out.json(&created);
                }
                out.raw(format!("{}\n", created.token).as_bytes())?;
                out.say("this is the only time it is shown; give it to commands with --token-file or LIGHTER_TOKEN");
                Ok(())
            }
            Self::Ls => {
                let tokens: Vec<TokenInfo> = client.get(path)?;
                match out.json {
                    true => out.json(&tokens),
                    false => out.table(&table(&tokens)),
                }
            }
            Self::Rm { name } => {
                let removed = client.send("DELETE", &format!("{path}/{}", encoded(&name)), ());
                removed.map_err(|stop| match whose {
                    Whose::Node => explain(&client, &name, stop),
                    Whose::Fleet => stop,
                })?;
                match out.json {
                    true => out.json(&serde_json::json!({ "removed": name })),
                    false => {
                        out.say(format!("removed the token {name}"));
                        Ok(())
                    }
                }
            }
        }
    }
}

fn table(tokens: &[TokenInfo]) -> Table {
    let mut table = Table::new(&["TOKEN", "SCOPE", "FOR", "CREATED (UTC)", "ENDS (UTC)"]);
    let time = |ms| words::time(ms).chars().take("2026-11-21 03:54:19".len()).collect();
    for token in tokens {
        let scope = clap::ValueEnum::to_possible_value(&token.scope).expect("every scope has a name");
        table.row([
            token.name.clone(),
            scope.get_name().to_owned(),
            bound_to(token),
            time(token.created_ms),
            token.expires_ms.map_or_else(|| "never".to_owned(), time),
        ]);
    }
    table
}

fn bound_to(token: &TokenInfo) -> String {
    let functions = token.functions.iter().cloned();
    let bound: Vec<String> = functions.chain(token.queues.iter().map(|queue| format!("queue {queue}"))).collect();
    if bound.is_empty() { "all".to_owned() } else { bound.join(", ") }
}

/// Seconds until a token ends; 0 for `never`.
pub fn expiry(text: &str) -> std::result::Result<u64, String> {
    match text {
        "never" => Ok(0),
        _ => seconds(text).map_err(|error| format!("{error}, or `never`")),
    }
}

/// Reads `90s`, `15min`, `12h` or `30d`.
pub(super) fn seconds(text: &str) -> std::result::Result<u64, String> {
    const UNITS: [(&str, u64); 4] = [("min", 60), ("s", 1), ("h", 3_600), ("d", 86_400)];
    let unit = UNITS.iter().find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)));
    let seconds = unit.and_then(|(number, seconds)| number.trim().parse::<u64>().ok()?.checked_mul(*seconds));
    seconds.filter(|seconds| *seconds > 0).ok_or_else(|| "write a time like 90s, 15min, 12h or 30d".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_number_and_a_unit() {
        assert_eq!(["90s", "15min", "12h", "30d"].map(|text| seconds(text).unwrap()), [90, 900, 43_200, 2_592_000]);
        for bad in ["", "12", "h", "0s", "-1s", "1.5h", "99999999999999999999d", "1w"] {
            assert!(seconds(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_list_shows_no_secret() {
        let (functions, queues) = (vec!["f".to_owned(), "g".to_owned()], vec!["q".to_owned()]);
        let token =
            TokenInfo { name: "ci".into(), scope: Scope::Deploy, created_ms: 0, expires_ms: None, functions, queues };
        assert_eq!(table(&[token]).lines()[1], "ci     deploy  f, g, queue q  1970-01-01 00:00:00  never");
        assert_eq!((expiry("never"), expiry("1h")), (Ok(0), Ok(3_600)));
    }
}
