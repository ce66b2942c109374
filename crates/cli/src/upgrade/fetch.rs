//! A release and its signature, from a file or over HTTP; and the key that has to have signed it.

use crate::Global;
use crate::client::roots;
use crate::stop::{Result, Stop};
use problem::{Code, Problem};
use release::{PublicKey, RELEASE_BYTES_MAX, Signature, TEXT_BYTES_MAX};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;
use ureq::Agent;
use ureq::tls::TlsConfig;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a download may take in all.
const DOWNLOAD_TIMEOUT: Duration = Duration::from_secs(1_800);
/// Places that a download may be sent on to.
const REDIRECTS_MAX: u32 = 5;

/// What was read, before anybody has looked at it.
pub struct Signed {
    pub bytes: Vec<u8>,
    signature: String,
}

impl Signed {
    pub fn signature(&self) -> Result<Signature> {
        Ok(Signature::parse(&self.signature)?)
    }

    pub fn sha256(&self) -> String {
        Sha256::digest(&self.bytes).iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Reads both. Over HTTP without TLS too: what was changed on the way is not signed.
pub fn release(from: &str, global: &Global) -> Result<Signed> {
    let is_url = from.starts_with("https://") || from.starts_with("http://");
    if is_url {
        let mut tls = TlsConfig::builder();
        if let Some(file) = &global.ca_cert {
            tls = tls.root_certs(roots(file)?);
        }
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(REDIRECTS_MAX)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_global(Some(DOWNLOAD_TIMEOUT))
            .user_agent(concat!("lighter/", env!("CARGO_PKG_VERSION")))
            .tls_config(tls.build())
            .build()
            .new_agent();
        let name = signature_of(from);
        let signature = download(&agent, &name, TEXT_BYTES_MAX)?.ok_or_else(|| unsigned(from, &name))?;
        let bytes = download(&agent, from, RELEASE_BYTES_MAX)?;
        let bytes = bytes.ok_or_else(|| Stop::new(Code::FileUnusable, format!("{from}: there is no such file")))?;
        return Ok(Signed { bytes, signature: text(signature) });
    }
    let file = Path::new(from);
    let bytes = read(file, RELEASE_BYTES_MAX).map_err(|error| Stop::file(file, &error))?;
    let beside = signature_of(from);
    let signature = read(Path::new(&beside), TEXT_BYTES_MAX).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => unsigned(from, &beside),
        _ => Stop::file(Path::new(&beside), &error),
    })?;
    Ok(Signed { bytes, signature: text(signature) })
}

/// Reads a public key.
pub fn key(file: &Path) -> Result<PublicKey> {
    let bytes = read(file, TEXT_BYTES_MAX).map_err(|error| Stop::named("--key", file, &error))?;
    PublicKey::parse(&text(bytes)).ok_or_else(|| {
        let problem = Problem::new(Code::FileUnusable, format!("--key {}: it is not a minisign key", file.display()));
        problem.with_hint("name the file with the public key, often minisign.pub or release.pub").into()
    })
}

/// Where the signature is: a question behind the path stays behind it.
fn signature_of(from: &str) -> String {
    match from.split_once('?') {
        Some((path, question)) if from.contains("://") => format!("{path}.minisig?{question}"),
        _ => format!("{from}.minisig"),
    }
}

fn unsigned(from: &str, beside: &str) -> Stop {
    let problem = Problem::new(Code::SignatureMissing, format!("{from} has no signature: there is no {beside}"));
    problem.into()
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).into_owned()
}

fn read(file: &Path, max: u64) -> io::Result<Vec<u8>> {
    bounded(File::open(file)?, max)
}

/// None where there is no such file.
fn download(agent: &Agent, url: &str, max: u64) -> Result<Option<Vec<u8>>> {
    let failed = |why: String| {
        let problem = Problem::new(Code::FileUnusable, format!("{url}: {why}"));
        Stop::from(problem.with_hint("fetch it with another program, and name the file"))
    };
    let response = agent.get(url).call().map_err(|error| failed(error.to_string()))?;
    match response.status().as_u16() {
        200 => bounded(response.into_body().into_reader(), max).map(Some).map_err(|error| failed(error.to_string())),
        404 => Ok(None),
        status => Err(failed(format!("it was answered with status {status}"))),
    }
}

fn bounded(from: impl Read, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(io::Error::other(format!("it is larger than {}", crate::words::bytes(max))));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_stands_beside_what_was_signed() {
        assert_eq!(signature_of("a?b.tar.gz"), "a?b.tar.gz.minisig");
        assert_eq!(
            signature_of("https://example.org/a.tar.gz?token=1"),
            "https://example.org/a.tar.gz.minisig?token=1"
        );
    }

    #[test]
    fn what_is_larger_than_it_may_be_is_not_read() {
        assert_eq!(bounded(&b"1234"[..], 4).unwrap(), b"1234");
        assert!(bounded(&b"12345"[..], 4).is_err());
        assert!(bounded(io::repeat(7), 4).is_err());
    }
}
