//! The tar of a bundle: plain files by name, nothing else, the same bytes for the same files.
//!
//! Written as Python's `tarfile` writes USTAR without times and owners, so that a bundle has one hash whoever makes it.

use std::fmt;

pub const BLOCK: usize = 512;
/// A tar is padded to a multiple of this.
const RECORD: usize = 20 * BLOCK;
const MODE: &[u8; 8] = b"0000444\0";
const ZERO_8: &[u8; 8] = b"0000000\0";
const ZERO_12: &[u8; 12] = b"00000000000\0";
const NAME_BYTES_MAX: usize = 100;
const PREFIX_BYTES_MAX: usize = 155;

/// What is wrong with a tar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TarError {
    Truncated,
    Checksum,
    /// A member that is no plain file.
    NotAFile(String),
    /// A name that is not relative, plain and short.
    Name(String),
    Size,
    /// More than zeros, or more of them than any writer adds, behind the end.
    Behind,
}

impl fmt::Display for TarError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => write!(f, "the tar is cut off"),
            Self::Checksum => write!(f, "the header of a member has another checksum"),
            Self::NotAFile(name) => write!(f, "{name:?} is no plain file"),
            Self::Name(name) => write!(f, "{name:?} is no name of a file below the bundle"),
            Self::Size => write!(f, "the size of a member is no number"),
            Self::Behind => write!(f, "there is more behind the end of the tar"),
        }
    }
}

/// Files in their order; content borrowed from `bytes`.
pub fn read(bytes: &[u8]) -> Result<Vec<(String, &[u8])>, TarError> {
    if !bytes.len().is_multiple_of(RECORD) {
        return Err(TarError::Truncated);
    }
    let mut files = Vec::new();
    let mut rest = bytes;
    loop {
        let (header, after) = rest.split_first_chunk().ok_or(TarError::Truncated)?;
        let Some((name, size)) = member(header)? else {
            // Two blocks say where it ends, and less than a record pads it.
            let is_end = rest.len() < RECORD + 2 * BLOCK && rest.iter().all(|byte| *byte == 0);
            return if is_end { Ok(files) } else { Err(TarError::Behind) };
        };
        let padded = size.checked_next_multiple_of(BLOCK).ok_or(TarError::Size)?;
        let (content, after) = after.split_at_checked(padded).ok_or(TarError::Truncated)?;
        files.push((name, &content[..size]));
        rest = after;
    }
}

/// What the header of a member says: its name and its bytes; none: the tar ends here.
pub fn member(header: &[u8; BLOCK]) -> Result<Option<(String, usize)>, TarError> {
    if header.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    if octal(&header[148..156]) != Some(checksum(header)) {
        return Err(TarError::Checksum);
    }
    let name = name(header)?;
    if !matches!(header[156], b'0' | 0) {
        return Err(TarError::NotAFile(name));
    }
    let size = octal(&header[124..136]).and_then(|size| usize::try_from(size).ok()).ok_or(TarError::Size)?;
    Ok(Some((name, size)))
}

/// # Errors
/// A name that does not fit.
pub fn write<'a>(files: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Result<Vec<u8>, TarError> {
    let mut bytes = Vec::new();
    for (name, content) in files {
        bytes.extend_from_slice(&header(name, content.len())?);
        bytes.extend_from_slice(content);
        bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
    }
    bytes.resize((bytes.len() + 2 * BLOCK).next_multiple_of(RECORD), 0);
    Ok(bytes)
}

/// The header of a plain file.
///
/// # Errors
/// A name that does not fit.
pub fn header(name: &str, size: usize) -> Result<[u8; BLOCK], TarError> {
    let (prefix, short) = split(name).filter(|_| is_plain(name)).ok_or_else(|| TarError::Name(name.to_owned()))?;
    let mut header = [0; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, short.as_bytes());
    put(100, MODE);
    put(108, ZERO_8);
    put(116, ZERO_8);
    put(124, format!("{size:011o}\0").as_bytes());
    put(136, ZERO_12);
    put(148, b"        ");
    put(156, b"0");
    put(257, b"ustar\x0000");
    put(345, prefix.as_bytes());
    let sum = format!("{:06o}\0", checksum(&header));
    header[148..155].copy_from_slice(sum.as_bytes());
    Ok(header)
}

