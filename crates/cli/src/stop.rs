//! Why a command ended early, and the exit code it ends with.
//!
//! Scripts may build on these codes: they stand in `lighter --help` and in `docs/cli.md`, and never change.

use problem::{Code, Problem};
use std::io;

/// What every command returns.
pub type Result<T = ()> = std::result::Result<T, Stop>;

/// Exit codes and what they mean, in the order they are shown.
pub const EXIT_CODES: &[(u8, &str)] = &[
    (0, "it worked"),
    (FAILED, "it failed; the problem is on stderr"),
    (2, "the command line is not right"),
    (3, "no node answers"),
    (4, "not allowed: no token, a wrong one, or one without the scope"),
    (5, "not found: no such function, version, image, token or secret"),
    (INTERRUPTED, "interrupted"),
];

/// Exit code of everything that has no code of its own.
pub const FAILED: u8 = 1;
const INTERRUPTED: u8 = 130;

/// Why a command ended early.
#[derive(Debug)]
pub enum Stop {
    /// Something to tell the user.
    Problem(Problem),
    /// The user asked for it.
    Interrupted,
    /// Nobody reads our output any more, as in `lighter logs | head`.
    PipeClosed,
    /// All has been said; only the exit code is left.
    Status(u8),
}

impl Stop {
    pub fn new(code: Code, detail: impl Into<std::borrow::Cow<'static, str>>) -> Self {
        Self::Problem(Problem::new(code, detail))
    }

    /// A file that cannot be read or written.
    pub fn file(path: &std::path::Path, error: &io::Error) -> Self {
        Self::new(Code::FileUnusable, format!("{}: {error}", path.display()))
    }

    /// A file that was named with this option and cannot be read.
    pub fn named(option: &str, path: &std::path::Path, error: &io::Error) -> Self {
        Self::new(Code::FileUnusable, format!("{option} {}: {error}", path.display()))
    }

    /// Says which function the problem is about.
    #[must_use]
    pub fn about(self, function: &manifest::Name) -> Self {
        match self {
            Self::Problem(problem) => {
                let detail = format!("function {:?}: {}", function.as_str(), problem.detail);
                Self::Problem(Problem { detail: detail.into(), ..problem })
            }
            stop => stop,
        }
    }

    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Problem(problem) => exit_code(problem.code),
            Self::Interrupted => INTERRUPTED,
            Self::PipeClosed => 0,
            Self::Status(code) => *code,
        }
    }
}

impl From<Problem> for Stop {
    fn from(problem: Problem) -> Self {
        match problem.code {
            Code::Interrupted => Self::Interrupted,
            _ => Self::Problem(problem),
        }
    }
}

fn exit_code(code: Code) -> u8 {
    match code {
        Code::Usage => 2,
        Code::NodeUnreachable | Code::NodeUnproven => 3,
        Code::TokenMissing | Code::TokenInvalid | Code::ScopeMissing => 4,
        Code::Interrupted => INTERRUPTED,
        _ if code.status() == 404 => 5,
        _ => FAILED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_ends_with_an_exit_code_of_the_table() {
        for code in Code::ALL {
            let exit = exit_code(*code);
            assert!(exit != 0 && EXIT_CODES.iter().any(|(known, _)| *known == exit), "{code} ends with {exit}");
        }
        assert_eq!(exit_code(Code::FunctionUnknown), 5);
        assert_eq!(exit_code(Code::ScopeMissing), 4);
        assert_eq!(exit_code(Code::UnitTrapped), 1);
        assert_eq!(Stop::from(Problem::new(Code::Interrupted, "")).exit_code(), 130);
    }
}
