// Copyright (c) 2024-present, fjall-rs
// This source code is licensed under both the Apache 2.0 and MIT License
// (found in the LICENSE-* files in the repository)

use crate::{Checksum, CompressionType};

/// Represents errors that can occur in the LSM-tree
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// I/O error
    Io(std::io::Error),

    /// Decompression failed
    Decompress(CompressionType),

    /// Invalid or unparsable data format version
    InvalidVersion(u8),

    /// Some required files could not be recovered from disk
    Unrecoverable,

    /// Checksum mismatch
    ChecksumMismatch {
        /// Checksum of loaded block
        got: Checksum,

        /// Checksum that was saved in block header
        expected: Checksum,
    },

    /// Invalid enum tag
    InvalidTag((&'static str, u8)),

    /// Invalid block trailer
    InvalidTrailer,

    /// Invalid block header
    InvalidHeader(&'static str),

    /// UTF-8 error
    Utf8(std::str::Utf8Error),

    /// A file of the tree is not as it was written
    Damaged {
        /// The file
        path: std::path::PathBuf,

        /// Where in it the damaged block begins
        offset: u64,

        /// The last key that may be in the damaged block, if that is known
        last_key: Option<crate::UserKey>,

        /// What was found there
        reason: Box<Self>,
    },
}

impl Error {
    /// Whether this says that what was read is not what was written, or cannot be read back at all.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        /// The disk could not read a sector
        const EIO: i32 = 5;

        match self {
            Self::Io(e) => {
                matches!(
                    e.kind(),
                    std::io::ErrorKind::UnexpectedEof
                        | std::io::ErrorKind::InvalidData
                        | std::io::ErrorKind::InvalidInput
                        | std::io::ErrorKind::NotFound
                ) || e.raw_os_error() == Some(EIO)
            }
            _ => true,
        }
    }

    /// Names the place of damage; other errors, and damage that has a name already, stay as they are.
    #[must_use]
    pub(crate) fn at(
        self,
        path: &std::path::Path,
        offset: u64,
        last_key: Option<&crate::UserKey>,
    ) -> Self {
        match self {
            Self::Damaged { .. } => self,
            e if e.is_damage() => Self::Damaged {
                path: path.to_owned(),
                offset,
                last_key: last_key.cloned(),
                reason: Box::new(e),
            },
            e => e,
        }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LsmTreeError: {self:?}")
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(e) => Some(e),
            _ => None,
        }
    }
}

impl From<sfa::Error> for Error {
    fn from(value: sfa::Error) -> Self {
        match value {
            sfa::Error::Io(e) => Self::from(e),
            sfa::Error::ChecksumMismatch { got, expected } => {
                log::error!("Archive ToC checksum mismatch");
                Self::ChecksumMismatch {
                    got: got.into(),
                    expected: expected.into(),
                }
            }
            sfa::Error::InvalidHeader => {
                log::error!("Invalid archive header");
                Self::Unrecoverable
            }
            sfa::Error::InvalidVersion => {
                log::error!("Invalid archive version");
                Self::Unrecoverable
            }
            sfa::Error::UnsupportedChecksumType => {
                log::error!("Invalid archive checksum type");
                Self::Unrecoverable
            }
        }
    }
}

impl From<std::io::Error> for Error {
    fn from(value: std::io::Error) -> Self {
        Self::Io(value)
    }
}

/// Tree result
pub type Result<T> = std::result::Result<T, Error>;
