//! What `-h` and `--help` say: the first fits a screen, the second has everything.

use super::stop::EXIT_CODES;
use super::{Brought, Cli, examples};
use clap::{Command, CommandFactory, Subcommand};

/// The commands by what they are for. Lines of `-h`, which shows no more than these, those that are brought before the
/// last two, and the common options.
const GROUPS: &str = "\
Write   new      create a function  build     build it        dev     on changes
        flow     draw a workflow    schema    of lighter.toml deploy  functions
Run     up       start a node here  down      stop it         call    a function
        rollback a version back     rm        functions       store   of keys
Events  push     into a queue       queue     look, replay    event   its tries
Look    ls       functions          ps        units           logs    written
        stats    calls, latency     top       stats live      dashboard a page
Debug   debug    with gdb or lldb   dump      core of a trap  salvage a disk";

const LAST_GROUPS: &str = "\
Secure  token    make, list, remove secret    set, list, end  mqtt-password
        mqtt     sessions           audit     who did what    fleet   of nodes
Other   backup   restore  base  upgrade  version  errors  completions";

pub const EXAMPLES: &str = "\
Examples:
  lighter up                                              start a node here
  lighter new hello && lighter deploy hello --build       create a function and run it
  lighter call hello --data world --timing                call it, and see where the time went";

const TEMPLATE: &str = "{about-with-newline}\n{usage-heading} {usage}{after-help}\n\nOptions:\n{options}";

/// The whole command line.
pub fn command(brought: &Brought) -> Command {
    let own = super::Command::augment_subcommands(Command::new("own"));
    let mut commands: Vec<Command> =
        own.get_subcommands().cloned().map(|one| with_examples(one, examples::OWN)).collect();
    for extra in &brought.commands {
        let place = commands.iter().position(|one| Some(one.get_name()) == extra.after).map_or(0, |place| place + 1);
        commands.insert(place, with_examples(extra.command(), &[(extra.name, extra.examples)]));
    }
    for option in &brought.options {
        // In its place: `mut_subcommand` puts a command after all others.
        commands.iter_mut().filter(|one| one.get_name() == option.command).for_each(|one| {
            *one = (option.augment)(std::mem::take(one));
        });
    }
    let command = Cli::command().subcommand_required(true).arg_required_else_help(true).subcommands(commands);
    let long = format!("Commands:\n{}\n{EXAMPLES}\n\nExit codes:\n{}", commands_of(&command), exit_codes());
    let mut groups = vec![GROUPS];
    groups.extend(&brought.groups);
    groups.push(LAST_GROUPS);
    command.help_template(TEMPLATE).after_help(groups.join("\n")).after_long_help(long)
}

fn with_examples(command: Command, examples: &[(&str, &[&str])]) -> Command {
    match examples::of(examples, command.get_name()) {
        Some(text) => command.after_help(text),
        None => command,
    }
}

fn commands_of(command: &Command) -> String {
    let line = |command: &Command| {
        format!("  {:<12} {}\n", command.get_name(), command.get_about().map(ToString::to_string).unwrap_or_default())
    };
    command.get_subcommands().filter(|command| !command.is_hide_set()).map(line).collect()
}

fn exit_codes() -> String {
    EXIT_CODES
        .iter()
        .map(|(code, meaning)| format!("  {code:>3}  {meaning}\n"))
        .collect::<String>()
        .trim_end()
        .to_owned()
}
