//! The command line. Every command is a file here; what concerns a running node goes through its API. A command that
//! needs more than that is brought by the program: see [`Brought`].
//!
//! ```text
//! words ──clap──▶ Command ──run──▶ client ──HTTP──▶ node      data on stdout, talk on stderr
//!                                    │
//!                     Stop ◀─────────┘                        an exit code that scripts can build on
//! ```
#![forbid(unsafe_code)]

mod audit;
mod backup;
mod brought;
pub mod build;
pub mod call;
pub mod client;
mod completions;
mod component;
mod dashboard;
mod deploy;
mod deployers;
mod deployment;
mod dev;
mod down;
mod dump;
mod errors;
mod event;
pub mod examples;
mod fleet;
mod flow;
pub mod folder;
mod foreign;
pub mod help;
pub mod images;
pub mod locate;
mod logs;
mod ls;
mod man_pages;
mod mqtt;
pub mod nearest;
mod new;
pub mod output;
pub mod passphrase;
mod progress;
mod prompt;
mod prove;
mod ps;
mod push;
mod queue;
mod rm;
mod rollback;
pub mod saved;
mod schema;
mod screen;
pub mod secret;
mod stats;
pub mod stop;
mod store;
pub mod table;
mod template;
mod token;
mod top;
mod upgrade;
mod usage;
mod version;
mod watch;
pub mod words;

pub use brought::{Brought, Extra, ExtraOption, Images, MakesImages, Run, read};

use clap::{ArgMatches, Args, FromArgMatches, Parser, Subcommand};
use client::Client;
use locate::{NodeAddress, Wishes};
use output::Output;
use problem::Code;
use std::path::PathBuf;
use std::process::ExitCode;
use stop::{Result, Stop};

/// Runs functions on this machine, safely isolated from each other
#[derive(Debug, Parser)]
#[command(name = "lighter", version, propagate_version = false, disable_help_subcommand = true, max_term_width = 100)]
struct Cli {
    #[command(flatten, next_help_heading = "Options of every command")]
    global: Global,
}

/// Options of every command.
#[derive(Debug, Args)]
pub struct Global {
    /// Node's API [default: LIGHTER_NODE, or the folder's]
    #[arg(long, global = true, value_name = "URL")]
    node: Option<String>,
    /// File with the token to send [default: LIGHTER_TOKEN, or the one in the data folder]
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true)]
    token_file: Option<PathBuf>,
    /// Certificate (PEM) that signed the node's certificate, unless a public authority did
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true)]
    ca_cert: Option<PathBuf>,
    /// Data folder [default: LIGHTER_DATA, or the user's]
    ///
    /// The user's own is $XDG_DATA_HOME/lighter, or ~/.local/share/lighter.
    #[arg(long, global = true, value_name = "DIR", alias = locate::OLD_OPTION)]
    pub data_folder: Option<PathBuf>,
    /// Print JSON; streams print one document per line
    #[arg(long, global = true)]
    json: bool,
    /// Print only results and errors
    #[arg(long, short, global = true)]
    quiet: bool,
}

/// The option of every command again, without its old spelling `--data`, which is the event's data in some commands.
/// It goes when the old spelling goes.
#[derive(Debug, Args)]
pub struct DataFolder {
    /// Data folder of the node [default: LIGHTER_DATA, or ~/.local/share/lighter]
    #[arg(id = "data_folder", long = "data-folder", value_name = "DIR")]
    _folder: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Stop the node after its running calls have ended
    Down,
    /// Create a function from a template
    New(new::New),
    /// Run each function's build command and check the image
    Build(build::Build),
    /// Put the functions of a folder on the node
    Deploy(deploy::Deploy),
    /// Go back to an earlier version of a function
    Rollback(rollback::Rollback),
    /// Remove functions
    Rm(rm::Rm),
    /// List the functions
    Ls(ls::Ls),
    /// Draw the workflow: what starts functions, and the queues that join them
    Flow(flow::Flow),
    /// List the units that exist now
    Ps,
    /// Call a function and print its reply
    Call(call::Call),
    /// Put events into a queue
    Push(push::Push),
    /// Look into queues, replay dead letters, purge
    #[command(subcommand)]
    Queue(queue::Queue),
    /// Follow an event through its handlings, or list the newest
    Event(event::Event),
    /// Look at what functions keep; set, export and import it
    #[command(subcommand)]
    Store(store::Store),
    /// Print what functions wrote
    Logs(logs::Logs),
    /// Print how often, how fast and with which errors functions ran
    Stats(stats::Stats),
    /// Watch functions live
    Top(top::Top),
    /// Print a link to the node's page in the browser
    Dashboard(dashboard::Dashboard),
    /// Fetch the core dump of the last unit that trapped
    Dump(dump::Dump),
    /// Build and deploy again whenever a source changes
    Dev(dev::Dev),
    /// Make, list and remove tokens
    #[command(subcommand)]
    Token(token::Token),
    /// Keep values on the node for functions that are granted them
    #[command(subcommand)]
    Secret(secret::Secret),
    /// List the sessions of MQTT clients, or end one
    #[command(subcommand)]
    Mqtt(mqtt::Mqtt),
    /// List the nodes of the fleet; found one, let nodes in, take nodes out
    Fleet(fleet::Fleet),
    /// Print who did what on the node, and who failed to log in
    Audit(audit::Audit),
    /// Write everything that the node keeps into a file, while it runs
    Backup(backup::Backup),
    /// Put another version of this program in its place, and go back if the node does not become healthy
    Upgrade(upgrade::Upgrade),
    /// Print the JSON Schema of lighter.toml
    Schema,
    /// Explain an error code, or list all
    Errors(errors::Errors),
    /// Print completions for a shell
    Completions(completions::Completions),
    /// Write a manual page for each command
    #[command(hide = true)]
    ManPages(man_pages::ManPages),
    /// Print the versions of this program and of the node
    Version,
}

