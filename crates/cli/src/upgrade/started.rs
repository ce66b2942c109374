//! How a node was started, so that it can be started again when its process has ended: by its service, or as it was.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Folder that is there where systemd runs.
const SYSTEMD: &str = "/run/systemd/system";

pub struct Started {
    /// Of systemd, whose main process it is.
    service: Option<Service>,
    words: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    folder: PathBuf,
    user: u32,
    group: u32,
    output: Option<File>,
    errors: Option<File>,
}

struct Service {
    name: String,
    /// Whether it is one of a user, and not of the system.
    is_users: bool,
}

impl Started {
    pub fn of(pid: u32) -> io::Result<Self> {
        let process = PathBuf::from(format!("/proc/{pid}"));
        let words = parts(&fs::read(process.join("cmdline"))?);
        let environment = parts(&fs::read(process.join("environ"))?).into_iter().filter_map(pair).collect();
        let owner = fs::metadata(&process)?;
        // Where it writes; opened now, for the process takes its own with it.
        let open = |number: u32| OpenOptions::new().append(true).open(process.join(format!("fd/{number}"))).ok();
        Ok(Self {
            service: Service::of(pid),
            words,
            environment,
            folder: fs::read_link(process.join("cwd"))?,
            user: owner.uid(),
            group: owner.gid(),
            output: open(1),
            errors: open(2),
        })
    }

    pub fn is_service(&self) -> bool {
        self.service.is_some()
    }

    /// Whether this process may be the node started again: a service manager gives it another number.
    pub fn may_be(&self, pid: u32) -> bool {
        self.is_service() && crate::locate::is_node(pid)
    }

    /// Starts it, and says which process it is.
    pub fn again(&self, program: &Path) -> Result<u32, String> {
        if let Some(service) = &self.service {
            // Too many failures in a row would have it refused.
            service.systemctl(&["reset-failed"]);
            service.systemctl(&["restart"]).ok_or_else(|| format!("systemctl restart {} failed", service.name))?;
            return service.main_process().ok_or_else(|| format!("{} has no process", service.name));
        }
        let to = |file: &Option<File>| {
            file.as_ref().and_then(|file| file.try_clone().ok()).map_or_else(Stdio::null, Stdio::from)
        };
        let mut command = Command::new(program);
        command
            .args(self.words.iter().skip(1))
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(to(&self.output))
            .stderr(to(&self.errors))
            .process_group(0);
        if rustix::process::geteuid().as_raw() != self.user {
            command.uid(self.user).gid(self.group);
        }
        command.spawn().map(|child| child.id()).map_err(|error| error.to_string())
    }
}

impl Service {
    fn of(pid: u32) -> Option<Self> {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok().filter(|_| Path::new(SYSTEMD).exists())?;
        let service = groups.lines().find_map(Self::in_group)?;
        (service.main_process() == Some(pid)).then_some(service)
    }

    /// Of a line like `0::/system.slice/lighter.service`.
    fn in_group(line: &str) -> Option<Self> {
        let mut fields = line.splitn(3, ':');
        let (_, kind, path) = (fields.next()?, fields.next()?, fields.next()?);
        let name = path.rsplit('/').next().filter(|name| name.ends_with(".service") && !name.starts_with('-'))?;
        let is_systemds = kind.is_empty() || kind == "name=systemd";
        is_systemds.then(|| Self { name: name.to_owned(), is_users: path.contains("/user@") })
    }

    fn main_process(&self) -> Option<u32> {
        let said = self.systemctl(&["show", "--property=MainPID", "--value"])?;
        said.trim().parse().ok().filter(|pid| *pid != 0)
    }

    /// What it says; none if it failed.
    fn systemctl(&self, words: &[&str]) -> Option<String> {
        let mut command = Command::new("systemctl");
        if self.is_users {
            command.arg("--user");
        }
        let output = command.args(words).arg(&self.name).stdin(Stdio::null()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Words with a zero behind each.
fn parts(bytes: &[u8]) -> Vec<OsString> {
    let bytes = bytes.strip_suffix(&[0]).unwrap_or(bytes);
    bytes.split(|byte| *byte == 0).map(|word| OsString::from_vec(word.to_vec())).collect()
}

fn pair(word: OsString) -> Option<(OsString, OsString)> {
    let bytes = word.into_vec();
    let at = bytes.iter().position(|byte| *byte == b'=')?;
    let value = OsString::from_vec(bytes[at + 1..].to_vec());
    Some((OsString::from_vec(bytes[..at].to_vec()), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_can_be_started_again_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let said = folder.path().join("said");
        let mut first = Command::new("/bin/sh")
            .args(["-c", "echo \"$WORD in $PWD\"; exec sleep 60"])
            .env("WORD", "a=b c")
            .current_dir(folder.path())
            .stdout(File::create(&said).unwrap())
            .spawn()
            .unwrap();
        while fs::read_to_string(&said).unwrap().lines().count() < 1 {
            std::thread::yield_now();
        }
        // `exec` keeps the environment, and the words are those of the other program.
        while fs::read(format!("/proc/{}/cmdline", first.id())).unwrap() != b"sleep\x0060\0" {
            std::thread::yield_now();
        }
        let mut started = Started::of(first.id()).unwrap();
        assert_eq!(started.words, ["sleep", "60"]);
        started.words = ["sh", "-c", "echo \"$WORD in $PWD\""].map(OsString::from).to_vec();
        first.kill().unwrap();
        first.wait().unwrap();
        started.again(Path::new("/bin/sh")).unwrap();
        while fs::read_to_string(&said).unwrap().lines().count() < 2 {
            std::thread::yield_now();
        }
        let text = fs::read_to_string(&said).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], lines[1]);
        assert!(lines[0].starts_with("a=b c in "), "{text}");
    }

    #[test]
    fn the_service_stands_in_the_control_group() {
        let name = |line: &str| Service::in_group(line).map(|service| (service.name, service.is_users));
        assert_eq!(name("0::/system.slice/lighter.service"), Some(("lighter.service".to_owned(), false)));
        assert_eq!(name("1:name=systemd:/system.slice/l@1.service"), Some(("l@1.service".to_owned(), false)));
        let of_user = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/node.service";
        assert_eq!(name(of_user), Some(("node.service".to_owned(), true)));
        for line in ["0::/user.slice/session-3.scope", "0::/", "4:memory:/system.slice/lighter.service", ""] {
            assert_eq!(name(line), None, "{line}");
        }
    }
}
