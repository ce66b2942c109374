//! `lighter store`: the contents of buckets, listed, set, exported and imported.

use super::call::Data;
use super::client::{Client, announced, encoded};
use super::nearest::check_bucket;
use super::output::Output;
use super::stop::{Result, Stop};
use super::table::Table;
use super::{DataFolder, Session, words};
use api_types::{BucketInfo, DeleteRequest, DeletedReply, ImportReply, KeyInfo, KeyPage};
use clap::{Args, Subcommand};
use manifest::Span;
use problem::Code;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use ureq::SendBody;

/// Keys of one page of the API.
const PAGE_KEYS: u32 = 1_000;
/// Bytes of the keys that one request names; the API takes a little more.
const REQUEST_BYTES: usize = 48 << 10;
/// Characters of a value in a table.
const VALUE_SHOWN: usize = 60;
/// Bytes of a value, above what the node keeps.
const VALUE_BYTES_MAX: u64 = 64 << 20;

#[derive(Debug, Subcommand)]
pub enum Store {
    /// List the buckets, or the keys of one
    Ls(Ls),
    /// Print the value of a key
    Get {
        /// Bucket of the key
        bucket: String,
        /// Key to read
        key: String,
    },
    /// Set a key to the data
    Set(Box<Set>),
    /// Delete keys; a missing key is not an error
    Delete {
        /// Bucket of the keys
        bucket: String,
        /// Keys to delete
        #[arg(required_unless_present = "prefix", value_name = "KEY")]
        keys: Vec<String>,
        /// Delete all keys with this prefix
        #[arg(long, conflicts_with = "keys")]
        prefix: Option<String>,
    },
    /// Print a bucket as JSON lines
    Export {
        /// Bucket to print
        bucket: String,
    },
    /// Add the lines of an export to a bucket
    Import {
        /// Bucket to add to
        bucket: String,
        /// File with the lines [default: standard input]
        #[arg(long, short, value_name = "FILE")]
        file: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
pub struct Ls {
    /// Bucket whose keys to list
    bucket: Option<String>,
    /// Only keys with this prefix
    #[arg(long, default_value = "", hide_default_value = true)]
    prefix: String,
    /// How many keys to show at most
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    limit: u32,
    /// Continue after this key
    #[arg(long, value_name = "KEY")]
    after: Option<String>,
}

#[derive(Debug, Args)]
pub struct Set {
    /// Bucket of the key
    bucket: String,
    /// Key to set
    key: String,
    #[command(flatten)]
    data: Data,
    /// How long the key lives, such as 10s or 5d [default: that of its bucket]
    #[arg(long, value_name = "SPAN", value_parser = super::push::span)]
    ttl: Option<Span>,
    #[command(flatten)]
    _folder: DataFolder,
}

impl Store {
    pub fn run(self, session: &Session) -> Result {
        let (out, client) = (session.out, session.client()?);
        match self {
            Self::Ls(Ls { bucket: None, .. }) => buckets(&client, out),
            Self::Ls(Ls { bucket: Some(bucket), prefix, limit, after }) => {
                keys(&client, out, &bucket, &prefix, limit, after)
            }
            Self::Get { bucket, key } => {
                let response = client.ask("GET", &path(&bucket, &key), ());
                let response = response.map_err(|stop| unless_bucket(&client, &bucket, stop))?;
                let value = client.bytes(response, VALUE_BYTES_MAX)?;
                match out.json {
                    true => out.json(&KeyInfo::new(key, value)),
                    false => out.made(&value, "the value"),
                }
            }
            Self::Set(new) => set(&client, out, *new),
            Self::Delete { bucket, keys, prefix } => {
                check_bucket(&client, &bucket)?;
                let DeletedReply { deleted, missing, .. } = match prefix {
                    Some(prefix) => delete_prefix(&client, out, &bucket, &prefix)?,
                    None => delete_keys(&client, &bucket, keys)?,
                };
                if out.json {
                    return out.json(&serde_json::json!({ "deleted": deleted, "missing": missing }));
                }
                out.say(format!("deleted {} key{}", deleted.len(), words::plural(deleted.len())));
                if !missing.is_empty() {
                    out.say(format!("{bucket} had no {}", missing.join(" ")));
                }
                Ok(())
            }
            Self::Export { bucket } => {
                check_bucket(&client, &bucket)?;
                export(&client, out, &bucket)
            }
            Self::Import { bucket, file } => import(&client, out, &bucket, file.as_deref()),
        }
    }
}

fn set(client: &Client, out: Output, new: Set) -> Result {
    let data = new.data.read(out)?;
    let mut path = path(&new.bucket, &new.key);
    if let Some(ttl) = new.ttl {
        path += &format!("&ttl_ms={}", ttl.duration().as_millis());
    }
    let request = announced(client.request("PUT", &path), data.len());
    client.succeeded(client.exchange(request, data)?)?;
    match out.json {
        true => out.json(&serde_json::json!({ "set": [new.key] })),
        false => {
            out.say(format!("set {}", new.key));
            Ok(())
        }
    }
}

fn import(client: &Client, out: Output, bucket: &str, file: Option<&Path>) -> Result {
    let request = client.request("POST", &format!("/v1/buckets/{}/import", encoded(bucket)));
    let request = request.header("content-type", "application/x-ndjson");
    let progress = out.progress();
    progress.step(format!("importing into {bucket}"));
    let response = match file {
        Some(file) => {
            let open = File::open(file).map_err(|error| Stop::file(file, &error))?;
            client.exchange(request, SendBody::from_owned_reader(open))?
        }
        None => client.exchange(request, SendBody::from_owned_reader(io::stdin()))?,
    };
    let reply: ImportReply = client.read(client.succeeded(response)?)?;
    drop(progress);
    match out.json {
        true => out.json(&reply),
        false => {
            out.say(format!("{} keys are in {bucket}, {} had expired", reply.keys, reply.expired));
            Ok(())
        }
    }
}

fn export(client: &Client, out: Output, bucket: &str) -> Result {
    let request = client.request("GET", &format!("/v1/buckets/{}/export", encoded(bucket)));
    let response = client.succeeded(client.exchange(request, ())?)?;
    let mut reader = response.into_body().into_reader();
    if out.is_terminal() {
        // The lines themselves show that it goes on.
        return show_lines(client, out, BufReader::new(reader));
    }
    let progress = out.progress();
    let mut piece = vec![0; 64 << 10];
    let mut bytes = 0;
    let text = |bytes| format!("exporting {bucket} ({})", words::bytes(bytes));
    progress.step(text(bytes));
    loop {
        let count = reader.read(&mut piece).map_err(|error| client.broken(&error))?;
        if count == 0 {
            return Ok(());
        }
        out.raw(&piece[..count])?;
        bytes += count as u64;
        progress.update(text(bytes));
    }
}

/// Lines that functions have filled, made harmless for a terminal.
fn show_lines(client: &Client, out: Output, mut lines: impl BufRead) -> Result {
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line).map_err(|error| client.broken(&error))? > 0 {
        // The line's end is none of a text's.
        line.pop_if(|byte| *byte == b'\n');
        let mut shown = words::harmless_json(std::mem::take(&mut line));
        shown.push(b'\n');
        out.raw(&shown)?;
    }
    Ok(())
}

/// Deletes the keys, in as many requests as their length asks for.
fn delete_keys(client: &Client, bucket: &str, keys: Vec<String>) -> Result<DeletedReply> {
    let mut all = DeletedReply::default();
    let (mut piece, mut bytes) = (Vec::new(), 0);
    let mut send = |piece: Vec<String>| {
        let request = DeleteRequest { keys: Some(piece), prefix: None };
        let reply: DeletedReply = client.post(&delete_path(bucket), &request)?;
        all.deleted.extend(reply.deleted);
        all.missing.extend(reply.missing);
        Result::Ok(())
    };
    for key in keys {
        let key_bytes = serde_json::json!(key).to_string().len() + 1;
        if bytes + key_bytes > REQUEST_BYTES || piece.len() == PAGE_KEYS as usize {
            send(std::mem::take(&mut piece))?;
            bytes = 0;
        }
        bytes += key_bytes;
        piece.push(key);
    }
    send(piece)?;
    Ok(all)
}

/// Deletes all keys that begin so, a request for each thousand of them.
fn delete_prefix(client: &Client, out: Output, bucket: &str, prefix: &str) -> Result<DeletedReply> {
    let mut all = DeletedReply::default();
    let request = DeleteRequest { keys: None, prefix: Some(prefix.to_owned()) };
    let progress = out.progress();
    loop {
        let reply: DeletedReply = client.post(&delete_path(bucket), &request)?;
        all.deleted.extend(reply.deleted);
        if !reply.more {
            return Ok(all);
        }
        progress.step(format!("deleting from {bucket} ({} keys)", all.deleted.len()));
    }
}

fn delete_path(bucket: &str) -> String {
    format!("/v1/buckets/{}/delete", encoded(bucket))
}

/// A key is missing: perhaps its bucket is.
fn unless_bucket(client: &Client, bucket: &str, stop: Stop) -> Stop {
    match &stop {
        Stop::Problem(problem) if problem.code == Code::KeyUnknown => {
            check_bucket(client, bucket).err().unwrap_or(stop)
        }
        _ => stop,
    }
}

fn buckets(client: &Client, out: Output) -> Result {
    let buckets: Vec<BucketInfo> = client.get("/v1/buckets")?;
    if out.json {
        return out.json(&buckets);
    }
    if buckets.is_empty() {
        out.say("nothing is stored yet");
        return Ok(());
    }
    let mut table = Table::new(&["BUCKET", ">KEYS", ">BYTES", ">KEYS MAX", ">BYTES MAX", ">TTL"]);
    for bucket in buckets {
        let bounds = bucket.bounds;
        let or_none = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        table.row([
            bucket.name,
            bucket.keys.to_string(),
            words::bytes(bucket.bytes),
            or_none(bounds.keys_max.map(|max| max.to_string())),
            or_none(bounds.bytes_max.map(words::bytes)),
            or_none(bounds.ttl.map(|ttl| ttl.to_string())),
        ]);
    }
    out.table(&table)
}

fn keys(client: &Client, out: Output, bucket: &str, prefix: &str, limit: u32, after: Option<String>) -> Result {
    let (mut after, mut left) = (after, limit);
    let mut all = KeyPage { keys: Vec::new(), next: None };
    loop {
        let mut query = format!("?prefix={}&limit={}", encoded(prefix), left.min(PAGE_KEYS));
        if let Some(after) = &after {
            query += &format!("&after={}", encoded(after));
        }
        let page: KeyPage = client.get(&format!("/v1/buckets/{}/keys{query}", encoded(bucket)))?;
        left = left.saturating_sub(u32::try_from(page.keys.len()).unwrap_or(u32::MAX));
        all.keys.extend(page.keys);
        all.next = page.next;
        match &all.next {
            Some(next) if left > 0 => after = Some(next.clone()),
            _ => break,
        }
    }
    if all.keys.is_empty() {
        check_bucket(client, bucket)?;
    }
    if out.json {
        return out.json(&all);
    }
    if all.keys.is_empty() {
        out.say(format!("{bucket} has no such keys"));
        return Ok(());
    }
    let mut table = Table::new(&["KEY", ">BYTES", "VALUE"]);
    for key in &all.keys {
        table.row([key.key.clone(), key.bytes.to_string(), shown(key)]);
    }
    out.table(&table)?;
    if let Some(next) = all.next {
        out.say(format!("there are more: --after {next}"));
    }
    Ok(())
}

/// The beginning of a value, in one line.
fn shown(key: &KeyInfo) -> String {
    let text = match (&key.value, &key.base64) {
        (Some(text), _) => text.clone(),
        (None, text) => format!("base64 {}", text.as_deref().unwrap_or_default()),
    };
    let mut line: String = text.chars().take(VALUE_SHOWN).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(VALUE_SHOWN).is_some() {
        line.push('…');
    }
    line
}

fn path(bucket: &str, key: &str) -> String {
    format!("/v1/buckets/{}/value?key={}", encoded(bucket), encoded(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_shown_in_one_short_line() {
        let shown = |value: &[u8]| shown(&KeyInfo::new("k".into(), value.to_vec()));
        assert_eq!(shown(b"a\nb"), "a b");
        assert_eq!(shown(&[0, 255]), "base64 AP8=");
        assert_eq!(shown("ä".repeat(70).as_bytes()).chars().count(), VALUE_SHOWN + 1);
    }
}
