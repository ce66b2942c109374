//! `lighter up`: start a node here. The one command that does not go through the API.

use crate::{classes, engine, run};
use clap::{Arg, ArgMatches, Args, Command};
use cli::stop::Result;
use cli::{Extra, Session};
use node::config::{Config, UpArgs};
use node::options::Asked;
use serde_json::Value;

/// The node's first limit. What concerns a single class is listed before the limits.
const FIRST_LIMIT: &str = "units_max";

pub const COMMAND: Extra = Extra {
    name: "up",
    about: "Start a node here, until Ctrl-C or `lighter down`",
    after: None,
    examples: &[
        "lighter up",
        "lighter up --http 127.0.0.1:8080 --mqtt 127.0.0.1:1883",
        "lighter up --config node.toml",
    ],
    augment,
    run: up,
};

/// Adds the options of the node and those of the classes, in the order of the help.
fn augment(command: Command) -> Command {
    let mut options: Vec<Arg> = UpArgs::augment_args(Command::new("node")).get_arguments().cloned().collect();
    let first_limit = options.iter().position(|option| option.get_id() == FIRST_LIMIT).expect("a node has limits");
    let of_classes = classes::augment(Command::new("classes"));
    options.splice(first_limit..first_limit, of_classes.get_arguments().cloned());
    command.args(options.into_iter().enumerate().map(|(order, option)| option.display_order(order)))
}

/// Returns when the node has been stopped.
fn up(matches: &ArgMatches, session: &Session) -> Result {
    let asked = Asked::new(matches, &augment(Command::new("up")))?;
    let config = Config::of(&asked)?;
    let classes = classes::configure(&asked)?;
    let engine = engine::configure(&config)?;
    let out = session.out;
    if let Some(warning) = asked.old_key() {
        out.complain(warning);
    }
    let ready = |place: &Value| {
        if out.json {
            // A node serves, even if nobody reads where.
            out.json(place).ok();
        }
    };
    Ok(run::run(config, classes, engine, ready)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn is_read(file: &Path) -> bool {
        let command = augment(Command::new("up"));
        let line = command.clone().get_matches_from(["up".as_ref(), "--config".as_ref(), file.as_os_str()]);
        let read = |asked: &Asked<'_>| asked.options::<UpArgs>().is_ok() && classes::configure(asked).is_ok();
        Asked::new(&line, &command).is_ok_and(|asked| read(&asked))
    }

    #[test]
    fn a_file_that_calls_a_key_by_its_old_name_is_read_with_a_warning() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("node.toml");
        let command = augment(Command::new("up"));
        let line = command.clone().get_matches_from(["up".as_ref(), "--config".as_ref(), file.as_os_str()]);
        let warning = |text: &str| {
            std::fs::write(&file, text).unwrap();
            let asked = Asked::new(&line, &command).unwrap();
            assert_eq!(asked.options::<UpArgs>().unwrap().data_folder.as_deref(), Some(Path::new("/d")));
            asked.old_key()
        };
        assert!(warning("data = \"/d\"").unwrap().contains("data is called data_folder now"));
        assert_eq!(warning("data_folder = \"/d\""), None);
    }

    #[test]
    fn every_option_can_stand_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("node.toml");
        for option in augment(Command::new("up")).get_arguments().filter(|option| option.get_id() != "config") {
            let key = option.get_id().as_str();
            let known = ["true", "1", "0.5", "\"text\"", "\"sh\"", "\"/\"", "\"127.0.0.1:1\"", "[\"a\"]"];
            let can_be = |value: &str| {
                std::fs::write(&file, format!("{key} = {value}")).unwrap();
                is_read(&file)
            };
            assert!(known.into_iter().any(can_be), "{key}");
            assert!(!can_be("{ is = \"a table\" }"), "{key}");
        }
    }

    #[test]
    fn the_manual_has_every_option_by_its_key() {
        let manual = include_str!("../../../../docs/node.md");
        let section = manual.split_once("\n## Options\n").unwrap().1;
        let section = section.split("\n## ").next().unwrap();
        for option in augment(Command::new("up")).get_arguments().filter(|option| option.get_id() != "config") {
            let key = option.get_id().as_str();
            assert!(section.contains(&format!("`{key}`")), "docs/node.md says nothing of {key}");
        }
    }
}
