//! `lighter secret`: values for functions that are granted them. A value is read from standard input or a prompt, never
//! from the command line, where other users of the machine could see it; and it is never shown again.

use super::client::encoded;
use super::nearest::explain;
use super::stop::{Result, Stop};
use super::{Session, prompt};
use clap::Subcommand;
use problem::{Code, Problem};
use std::io::{self, IsTerminal, Read};

/// Bytes of a secret's value.
const VALUE_BYTES_MAX: u64 = 64 << 10;

#[derive(Debug, Subcommand)]
pub enum Secret {
    /// Keep a value, read from standard input or from the terminal
    Set {
        /// Name under which functions read it
        name: String,
    },
    /// List the names
    Ls,
    /// Remove a value
    Rm {
        /// Name of the secret
        name: String,
    },
}

impl Secret {
    pub fn run(self, session: &Session) -> Result {
        let (out, client) = (session.out, session.client()?);
        let said = |key: &str, name: &str, words: String| match out.json {
            true => out.json(&serde_json::json!({ key: name })),
            false => {
                out.say(words);
                Ok(())
            }
        };
        match self {
            Self::Set { name } => {
                check(&name)?;
                let value = value(&name, "write it to standard input: `pass show x | lighter secret set X`")?;
                client.send("PUT", &path(&name), &value[..])?;
                said("set", &name, format!("keeps the secret {name}; grant it with grants.secrets = [{name:?}]"))
            }
            Self::Ls => {
                let names: Vec<String> = client.get("/v1/secrets")?;
                match out.json {
                    true => out.json(&names),
                    false => names.iter().try_for_each(|name| out.line(name)),
                }
            }
            Self::Rm { name } => {
                check(&name)?;
                client.send("DELETE", &path(&name), ()).map_err(|stop| explain(&client, &name, stop))?;
                said("removed", &name, format!("removed the secret {name}"))
            }
        }
    }
}

fn path(name: &str) -> String {
    format!("/v1/secrets/{}", encoded(name))
}

fn check(name: &str) -> Result {
    if manifest::is_secret_name(name) {
        return Ok(());
    }
    let problem = Problem::new(Code::Usage, format!("{name:?} is not the name of a secret"));
    Err(problem.with_hint("1 to 64 of A-Z, a-z, 0-9 and _").into())
}

/// Reads a value from standard input, or asks for it. `hint` says how to give one.
pub fn value(name: &str, hint: &'static str) -> Result<Vec<u8>> {
    if io::stdin().is_terminal() {
        return Ok(prompt::hidden(&format!("value of {name} (not shown): "))?.into_bytes());
    }
    let mut value = Vec::new();
    let read = io::stdin().lock().take(VALUE_BYTES_MAX + 1).read_to_end(&mut value);
    read.map_err(|error| Stop::new(Code::FileUnusable, format!("standard input: {error}")))?;
    trimmed(value, hint)
}

/// The value without the line end that `echo` and editors add.
fn trimmed(mut value: Vec<u8>, hint: &'static str) -> Result<Vec<u8>> {
    if value.ends_with(b"\n") {
        value.pop();
        if value.ends_with(b"\r") {
            value.pop();
        }
    }
    match value.len() as u64 {
        0 => Err(Problem::new(Code::Usage, "the value is empty").with_hint(hint).into()),
        1..=VALUE_BYTES_MAX => Ok(value),
        _ => Err(Stop::new(Code::Usage, format!("the value has more than {VALUE_BYTES_MAX} bytes"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_end_is_taken_off_and_no_more() {
        let trimmed = |text: &str| trimmed(text.as_bytes().to_vec(), "").map(|value| String::from_utf8(value).unwrap());
        assert_eq!(trimmed("x\n").unwrap(), "x");
        assert_eq!(trimmed("x\r\n").unwrap(), "x");
        assert_eq!(trimmed(" x \n\n").unwrap(), " x \n");
        assert!(trimmed("\n").is_err());
        assert!(trimmed(&"x".repeat(65_537)).is_err());
    }
}
