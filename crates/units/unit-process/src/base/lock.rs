//! A lock file: the part of pip's requirements format that can do no harm, read strictly and written anew for pip.
//!
//! ```text
//!   scipy==1.14.1 ; python_version >= "3.10" \
//!       --hash=sha256:… \
//!       --hash=sha256:…
//! ```
//! Packages by name and version, each with its hashes: what `pip-compile --generate-hashes` and `uv export` write.
//! Options would let a stranger choose another index, build source packages (which run their own code outside of any
//! jail) or read files of the node. Everything that is not understood is refused.

use super::normal;
use problem::{Code, Problem};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Packages of one lock file.
const PACKAGES_MAX: usize = 1_000;
/// Bytes of one.
const BYTES_MAX: usize = 1 << 20;
/// Algorithms that pip takes, with the digits of a hash.
const HASHES: [(&str, usize); 3] = [("sha256", 64), ("sha384", 96), ("sha512", 128)];

/// A lock file that was read.
#[derive(Debug, PartialEq, Eq)]
pub struct Lock {
    /// Lines for pip, by the package's name as indexes compare it.
    lines: BTreeMap<String, Vec<String>>,
}

impl Lock {
    /// # Errors
    /// [`Code::BundleInvalid`] names the line and says what is wrong.
    pub fn read(bytes: &[u8]) -> Result<Self, Problem> {
        if bytes.len() > BYTES_MAX {
            return Err(invalid(&format!("it has {} bytes, the limit is {BYTES_MAX}", bytes.len())));
        }
        let text = std::str::from_utf8(bytes).map_err(|error| invalid(&error.to_string()))?;
        let mut lines: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut count = 0;
        for (number, line) in joined(text) {
            let (name, line) = requirement(&line).map_err(|why| invalid(&format!("line {number}: {why}")))?;
            lines.entry(name).or_default().push(line);
            count += 1;
            if count > PACKAGES_MAX {
                return Err(invalid(&format!("it names more than {PACKAGES_MAX} packages")));
            }
        }
        Ok(Self { lines })
    }

    /// Whether it names this package.
    pub fn names(&self, package: &str) -> bool {
        self.lines.contains_key(&normal(package))
    }

    /// As pip reads it: nothing but what was understood. The same for all lock files that say the same.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for line in self.lines.values().flatten() {
            writeln!(text, "{line}").expect("a string takes all");
        }
        text
    }
}

fn invalid(why: &str) -> Problem {
    Problem::new(Code::BundleInvalid, format!("requirements.lock: {why}"))
        .with_hint("write name==version --hash=sha256:… for each package, as pip-compile --generate-hashes does")
}

/// Logical lines with the number of their first: without comments, joined where they end in a backslash.
fn joined(text: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let mut begun: Option<(usize, String)> = None;
    for (index, line) in text.lines().enumerate() {
        let (number, mut whole) = begun.take().unwrap_or((index + 1, String::new()));
        let line = line.trim_end();
        // As pip has it: a comment begins a line, or follows a space, and ends what was continued.
        let comment =
            line.match_indices('#').find(|(at, _)| line[..*at].chars().last().is_none_or(char::is_whitespace));
        let (line, continues) = match comment {
            Some((at, _)) => (&line[..at], false),
            None => line.strip_suffix('\\').map_or((line, false), |line| (line, true)),
        };
        whole.push_str(&line.replace('\t', " "));
        if continues {
            whole.push(' ');
            begun = Some((number, whole));
        } else {
            lines.push((number, whole));
        }
    }
    lines.extend(begun);
    lines.retain(|(_, line)| !line.trim().is_empty());
    lines
}

