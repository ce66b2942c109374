//! What a jar holds, read from the list at its end: nothing is unpacked, and no size is believed.

use std::collections::BTreeSet;
use std::fmt;

/// The jar of a bundle with the function's own classes.
pub const APP: &str = "app.jar";
/// Members of one jar.
const MEMBERS_MAX: usize = 20_000;
/// Bytes of all members of one jar, unpacked.
const UNPACKED_BYTES_MAX: u64 = 256 << 20;

const END: &[u8] = b"PK\x05\x06";
const END_BYTES: usize = 22;
/// A comment may stand behind the end.
const COMMENT_BYTES_MAX: usize = 65_535;
const ENTRY: &[u8] = b"PK\x01\x02";
const ENTRY_BYTES: usize = 46;
const MEMBER: &[u8] = b"PK\x03\x04";
const MEMBER_BYTES: usize = 30;
/// The bit of a member that is encrypted.
const ENCRYPTED: u16 = 1;
/// As it is, and deflated: what Java reads.
const METHODS: [u16; 2] = [0, 8];

/// What is wrong with a jar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JarError {
    /// There is no list at its end, or the list is cut off.
    Truncated,
    /// A member is not where the list says.
    Member(String),
    Encrypted(String),
    /// A way to pack that Java does not know.
    Method(String, u16),
    Members(usize),
    /// All members together, unpacked.
    Unpacked(u64),
}

impl fmt::Display for JarError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => write!(f, "it is no zip, or its end is missing"),
            Self::Member(name) => write!(f, "the member {name} is not where the zip says"),
            Self::Encrypted(name) => write!(f, "the member {name} is encrypted"),
            Self::Method(name, method) => write!(f, "the member {name} is packed by method {method}, write 0 or 8"),
            Self::Members(count) => write!(f, "it has {count} members, the limit is {MEMBERS_MAX}"),
            Self::Unpacked(bytes) => {
                write!(f, "it has {bytes} bytes or more once it is unpacked, the limit is {UNPACKED_BYTES_MAX}")
            }
        }
    }
}

/// The names of all members.
///
/// # Errors
/// It is no jar that Java would read, or beyond a limit.
pub fn names(jar: &[u8]) -> Result<BTreeSet<&str>, JarError> {
    let end = end(jar).ok_or(JarError::Truncated)?;
    let count = usize::from(u16_at(end, 10).ok_or(JarError::Truncated)?);
    let list_bytes = u32_at(end, 12).ok_or(JarError::Truncated)? as usize;
    let list_at = u32_at(end, 16).ok_or(JarError::Truncated)? as usize;
    if count > MEMBERS_MAX {
        return Err(JarError::Members(count));
    }
    let last = list_at.checked_add(list_bytes).ok_or(JarError::Truncated)?;
    let mut rest = jar.get(list_at..last).ok_or(JarError::Truncated)?;
    let (mut names, mut unpacked) = (BTreeSet::new(), 0_u64);
    for _ in 0..count {
        let entry = rest.get(..ENTRY_BYTES).filter(|entry| entry.starts_with(ENTRY)).ok_or(JarError::Truncated)?;
        let number = |at| u16_at(entry, at).unwrap_or_default();
        let size = |at| u32_at(entry, at).unwrap_or_default();
        let name_end = ENTRY_BYTES + usize::from(number(28));
        let name = rest.get(ENTRY_BYTES..name_end).ok_or(JarError::Truncated)?;
        let name =
            std::str::from_utf8(name).map_err(|_| JarError::Member(String::from_utf8_lossy(name).into_owned()))?;
        let (packed, whole, place) = (size(20) as usize, size(24), size(42) as usize);
        let begins = jar.get(place..).is_some_and(|member| member.starts_with(MEMBER));
        if !begins || place.saturating_add(MEMBER_BYTES + name.len()).saturating_add(packed) > list_at {
            return Err(JarError::Member(name.to_owned()));
        }
        if number(8) & ENCRYPTED != 0 {
            return Err(JarError::Encrypted(name.to_owned()));
        }
        if !METHODS.contains(&number(10)) {
            return Err(JarError::Method(name.to_owned(), number(10)));
        }
        unpacked += u64::from(whole);
        if unpacked > UNPACKED_BYTES_MAX {
            return Err(JarError::Unpacked(unpacked));
        }
        names.insert(name);
        let next = name_end + usize::from(number(30)) + usize::from(number(32));
        rest = rest.get(next..).ok_or(JarError::Truncated)?;
    }
    Ok(names)
}

