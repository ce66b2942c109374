//! Which node a command talks to, and with which token.
//!
//! ```text
//! address   --node  ▸ LIGHTER_NODE ▸ api in DATA/node.json
//! token     --token-file ▸ LIGHTER_TOKEN ▸ DATA/token, sent only to the node that wrote it and proves to know it
//! DATA      --data-folder ▸ LIGHTER_DATA ▸ $XDG_DATA_HOME/lighter ▸ ~/.local/share/lighter
//! ```

use super::stop::{Result, Stop};
use api_types::identity::Identity;
use clap::ArgMatches;
use clap::parser::ValueSource;
use problem::{Code, Problem};
use serde::Deserialize;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Bytes of a token file; a larger one is not a token.
const TOKEN_BYTES_MAX: u64 = 4_096;

/// Variables by which a user gives tokens to this program and to the SDK.
const TOKEN_VARIABLES: [&str; 3] = ["LIGHTER_TOKEN", "LIGHTERAGE_TOKENS", "LIGHTERAGE_TOKENS_FILE"];

/// A node to talk to.
#[derive(Debug, PartialEq, Eq)]
pub struct NodeAddress {
    /// `http://127.0.0.1:8701`, without a slash at the end.
    pub url: String,
    pub token: Option<String>,
    /// Whether the address is this machine's own.
    pub is_local: bool,
    /// What the other side has to prove before it gets the token: it is that of a data folder.
    pub identity: Option<Identity>,
}

/// What the user said about it.
#[derive(Debug, Default)]
pub struct Wishes<'a> {
    pub node: Option<&'a str>,
    pub token_file: Option<&'a Path>,
    pub token: Option<String>,
    pub data_folder: Option<&'a Path>,
}

/// What a node writes into its data folder when it starts.
#[derive(Debug, Deserialize, PartialEq, Eq)]
pub struct Known {
    /// Where its API is.
    pub api: String,
    /// The UDP port beacons of boards come to; none if it does not listen for them.
    #[serde(default)]
    pub beacons: Option<u16>,
    /// Its process.
    pub pid: u32,
}

/// A program that somebody else chose, as a manifest does its build command, gets no token by its environment.
pub fn keep_tokens_from(command: &mut Command) {
    TOKEN_VARIABLES.into_iter().for_each(|variable| {
        command.env_remove(variable);
    });
}

/// Finds the node.
///
/// # Errors
/// No address is known, it is not an address, or a token would travel unencrypted.
pub fn find(wishes: &Wishes<'_>) -> Result<NodeAddress> {
    let folder = data_folder(wishes.data_folder);
    let known = folder.as_deref().ok().and_then(known_node).map(|known| known.api);
    let url = match (wishes.node, &known) {
        (Some(url), _) => url.trim_end_matches('/').to_owned(),
        (None, Some(url)) => url.clone(),
        (None, None) => return Err(no_node(&folder?)),
    };
    let (secure, host) = parts(&url)?;
    let is_local = is_this_machine(&host);
    let mut identity = None;
    let token = match (wishes.token_file, &wishes.token) {
        (Some(file), _) => Some(read_token(file).map_err(|error| Stop::named("--token-file", file, &error))?),
        (None, Some(token)) => Some(token.trim().to_owned()),
        // The token of a node here is nobody else's business.
        (None, None) if known.as_ref() == Some(&url) => {
            let file = folder?.join("token");
            match read_token(&file) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                read => {
                    let token = read.map_err(|error| Stop::file(&file, &error))?;
                    identity = Some(Identity::new(&token, &url));
                    Some(token)
                }
            }
        }
        (None, None) => None,
    };
    if token.is_some() && !secure && !is_local {
        let detail = format!("the token would travel unencrypted to {url}");
        return Err(Problem::new(Code::Usage, detail).with_hint("use https, or an SSH tunnel to 127.0.0.1").into());
    }
    Ok(NodeAddress { url, token, is_local, identity })
}

/// Where the node of this user keeps its data.
pub fn data_folder(wish: Option<&Path>) -> Result<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    wish.map(Path::to_path_buf)
        .or_else(|| variable("LIGHTER_DATA"))
        .or_else(|| variable("XDG_DATA_HOME").map(|folder| folder.join("lighter")))
        .or_else(|| variable("HOME").map(|folder| folder.join(".local/share/lighter")))
        .ok_or_else(|| Stop::new(Code::Usage, "neither --data-folder nor HOME says where the data folder is"))
}

