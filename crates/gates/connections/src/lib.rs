//! What gates share of their connections, whatever is spoken on them: certificates for TLS, and an usher who shows them
//! out.
#![forbid(unsafe_code)]

mod tls;
mod usher;

pub use tls::Certificates;
pub use usher::Usher;
