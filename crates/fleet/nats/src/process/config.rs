//! What nats-server is told: its configuration as text.

use crate::keys::{Believed, FleetKeys};
use facts::NodeName;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::SystemTime;

/// Bytes in memory that the engine tries to stay below (`GOMEMLIMIT`). It is collected more often near it.
pub const MEMORY_BYTES: u64 = 128 << 20;
/// Connections to one server. One more is refused, and its node tries another anchor.
const CONNECTIONS_MAX: u32 = 4_096;

/// How an anchor's engine is set up.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    pub node: NodeName,
    /// Its configuration, its log, and what it keeps.
    pub folder: PathBuf,
    /// For nodes. Port 0: any free one.
    pub listen: SocketAddr,
    /// Loopback only: says how the server runs. Port 0: any free one.
    pub monitor: SocketAddr,
    /// With other anchors; none for a fleet that has one.
    pub routes: Option<Routes>,
    /// Of all connections from elsewhere.
    pub tls: Option<Tls>,
    /// Bytes of facts and mail on the disk.
    pub file_bytes_max: u64,
    /// Which set of anchors this is: another one begins with an empty folder, and under another cluster's name.
    pub set: u64,
}

/// How the servers of three anchors reach each other.
#[derive(Debug, Clone)]
pub struct Routes {
    pub listen: SocketAddr,
    pub others: Vec<SocketAddr>,
}

/// Files in PEM: who this is, and whose word on others is believed.
#[derive(Debug, Clone)]
pub struct Tls {
    pub certificate: PathBuf,
    pub key: PathBuf,
    pub authority: PathBuf,
}

/// What the servers of a set of anchors call their cluster.
pub fn cluster_name(set: u64) -> String {
    format!("fleet-{set}")
}

impl EngineConfig {
    /// Why this must not be run; none if it may.
    pub fn fault(&self) -> Option<&'static str> {
        let is_open = |address: &SocketAddr| !address.ip().is_loopback();
        match () {
            () if is_open(&self.monitor) => Some("its monitoring must listen on loopback only"),
            () if self.tls.is_none() && is_open(&self.listen) => Some("without TLS it must listen on loopback only"),
            () if self.tls.is_none() && self.routes.as_ref().is_some_and(|routes| is_open(&routes.listen)) => {
                Some("without TLS its routes must listen on loopback only")
            }
            () => None,
        }
    }

    /// Where it keeps what it keeps.
    pub fn store(&self) -> PathBuf {
        let all = self.folder.join("js");
        if self.set == 0 { all } else { all.join(self.set.to_string()) }
    }

    /// The file `nats.conf`.
    pub fn text(&self, keys: &FleetKeys, now: SystemTime) -> String {
        let Self { node, folder, listen, monitor, file_bytes_max, .. } = self;
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let path = |path: PathBuf| quoted(&path.to_string_lossy());
        let (log, store) = (path(folder.join("nats.log")), path(self.store()));
        let mut text = format!(
            "# Written by lighter at each start.\n\
             server_name: {name}\nlisten: \"{listen}\"\nhttp: \"{monitor}\"\nports_file_dir: {ports}\n\
             log_file: {log}\nlogfile_size_limit: 1000000\nlogfile_max_num: 3\n\
             max_payload: 1048576\nmax_connections: {CONNECTIONS_MAX}\nping_interval: \"10s\"\nwrite_deadline: \"5s\"\n\
             jetstream {{\n  store_dir: {store}\n  sync_interval: always\n  max_mem: 33554432\n  \
             max_file: {file_bytes_max}\n}}\n",
            name = quoted(node.as_str()),
            listen = place(listen),
            monitor = place(monitor),
            ports = path(folder.clone()),
        );
        let tls = self.tls.as_ref().map(|tls| {
            let files = [&tls.certificate, &tls.key, &tls.authority].map(|file| path(file.clone()));
            format!("cert_file: {}, key_file: {}, ca_file: {}, verify: true", files[0], files[1], files[2])
        });
        if let Some(tls) = &tls {
            let _ = writeln!(text, "tls {{ {tls} }}");
        }
        if let Some(routes) = &self.routes {
            text.push_str(&self.cluster(routes, tls.as_deref(), &keys.routes_password()));
        }
        let Believed { operator, system_account, accounts } = keys.believed(now);
        let _ = write!(text, "operator: {operator}\nsystem_account: {system_account}\nresolver: MEMORY\n");
        let preloaded: String = accounts.iter().map(|(key, jwt)| format!("  {key}: {jwt}\n")).collect();
        let _ = write!(text, "resolver_preload {{\n{preloaded}}}\n");
        text
    }
}

