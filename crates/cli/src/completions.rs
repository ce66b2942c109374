//! `lighter completions`: completions for a shell, to be put where the shell looks for them.

use super::stop::Result;
use super::{Session, help};
use clap::Args;
use clap_complete::Shell;

#[derive(Debug, Args)]
pub struct Completions {
    shell: Shell,
}

impl Completions {
    pub fn run(&self, session: &Session) -> Result {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut help::command(&session.brought), "lighter", &mut script);
        session.out.raw(&script)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_learns_every_command() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut help::command(&crate::Brought::default()), "lighter", &mut script);
            let script = String::from_utf8(script).unwrap();
            for name in ["deploy", "rollback", "completions"] {
                assert!(script.contains(name), "{shell} does not know {name}");
            }
        }
    }
}
