//! `lighter new`: begin a function from a template.

use super::Session;
use super::stop::{Result, Stop};
use super::template::{self, Contract};
use clap::{Args, ValueEnum};
use manifest::Name;
use problem::{Code, Problem};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub struct New {
    /// Name of the function, and of the folder it is written to
    name: Name,
    /// Language to write it in
    #[arg(long, short, value_enum, default_value_t = Language::Rust)]
    lang: Language,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Language {
    Rust,
    #[value(alias = "js")]
    Javascript,
    #[value(alias = "py")]
    Python,
    Go,
    Java,
    #[value(alias = "kt")]
    Kotlin,
}

impl Language {
    fn as_str(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::Javascript => "javascript",
            Self::Python => "python",
            Self::Go => "go",
            Self::Java => "java",
            Self::Kotlin => "kotlin",
        }
    }

    /// What a build needs of the contract.
    fn contract(self) -> Contract {
        match self {
            Self::Java | Self::Kotlin => Contract::Jar,
            _ => Contract::Wit,
        }
    }
}

impl New {
    pub fn run(&self, session: &Session) -> Result {
        let folder = PathBuf::from(self.name.as_str());
        check_empty(&folder)?;
        let files = template::files(self.lang.as_str(), self.lang.contract(), self.name.as_str());
        for (path, content) in &files {
            let file = folder.join(path);
            let parent = file.parent().expect("a file stands in a folder");
            fs::create_dir_all(parent).map_err(|error| Stop::file(parent, &error))?;
            fs::write(&file, content).map_err(|error| Stop::file(&file, &error))?;
        }
        if session.out.json {
            let paths: Vec<&str> = files.iter().map(|(path, _)| path.as_str()).collect();
            return session
                .out
                .json(&serde_json::json!({ "folder": folder, "language": self.lang.as_str(), "files": paths }));
        }
        session.out.line(folder.display())?;
        session.out.advise(format!(
            "wrote a {} function to {name}/\n  next: lighter deploy {name} --build\n  then: lighter call {name} --data world",
            self.lang.as_str(),
            name = self.name
        ));
        Ok(())
    }
}

fn check_empty(folder: &Path) -> Result {
    match fs::read_dir(folder).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(()),
        Ok(false) => {
            Err(Problem::new(Code::FolderNotEmpty, format!("the folder {} is not empty", folder.display())).into())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Stop::file(folder, &error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_language_has_a_template_whose_manifest_is_right() {
        for language in Language::value_variants() {
            let files = template::files(language.as_str(), language.contract(), "my-thing");
            let (_, text) = files
                .iter()
                .find(|(path, _)| path == manifest::FILE_NAME)
                .unwrap_or_else(|| panic!("{}", language.as_str()));
            let manifest = manifest::parse(std::str::from_utf8(text).unwrap())
                .unwrap_or_else(|problem| panic!("{}: {problem}", language.as_str()));
            let function = manifest.function.get("my-thing").expect("the function has the name that was asked for");
            assert!(function.build.is_some(), "`lighter build` needs a command");
            let has = |path: &str| files.iter().any(|(name, _)| name == path);
            assert_ne!(has("wit/unit.wit"), has("sdk/lighterage-unit.jar"), "{}", language.as_str());
        }
    }

    #[test]
    fn nothing_is_written_over() {
        let folder = tempfile::tempdir().unwrap();
        assert!(check_empty(folder.path()).is_ok());
        assert!(check_empty(&folder.path().join("new")).is_ok());
        fs::write(folder.path().join("x"), "").unwrap();
        let Err(Stop::Problem(problem)) = check_empty(folder.path()) else { panic!("it should be refused") };
        assert_eq!(problem.code, Code::FolderNotEmpty);
    }
}
