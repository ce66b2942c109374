//! `lighter new`: create a function from a template, or from a handler that another platform runs.

use super::Session;
use super::foreign::{self, HandlerName, Origin, Script};
use super::stop::{Result, Stop};
use super::template::{self, Contract};
use super::words;
use clap::{Args, ValueEnum};
use manifest::Name;
use problem::{Code, Problem};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub struct New {
    /// Name of the function, and of the folder it is written to; with --from, the folder that the handler is in
    #[arg(value_name = "NAME|DIR")]
    place: PathBuf,
    /// Language to write it in
    #[arg(long, short, value_enum, default_value_t = Language::Rust)]
    lang: Language,
    /// Run a handler for another platform, in Python or JavaScript, unchanged
    #[arg(long, value_enum, value_name = "PLATFORM", conflicts_with = "lang")]
    from: Option<Origin>,
    /// The handler, if its name or file is unusual
    #[arg(long, value_name = "MODULE.FUNCTION", requires = "from")]
    handler: Option<String>,
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
        if let Some(origin) = self.from {
            return self.adopt(origin, session);
        }
        let name = name(&self.place.to_string_lossy())?;
        let folder = PathBuf::from(name.as_str());
        check_empty(&folder)?;
        let files = template::files(self.lang.as_str(), self.lang.contract(), name.as_str());
        for (path, content) in &files {
            write_new(&folder.join(path), content)?;
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
        ));
        Ok(())
    }

    /// Writes what runs a handler beside it, and changes nothing that is there.
    fn adopt(&self, origin: Origin, session: &Session) -> Result {
        let folder = &self.place;
        let real = fs::canonicalize(folder).map_err(|error| Stop::file(folder, &error))?;
        if !real.is_dir() {
            let problem = Problem::new(Code::Usage, format!("{} is not a folder", folder.display()));
            return Err(problem.with_hint("name the folder that the handler is in").into());
        }
        let handler = match &self.handler {
            Some(text) => HandlerName::read(text, folder)?,
            None => HandlerName::find(folder, origin)?,
        };
        let name = name_of(&real)?;
        let lacks = foreign::lacks(folder, handler.script)?;
        let files = template::adopting(origin.as_str(), &handler, name.as_str());
        if let Some(path) = files.iter().find_map(|(path, _)| in_the_way(folder, Path::new(path))) {
            let detail = format!("there is a {} in {} already", path.display(), folder.display());
            return Err(Problem::new(Code::FolderNotEmpty, detail).with_hint("remove it to begin anew").into());
        }
        for (path, content) in &files {
            write_new(&folder.join(path), content.as_bytes())?;
        }
        let handler = (handler.as_lambda_has_it(), handler.script);
        if session.out.json {
            let paths: Vec<&str> = files.iter().map(|(path, _)| path.as_str()).collect();
            let (handler, _) = handler;
            return session.out.json(&serde_json::json!({
                "folder": folder, "function": name, "handler": handler, "files": paths, "not_carried_over": lacks,
            }));
        }
        session.out.line(folder.display())?;
        for lack in &lacks {
            session.out.advise(format!("not carried over ({}): {lack}", Code::HandlerForeign));
        }
        let place = words::typed(folder);
        // A bundle needs no build, a component does.
        let (handler, build) = match handler {
            (handler, Script::Python) => (handler, ""),
            (handler, Script::Javascript) => (handler, "--build "),
        };
        session.out.advise(format!(
            "{handler} is function {name}\n  next: lighter deploy {build}{place}\n  then: lighter call {name} --data '{{}}'",
        ));
        Ok(())
    }
}

fn name(text: &str) -> Result<Name> {
    Ok(text.parse().map_err(|error: String| Problem::new(Code::Usage, error))?)
}

/// The name of a folder, as far as it can be that of a function.
fn name_of(folder: &Path) -> Result<Name> {
    let text = folder.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    let plain: String = text.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect();
    let plain = plain.trim_start_matches(|letter: char| !letter.is_ascii_lowercase()).trim_end_matches('-');
    let hint = "rename the folder: the function is called like it";
    let named = plain.parse::<Name>().or_else(|_| text.parse());
    Ok(named.map_err(|error| Problem::new(Code::Usage, error).with_hint(hint))?)
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

/// What keeps a file from being made at a path below a folder: something that is there, or that is on the way to it
/// and is no folder. A link is none, wherever it leads: through it, files elsewhere would be written.
fn in_the_way<'a>(folder: &Path, path: &'a Path) -> Option<&'a Path> {
    let is_taken =
        |part: &&Path| fs::symlink_metadata(folder.join(part)).is_ok_and(|about| *part == path || !about.is_dir());
    // The shortest: what is beyond a link is not to be removed.
    path.ancestors().filter(|part| !part.as_os_str().is_empty()).filter(is_taken).last()
}

