//! `lighter dashboard`: a link to the node's page in the browser, with a token of its own.
//!
//! The token stands in the fragment of the link, which a browser keeps to itself: no server and no log sees it.

use super::client::{Client, encoded};
use super::stop::{Result, Stop};
use super::token::expiry;
use super::{Session, words};
use api_types::{Scope, TokenCreated, TokenInfo, TokenRequest};
use clap::Args;
use problem::{Code, Problem};
use serde_json::json;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{env, thread};

/// How the names of such tokens begin.
const PREFIX: &str = "dashboard-";

/// What opens a file in the browser, the first that is there.
const OPENERS: [&str; 2] = ["xdg-open", "open"];

/// How long the browser may take to read the file that leads it to the page.
const READING_TIME: Duration = Duration::from_secs(10);

#[derive(Debug, Args)]
pub struct Dashboard {
    /// Also open it in the browser
    #[arg(long)]
    open: bool,
    /// What the page may do
    #[arg(long, value_enum, default_value_t = Scope::Deploy)]
    scope: Scope,
    /// When the link ends, such as 12h or 30d, or `never`
    #[arg(long, value_name = "TIME", value_parser = expiry, default_value = "12h")]
    expires: u64,
}

impl Dashboard {
    pub fn run(&self, session: &Session) -> Result {
        let (out, client) = (session.out, session.client()?);
        forget_ended(&client)?;
        let random =
            getrandom::u32().map_err(|error| Stop::new(Code::Internal, format!("no random numbers: {error}")))?;
        let request = TokenRequest {
            name: format!("{PREFIX}{random:08x}"),
            scope: self.scope,
            expires_seconds: Some(self.expires),
            functions: Vec::new(),
            queues: Vec::new(),
        };
        let TokenCreated { token, info } = client.post("/v1/tokens", &request)?;
        let url = format!("{}/#token={token}", client.url());
        match out.json {
            true => out.json(&json!({ "url": url, "token": info }))?,
            false => out.raw(format!("{url}\n").as_bytes())?,
        }
        out.advise(format!(
            "anybody who has this link may do what its token may, {}; `lighter token rm {}` ends it",
            info.expires_ms.map_or("without end".to_owned(), |ms| format!("until {} UTC", words::time(ms))),
            info.name
        ));
        if self.open { open(&url) } else { Ok(()) }
    }
}

/// Removes the tokens of links that have ended: nobody else would, and their number is bounded.
fn forget_ended(client: &Client) -> Result {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let tokens: Vec<TokenInfo> = client.get("/v1/tokens")?;
    let has_ended = |token: &&TokenInfo| token.expires_ms.is_some_and(|end| u128::from(end) <= now_ms);
    for token in tokens.iter().filter(|token| token.name.starts_with(PREFIX)).filter(has_ended) {
        client.send("DELETE", &format!("/v1/tokens/{}", encoded(&token.name)), ())?;
    }
    Ok(())
}

/// Opens the link by way of a file that only its owner can read: every user of the machine sees the words with which a
/// program was started.
fn open(url: &str) -> Result {
    let failed = |what: String| Stop::new(Code::FileUnusable, what);
    let folder = env::var_os("XDG_RUNTIME_DIR").map_or_else(env::temp_dir, Into::into);
    let file = tempfile::Builder::new().prefix("lighter-").suffix(".html").tempfile_in(&folder);
    let mut file = file.map_err(|error| failed(format!("{}: {error}", folder.display())))?;
    file.write_all(page(url).as_bytes()).map_err(|error| failed(format!("{}: {error}", file.path().display())))?;
    let started = OPENERS.iter().any(|opener| {
        let command = &mut Command::new(opener);
        command.arg(file.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    });
    if !started {
        let problem =
            Problem::new(Code::ToolMissing, format!("no browser could be opened by {}", OPENERS.join(" or ")));
        return Err(problem.with_hint("copy the link into the browser").into());
    }
    thread::sleep(READING_TIME);
    Ok(())
}

/// A page that leads to the link. The link has no character that would end the attribute.
fn page(url: &str) -> String {
    format!("<!doctype html><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"0;url={url}\">\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_leads_to_the_link() {
        let page = page("http://127.0.0.1:8701/#token=lighter_00");
        assert!(page.contains("content=\"0;url=http://127.0.0.1:8701/#token=lighter_00\""), "{page}");
    }
}