impl EngineConfig {
    /// How it finds the other servers, and they it. Who is on this machine and no server needs the password.
    fn cluster(&self, Routes { listen, others }: &Routes, tls: Option<&str>, password: &str) -> String {
        let others: Vec<String> = others.iter().map(|other| format!("\"nats://fleet:{password}@{other}\"")).collect();
        // Without TLS the ways lead through tunnels, and each server has one to every other: where it listens itself
        // says nothing to them, so it tells an address at which nobody is.
        let rest = tls.map_or_else(|| "advertise: \"127.0.0.1:1\"".to_owned(), |tls| format!("tls {{ {tls} }}"));
        format!(
            "cluster {{\n  name: {}\n  listen: \"{}\"\n  pool_size: -1\n  {rest}\n  \
             authorization {{ user: fleet, password: \"{password}\", timeout: 5 }}\n  routes: [{}]\n}}\n",
            cluster_name(self.set),
            place(listen),
            others.join(", ")
        )
    }
}

/// An address as nats-server reads it, which calls any free port -1.
fn place(address: &SocketAddr) -> String {
    let text = address.to_string();
    if address.port() == 0 { text.trim_end_matches('0').to_owned() + "-1" } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(listen: &str) -> EngineConfig {
        EngineConfig {
            node: NodeName::new("pi-7").expect("it is a name"),
            folder: "/data/a \"b\"".into(),
            listen: listen.parse().expect("an address"),
            monitor: "127.0.0.1:8222".parse().expect("an address"),
            routes: None,
            tls: None,
            file_bytes_max: 1_000,
            set: 0,
        }
    }

    #[test]
    fn nothing_is_open_to_others_without_tls() {
        let own = config("127.0.0.1:4222");
        assert_eq!(own.fault(), None);
        assert!(config("0.0.0.0:4222").fault().is_some());
        let routes = |listen: &str| Some(Routes { listen: listen.parse().expect("an address"), others: Vec::new() });
        assert!(EngineConfig { routes: routes("192.168.0.7:6222"), ..own.clone() }.fault().is_some());
        assert_eq!(EngineConfig { routes: routes("127.0.0.1:6222"), ..own.clone() }.fault(), None);
        let tls = Some(Tls { certificate: "a".into(), key: "b".into(), authority: "c".into() });
        let open = EngineConfig { routes: routes("192.168.0.7:6222"), tls, ..config("0.0.0.0:4222") };
        assert_eq!(open.fault(), None);
        let monitored = EngineConfig { monitor: "0.0.0.0:8222".parse().expect("an address"), ..open };
        assert!(monitored.fault().is_some());
    }

    #[test]
    fn both_listeners_ask_for_certificates() {
        let routes = Routes {
            listen: "10.0.0.1:6222".parse().expect("an address"),
            others: vec!["10.0.0.2:6222".parse().expect("an address")],
        };
        let tls = Tls { certificate: "/a".into(), key: "/b".into(), authority: "/c".into() };
        let config = EngineConfig { routes: Some(routes), tls: Some(tls), ..config("10.0.0.1:4222") };
        let text = config.text(&FleetKeys::derived(|_| [7; 32]), SystemTime::UNIX_EPOCH);
        assert_eq!(text.matches("ca_file: \"/c\", verify: true").count(), 2, "{text}");
        assert!(text.contains("@10.0.0.2:6222\"]") && text.contains("sync_interval: always"), "{text}");
        assert!(text.contains(r#"store_dir: "/data/a \"b\"/js""#), "{text}");
        assert!(text.contains("listen: \"10.0.0.1:4222\""), "{text}");
    }

    #[test]
    fn another_set_of_anchors_has_another_folder_and_another_cluster() {
        let routes = || Some(Routes { listen: "127.0.0.1:0".parse().expect("an address"), others: Vec::new() });
        let of_set = |set| EngineConfig { routes: routes(), set, ..config("127.0.0.1:0") };
        let text = |set| of_set(set).text(&FleetKeys::derived(|_| [7; 32]), SystemTime::UNIX_EPOCH);
        assert!(text(2).contains("name: fleet-2\n") && text(2).contains("advertise: \"127.0.0.1:1\""), "{}", text(2));
        assert_eq!([0, 2].map(|set| of_set(set).store().ends_with("js")), [true, false]);
        assert!(of_set(2).store().ends_with("js/2"));
    }

    #[test]
    fn any_free_port_is_asked_for_as_the_server_has_it() {
        assert_eq!(place(&"127.0.0.1:0".parse().expect("an address")), "127.0.0.1:-1");
        assert_eq!(place(&"[::1]:0".parse().expect("an address")), "[::1]:-1");
        assert_eq!(place(&"127.0.0.1:8000".parse().expect("an address")), "127.0.0.1:8000");
    }
}