/// Writes a file that is not there yet, and the folders above it.
fn write_new(file: &Path, content: &[u8]) -> Result {
    let parent = file.parent().expect("a file stands in a folder");
    fs::create_dir_all(parent).map_err(|error| Stop::file(parent, &error))?;
    let written = fs::File::create_new(file).and_then(|mut open| open.write_all(content));
    written.map_err(|error| Stop::file(file, &error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

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
    fn what_runs_a_handler_of_another_platform_has_a_right_manifest_and_no_placeholder() {
        let handlers = [
            (Script::Python, "app", "lighter_from.py"),
            (Script::Javascript, "src/app.mjs", "lighter_from/wit/unit.wit"),
        ];
        for (origin, (script, module, file)) in
            Origin::value_variants().iter().flat_map(|origin| handlers.map(|handler| (origin, handler)))
        {
            let handler = HandlerName { script, module: module.to_owned(), function: "lambda_handler".to_owned() };
            let files = template::adopting(origin.as_str(), &handler, "my-thing");
            assert!(files.iter().any(|(path, _)| path == file), "{files:?}");
            assert!(files.iter().all(|(path, text)| path.contains("wit/") || !text.contains("{{")), "{files:?}");
            let (_, text) = files.iter().find(|(path, _)| path == manifest::FILE_NAME).unwrap();
            let manifest = manifest::parse(text).unwrap();
            assert_eq!(foreign::adopted(&manifest.function["my-thing"]), Some(script));
        }
    }

    #[test]
    fn the_manual_shows_what_is_written_for_a_handler_in_python() {
        let manual = include_str!("../../../docs/compatibility.md");
        let (module, function) = ("app".to_owned(), "lambda_handler".to_owned());
        let handler = HandlerName { script: Script::Python, module, function };
        for (path, text) in template::adopting(Origin::Lambda.as_str(), &handler, "area") {
            let shown = format!("\n# {path}\n{text}```\n");
            assert!(manual.contains(&shown), "docs/compatibility.md shows another {path}");
        }
    }

    #[test]
    fn a_function_is_called_like_the_folder_of_its_handler() {
        assert_eq!(name_of(Path::new("/x/_My Fn_")).unwrap().as_str(), "my-fn");
        let Err(Stop::Problem(problem)) = name_of(Path::new("/x/2024")) else { panic!("it should be refused") };
        assert_eq!(problem.code, Code::Usage);
        assert!(problem.detail.starts_with("\"2024\" is not a name"), "{problem}");
        assert!(problem.hint.contains("rename the folder"), "{problem}");
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

    #[test]
    fn nothing_is_written_through_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        let taken = |path: &'static str| in_the_way(folder.path(), Path::new(path)).and_then(Path::to_str);
        assert_eq!(taken("lighter_from/wit/unit.wit"), None);
        fs::create_dir(at("lighter_from")).unwrap();
        assert_eq!(taken("lighter_from/wit/unit.wit"), None);
        fs::write(at("unit.wit"), "").unwrap();
        symlink(folder.path(), at("lighter_from/wit")).unwrap();
        assert_eq!(taken("lighter_from/wit/unit.wit"), Some("lighter_from/wit"));
        // A link that leads nowhere yet.
        symlink("elsewhere", at("lighter.toml")).unwrap();
        assert_eq!(taken("lighter.toml"), Some("lighter.toml"));
        assert!(write_new(&at("lighter.toml"), b"").is_err());
        assert!(!at("elsewhere").exists());
        write_new(&at("lighter_from/main.js"), b"main").unwrap();
        assert_eq!(taken("lighter_from/main.js"), Some("lighter_from/main.js"));
        assert!(write_new(&at("lighter_from/main.js"), b"other").is_err());
        assert_eq!(fs::read(at("lighter_from/main.js")).unwrap(), b"main");
    }
}