/// The record at the end, behind which only its comment stands.
fn end(jar: &[u8]) -> Option<&[u8]> {
    let last = jar.len().checked_sub(END_BYTES)?;
    let first = last.saturating_sub(COMMENT_BYTES_MAX);
    (first..=last).rev().map(|at| &jar[at..]).find(|end| {
        let comment = u16_at(end, 20).map(usize::from);
        end.starts_with(END) && comment == Some(end.len() - END_BYTES)
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// A jar of members that are kept as they are, with sizes that need not be true.
#[cfg(test)]
pub fn write(members: &[(&str, &[u8], u32)]) -> Vec<u8> {
    let (mut jar, mut list) = (Vec::new(), Vec::new());
    for (name, content, unpacked) in members {
        let place = jar.len() as u32;
        let sizes = [0, content.len() as u32, *unpacked].map(u32::to_le_bytes).concat();
        let name_bytes = (name.len() as u16).to_le_bytes();
        jar.extend(
            [MEMBER, &[10, 0, 0, 0, 0, 0, 0, 0, 0x21, 0], &sizes, &name_bytes, &[0, 0], name.as_bytes()].concat(),
        );
        jar.extend_from_slice(content);
        list.extend([ENTRY, &[10, 0, 10, 0, 0, 0, 0, 0, 0, 0, 0x21, 0], &sizes, &name_bytes, &[0; 12]].concat());
        list.extend([&place.to_le_bytes(), name.as_bytes()].concat());
    }
    let count = (members.len() as u16).to_le_bytes();
    let sizes = [list.len() as u32, jar.len() as u32].map(u32::to_le_bytes).concat();
    let end = [END, &[0; 4], &count, &count, &sizes, &[0, 0]].concat();
    [jar, list, end].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_members_of_a_jar_are_named() {
        let jar = write(&[("app/Hello.class", b"code", 4), ("META-INF/", b"", 0)]);
        assert_eq!(names(&jar).unwrap().into_iter().collect::<Vec<_>>(), ["META-INF/", "app/Hello.class"]);
        let unit = include_bytes!("../../../../sdks/java/unit/lighterage-unit.jar");
        assert!(names(unit).unwrap().contains("lighterage/unit/Main.class"));
    }

    #[test]
    fn what_is_no_jar_says_why() {
        let jar = write(&[("a", b"code", 4), ("b", b"more", 4)]);
        for cut in [0, 10, 40, jar.len() - 1] {
            assert_eq!(names(&jar[..cut]), Err(JarError::Truncated), "{cut} bytes");
        }
        let bomb = write(&[("a", b"", u32::MAX)]);
        assert_eq!(names(&bomb), Err(JarError::Unpacked(u64::from(u32::MAX))));
        let many: Vec<_> = (0..65).map(|_| ("zeros", &b""[..], 4 << 20)).collect();
        assert!(matches!(names(&write(&many)), Err(JarError::Unpacked(_))));
        // The first member's own bytes are gone.
        let moved = [&[0; 4], &jar[4..]].concat();
        assert_eq!(names(&moved), Err(JarError::Member("a".into())));
        let with = |at: usize, byte: u8| {
            let list = jar.windows(4).position(|four| four == ENTRY).unwrap();
            let mut changed = jar.clone();
            changed[list + at] = byte;
            names(&changed).unwrap_err()
        };
        assert_eq!(with(8, 1), JarError::Encrypted("a".into()));
        assert_eq!(with(10, 93), JarError::Method("a".into(), 93));
        let most: Vec<_> = (0..=MEMBERS_MAX).map(|_| ("x", &b""[..], 0)).collect();
        assert_eq!(names(&write(&most)), Err(JarError::Members(MEMBERS_MAX + 1)));
    }
}
