//! What a running nats-server says of itself, and whether it is what it was told to be.

use super::config::EngineConfig;
use super::program::EngineVersion;
use serde_json::Value;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes of an answer; it has about 5,000.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// Asks the server's monitoring.
pub fn ask(monitor: SocketAddr) -> io::Result<Value> {
    let mut stream = TcpStream::connect_timeout(&monitor, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    // The oldest HTTP ends its answer with the connection.
    stream.write_all(b"GET /varz HTTP/1.0\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    let body = answer.windows(4).position(|four| four == b"\r\n\r\n").map_or(&[][..], |at| &answer[at + 4..]);
    serde_json::from_slice(body).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Whether the server says already how it keeps things: it answers before it has begun to.
pub fn is_whole(report: &Value) -> bool {
    report["jetstream"]["config"]["store_dir"].is_string()
}

/// What is not as it was configured; none if all is. The defaults of nats-server lose what it has confirmed, so it has
/// to say itself that it does not run with them.
pub fn fault(report: &Value, config: &EngineConfig) -> Option<String> {
    let kept = &report["jetstream"]["config"];
    let has_version = report["version"].as_str().and_then(EngineVersion::read).is_some_and(EngineVersion::is_enough);
    let store = config.store();
    let is_there = kept["store_dir"].as_str().is_some_and(|folder| std::path::Path::new(folder).starts_with(&store));
    let held = [
        (report["server_name"] == config.node.as_str(), "another server answers in its place"),
        (has_version, "its version is too old"),
        (kept["sync_always"] == true, "it confirms before its disk has what it confirms"),
        (is_there, "it keeps its data elsewhere"),
        (kept["max_storage"] == config.file_bytes_max, "it may fill the disk further than it was told"),
        (report["max_payload"].as_u64().is_some_and(|most| most >= 1 << 20), "it does not take large messages"),
    ];
    held.into_iter().find(|(holds, _)| !holds).map(|(_, what)| what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use facts::NodeName;
    use serde_json::json;

    #[test]
    fn what_a_server_does_not_do_is_found() {
        let config = EngineConfig {
            node: NodeName::new("a").expect("it is a name"),
            folder: "/data".into(),
            listen: "127.0.0.1:1".parse().expect("an address"),
            monitor: "127.0.0.1:2".parse().expect("an address"),
            routes: None,
            tls: None,
            file_bytes_max: 7,
            set: 0,
        };
        let kept = json!({ "sync_always": true, "store_dir": "/data/js/jetstream", "max_storage": 7 });
        let sound = json!({
            "server_name": "a", "version": "2.15.2", "max_payload": 1 << 20, "jetstream": { "config": kept },
        });
        assert!(fault(&sound, &config).is_none() && is_whole(&sound));
        assert!(!is_whole(&json!({ "server_name": "a", "version": "2.15.2", "jetstream": { "config": {} } })));
        let changed = |path: &str, value: Value| {
            let mut report = sound.clone();
            *report.pointer_mut(path).expect("it is there") = value;
            fault(&report, &config)
        };
        for (path, value) in [
            ("/server_name", json!("b")),
            ("/version", json!("2.9.10")),
            ("/max_payload", json!(1_000)),
            ("/jetstream/config/sync_always", json!(false)),
            ("/jetstream/config/store_dir", json!("/tmp")),
            ("/jetstream/config/max_storage", json!(8)),
            ("/jetstream", json!({})),
        ] {
            assert!(changed(path, value).is_some(), "{path}");
        }
    }
}
