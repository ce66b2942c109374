//! An apk or a dex file in a bundle: what of it the node itself reads before a jail does, which is little.

use crate::jar::{self, JarError};
use std::fmt;

/// The members of a bundle that are converted.
pub const APK: &str = "app.apk";
pub const DEX: &str = "app.dex";

const MAGIC: &[u8] = b"dex\n";
/// Oldest and newest version of the format that the converter reads.
const VERSIONS: std::ops::RangeInclusive<u32> = 35..=39;
const HEADER_BYTES: usize = 0x70;
/// Where the header says how many bytes the file has.
const SIZE_AT: usize = 0x20;

/// What is wrong with an apk or a dex file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AndroidError {
    NotDex,
    /// The digits of its version.
    Version(String),
    /// What it has, and what its header says.
    Bytes(usize, u32),
    Zip(JarError),
    /// An apk has none: a part of a split app, or packed.
    NoDex,
}

impl fmt::Display for AndroidError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotDex => write!(f, "it is no dex file"),
            Self::Version(version) => {
                let (oldest, newest) = (VERSIONS.start(), VERSIONS.end());
                write!(f, "the dex file is of version {version}, the converter reads {oldest:03} to {newest:03}")
            }
            Self::Bytes(bytes, said) => write!(f, "the dex file has {bytes} bytes, and its header says {said}"),
            Self::Zip(error) => write!(f, "the apk: {error}"),
            Self::NoDex => {
                write!(f, "the apk has no classes.dex: it is a part of a split app without its base, or it is packed")
            }
        }
    }
}

/// Whether a member of this name is converted.
pub fn is_app(name: &str) -> bool {
    name == APK || name == DEX
}

/// # Errors
/// It is not what its name says, is cut off, or is beyond a bound.
pub fn check(name: &str, content: &[u8]) -> Result<(), AndroidError> {
    if name == DEX {
        return check_dex(content);
    }
    let names = jar::names(content).map_err(AndroidError::Zip)?;
    if names.contains("classes.dex") { Ok(()) } else { Err(AndroidError::NoDex) }
}

fn check_dex(dex: &[u8]) -> Result<(), AndroidError> {
    let Some(header) = dex.get(..HEADER_BYTES).filter(|header| header.starts_with(MAGIC)) else {
        return Err(AndroidError::NotDex);
    };
    let version = String::from_utf8_lossy(&header[4..7]).into_owned();
    let is_number = version.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number || !version.parse().is_ok_and(|version| VERSIONS.contains(&version)) {
        return Err(AndroidError::Version(version));
    }
    let said = u32::from_le_bytes(header[SIZE_AT..SIZE_AT + 4].try_into().expect("four bytes"));
    if said as usize == dex.len() { Ok(()) } else { Err(AndroidError::Bytes(dex.len(), said)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dex(version: &str, said: u32) -> Vec<u8> {
        let mut dex = [MAGIC, version.as_bytes(), &[0; 0x70]].concat();
        dex.truncate(HEADER_BYTES);
        dex[SIZE_AT..SIZE_AT + 4].copy_from_slice(&said.to_le_bytes());
        dex
    }

    #[test]
    fn what_is_no_dex_file_says_why() {
        assert_eq!(check(DEX, &dex("035", 0x70)), Ok(()));
        assert_eq!(check(DEX, &dex("039", 0x70)), Ok(()));
        assert_eq!(check(DEX, &dex("099", 0x70)), Err(AndroidError::Version("099".into())));
        assert_eq!(check(DEX, &dex("+35", 0x70)), Err(AndroidError::Version("+35".into())));
        assert_eq!(check(DEX, &dex("035", 0x71)), Err(AndroidError::Bytes(0x70, 0x71)));
        assert_eq!(check(DEX, &dex("035", 0x70)[..0x6F]), Err(AndroidError::NotDex));
        assert_eq!(check(DEX, b"PK\x03\x04"), Err(AndroidError::NotDex));
    }

    #[test]
    fn an_apk_without_classes_says_why() {
        assert_eq!(check(APK, &jar::write(&[("classes.dex", b"dex", 3)])), Ok(()));
        assert_eq!(check(APK, &jar::write(&[("AndroidManifest.xml", b"", 0)])), Err(AndroidError::NoDex));
        assert_eq!(check(APK, b"PK"), Err(AndroidError::Zip(JarError::Truncated)));
        let bomb = jar::write(&[("classes.dex", b"", u32::MAX)]);
        assert_eq!(check(APK, &bomb), Err(AndroidError::Zip(JarError::Unpacked(u64::from(u32::MAX)))));
    }
}
