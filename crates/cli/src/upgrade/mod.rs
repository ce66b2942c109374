//! `lighter upgrade`: another version of this program in its place, the node restarted, and watched for a time.
//!
//! ```text
//!  FILE|URL ─▶ signed? newer? for this machine? ─▶ beside the program ─▶ does it start? ─▶ in its place ─▶ restart
//!                                                                                                        │
//!          the program before is kept as lighter.previous ◀── put back, and the node started with it ◀── not healthy
//! ```
//! Nothing is changed before the program beside ours has answered for itself.

mod fetch;
mod installed;
mod running;
mod started;

use super::backup::Backup;
use super::stop::{Result, Stop};
use super::{Session, words};
use clap::Args;
use fetch::Signed;
use installed::Installed;
use problem::{Code, Problem};
use release::{Archive, PublicKey, ReleaseVersion};
use running::{Patience, RunningNode};
use serde::Deserialize;
use serde_json::json;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// The key of whoever built this program; none of a program that was not built to be handed out.
const BUILT_IN_KEY: Option<&str> = option_env!("LIGHTER_RELEASE_KEY");
const VERSION: &str = env!("CARGO_PKG_VERSION");

#[derive(Debug, Args)]
pub struct Upgrade {
    /// Release to install, lighter-VERSION-PROCESSOR-linux.tar.gz. Its signature is the same name with .minisig
    #[arg(value_name = "FILE|URL", required_unless_present = "rollback")]
    from: Option<String>,
    /// Say what would be done, and change nothing
    #[arg(long)]
    check: bool,
    /// Go back to the program before the last upgrade
    #[arg(long, conflicts_with_all = ["from", "check", "allow_older", "key"])]
    rollback: bool,
    /// Public key (minisign) that signed the release [default: the one this program was built with]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Install a release that is older than this program
    #[arg(long)]
    allow_older: bool,
    /// Make a backup of the node first
    #[arg(long, value_name = "FILE", conflicts_with = "check")]
    backup: Option<PathBuf>,
    /// File whose first line is the passphrase that its secrets and keys are sealed with [default: they are left out]
    #[arg(long, value_name = "FILE", requires = "backup")]
    passphrase_file: Option<PathBuf>,
    /// How long the node may take to stop and to become ready
    #[arg(long, value_name = "SECONDS", default_value_t = 180, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    ready_seconds: u64,
    /// How long it must then stay ready
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=3_600))]
    watch_seconds: u64,
}

/// What a program says of itself.
#[derive(Debug, Deserialize)]
struct Says {
    version: String,
    state_format: String,
}

impl Upgrade {
    pub fn run(&self, session: &Session) -> Result {
        let installed = Installed::of_this_program()?;
        let progress = session.out.progress();
        if self.rollback {
            let says = installed.previous_says(session.brought.state_format)?;
            let running = self.running(session, &installed)?;
            running::warn_of_others(session, &installed, running.as_ref());
            self.back_up(session, running.as_ref())?;
            installed.keep_out_others()?;
            installed.bring_back_beside()?;
            progress.step("going back to the program before");
            self.swap(session, &installed, running.as_ref())?;
            drop(progress);
            return self.say(session, &says.version, running.as_ref());
        }
        let from = self.from.as_deref().expect("clap asks for it");
        if !self.check {
            // A node that is not the one to upgrade is no reason to fetch anything.
            let running = self.running(session, &installed)?;
            running::warn_of_others(session, &installed, running.as_ref());
        }
        progress.step(format!("reading {from}"));
        let signed = fetch::release(from, &session.global)?;
        let archive = self.opened(&signed)?;
        let version = archive.version().clone();
        installed.belongs_to_nobody()?;
        if self.check {
            progress.step("trying the program");
            let format = installed.try_elsewhere(archive, &version)?.state_format;
            drop(progress);
            return checked(session, from, &version, &signed, &format);
        }
        installed.keep_out_others()?;
        progress.step("trying the program");
        let says = installed.put_beside(archive, &version)?;
        let ready = self.before(session, &installed, &says);
        let running = ready.inspect_err(|_| installed.remove_beside())?;
        progress.step(format!("installing {version}"));
        self.swap(session, &installed, running.as_ref())?;
        drop(progress);
        self.say(session, &version.to_string(), running.as_ref())
    }

