//! The command line. Every command is a file here; what concerns a running node goes through its API.
//!
//! ```text
//! words ──clap──▶ Command ──run──▶ client ──HTTP──▶ node      data on stdout, talk on stderr
//!                                    │
//!                     Stop ◀─────────┘                        an exit code that scripts can build on
//! ```
#![forbid(unsafe_code)]

mod audit;
mod boards;
mod boot;
mod build;
mod bundle;
mod call;
mod client;
mod completions;
mod component;
mod debug;
mod deploy;
mod dev;
mod down;
mod dump;
mod errors;
mod examples;
mod flash;
mod flow;
mod folder;
mod help;
mod images;
mod locate;
mod logs;
mod ls;
mod mqtt;
mod mqtt_password;
mod nearest;
mod new;
mod output;
mod progress;
mod prompt;
mod prove;
mod ps;
mod push;
mod queue;
mod rm;
mod rollback;
mod salvage;
mod schema;
mod secret;
mod stats;
mod stop;
mod store;
mod table;
mod template;
mod token;
mod top;
mod up;
mod usage;
mod version;
mod watch;
mod words;

use clap::{Args, FromArgMatches, Parser, Subcommand};
use client::Client;
use locate::{Place, Wishes};
use output::Output;
use std::path::PathBuf;
use std::process::ExitCode;
use stop::{Result, Stop};

/// The hidden command by which this program becomes a jail of process units.
pub const JAIL: &str = "jail";

/// Runs functions on this machine, safely apart from each other
#[derive(Debug, Parser)]
#[command(name = "lighter", version, propagate_version = false, disable_help_subcommand = true, max_term_width = 100)]
struct Cli {
    #[command(flatten, next_help_heading = "Options of every command")]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Options of every command.
#[derive(Debug, Args)]
struct Global {
    /// Node's API [default: LIGHTER_NODE, or the data folder's]
    #[arg(long, global = true, value_name = "URL")]
    node: Option<String>,
    /// File with the token to send [default: LIGHTER_TOKEN, else the one in the data folder]
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true)]
    token_file: Option<PathBuf>,
    /// Certificate (PEM) that signed the node's certificate, unless a public authority did
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true)]
    ca_cert: Option<PathBuf>,
    /// Data folder [default: LIGHTER_DATA, or the user's own]
    ///
    /// The user's own is $XDG_DATA_HOME/lighter, or ~/.local/share/lighter. In `call`, `push` and `debug` the option is
    /// --data-folder, because their --data is the data of the event.
    #[arg(long, global = true, value_name = "DIR", alias = "data-folder")]
    data: Option<PathBuf>,
    /// Print JSON: one document, or one on each line for streams
    #[arg(long, global = true)]
    json: bool,
    /// Print only results and errors
    #[arg(long, short, global = true)]
    quiet: bool,
}

/// `--data` means the event's data in some commands; these take the folder as `--data-folder`.
#[derive(Debug, Args)]
struct DataFolder {
    /// Data folder of the node [default: LIGHTER_DATA, else ~/.local/share/lighter]
    #[arg(id = "data", long = "data-folder", value_name = "DIR")]
    _folder: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a node here, until Ctrl-C or `lighter down`
    Up(Box<up::Up>),
    /// Stop the node after its running calls have ended
    Down,
    /// Begin a function from a template
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
    /// Look at what functions keep; set, export and import it
    #[command(subcommand)]
    Store(store::Store),
    /// Print what functions wrote
    Logs(logs::Logs),
    /// List the boards, and whether they are trusted
    Boards,
    /// Start a board in QEMU, to try it out
    Boot(boot::Boot),
    /// Write a board's image, or the files for its SD card
    Flash(flash::Flash),
    /// Print how often, how fast and with which errors functions ran
    Stats(stats::Stats),
    /// Watch functions live
    Top(top::Top),
    /// Fetch the core dump of the last unit that trapped
    Dump(dump::Dump),
    /// Copy what can be read out of a damaged data folder
    Salvage(salvage::Salvage),
    /// Run one call under gdb or lldb
    Debug(debug::Debug),
    /// Run one call in this process, for a debugger to watch
    #[command(hide = true)]
    DebugRun(debug::DebugRun),
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
    /// Print who did what on the node, and who failed to log in
    Audit(audit::Audit),
    /// Hash the password of an MQTT user, for node.toml
    MqttPassword,
    /// Print the JSON Schema of lighter.toml
    Schema,
    /// Explain an error code, or list all
    Errors(errors::Errors),
    /// Print completions for a shell
    Completions(completions::Completions),
    /// Print the versions of this program and of the node
    Version,
}

/// Runs a node until it is stopped; the second is told where it listens.
pub type Start =
    fn(node::config::Config, Box<dyn FnOnce(&serde_json::Value)>) -> std::result::Result<(), problem::Problem>;

/// Reads the command line, does what it says, and returns the exit code.
pub fn main(start: Start) -> ExitCode {
    // A jail has no use for the rest of the command line, and starts in every function's first call.
    if std::env::args().nth(1).is_some_and(|command| command == JAIL) {
        return unit_process::jail::main();
    }
    if std::env::args().nth(1).is_some_and(|command| command == node::compiler::child::COMMAND) {
        return node::compiler::child::main();
    }
    let read = help::command().try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match read {
        Ok(cli) => cli,
        Err(error) => return usage::end(&error),
    };
    let out = Output::new(cli.global.json, cli.global.quiet);
    let session = Session { out, global: cli.global, start };
    match run(&session, cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(stop) => {
            if let Stop::Problem(problem) = &stop {
                out.problem(problem);
            }
            ExitCode::from(stop.exit_code())
        }
    }
}

/// What every command is given.
struct Session {
    out: Output,
    global: Global,
    start: Start,
}

impl Session {
    fn client(&self) -> Result<Client> {
        Client::new(self.place()?, self.global.ca_cert.as_deref(), self.out)
    }

    fn place(&self) -> Result<Place> {
        let node = std::env::var("LIGHTER_NODE").ok().filter(|node| !node.trim().is_empty());
        locate::find(&Wishes {
            node: self.global.node.as_deref().or(node.as_deref()),
            token_file: self.global.token_file.as_deref(),
            token: std::env::var("LIGHTER_TOKEN").ok().filter(|token| !token.trim().is_empty()),
            data: self.global.data.as_deref(),
        })
    }
}

fn run(session: &Session, command: Command) -> Result {
    match command {
        Command::Up(up) => up.run(session),
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
        Command::Store(store) => store.run(session),
        Command::Logs(logs) => logs.run(session),
        Command::Boards => boards::run(session),
        Command::Boot(boot) => boot.run(session),
        Command::Flash(flash) => flash.run(session),
        Command::Stats(stats) => stats.run(session),
        Command::Top(top) => top.run(session),
        Command::Dump(dump) => dump.run(session),
        Command::Salvage(salvage) => salvage.run(session),
        Command::Debug(debug) => debug.run(session),
        Command::DebugRun(debug_run) => debug_run.run(session),
        Command::Dev(dev) => dev.run(session),
        Command::Token(token) => token.run(session),
        Command::Secret(secret) => secret.run(session),
        Command::Mqtt(mqtt) => mqtt.run(session),
        Command::Audit(audit) => audit.run(session),
        Command::MqttPassword => mqtt_password::run(session),
        Command::Schema => schema::run(session),
        Command::Errors(errors) => errors.run(session),
        Command::Completions(completions) => completions.run(session),
        Command::Version => version::run(session),
    }
}