/// The package's name, and its line.
fn requirement(line: &str) -> Result<(String, String), String> {
    let (wanted, hashes) = line.find(" --").map_or((line, ""), |at| line.split_at(at));
    let (package, marker) = match wanted.split_once(';') {
        Some((package, marker)) => (package, Some(marker.trim_matches(' '))),
        None => (wanted, None),
    };
    let Some((name, version)) = package.split_once("==") else {
        return Err(format!("{:?} is not name==version", package.trim()));
    };
    let (name, version) = (name.trim_matches(' '), version.trim_matches(' '));
    let (plain, extras) = match name.split_once('[') {
        Some((plain, extras)) => {
            let extras = extras.strip_suffix(']').unwrap_or("?").split(',').map(|extra| extra.trim_matches(' '));
            (plain.trim_matches(' '), extras.collect())
        }
        None => (name, Vec::new()),
    };
    if !is_name(plain) || !extras.iter().all(|extra| is_name(extra)) {
        return Err(format!("{name:?} is no name of a package"));
    }
    if version.is_empty() || !version.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".+-_!".contains(&byte)) {
        return Err(format!("{version:?} is no version"));
    }
    // Made of what was understood, and not of what was read: pip may see the end of a line where we see a space.
    let extras = if extras.is_empty() { String::new() } else { format!("[{}]", extras.join(",")) };
    let mut whole = format!("{plain}{extras}=={version}");
    if let Some(marker) = marker {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b" ._'\"()<>=!~-".contains(&byte);
        // pip takes any word with a leading dash for an option.
        if !marker.bytes().all(is_plain) || marker.split(' ').any(|word| word.starts_with('-')) {
            return Err(format!("{marker:?} is no condition"));
        }
        write!(whole, " ; {marker}").expect("a string takes all");
    }
    let mut count = 0;
    for option in hashes.split(' ').filter(|option| !option.is_empty()) {
        let hash = option.strip_prefix("--hash=").and_then(|hash| hash.split_once(':'));
        let is_hash = hash.is_some_and(|(algorithm, digits)| {
            HASHES.contains(&(algorithm, digits.len())) && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
        });
        if !is_hash {
            return Err(format!("{option:?} is not --hash=sha256:…"));
        }
        write!(whole, " {option}").expect("a string takes all");
        count += 1;
    }
    if count == 0 {
        return Err(format!("{plain} has no --hash"));
    }
    Ok((normal(plain), whole))
}

/// PEP 508: letters, digits and `-_.` between them.
fn is_name(name: &str) -> bool {
    let is_end = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    is_end(name.bytes().next())
        && is_end(name.bytes().last())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "--hash=sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn what_tools_write_is_read() {
        let text = format!(
            "# by a tool\n\nSciPy==1.14.1 \\\n    {HASH} \\\n    {HASH}\n    # via -r in.txt\n\
             uvicorn[standard, x]==0.30.0 ; python_version >= \"3.10\" and sys_platform != 'win32' \\\n  {HASH}\n\
             torch==2.3.0+cpu {HASH} # a comment\nnumpy==2.3.5 {HASH}"
        );
        let lock = Lock::read(text.as_bytes()).unwrap();
        assert!(lock.names("scipy") && lock.names("NumPy") && !lock.names("pip"));
        assert_eq!(
            lock.text(),
            format!(
                "numpy==2.3.5 {HASH}\nSciPy==1.14.1 {HASH} {HASH}\ntorch==2.3.0+cpu {HASH}\n\
                 uvicorn[standard,x]==0.30.0 ; python_version >= \"3.10\" and sys_platform != 'win32' {HASH}\n"
            )
        );
        assert_eq!(Lock::read(lock.text().as_bytes()).unwrap(), lock);
        assert_eq!(Lock::read(b"").unwrap().text(), "");
    }

    #[test]
    fn what_could_do_harm_is_refused() {
        for line in [
            "--no-binary :all:",
            "--extra-index-url https://evil.example",
            "--find-links /tmp",
            "-r /etc/passwd",
            "-e .",
            "./evil.whl",
            "evil @ https://evil.example/evil.whl",
            "evil",
            "evil>=1",
            "evil==1",
            "evil==1 --hash=sha256:00",
            "evil==1 --hash=md5:0123456789abcdef0123456789abcdef",
            "-evil==1 HASH",
            "evil==1 HASH --global-option=x",
            "evil==1 HASH -r /etc/passwd",
            "evil==$HOME HASH",
            "evil==1 ; x == `id` HASH",
            "evil==1 ; x -r other.txt HASH",
            "evil[a==1 HASH",
            "ev\u{2028}il==1 HASH",
            // Finding R29: what Unicode calls a space, pip may call the end of a line.
            "six[a,\u{b}bb]==1 HASH",
            "six[\u{c}a]==1 HASH",
            "six \u{1c}==1 HASH",
            "six==\u{85}1 HASH",
            "six\u{a0}[a]==1 HASH",
            "six==1 ;\u{b}x == 'y' HASH",
            "six==1 HASH\u{2028}--hash=sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
            "six==1 HASH\r--no-binary :all:",
            "evil==1 HASH \\\n--no-binary :all:",
            "evil==1 HASH # it goes on \\\n--no-binary :all:",
        ] {
            let problem = Lock::read(line.replace("HASH", HASH).as_bytes()).unwrap_err();
            assert_eq!(problem.code, Code::BundleInvalid, "{line}");
            assert!(problem.detail.contains("line "), "{problem}");
        }
        assert!(Lock::read(&[0xFF]).is_err());
        assert!(Lock::read(&vec![b' '; BYTES_MAX + 1]).is_err());
    }
}
