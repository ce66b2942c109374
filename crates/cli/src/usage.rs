//! A wrong command line, reported like every other problem: text for people, JSON for machines.

use super::output::Output;
use super::stop::Stop;
use clap::Error;
use problem::{Code, Problem};
use std::process::ExitCode;

/// Says what is wrong, or what `--help` asks for, and returns the exit code.
pub fn end(error: &Error) -> ExitCode {
    // What could be read of the line is lost, so it is looked at again.
    let json = std::env::args().skip(1).take_while(|word| word != "--").any(|word| word == "--json");
    if error.use_stderr() && json {
        let problem = problem(&error.render().to_string());
        Output::new(true, false).problem(&problem);
        return ExitCode::from(Stop::from(problem).exit_code());
    }
    // Nobody is left to tell that nobody listens.
    let _ = error.print();
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(super::stop::FAILED))
}

/// The first paragraph of what clap says, and its tips.
fn problem(said: &str) -> Problem {
    let said = said.strip_prefix("error: ").unwrap_or(said);
    let detail: Vec<&str> = said.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let tips: Vec<&str> = said.lines().filter_map(|line| line.trim().strip_prefix("tip: ")).collect();
    let problem = Problem::new(Code::Usage, detail.join(" "));
    match tips.is_empty() {
        true => problem,
        false => problem.with_hint(tips.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_in_a_command_names_the_nearest_and_what_is_missing_is_named() {
        let said = |line: &[&str]| {
            super::super::help::command(&crate::Brought::default()).try_get_matches_from(line).unwrap_err()
        };
        let slip = problem(&said(&["lighter", "deplyo"]).render().to_string());
        assert_eq!((slip.code, &*slip.detail), (Code::Usage, "unrecognized subcommand 'deplyo'"));
        assert!(slip.hint.contains("'deploy'"), "{slip}");
        let missing = problem(&said(&["lighter", "call"]).render().to_string());
        assert_eq!(missing.detail, "the following required arguments were not provided: <NAME>");
        assert!(missing.hint.contains("--help"), "{missing}");
    }
}