    /// The release, if its signature is right, it is for this machine, and not older than it may be.
    fn opened<'a>(&self, signed: &'a Signed) -> Result<Archive<'a>> {
        let key = match (&self.key, BUILT_IN_KEY) {
            (Some(file), _) => fetch::key(file)?,
            (None, Some(line)) => PublicKey::parse(line).ok_or_else(|| no_key("the key built in is none"))?,
            (None, None) => return Err(no_key("this program was built without a releaser's key")),
        };
        signed.signature()?.verify(&key, &signed.bytes)?;
        let archive = Archive::open(&signed.bytes)?;
        let own = std::env::consts::ARCH;
        if archive.processor() != own {
            let detail = format!("the release is for {}, this machine is {own}", archive.processor());
            return Err(Stop::new(Code::ReleaseElsewhere, detail));
        }
        let is_older = ReleaseVersion::parse(VERSION).is_some_and(|own| *archive.version() < own);
        if is_older && !self.allow_older {
            let detail = format!("the release is version {}, this program is {VERSION}", archive.version());
            return Err(Stop::new(Code::ReleaseOlder, detail));
        }
        Ok(archive)
    }

    /// What has to be right with the node before its program changes; none where no node runs.
    fn before(&self, session: &Session, installed: &Installed, says: &Says) -> Result<Option<RunningNode>> {
        let running = self.running(session, installed)?;
        let (own, new) = (format_number(session.brought.state_format), format_number(&says.state_format));
        if new < own {
            return Err(older_format(&says.version, session.brought.state_format));
        }
        // One with another data folder runs this program too, and would be converted at its next start.
        let is_at_work = running.is_some() || running::other_node(installed).is_some();
        if new > own && is_at_work && self.backup.is_none() {
            let detail = format!("version {} changes the format of the stored data from {own} to {new}", says.version);
            return Err(Stop::new(Code::ReleaseMigrates, detail));
        }
        self.back_up(session, running.as_ref())?;
        Ok(running)
    }

    /// Makes the backup that was asked for, and says what is not in it: it may be the only way back.
    fn back_up(&self, session: &Session, running: Option<&RunningNode>) -> Result {
        let Some(file) = &self.backup else { return Ok(()) };
        if running.is_none() {
            return Err(Stop::new(Code::NodeUnreachable, "no node runs here to make a backup of"));
        }
        let (head, _) = Backup::into_file(file.clone(), self.passphrase_file.clone()).make(session)?;
        if !head.left_out.is_empty() {
            session.out.complain(format!("warning: the backup leaves out {}", head.left_out.join(", ")));
        }
        if !head.left_out.is_empty() && head.seal.is_none() {
            session.out.advise("  --passphrase-file FILE puts secrets and keys in, sealed");
        }
        Ok(())
    }

    fn running(&self, session: &Session, installed: &Installed) -> Result<Option<RunningNode>> {
        let patience =
            Patience { ready: Duration::from_secs(self.ready_seconds), watch: Duration::from_secs(self.watch_seconds) };
        RunningNode::find(session, installed, patience)
    }

    /// The program beside ours takes its place, and the node's. If the node does not become healthy, ours comes back.
    fn swap(&self, session: &Session, installed: &Installed, running: Option<&RunningNode>) -> Result {
        // Where that fails, the command ends with its terminal as any other.
        let _ = outlive_terminal();
        installed.swap()?;
        let Some(running) = running else { return installed.settle() };
        let Err(why) = running.restart(session, installed) else { return installed.settle() };
        let undone = |what: &str| Problem::new(Code::UpgradeUndone, format!("{why}; {what}"));
        installed.undo()?;
        match running.start_before(session, installed) {
            Ok(()) => Err(undone("the previous program is back in its place, and the node runs with it").into()),
            Err(and) => {
                let hint = match &self.backup {
                    Some(file) => {
                        let backup = file.display();
                        format!("if its data is of a newer format now, restore {backup} into another folder")
                    }
                    None => "start it with `lighter up` or its service, and see its log".to_owned(),
                };
                let what = format!("the previous program is back in its place, and the node does not run: {and}");
                Err(undone(&what).with_hint(hint).into())
            }
        }
    }

    fn say(&self, session: &Session, version: &str, running: Option<&RunningNode>) -> Result {
        let process = running.map(|running| running.pid);
        if session.out.json {
            return session.out.json(&json!({ "version": version, "was": VERSION, "restarted": process }));
        }
        match process {
            Some(_) => session.out.say(format!("the node runs version {version} now; it was {VERSION}")),
            None => session.out.say(format!("installed version {version}; it was {VERSION}, and no node runs here")),
        }
        session.out.advise("  `lighter upgrade --rollback` goes back");
        Ok(())
    }
}

/// From now on this command goes on when its terminal is closed: somebody has to watch the node, which may have carried
/// the very connection.
fn outlive_terminal() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { signal(SignalKind::hangup()) }).map(drop)
}

fn checked(session: &Session, from: &str, version: &ReleaseVersion, signed: &Signed, format: &str) -> Result {
    let bytes = signed.bytes.len() as u64;
    let changes_format = format != session.brought.state_format;
    if session.out.json {
        return session.out.json(&json!({ "release": from, "version": version.to_string(), "is": VERSION,
            "bytes": bytes, "sha256": signed.sha256(), "state_format": format, "changes_format": changes_format }));
    }
    session.out.line(format!("{from}: version {version}, {}, signed", words::bytes(bytes)))?;
    session.out.line(format!("sha256   {}", signed.sha256()))?;
    session.out.line(format!("replaces version {VERSION}"))?;
    match changes_format {
        false => session.out.line(format!("data     stays in format {format}")),
        true => session.out.line(format!("data     goes from format {} to {format}", session.brought.state_format)),
    }
}

fn no_key(why: &str) -> Stop {
    let hint = "name the public key that signed the release with --key";
    Problem::new(Code::Usage, format!("nobody says whose releases to trust: {why}")).with_hint(hint).into()
}

fn older_format(version: &str, own: &str) -> Stop {
    let detail = format!("version {version} does not read stored data of format {own}, in which this program keeps it");
    let hint = "restore a backup of the time before into another folder, with that version";
    Problem::new(Code::DataNewer, detail).with_hint(hint).into()
}

/// Formats are numbers; another word stands before all of them.
fn format_number(format: &str) -> u32 {
    format.parse().unwrap_or(0)
}

/// What the program in this file says of itself.
///
/// # Errors
/// It does not start on this machine, or is another program.
fn ask(program: &Path) -> Result<Says> {
    let unfit = |why: String| {
        let problem = Problem::new(Code::ReleaseElsewhere, format!("its program does not run here: {why}"));
        Stop::from(problem.with_hint("it may need a newer system than this one: its C library is the one of its build"))
    };
    let mut command = Command::new(program);
    // No node is asked: nobody listens at this port.
    command.args(["version", "--json", "--node", "http://127.0.0.1:9"]).stdin(Stdio::null());
    super::locate::keep_tokens_from(&mut command);
    let output = command.output().map_err(|error| unfit(error.to_string()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(unfit(format!("{} {}", output.status, said.lines().next().unwrap_or_default())));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| unfit(format!("what it says cannot be read: {error}")))
}
