//! `lighter errors`: what a code means and what helps, or all codes.

use super::Session;
use super::nearest::nearest;
use super::stop::{Result, Stop};
use super::table::Table;
use clap::Args;
use problem::{Code, Problem};
use serde_json::{Value, json};

#[derive(Debug, Args)]
pub struct Errors {
    /// Code to explain, such as L1102 [default: list all]
    code: Option<String>,
}

impl Errors {
    pub fn run(&self, session: &Session) -> Result {
        let out = session.out;
        match &self.code {
            Some(name) => {
                let code = find(name)?;
                match out.json {
                    true => out.json(&document(code)),
                    false => explanation(code).iter().try_for_each(|line| out.line(line)),
                }
            }
            None if out.json => out.json(&Code::ALL.iter().map(|code| document(*code)).collect::<Vec<_>>()),
            None => {
                let mut table = Table::new(&["CODE", ">HTTP", "MEANING"]);
                for code in Code::ALL {
                    table.row([code.to_string(), code.status().to_string(), code.title().to_owned()]);
                }
                out.table(&table)
            }
        }
    }
}

/// Takes `L1102`, `l1102` and `1102`.
fn find(name: &str) -> Result<Code> {
    let said = name.trim();
    let name = said.to_uppercase();
    let name = if name.starts_with('L') { name } else { format!("L{name}") };
    Code::from_name(&name).ok_or_else(|| {
        let problem = Problem::new(Code::Usage, format!("there is no error code {said:?}"));
        let names: Vec<String> = Code::ALL.iter().map(Code::to_string).collect();
        Stop::from(match nearest(&name, names.iter().map(String::as_str)) {
            Some(near) => problem.with_hint(format!("did you mean {near}? `lighter errors` lists all")),
            None => problem.with_hint("`lighter errors` lists all"),
        })
    })
}

fn explanation(code: Code) -> Vec<String> {
    let mut lines = vec![format!("{code}: {}", code.title())];
    if !code.hint().is_empty() {
        lines.push(format!("  hint: {}", code.hint()));
    }
    lines.push(format!(
        "  HTTP status: {}, exit code of this program: {}",
        code.status(),
        Stop::new(code, "").exit_code()
    ));
    lines
}

fn document(code: Code) -> Value {
    json!({
        "code": code.to_string(),
        "name": format!("{code:?}"),
        "status": code.status(),
        "exit_code": Stop::new(code, "").exit_code(),
        "title": code.title(),
        "hint": code.hint(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_found_however_it_is_written() {
        for name in ["L1102", "l1102", "1102", " L1102 "] {
            assert_eq!(find(name).unwrap(), Code::NodeUnreachable);
        }
        let Err(Stop::Problem(problem)) = find("L1100") else { panic!("there is no such code") };
        assert!(problem.hint.contains("did you mean L110"), "{problem}");
    }

    #[test]
    fn an_explanation_has_meaning_hint_and_codes() {
        let text = explanation(Code::NodeUnreachable).join("\n");
        assert!(
            text.contains("no node answers")
                && text.contains("lighter up")
                && text.contains("exit code of this program: 3"),
            "{text}"
        );
    }
}