/// The old spelling of `--data-folder`. The next release drops it: `--data` is the data of an event.
pub const OLD_OPTION: &str = "data";

/// A warning for who named the data folder by [`OLD_OPTION`] on the command line `words`.
pub(super) fn old_option(matches: &ArgMatches, words: impl Iterator<Item = OsString>) -> Option<&'static str> {
    let option = "data_folder";
    if !matches!(matches.value_source(option), Some(ValueSource::CommandLine)) {
        return None;
    }
    let is_new = |word: OsString| word.to_str().is_some_and(|word| word.split('=').next() == Some("--data-folder"));
    let says_so = words.take_while(|word| word != "--").any(is_new);
    (!says_so).then_some("warning: the data folder is named by --data-folder now; --data works until the next release")
}

/// The node that was started with this folder.
pub fn known_node(folder: &Path) -> Option<Known> {
    let text = fs::read(folder.join("node.json")).ok()?;
    let mut known: Known = serde_json::from_slice(&text).ok()?;
    known.api.truncate(known.api.trim_end_matches('/').len());
    Some(known)
}

/// What a node calls its process, whatever its program's file is called: that is another name once the node, which was
/// started by a link, has started again by the file itself.
pub const PROCESS_NAME: &str = "lighter";

/// Whether a process of this machine is a node, as far as its name says, and has not ended; one that only waits to be
/// reaped has. A number that a node wrote down may be another's by now, or of another container.
pub fn is_node(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // A number, the name in brackets, which may hold anything, the state.
    let Some((head, rest)) = stat.rsplit_once(") ") else { return false };
    let name = head.split_once(" (").map(|(_, name)| name);
    name == Some(PROCESS_NAME) && !rest.starts_with(['Z', 'X'])
}

fn no_node(folder: &Path) -> Stop {
    let holder = fs::read_to_string(folder.join("lock")).unwrap_or_default().trim().parse();
    let folder = folder.display();
    match holder.ok().filter(|pid| is_node(*pid)) {
        Some(pid) => {
            let detail = format!("process {pid} has the data folder {folder}, and does not say where it listens");
            let problem = Problem::new(Code::NodeUnreachable, detail);
            problem.with_hint("it starts or stops: try again in a moment, or name its address with --node").into()
        }
        None => Stop::new(Code::NodeUnreachable, format!("no node has been started with the data folder {folder}")),
    }
}

fn read_token(file: &Path) -> io::Result<String> {
    if fs::metadata(file)?.len() > TOKEN_BYTES_MAX {
        return Err(io::Error::other(format!("a token has at most {TOKEN_BYTES_MAX} bytes")));
    }
    Ok(fs::read_to_string(file)?.trim().to_owned())
}

/// Whether the address is encrypted, and its host.
fn parts(url: &str) -> Result<(bool, String)> {
    let bad = || {
        let problem = Problem::new(Code::Usage, format!("{url:?} is not the address of a node"));
        Stop::from(problem.with_hint("write it like http://127.0.0.1:8701 or https://node.example.org:8701"))
    };
    let address: http::Uri = url.parse().map_err(|_| bad())?;
    let host = address.host().filter(|host| !host.is_empty()).ok_or_else(bad)?.to_owned();
    if address.path_and_query().is_some_and(|path| path != "/") || url.contains('@') {
        return Err(bad());
    }
    match address.scheme_str() {
        Some("https") => Ok((true, host)),
        Some("http") => Ok((false, host)),
        _ => Err(bad()),
    }
}

