//! `lighter build`: run each function's build command, check the image, make a component of a core module. An image
//! that a class makes of a function's files is made whenever it is needed, and checked here.

use super::images::{self, Project};
use super::output::Output;
use super::stop::{Result, Stop};
use super::table::Table;
use super::{Session, locate, words};
use clap::Args;
use problem::{Code, Problem};
use serde::Serialize;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

#[derive(Debug, Args)]
pub struct Build {
    /// Folder with lighter.toml, or the manifest itself
    #[arg(default_value = ".", hide_default_value = true)]
    dir: PathBuf,
}

/// One function built.
#[derive(Debug, Serialize)]
pub struct Built {
    pub function: String,
    pub image: PathBuf,
    pub image_bytes: u64,
    /// The image was a core module and is a component now.
    converted: bool,
}

impl Build {
    /// The project it names, and its functions built.
    pub fn built(&self, session: &Session) -> Result<(Project, Vec<Built>)> {
        let project = images::project(&self.dir, &session.brought.images)?;
        let built = build(&project, session.out)?;
        Ok((project, built))
    }

    pub fn run(&self, session: &Session) -> Result {
        let (_, built) = self.built(session)?;
        if session.out.json {
            return session.out.json(&built);
        }
        let mut table = Table::new(&["FUNCTION", ">SIZE", "IMAGE"]);
        for built in &built {
            table.row([built.function.clone(), words::bytes(built.image_bytes), built.image.display().to_string()]);
        }
        session.out.table(&table)
    }
}

/// Builds every function of a project; a command that several share runs once.
pub fn build(project: &Project, out: Output) -> Result<Vec<Built>> {
    let mut done: Vec<&str> = Vec::new();
    for (name, function) in &project.manifest.function {
        if let Some(command) = function.build.as_deref().filter(|command| !done.contains(command)) {
            out.say(format!("building {name}: {command}"));
            let since = Instant::now();
            let status = run(command, &project.folder, out)?;
            check(name.as_str(), command, status)?;
            out.say(format!("built {name} in {}", words::duration(since.elapsed())));
            done.push(command);
        }
    }
    let finish = |(name, function)| {
        let path = project.image_path(function);
        let image = images::image(project, name, function).map_err(|stop| unmade(function.build.as_deref(), stop))?;
        if image.converted {
            images::replace(&path, &image.bytes)?;
        }
        let image_bytes = image.bytes.len() as u64;
        Ok(Built { function: name.to_string(), image: path, image_bytes, converted: image.converted })
    };
    project.manifest.function.iter().map(finish).collect()
}

/// A missing image whose build command has just run.
fn unmade(command: Option<&str>, stop: Stop) -> Stop {
    match (command, stop) {
        (Some(command), Stop::Problem(problem)) if problem.code == Code::ImageMissing => {
            problem.with_hint(format!("{command:?} did not make it: does `image` name what it makes?")).into()
        }
        (_, stop) => stop,
    }
}

/// Runs a build command. Its output goes to stderr: stdout is for results.
fn run(command: &str, folder: &Path, out: Output) -> Result<ExitStatus> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).current_dir(folder).stdin(Stdio::null());
    locate::keep_tokens_from(&mut shell);
    let failed = |error: io::Error| Stop::new(Code::ToolMissing, format!("sh in {}: {error}", folder.display()));
    if !out.is_quiet() {
        return shell.stdout(io::stderr()).status().map_err(failed);
    }
    let output = shell.output().map_err(failed)?;
    if !output.status.success() {
        let _ = io::stderr().write_all(&[output.stdout, output.stderr].concat());
    }
    Ok(output.status)
}

fn check(name: &str, command: &str, status: ExitStatus) -> Result {
    const NOT_FOUND: i32 = 127;
    match status.code() {
        Some(0) => Ok(()),
        Some(NOT_FOUND) => {
            let problem = Problem::new(
                Code::ToolMissing,
                format!("function {name:?}: a tool that {command:?} needs is not installed"),
            );
            Err(problem.with_hint("the lines above name it").into())
        }
        Some(code) => {
            Err(Stop::new(Code::BuildFailed, format!("function {name:?}: {command:?} ended with exit code {code}")))
        }
        None => Err(Stop::new(Code::BuildFailed, format!("function {name:?}: {command:?} was stopped by a signal"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(build: &str) -> Problem {
        let folder = tempfile::tempdir().unwrap();
        let text = format!("[function.f]\nimage = \"f.wasm\"\nbuild = {build:?}\n");
        std::fs::write(folder.path().join("lighter.toml"), text).unwrap();
        match super::build(
            &images::project(folder.path(), &crate::Images::default()).unwrap(),
            Output::new(false, true),
        ) {
            Err(Stop::Problem(problem)) => problem,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_build_that_fails_says_how() {
        assert_eq!(problem("exit 3").code, Code::BuildFailed);
        assert!(problem("exit 3").detail.contains("exit code 3"));
        assert_eq!(problem("no-such-tool-at-all 2>/dev/null").code, Code::ToolMissing);
        assert_eq!(problem("true").code, Code::ImageMissing);
        assert!(problem("true").hint.contains("\"true\" did not make it"));
        assert_eq!(problem("echo text > f.wasm").code, Code::ImageNotWasm);
    }

    #[test]
    fn a_command_that_functions_share_runs_once() {
        let folder = tempfile::tempdir().unwrap();
        let line = "echo once >> count; printf '\\0asm\\r\\0\\01\\0' > f.wasm";
        let function = |name: &str| format!("[function.{name}]\nimage = \"f.wasm\"\nbuild = {line:?}\n");
        std::fs::write(folder.path().join("lighter.toml"), function("a") + &function("b")).unwrap();
        let built =
            super::build(&images::project(folder.path(), &crate::Images::default()).unwrap(), Output::new(false, true))
                .unwrap();
        assert_eq!(built.len(), 2);
        assert_eq!(std::fs::read_to_string(folder.path().join("count")).unwrap(), "once\n");
    }
}
