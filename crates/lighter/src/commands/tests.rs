//! The whole command line: help, examples, and the manual beside it.

use clap::{Arg, Command};
use cli::help::EXAMPLES;
use cli::stop::EXIT_CODES;
use cli::{Global, examples};

const MANUAL: &str = include_str!("../../../../docs/cli.md");

/// The whole command line, as the program has it.
fn command() -> Command {
    cli::help::command(&super::brought())
}

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
        command().try_get_matches_from(example.split_whitespace()).unwrap_or_else(|error| panic!("{example}: {error}"));
        count += 1;
    }
    assert_eq!(count, 4);
}

#[test]
fn every_command_has_examples_that_parse() {
    let brought = super::brought();
    let mut all = examples::OWN.to_vec();
    all.extend(brought.commands.iter().map(|extra| (extra.name, extra.examples)));
    for name in names() {
        assert!(examples::of(&all, &name).is_some(), "{name} has no example");
    }
    for (name, line) in all.iter().flat_map(|(name, lines)| lines.iter().map(move |line| (name, line))) {
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
        let section = MANUAL.split_once(&heading).unwrap_or_else(|| panic!("docs/cli.md has no heading {heading:?}")).1;
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
    let parse = |line: &str| cli::read::<Global>(&command().try_get_matches_from(line.split(' ')).unwrap()).unwrap();
    for line in [
        "lighter --data-folder /d call f --data x",
        "lighter call f --data x --data-folder /d",
        "lighter --data-folder /d ls",
        "lighter ls --data-folder /d",
        "lighter up --data-folder /d",
        "lighter ls --data /d",
    ] {
        assert_eq!(parse(line).data_folder.as_deref(), Some(std::path::Path::new("/d")), "{line}");
    }
    assert!(command().try_get_matches_from(["lighter", "deplyo"]).unwrap_err().to_string().contains("deploy"));
}
