//! An artefact's file: what the engine made of an image, and behind it the image if traps are to be told with its
//! lines.
//!
//! ```text
//!   native code │ image, or nothing │ bytes of the image, 8 │ which engine, 1
//! ```
//! The engine looks at its own part alone.

use crate::engine::Series;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use unit_lines::{Image, worth_keeping};

/// Bytes of the number, and of the word for the engine behind it.
const NUMBER_BYTES: u64 = 8;
const END_BYTES: u64 = NUMBER_BYTES + 1;

pub fn write(mut code: Vec<u8>, image: &[u8], series: Series) -> Vec<u8> {
    let kept = worth_keeping(image);
    code.extend_from_slice(kept);
    code.extend_from_slice(&(kept.len() as u64).to_le_bytes());
    code.push(match series {
        Series::Wasi02 => 2,
        Series::Wasi03 => 3,
    });
    code
}

/// Which engine made an artefact.
///
/// # Errors
/// The file cannot be read, or is none that [`write()`] made.
pub fn series(file: &File) -> io::Result<Series> {
    let mut word = [0];
    file.read_exact_at(&mut word, file.metadata()?.len().checked_sub(1).ok_or_else(short)?)?;
    match word {
        [2] => Ok(Series::Wasi02),
        [3] => Ok(Series::Wasi03),
        _ => Err(short()),
    }
}

fn short() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "its end is missing")
}

/// Where the image is that a function's traps are told with.
#[derive(Clone)]
pub struct KeptImage(Arc<Part>);

struct Part {
    file: File,
    begins: u64,
    bytes: u64,
}

impl KeptImage {
    /// The one in an artefact; none if it has none.
    ///
    /// # Errors
    /// The file cannot be read, or is none that [`write()`] made.
    pub fn of_artefact(file: File) -> io::Result<Option<Self>> {
        let ends = file.metadata()?.len().checked_sub(END_BYTES).ok_or_else(short)?;
        let mut number = [0; NUMBER_BYTES as usize];
        file.read_exact_at(&mut number, ends)?;
        let bytes = u64::from_le_bytes(number);
        let begins = ends.checked_sub(bytes).ok_or_else(short)?;
        Ok((bytes > 0).then(|| Self(Arc::new(Part { file, begins, bytes }))))
    }

    /// A file that is an image and nothing else.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn of_image(file: File) -> io::Result<Self> {
        let bytes = file.metadata()?.len();
        Ok(Self(Arc::new(Part { file, begins: 0, bytes })))
    }

    /// Reads it when it is asked; what cannot be read is as if nothing was kept.
    pub fn image(&self) -> Image {
        let part = self.0.clone();
        Box::new(move || {
            let mut image = vec![0; usize::try_from(part.bytes).unwrap_or_default()];
            match part.file.read_exact_at(&mut image, part.begins) {
                Ok(()) => image,
                Err(_) => Vec::new(),
            }
        })
    }
}
