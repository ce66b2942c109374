//! The access log: one event a request at target `access`, level info. Off unless a subscriber asks for it.
//!
//! It holds no header fields and no query string: both carry secrets.

use crate::service::Peer;
use http::{Method, Request};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;
use tracing::Level;

/// What the log says where the client went away before there was a status.
const CLIENT_GONE: u16 = 499;

/// One line of the log, written when dropped: after the last byte of the reply, or when the request broke off.
#[derive(Debug)]
pub struct Access {
    begin: Instant,
    method: Method,
    path: Box<str>,
    request_id: Arc<str>,
    peer: Peer,
    pub function: Option<Arc<str>>,
    pub status: u16,
    pub bytes_in: Arc<AtomicU64>,
    pub bytes_out: u64,
    /// The reply ended as it should.
    pub whole: bool,
}

impl Access {
    /// `None` while nobody listens, which costs one comparison.
    pub fn begin<B>(request: &Request<B>, request_id: &Arc<str>, peer: Peer) -> Option<Box<Self>> {
        if !tracing::enabled!(target: "access", Level::INFO) {
            return None;
        }
        Some(Box::new(Self {
            begin: Instant::now(),
            method: request.method().clone(),
            path: request.uri().path().into(),
            request_id: request_id.clone(),
            peer,
            function: None,
            status: CLIENT_GONE,
            bytes_in: Arc::default(),
            bytes_out: 0,
            whole: false,
        }))
    }

    /// The request line was refused: there is no method or path to tell.
    pub fn forget_target(&mut self) {
        self.method = Method::from_bytes(b"-").expect("a dash is a token");
        self.path = "-".into();
    }
}

impl Drop for Access {
    fn drop(&mut self) {
        tracing::info!(
            target: "access",
            method = self.method.as_str(),
            path = &*self.path,
            status = self.status,
            whole = self.whole,
            bytes_in = self.bytes_in.load(Relaxed),
            bytes_out = self.bytes_out,
            duration_us = u64::try_from(self.begin.elapsed().as_micros()).unwrap_or(u64::MAX),
            function = self.function.as_deref().unwrap_or("-"),
            request_id = &*self.request_id,
            peer = %self.peer.address,
            tls = self.peer.tls,
        );
    }
}
