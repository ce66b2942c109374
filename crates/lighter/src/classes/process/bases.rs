//! `lighter base`: bases for functions in Java and for Android, built beforehand and carried to machines as one file.

use clap::{Args, Subcommand, ValueEnum};
use cli::locate::data_folder;
use cli::stop::Result;
use cli::table::Table;
use cli::{Extra, Run, Session, words};
use problem::{Code, Problem};
use std::path::PathBuf;
use unit_process::ready::{self, Kind, Ready};

#[derive(Debug, Args)]
pub struct Base {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the bases that were built beforehand or imported
    Ls,
    /// Build a base, which takes half a minute
    Build {
        /// What it is for
        kind: Word,
        /// Home of the JDK to make it from, or its program java [default: the java on the path, or one from pip]
        #[arg(long, value_name = "FILE")]
        java: Option<PathBuf>,
        /// Folder that tools/libdroid made; for android
        #[arg(long, value_name = "FOLDER", required_if_eq("kind", "android"))]
        libdroid: Option<PathBuf>,
    },
    /// Import a base from a file; it replaces an earlier one
    ///
    /// The import runs its Java once to make the archive from which units start, so import a file that you made, or one
    /// whose id you know from its maker.
    Import {
        /// File that `lighter base export` wrote
        file: PathBuf,
        /// Refuse a base with any other id
        #[arg(long)]
        id: Option<String>,
    },
    /// Write a base to a file, for machines with the same processor
    Export {
        /// What it is for
        kind: Word,
        /// File to write
        file: PathBuf,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Word {
    Java,
    Android,
}

impl From<Word> for Kind {
    fn from(word: Word) -> Self {
        match word {
            Word::Java => Self::Java,
            Word::Android => Self::Android,
        }
    }
}

pub fn command() -> Extra {
    Extra::new::<Base>(
        "base",
        "Bases for Java and Android: build, carry to other machines",
        Some("secret"),
        &[
            "lighter base build android --libdroid build/libdroid",
            "lighter base export android android.base",
            "lighter base import android.base --id 0f3a5c7e9b1d2468",
        ],
    )
}

impl Run for Base {
    fn run(self, session: &Session) -> Result {
        let out = session.out;
        let folder = data_folder(session.global.data_folder.as_deref())?.join("bases");
        let (ready, done) = match self.action {
            Action::Ls => return list(session, &ready::list(&folder)),
            Action::Build { kind: Word::Java, libdroid: Some(_), .. } => {
                return Err(Problem::new(Code::Usage, "--libdroid is for android, not for java").into());
            }
            Action::Build { kind, java, libdroid } => {
                let progress = out.progress();
                progress.step(format!("building a base for {}", Kind::from(kind)));
                let ready = ready::build(&folder, kind.into(), java.as_deref(), libdroid.as_deref())?;
                (ready, "built")
            }
            Action::Import { file, id } => {
                let progress = out.progress();
                progress.step(format!("importing {}", file.display()));
                (ready::import(&folder, &file, id.as_deref())?, "imported")
            }
            Action::Export { kind, file } => (ready::export(&folder, kind.into(), &file)?, "exported"),
        };
        if out.json {
            return out.json(&ready);
        }
        out.say(format!("{done} the base for {}, Java {}, {}", ready.kind, ready.java, words::bytes(ready.bytes)));
        out.line(&ready.id)
    }
}

fn list(session: &Session, bases: &[Ready]) -> Result {
    if session.out.json {
        return session.out.json(&bases);
    }
    if bases.is_empty() {
        session.out.say("no base was built ahead: a node makes the one for Java when it is needed");
        return Ok(());
    }
    let mut table = Table::new(&["BASE", "ID", "JAVA", ">SIZE", "MADE (UTC)"]);
    for base in bases {
        let made = words::time(base.made_ms);
        let made = made.split('.').next().unwrap_or_default().to_owned();
        table.row([base.kind.to_string(), base.id.clone(), base.java.clone(), words::bytes(base.bytes), made]);
    }
    session.out.table(&table)
}
