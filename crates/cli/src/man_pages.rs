//! `lighter man-pages`: a manual page for each command, as packages bring them along.

use super::stop::{Result, Stop};
use super::{Brought, Session, help};
use clap::Args;
use std::path::{Path, PathBuf};
use std::{fs, io};

#[derive(Debug, Args)]
pub struct ManPages {
    /// Folder to write to; it is created if needed
    folder: PathBuf,
}

impl ManPages {
    pub fn run(&self, session: &Session) -> Result {
        write(&session.brought, &self.folder).map_err(|error| Stop::file(&self.folder, &error))?;
        session.out.line(self.folder.display())
    }
}

/// `lighter.1`, `lighter-deploy.1`, `lighter-queue-ls.1` and so on, of all that people type. A page has no date: the
/// same program writes the same bytes.
fn write(brought: &Brought, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    clap_mangen::generate_to(help::command(brought), folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_with_its_options() {
        let folder = tempfile::tempdir().unwrap();
        let made = folder.path().join("man1");
        write(&Brought::default(), &made).unwrap();
        let page = |name: &str| fs::read_to_string(made.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(page("lighter.1").starts_with(".ie \\n(.g") || page("lighter.1").contains(".TH lighter 1"));
        assert!(page("lighter-backup.1").contains("passphrase"), "{}", page("lighter-backup.1"));
        assert!(page("lighter-queue-replay.1").contains("QUEUE"), "{}", page("lighter-queue-replay.1"));
        assert!(!made.join("lighter-man-pages.1").exists(), "it is for packages");
    }
}
