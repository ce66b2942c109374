//! `lighter salvage`: copies what can be read out of a damaged data folder, into files that other commands import.
//!
//! ```text
//! OUT/buckets/NAME.jsonl           lighter store import NAME --file …
//! OUT/queues/NAME.jsonl            lighter push NAME --events …         ready and delayed events
//! OUT/queues/NAME.dead.jsonl       the same, for dead letters
//! OUT/functions.jsonl              what was deployed, a version a line: {"name":…,"record":{…}}
//! OUT/doubtful/…                   the same again, where newer states may be lost
//! ```

use clap::Args;
use cli::locate::data_folder;
use cli::stop::{Result, Stop};
use cli::{Run, Session};
use problem::{Code, Problem};
use serde_json::{Value, json};
use state::Part;
use state::salvage::{Found, What, salvage};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The node's records of what was deployed.
const FUNCTIONS: &str = "functions";
/// Files open at once; the one that was opened first is closed for another, and appended to later.
const FILES_MAX: usize = 32;

#[derive(Debug, Args)]
pub struct Salvage {
    /// Folder to create and write to; a folder that is not empty is refused
    out: PathBuf,
}

/// The files that are written.
struct Files {
    folder: PathBuf,
    open: BTreeMap<PathBuf, BufWriter<File>>,
    order: Vec<PathBuf>,
    lines: BTreeMap<PathBuf, u64>,
}

impl Files {
    fn write(&mut self, path: PathBuf, line: &[u8]) -> io::Result<()> {
        if !self.open.contains_key(&path) {
            if self.order.len() == FILES_MAX
                && let Some(file) = self.open.remove(&self.order.remove(0))
            {
                close(file)?;
            }
            let whole = self.folder.join(&path);
            make_folder(whole.parent().unwrap_or(&self.folder))?;
            // What is taken out may be anybody's data.
            let file = OpenOptions::new().append(true).create(true).mode(0o600).open(whole)?;
            self.open.insert(path.clone(), BufWriter::new(file));
            self.order.push(path.clone());
        }
        self.open.get_mut(&path).expect("just opened").write_all(line)?;
        *self.lines.entry(path).or_default() += 1;
        Ok(())
    }

    /// All of it is durable then, the names too.
    fn finish(self) -> io::Result<BTreeMap<PathBuf, u64>> {
        self.open.into_values().try_for_each(close)?;
        let folders: BTreeSet<&Path> = self.lines.keys().flat_map(|path| path.ancestors().skip(1)).collect();
        folders.into_iter().try_for_each(|folder| sync_folder(&self.folder.join(folder)))?;
        Ok(self.lines)
    }
}

impl Run for Salvage {
    fn run(self, session: &Session) -> Result {
        let (out, data) = (session.out, data_folder(session.global.data_folder.as_deref())?);
        let failed = |error: io::Error| Stop::file(&self.out, &error);
        if self.out.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
            let detail = format!("{} is not empty", self.out.display());
            return Err(Stop::Problem(Problem::new(Code::FileUnusable, detail)));
        }
        let above = changed_by(&self.out);
        make_folder(&self.out).map_err(failed)?;
        let mut files =
            Files { folder: self.out.clone(), open: BTreeMap::new(), order: Vec::new(), lines: BTreeMap::new() };
        let progress = out.progress();
        progress.step(format!("reading {}", data.display()));
        let damage = salvage(&data, |found| match written(&found) {
            Some((path, line)) => {
                let path = if found.is_doubtful { Path::new("doubtful").join(path) } else { path };
                files.write(path, &line)
            }
            None => Ok(()),
        })
        .map_err(Stop::Problem)?;
        let lines = files.finish().map_err(failed)?;
        above.iter().try_for_each(|folder| sync_folder(folder)).map_err(failed)?;
        drop(progress);
        if out.json {
            let files: Vec<Value> = lines.iter().map(|(path, lines)| json!({ "file": path, "lines": lines })).collect();
            return out.json(&json!({ "files": files, "damage": damage }));
        }
        for (path, lines) in &lines {
            out.line(&format!("{lines:>9}  {}", self.out.join(path).display()))?;
        }
        damage.iter().for_each(|damage| out.complain(damage));
        match damage.len() {
            0 => out.say("nothing is damaged: all of it is there".to_owned()),
            count => out.say(format!("{count} places could not be read; {} is as it was", data.display())),
        }
        Ok(())
    }
}

/// The file something belongs to, and its line there.
fn written(found: &Found) -> Option<(PathBuf, Vec<u8>)> {
    match &found.what {
        // The node's own are of no use elsewhere.
        What::Key { bucket, .. } if bucket.starts_with('.') => None,
        What::Key { bucket, line } => Some((Path::new("buckets").join(format!("{bucket}.jsonl")), line.clone())),
        What::Event { queue, part, event } => {
            let end = if *part == Part::Dead { "dead.jsonl" } else { "jsonl" };
            let mut line = cloudevents::structured(event);
            line.push(b'\n');
            Some((Path::new("queues").join(format!("{queue}.{end}")), line))
        }
        What::Record { table, key, value } if table == FUNCTIONS => {
            let record: Value = serde_json::from_slice(value).ok()?;
            let mut line = json!({ "name": key, "record": record }).to_string().into_bytes();
            line.push(b'\n');
            Some((PathBuf::from("functions.jsonl"), line))
        }
        // Tokens and secrets are made anew.
        What::Record { .. } => None,
    }
}

fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// The folders that get a new name in them when this one is made.
fn changed_by(path: &Path) -> Vec<PathBuf> {
    let named = |folder: &Path| if folder.as_os_str().is_empty() { ".".into() } else { folder.to_owned() };
    let missing = path.ancestors().take_while(|folder| !named(folder).is_dir());
    missing.filter_map(Path::parent).map(named).collect()
}

fn close(file: BufWriter<File>) -> io::Result<()> {
    file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those that were closed for others were not durable when the command said what it had written.
    #[test]
    fn more_files_than_are_open_at_once_get_all_of_their_lines() {
        let out = tempfile::tempdir().unwrap();
        let (open, order, lines) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        let mut files = Files { folder: out.path().to_owned(), open, order, lines };
        for line in [&b"one\n"[..], b"two\n"] {
            for number in 0..=FILES_MAX {
                files.write(Path::new("queues").join(format!("{number}.jsonl")), line).unwrap();
            }
        }
        let lines = files.finish().unwrap();
        assert_eq!(lines.len(), FILES_MAX + 1);
        for (path, lines) in lines {
            assert_eq!(lines, 2);
            assert_eq!(std::fs::read(out.path().join(path)).unwrap(), b"one\ntwo\n");
        }
    }

    #[test]
    fn the_folder_that_new_ones_are_made_in_is_made_durable_too() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("a/b");
        assert_eq!(changed_by(&out), [folder.path().join("a"), folder.path().to_owned()]);
        make_folder(&out).unwrap();
        assert!(changed_by(&out).is_empty());
        assert_eq!(changed_by(Path::new("no-such-folder")), [PathBuf::from(".")]);
    }
}
