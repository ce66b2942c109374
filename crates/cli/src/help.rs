//! What `-h` and `--help` say: the first fits a screen, the second has everything.

use super::stop::EXIT_CODES;
use super::{Cli, examples};
use clap::{Command, CommandFactory};

/// The commands by what they are for. Lines of `-h`, which shows no more than these and the common options.
const GROUPS: &str = "\
Write   new      begin a function   build     build it        dev     on changes
        flow     draw a workflow    schema    of lighter.toml
Run     up       start a node here  down      stop it         deploy  functions
        call     a function         rollback  a version back  rm      functions
Events  push     into a queue       queue     look, replay    store   of keys
Look    ls       functions          ps        units           logs    written
        stats    calls, latency     top       stats live      errors  codes
Debug   debug    with gdb or lldb   dump      core of a trap  salvage a disk
Boards  boards   that were heard    boot      one in QEMU     flash   a card
Secure  token    make, list, remove secret    set, list, end  mqtt-password
        mqtt     sessions           audit     who did what
Other   version  of both sides      completions for your shell";

const EXAMPLES: &str = "\
Examples:
  lighter up                                              start a node here
  lighter new hello && lighter deploy hello --build       begin a function and run it
  lighter call hello --data world --timing                call it, and see where the time went";

const TEMPLATE: &str = "{about-with-newline}\n{usage-heading} {usage}{after-help}\n\nOptions:\n{options}";

/// The whole command line.
pub fn command() -> Command {
    let mut command = Cli::command();
    let names: Vec<String> = command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    for name in names {
        if let Some(examples) = examples::of(&name) {
            command = command.mut_subcommand(name, |command| command.after_help(examples));
        }
    }
    let long = format!("Commands:\n{}\n{EXAMPLES}\n\nExit codes:\n{}", commands(&command), exit_codes());
    command.help_template(TEMPLATE).after_help(GROUPS).after_long_help(long)
}

fn commands(command: &Command) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Arg;

    const MANUAL: &str = include_str!("../../../docs/cli.md");

    fn names() -> Vec<String> {
        let command = command();
        command
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
            .map(|command| command.get_name().to_owned())
            .collect()
    }

    #[test]
    fn the_definitions_do_not_contradict_each_other() {
        command().debug_assert();
    }

    #[test]
    fn short_help_fits_a_screen_and_has_every_command() {
        let text = command().term_width(80).render_help().to_string();
        assert!(text.lines().count() <= 24, "{} lines:\n{text}", text.lines().count());
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        for name in names() {
            assert!(text.split_whitespace().any(|word| word == name), "{name} is not in:\n{text}");
        }
    }

    #[test]
    fn long_help_has_the_exit_codes_and_examples_that_parse() {
        let text = command().render_long_help().to_string();
        for (code, meaning) in EXIT_CODES {
            assert!(text.contains(&format!("{code:>3}  {meaning}")), "{text}");
        }
        let examples = EXAMPLES.lines().skip(1).flat_map(|line| line.trim().split("   ").next().unwrap().split(" && "));
        let mut count = 0;
        for example in examples {
            command()
                .try_get_matches_from(example.split_whitespace())
                .unwrap_or_else(|error| panic!("{example}: {error}"));
            count += 1;
        }
        assert_eq!(count, 4);
    }

    #[test]
    fn every_command_has_examples_that_parse() {
        for name in names() {
            assert!(examples::of(&name).is_some(), "{name} has no example");
        }
        for (name, line) in
            examples::EXAMPLES.iter().flat_map(|(name, lines)| lines.iter().map(move |line| (name, line)))
        {
            let words: Vec<&str> = line.split_whitespace().take_while(|word| !["|", ">"].contains(word)).collect();
            assert_eq!(words[..2], ["lighter", name], "{line}");
            command().try_get_matches_from(words).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
    }

    #[test]
    fn options_of_every_command_stand_under_a_heading_of_their_own() {
        let mut command = command();
        command.build();
        let text = command.find_subcommand_mut("call").unwrap().render_long_help().to_string();
        let (own, of_all) = text.split_once("Options of every command:").expect("a heading");
        assert!(own.contains("--timing") && own.contains("--data-folder") && !own.contains("--quiet"), "{text}");
        assert!(of_all.contains("--quiet") && of_all.contains("Examples:"), "{text}");
    }

    #[test]
    fn the_manual_has_every_command_with_every_option() {
        let mut command = command();
        let global: Vec<_> = command.get_arguments().map(|arg| arg.get_id().clone()).collect();
        command.build();
        for name in names() {
            let heading = format!("\n### lighter {name}\n");
            let section =
                MANUAL.split_once(&heading).unwrap_or_else(|| panic!("docs/cli.md has no heading {heading:?}")).1;
            let section = section.split("\n### ").next().unwrap();
            let own = command.find_subcommand(&name).unwrap();
            let mut options: Vec<&Arg> = own.get_arguments().collect();
            options.extend(own.get_subcommands().flat_map(Command::get_arguments));
            for long in options.into_iter().filter(|arg| !global.contains(arg.get_id())).filter_map(Arg::get_long) {
                assert!(
                    long == "help" || section.contains(&format!("--{long}")),
                    "docs/cli.md says nothing of --{long} of {name}"
                );
            }
        }
    }

    #[test]
    fn the_manual_has_every_exit_code() {
        for (code, meaning) in EXIT_CODES {
            assert!(MANUAL.contains(&format!("| {code} | {meaning} |")), "{code} is not in docs/cli.md");
        }
    }

    #[test]
    fn the_data_folder_and_the_data_of_an_event_do_not_get_in_each_others_way() {
        use clap::FromArgMatches;
        let parse =
            |line: &str| Cli::from_arg_matches(&command().try_get_matches_from(line.split(' ')).unwrap()).unwrap();
        for line in [
            "lighter --data /d call f --data x",
            "lighter call f --data x --data-folder /d",
            "lighter --data /d ls",
            "lighter ls --data /d",
        ] {
            assert_eq!(parse(line).global.data.as_deref(), Some(std::path::Path::new("/d")), "{line}");
        }
        assert!(command().try_get_matches_from(["lighter", "deplyo"]).unwrap_err().to_string().contains("deploy"));
    }
}
