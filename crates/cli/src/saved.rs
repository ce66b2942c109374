//! Saves what a node sends to a file that only its owner can read: a unit's memory may hold somebody's data.

use super::client::Client;
use super::stop::{Result, Stop};
use std::fs::{OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Bytes of a dump: the memory of the largest unit, and some more.
pub const DUMP_BYTES_MAX: u64 = 5 << 30;

/// Standard output, as a file.
pub const STDOUT: &str = "-";

/// Writes all that comes to a file that only its owner may read, or to standard output; how many bytes there were.
///
/// # Errors
/// [`Code::FileUnusable`](problem::Code::FileUnusable): the file; what [`Client::broken`] says: the node.
pub fn save(client: &Client, reader: impl Read, file: &Path) -> Result<u64> {
    let mut reader = reader.take(DUMP_BYTES_MAX);
    let mut writer: Box<dyn Write> = match file.as_os_str() == STDOUT {
        true => Box::new(io::stdout().lock()),
        false => Box::new(
            OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(file)
                .and_then(|open| {
                    // One that was there before has the mode that it had. A device or a pipe keeps its own.
                    if open.metadata()?.is_file() {
                        open.set_permissions(Permissions::from_mode(0o600))?;
                    }
                    Ok(open)
                })
                .map_err(|error| Stop::file(file, &error))?,
        ),
    };
    let mut buffer = vec![0; 256 << 10];
    let mut bytes = 0;
    loop {
        let count = reader.read(&mut buffer).map_err(|error| client.broken(&error))?;
        if count == 0 {
            return Ok(bytes);
        }
        writer.write_all(&buffer[..count]).map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => Stop::PipeClosed,
            _ => Stop::file(file, &error),
        })?;
        bytes += count as u64;
    }
}
