//! Certificates: of servers among each other, and of nodes.

use crate::name;
use crate::town::{Stage, set};
use async_nats::ConnectOptions;
use facts::Key;
use fleet_nats::Tls;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, RootCertStore};
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// A fleet's authority, and one certificate for all its machines.
pub struct Certificates {
    authority: (String, CertificateDer<'static>),
    own: (String, CertificateDer<'static>),
    key: KeyPair,
}

impl Certificates {
    pub fn make() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = params.self_signed(&key).unwrap();
        let issuer = Issuer::new(params, key);
        let key = KeyPair::generate().unwrap();
        let own = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
        let both = |one: rcgen::Certificate| (one.pem(), one.der().clone());
        Self { authority: both(authority), own: both(own), key }
    }

    pub fn files(&self, folder: &Path) -> Tls {
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::write(&path, text).unwrap();
            path
        };
        Tls {
            certificate: write("own.pem", &self.own.0),
            key: write("key.pem", &self.key.serialize_pem()),
            authority: write("authority.pem", &self.authority.0),
        }
    }

    pub fn client(&self, has_certificate: bool) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.1.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let builder = builder.with_root_certificates(roots);
        if !has_certificate {
            return builder.with_no_client_auth();
        }
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.serialize_der()));
        builder.with_client_auth_cert(vec![self.own.1.clone()], key).unwrap()
    }
}

pub async fn strangers_hear_nothing(stage: &Stage) {
    // Their streams were made, so the servers reach each other with their certificates.
    let town = stage.three().await;
    let without = town.certificates.as_ref().expect("they have some").client(false);
    let node = town.way(&name("anchor"), true);
    let key = Key::new("fn.tls").unwrap();
    set(&node, &key).await;

    let address = town.config(0).listen.to_string();
    let stranger = ConnectOptions::new().require_tls(true).tls_client_config(without);
    let refused = stranger.connect(address.clone()).await.expect_err("it has no certificate").to_string();
    assert!(!refused.contains("uthorization"), "it is refused before it is asked who it is: {refused}");
    let plain = async_nats::connect(address).await.expect_err("it speaks no TLS").to_string();
    assert!(!plain.contains("uthorization"), "{plain}");
}