/// Reads the command line, does what it says, and returns the exit code.
pub fn main(brought: Brought) -> ExitCode {
    let read = help::command(&brought).try_get_matches();
    let (matches, global) = match read.and_then(|matches| Ok((Cli::from_arg_matches(&matches)?.global, matches))) {
        Ok((global, matches)) => (matches, global),
        Err(error) => return usage::end(&error),
    };
    let out = Output::new(global.json, global.quiet);
    if let Some(warning) = locate::old_option(&matches, std::env::args_os()) {
        out.complain(warning);
    }
    let session = Session { out, global, brought };
    match dispatch(&session, &matches) {
        Ok(()) => ExitCode::SUCCESS,
        Err(stop) => {
            if let Stop::Problem(problem) = &stop {
                out.problem(problem);
            }
            ExitCode::from(stop.exit_code())
        }
    }
}

fn dispatch(session: &Session, matches: &ArgMatches) -> Result {
    let (name, own) = matches.subcommand().expect("clap asks for a command");
    if let Some(extra) = session.brought.commands.iter().find(|extra| extra.name == name) {
        return extra.run(own, session);
    }
    let mut options = session.brought.options.iter().filter(|option| option.command == name);
    if let Some(done) = options.find_map(|option| (option.run)(own, session)) {
        return done;
    }
    let command = Command::from_arg_matches(matches);
    run(session, command.map_err(|error| Stop::new(Code::Usage, error.to_string()))?)
}

/// What every command is given.
pub struct Session {
    pub out: Output,
    pub global: Global,
    pub brought: Brought,
}

impl Session {
    /// Talks to the node.
    pub fn client(&self) -> Result<Client> {
        Client::new(self.address()?, self.global.ca_cert.as_deref(), self.out)
    }

    /// Where the node is.
    pub fn address(&self) -> Result<NodeAddress> {
        let node = std::env::var("LIGHTER_NODE").ok().filter(|node| !node.trim().is_empty());
        locate::find(&Wishes {
            node: self.global.node.as_deref().or(node.as_deref()),
            token_file: self.global.token_file.as_deref(),
            token: std::env::var("LIGHTER_TOKEN").ok().filter(|token| !token.trim().is_empty()),
            data_folder: self.global.data_folder.as_deref(),
        })
    }
}

fn run(session: &Session, command: Command) -> Result {
    match command {
        Command::Down => down::run(session),
        Command::New(new) => new.run(session),
        Command::Build(build) => build.run(session),
        Command::Deploy(deploy) => deploy.run(session),
        Command::Rollback(rollback) => rollback.run(session),
        Command::Rm(rm) => rm.run(session),
        Command::Ls(ls) => ls.run(session),
        Command::Flow(flow) => flow.run(session),
        Command::Ps => ps::run(session),
        Command::Call(call) => call.run(session),
        Command::Push(push) => push.run(session),
        Command::Queue(queue) => queue.run(session),
        Command::Event(event) => event.run(session),
        Command::Store(store) => store.run(session),
        Command::Logs(logs) => logs.run(session),
        Command::Stats(stats) => stats.run(session),
        Command::Top(top) => top.run(session),
        Command::Dashboard(dashboard) => dashboard.run(session),
        Command::Dump(dump) => dump.run(session),
        Command::Dev(dev) => dev.run(session),
        Command::Token(token) => token.run(session, token::Whose::Node),
        Command::Secret(secret) => secret.run(session),
        Command::Mqtt(mqtt) => mqtt.run(session),
        Command::Fleet(fleet) => fleet.run(session),
        Command::Audit(audit) => audit.run(session),
        Command::Backup(backup) => backup.run(session),
        Command::Upgrade(upgrade) => upgrade.run(session),
        Command::Schema => schema::run(session),
        Command::Errors(errors) => errors.run(session),
        Command::Completions(completions) => completions.run(session),
        Command::ManPages(pages) => pages.run(session),
        Command::Version => version::run(session),
    }
}
