//! A cluster of NATS that is the user's own, in place of the engine of the anchors.

use crate::keys::Credentials;
use async_nats::ServerAddr;
use problem::{Code, Problem};
use rustls::{ClientConfig, RootCertStore};
use std::net::IpAddr;
use std::sync::Arc;

/// Where it is, and what a node shows there.
#[derive(Debug, Clone)]
pub struct Cluster {
    pub(crate) servers: Vec<String>,
    pub(crate) credentials: Credentials,
    /// None: it is on this machine.
    pub(crate) tls: Option<ClientConfig>,
}

impl Cluster {
    /// `servers` as `tls://HOST:PORT`, `nats://HOST:PORT` or `HOST`, several with commas between them; `credentials` as
    /// NATS' own tools write them to a file. Beyond this machine it is TLS in any case, with public authorities.
    ///
    /// # Errors
    /// [`Code::ConfigInvalid`] says which of the two makes no sense.
    pub fn new(servers: &str, credentials: &str) -> Result<Self, Problem> {
        let invalid = |detail: String| Problem::new(Code::ConfigInvalid, detail);
        let credentials =
            Credentials::read(credentials).map_err(|fault| invalid(format!("what nats_creds names: {fault}")))?;
        let all: Option<Vec<ServerAddr>> = servers.split(',').map(|one| server(one.trim())).collect();
        // It may have a password, so it is not repeated.
        let all = all.ok_or_else(|| {
            invalid("nats names no servers".to_owned()).with_hint("write it like tls://nats.example.org:4222")
        })?;
        let is_open = all.iter().any(|one| one.tls_required() || !is_loopback(one.host()));
        let tls = is_open.then(public_authorities).transpose().map_err(|error| invalid(format!("TLS: {error}")))?;
        let servers = all.iter().map(|one| one.as_url_str().to_owned()).collect();
        Ok(Self { servers, credentials, tls })
    }
}

/// None: it is none, or has a user or a password, for which there are credentials.
fn server(text: &str) -> Option<ServerAddr> {
    let server: ServerAddr = text.parse().ok()?;
    let is_plain = !text.is_empty()
        && server.username().is_none()
        && server.password().is_none()
        && !server.is_websocket()
        && !server.host().is_empty();
    is_plain.then_some(server)
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn public_authorities() -> Result<ClientConfig, rustls::Error> {
    let roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> String {
        let credentials = Credentials::generate();
        credentials.show("e.y.J".to_owned());
        credentials.to_file()
    }

    #[test]
    fn beyond_this_machine_it_is_tls() {
        for (servers, is_tls) in [
            ("nats://127.0.0.1:4222", false),
            ("localhost", false),
            ("[::1]:4223", false),
            ("tls://localhost", true),
            ("nats://nats.example.org", true),
            ("localhost, 192.0.2.7:4222", true),
        ] {
            let cluster = Cluster::new(servers, &file()).unwrap();
            assert_eq!(cluster.tls.is_some(), is_tls, "{servers}");
            assert_eq!(cluster.servers.len(), servers.split(',').count());
        }
    }

    #[test]
    fn what_names_no_servers_is_refused_and_not_repeated() {
        for wrong in ["", "localhost,", "http://localhost", "ws://localhost", "nats://a:secret@localhost", "nats://"] {
            let refused = Cluster::new(wrong, &file()).unwrap_err();
            assert!(refused.code == Code::ConfigInvalid && !refused.detail.contains("secret"), "{refused:?}");
        }
        assert_eq!(Cluster::new("localhost", "no file").unwrap_err().code, Code::ConfigInvalid);
    }
}