/// The sum of all bytes, those of the checksum itself counted as spaces.
fn checksum(header: &[u8]) -> u64 {
    let own: u64 = header[148..156].iter().map(|byte| u64::from(*byte)).sum();
    header.iter().map(|byte| u64::from(*byte)).sum::<u64>() - own + 8 * u64::from(b' ')
}

/// A long name is split at a slash.
fn split(name: &str) -> Option<(&str, &str)> {
    if name.len() <= NAME_BYTES_MAX {
        return Some(("", name));
    }
    name.match_indices('/')
        .map(|(at, _)| (&name[..at], &name[at + 1..]))
        .rfind(|(prefix, short)| prefix.len() <= PREFIX_BYTES_MAX && short.len() <= NAME_BYTES_MAX && !short.is_empty())
}

fn name(header: &[u8]) -> Result<String, TarError> {
    let text = |bytes: &[u8]| {
        let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8(bytes.to_vec()).map_err(|error| TarError::Name(error.to_string()))
    };
    let (short, prefix) = (text(&header[..100])?, text(&header[345..500])?);
    let name = if prefix.is_empty() { short } else { format!("{prefix}/{short}") };
    if is_plain(&name) { Ok(name) } else { Err(TarError::Name(name)) }
}

/// Relative, without `.` and `..`, without what a path may not hold.
pub fn is_plain(name: &str) -> bool {
    name.len() <= 255 && !name.contains(['\0', '\\']) && name.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

fn octal(field: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(field).ok()?.trim_matches([' ', '\0']);
    u64::from_str_radix(text, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_come_back_as_they_went() {
        let long = format!("{}/{}.py", "a".repeat(90), "b".repeat(80));
        let files = [("bundle.json", &b"{}"[..]), ("a/b.py", b"x = 1\n"), (&long, &[7; 513]), ("empty.py", b"")];
        let tar = write(files).unwrap();
        assert_eq!(tar.len() % RECORD, 0);
        let read = read(&tar).unwrap();
        let read: Vec<(&str, &[u8])> = read.iter().map(|(name, content)| (name.as_str(), *content)).collect();
        assert_eq!(read, files);
    }

    /// An image could carry any number of bytes that nobody looked at.
    #[test]
    fn nothing_is_behind_the_end_but_what_pads_it() {
        for blocks in 0..RECORD / BLOCK {
            let content = vec![7; blocks * BLOCK];
            let mut tar = write([("a", content.as_slice())]).unwrap();
            assert_eq!(read(&tar).unwrap(), [("a".to_owned(), content.as_slice())]);
            let last = tar.len() - 1;
            tar[last] = 1;
            assert_eq!(read(&tar), Err(TarError::Behind));
            tar[last] = 0;
            tar.resize(tar.len() + RECORD, 0);
            assert_eq!(read(&tar), Err(TarError::Behind));
        }
    }

    #[test]
    fn what_is_no_plain_file_below_is_refused() {
        for name in ["/etc/passwd", "../x", "a/../b", "a//b", "", ".", &"x".repeat(101)] {
            assert_eq!(write([(name, &b""[..])]), Err(TarError::Name(name.to_owned())));
        }
        let mut tar = write([("a", &b"content"[..])]).unwrap();
        assert_eq!(read(&tar[..600]), Err(TarError::Truncated));
        tar[156] = b'2';
        assert_eq!(read(&tar), Err(TarError::Checksum));
        let sum = format!("{:06o}\0", checksum(&tar[..BLOCK]));
        tar[148..155].copy_from_slice(sum.as_bytes());
        assert_eq!(read(&tar), Err(TarError::NotAFile("a".into())));
        assert_eq!(read(b""), Err(TarError::Truncated));
    }
}