fn is_this_machine(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || bare.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder_with_node() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("node.json"), r#"{"api":"http://127.0.0.1:8701","pid":7}"#).unwrap();
        fs::write(folder.path().join("token"), "lt_secret\n").unwrap();
        folder
    }

    fn code(result: Result<NodeAddress>) -> Code {
        match result {
            Err(Stop::Problem(problem)) => problem.code,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_node_of_the_data_folder_is_found_with_its_token() {
        let folder = folder_with_node();
        let address = find(&Wishes { data_folder: Some(folder.path()), ..Wishes::default() }).unwrap();
        assert_eq!(address.url, "http://127.0.0.1:8701");
        assert_eq!(address.token.as_deref(), Some("lt_secret"));
        assert_eq!(address.identity, Some(Identity::new("lt_secret", "http://127.0.0.1:8701")));
    }

    #[test]
    fn the_old_spelling_of_the_data_folder_is_taken_with_a_warning() {
        let warned = |line: &str| {
            let matches = crate::help::command(&crate::Brought::default()).get_matches_from(line.split(' '));
            let folder = crate::read::<crate::Global>(&matches).unwrap().data_folder;
            (folder, old_option(&matches, line.split(' ').map(OsString::from)).is_some())
        };
        let folder = || Some(PathBuf::from("/d"));
        for line in ["lighter --data /d ls", "lighter ls --data=/d", "lighter --data /d push work --data x"] {
            assert_eq!(warned(line), (folder(), true), "{line}");
        }
        for line in ["lighter ls --data-folder /d", "lighter --data-folder=/d call f --data x"] {
            assert_eq!(warned(line), (folder(), false), "{line}");
        }
        assert_eq!(warned("lighter call f --data x"), (None, false));
    }

    #[test]
    fn the_port_of_beacons_is_what_the_node_says() {
        let folder = folder_with_node();
        assert_eq!(known_node(folder.path()).unwrap().beacons, None, "written by one that does not listen");
        let said = r#"{"api":"http://127.0.0.1:8701/","beacons":7400,"pid":7}"#;
        fs::write(folder.path().join("node.json"), said).unwrap();
        let known = Known { api: "http://127.0.0.1:8701".into(), beacons: Some(7_400), pid: 7 };
        assert_eq!(known_node(folder.path()), Some(known));
        assert_eq!(known_node(tempfile::tempdir().unwrap().path()), None);
    }

    #[test]
    fn a_node_is_known_by_its_name_until_it_has_ended_reaped_or_not() {
        assert!(!is_node(std::process::id()), "this is a test");
        let folder = tempfile::tempdir().unwrap();
        let named = folder.path().join(PROCESS_NAME);
        std::os::unix::fs::symlink("/bin/sleep", &named).unwrap();
        let mut node = std::process::Command::new(named).arg("60").spawn().unwrap();
        while !is_node(node.id()) {
            std::thread::yield_now();
        }
        node.kill().unwrap();
        while is_node(node.id()) {
            std::thread::yield_now();
        }
        node.wait().unwrap();
        assert!(!is_node(node.id()));
    }

    #[test]
    fn the_token_of_the_data_folder_goes_to_no_other_node() {
        let folder = folder_with_node();
        for other in ["https://example.org", "http://127.0.0.1:9"] {
            let address =
                find(&Wishes { node: Some(other), data_folder: Some(folder.path()), ..Wishes::default() }).unwrap();
            assert_eq!(address.token, None, "{other}");
        }
        let same =
            Wishes { node: Some("http://127.0.0.1:8701/"), data_folder: Some(folder.path()), ..Wishes::default() };
        assert!(find(&same).unwrap().token.is_some());
    }

    #[test]
    fn a_token_never_travels_unencrypted_beyond_this_machine() {
        let folder = folder_with_node();
        let with = |node| Wishes {
            node: Some(node),
            token: Some("t".into()),
            data_folder: Some(folder.path()),
            ..Wishes::default()
        };
        assert_eq!(code(find(&with("http://example.org"))), Code::Usage);
        for good in ["https://example.org", "http://localhost:1", "http://[::1]:1", "http://127.9.9.9"] {
            assert_eq!(find(&with(good)).unwrap().token.as_deref(), Some("t"), "{good}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused_before_anything_is_sent() {
        let folder = tempfile::tempdir().unwrap();
        for bad in ["", "8701", "ftp://x", "http://", "http://x/path", "http://user:pass@x", "127.0.0.1:8701"] {
            let wishes = Wishes { node: Some(bad), data_folder: Some(folder.path()), ..Wishes::default() };
            assert_eq!(code(find(&wishes)), Code::Usage, "{bad:?}");
        }
        let nothing = Wishes { data_folder: Some(folder.path()), ..Wishes::default() };
        assert_eq!(code(find(&nothing)), Code::NodeUnreachable);
    }
}
