//! A passphrase, read from a file: on the command line other users of the machine could see it.

use super::stop::{Result, Stop};
use problem::Code;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// Bytes of a passphrase.
const PASSPHRASE_BYTES_MAX: u64 = 4_096;

/// The first line of the file.
///
/// # Errors
/// The file cannot be read, or its first line is empty, too long, or no text.
pub fn read(file: &Path) -> Result<String> {
    let mut line = String::new();
    let opened = File::open(file).map_err(|error| Stop::named("--passphrase-file", file, &error))?;
    let read = BufReader::new(opened.take(PASSPHRASE_BYTES_MAX + 1)).read_line(&mut line);
    read.map_err(|error| Stop::named("--passphrase-file", file, &error))?;
    let line = line.trim_end_matches(['\r', '\n']);
    if line.is_empty() || line.len() as u64 > PASSPHRASE_BYTES_MAX {
        let detail = format!("{}: its first line is to be a passphrase of 1 to 4,096 bytes", file.display());
        return Err(Stop::new(Code::Usage, detail));
    }
    Ok(line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_counts_and_an_empty_one_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("passphrase");
        let of = |text: &str| {
            std::fs::write(&file, text).unwrap();
            read(&file)
        };
        assert!(matches!(of("open sesame\nmore\n"), Ok(line) if line == "open sesame"));
        assert!(matches!(of(" a b \r\n"), Ok(line) if line == " a b "));
        for wrong in ["", "\n", &"x".repeat(4_097)] {
            assert!(of(wrong).is_err());
        }
        assert!(read(&folder.path().join("none")).is_err());
    }
}
