//! `[mqtt]` of `node.toml`, and the checked result.
//!
//! `mqtt = "127.0.0.1:1883"` and `--mqtt 127.0.0.1:1883` are short for a table with `listen` alone.

use crate::config::{in_range, invalid};
use gate_mqtt::{
    BridgeConfig, Limits, PACKET_BYTES_CEILING, Qos, SESSIONS_CEILING, Secure, User, Users, Version, WhenFull,
};
use problem::{Code, Problem};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// What one of several users may have of the broker. Beyond it its sessions, messages and subscriptions are refused.
const SHARE_PERCENT: u8 = 25;

/// As it is written.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MqttArgs(Table);

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Table {
    listen: Option<SocketAddr>,
    tls_listen: Option<SocketAddr>,
    users: BTreeMap<String, UserTable>,
    anonymous: Option<Permissions>,
    session_full: Full,
    limits: LimitsTable,
    bridge: Option<BridgeTable>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct UserTable {
    password: String,
    #[serde(default)]
    publish: Vec<String>,
    #[serde(default)]
    subscribe: Vec<String>,
    #[serde(default)]
    deny_publish: Vec<String>,
    #[serde(default)]
    deny_subscribe: Vec<String>,
    #[serde(default)]
    client_ids: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Permissions {
    publish: Vec<String>,
    subscribe: Vec<String>,
    deny_publish: Vec<String>,
    deny_subscribe: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Full {
    #[default]
    Drop,
    Refuse,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct LimitsTable {
    connections_max: Option<usize>,
    connections_per_address_max: Option<usize>,
    packet_bytes_max: Option<usize>,
    topic_levels_max: Option<usize>,
    subscriptions_max: Option<usize>,
    sessions_max: Option<usize>,
    session_bytes_max: Option<u64>,
    user_share_percent: Option<u8>,
    inflight_max: Option<u16>,
    receive_maximum: Option<u16>,
    topic_alias_maximum: Option<u16>,
    queued_messages_max: Option<usize>,
    queued_bytes_max: Option<u64>,
    queued_bytes_total_max: Option<u64>,
    retained_max: Option<usize>,
    retained_bytes_max: Option<u64>,
    send_bytes_max: Option<u64>,
    connect_seconds: Option<u64>,
    keep_alive_seconds_max: Option<u64>,
    session_expiry_seconds_max: Option<u64>,
    stall_seconds: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct BridgeTable {
    url: String,
    client_id: String,
    user: Option<String>,
    password_file: Option<PathBuf>,
    ca: Option<PathBuf>,
    #[serde(default)]
    version: BridgeVersion,
    #[serde(default = "one")]
    qos_max: u8,
}

const fn one() -> u8 {
    1
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
enum BridgeVersion {
    #[serde(rename = "3.1.1")]
    V311,
    #[default]
    #[serde(rename = "5")]
    V5,
}

/// A configuration that can be used.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Plain text.
    pub listen: Option<SocketAddr>,
    pub tls_listen: Option<SocketAddr>,
    pub limits: Limits,
    users: BTreeMap<String, User>,
    anonymous: Option<User>,
    pub bridge: Option<BridgeConfig>,
}

impl Config {
    /// # Errors
    /// [`Code::ConfigInvalid`] names the key; [`Code::InsecureListen`].
    pub fn new(args: MqttArgs, has_certificate: bool, insecure: bool) -> Result<Option<Self>, Problem> {
        let Table { listen, tls_listen, users, anonymous, session_full, limits, bridge } = args.0;
        if listen.is_none() && tls_listen.is_none() && bridge.is_none() {
            return Ok(None);
        }
        let users = users.into_iter().map(|(name, user)| (name, user.into())).collect();
        let anonymous = anonymous.map(User::from);
        let user_share_percent = limits.user_share_percent;
        let mut config = Self {
            listen,
            tls_listen,
            limits: limits.check(session_full)?,
            users,
            anonymous,
            bridge: bridge.map(BridgeTable::check).transpose()?,
        };
        config.check_listening(has_certificate, insecure)?;
        // A user that shares the broker with nobody has all of it.
        let is_alone = config.users()?.count() <= 1;
        let normal = if is_alone { 100 } else { SHARE_PERCENT };
        config.limits.user_share_percent =
            in_range("mqtt.limits.user_share_percent", user_share_percent, normal, 1..=100)?;
        Ok(Some(config))
    }

    /// Who may connect: on this machine, unless said otherwise, everybody.
    ///
    /// # Errors
    /// [`Code::ConfigInvalid`] names the user.
    pub fn users(&self) -> Result<Users, Problem> {
        if self.users.is_empty() && self.anonymous.is_none() {
            return Ok(Users::open());
        }
        Users::new(self.users.clone(), self.anonymous.clone())
    }

    fn check_listening(&self, has_certificate: bool, insecure: bool) -> Result<(), Problem> {
        if self.tls_listen.is_some() && !has_certificate {
            return Err(invalid("mqtt.tls_listen needs tls_cert and tls_key"));
        }
        if let Some(address) = self.listen.filter(|address| !address.ip().is_loopback() && !insecure) {
            let detail =
                format!("mqtt.listen is {address}, which other machines can reach, and MQTT there is plain text");
            let hint = "use mqtt.tls_listen, keep to 127.0.0.1, or allow it with --insecure-listen";
            return Err(Problem::new(Code::InsecureListen, detail).with_hint(hint));
        }
        let is_open = self.users.is_empty() && self.anonymous.is_none();
        let beyond = [self.listen, self.tls_listen].into_iter().flatten().find(|address| !address.ip().is_loopback());
        if let Some(address) = beyond.filter(|_| is_open) {
            let detail =
                format!("mqtt listens on {address}, which other machines can reach, and there are no mqtt.users");
            let hint = "add [mqtt.users.NAME], or say in [mqtt.anonymous] what anybody may do";
            return Err(Problem::new(Code::InsecureListen, detail).with_hint(hint));
        }
        Ok(())
    }
}

impl From<UserTable> for User {
    fn from(table: UserTable) -> Self {
        let UserTable { password, publish, subscribe, deny_publish, deny_subscribe, client_ids } = table;
        Self { password, publish, subscribe, deny_publish, deny_subscribe, client_ids }
    }
}

impl From<Permissions> for User {
    fn from(permissions: Permissions) -> Self {
        let Permissions { publish, subscribe, deny_publish, deny_subscribe } = permissions;
        Self { publish, subscribe, deny_publish, deny_subscribe, ..Self::default() }
    }
}

impl LimitsTable {
    fn check(self, full: Full) -> Result<Limits, Problem> {
        let mut limits = Limits::default();
        self.check_counts(&mut limits)?;
        self.check_bytes(&mut limits)?;
        self.check_times(&mut limits)?;
        limits.when_session_full = match full {
            Full::Drop => WhenFull::Drop,
            Full::Refuse => WhenFull::Refuse,
        };
        Ok(limits)
    }

    fn check_counts(&self, limits: &mut Limits) -> Result<(), Problem> {
        count("connections_max", self.connections_max, &mut limits.connections_max, 1..=1_000_000)?;
        let per_address = &mut limits.connections_per_address_max;
        count("connections_per_address_max", self.connections_per_address_max, per_address, 1..=1_000_000)?;
        count("topic_levels_max", self.topic_levels_max, &mut limits.topic_levels_max, 1..=128)?;
        count("subscriptions_max", self.subscriptions_max, &mut limits.subscriptions_max, 1..=5_000)?;
        count("sessions_max", self.sessions_max, &mut limits.sessions_max, 0..=SESSIONS_CEILING)?;
        count("inflight_max", self.inflight_max, &mut limits.inflight_max, 1..=u16::MAX)?;
        count("receive_maximum", self.receive_maximum, &mut limits.receive_maximum, 1..=u16::MAX)?;
        count("topic_alias_maximum", self.topic_alias_maximum, &mut limits.topic_alias_maximum, 0..=1_000)?;
        count("queued_messages_max", self.queued_messages_max, &mut limits.queued_messages_max, 1..=10_000_000)?;
        count("retained_max", self.retained_max, &mut limits.retained_max, 0..=10_000_000)
    }

    fn check_bytes(&self, limits: &mut Limits) -> Result<(), Problem> {
        count("packet_bytes_max", self.packet_bytes_max, &mut limits.packet_bytes_max, 128..=PACKET_BYTES_CEILING)?;
        bytes("session_bytes_max", self.session_bytes_max, &mut limits.session_bytes_max, 65_536)?;
        bytes("queued_bytes_max", self.queued_bytes_max, &mut limits.queued_bytes_max, 4_096)?;
        bytes("queued_bytes_total_max", self.queued_bytes_total_max, &mut limits.queued_bytes_total_max, 4_096)?;
        bytes("retained_bytes_max", self.retained_bytes_max, &mut limits.retained_bytes_max, 0)?;
        bytes("send_bytes_max", self.send_bytes_max, &mut limits.send_bytes_max, 4_096)
    }

    fn check_times(&self, limits: &mut Limits) -> Result<(), Problem> {
        time("connect_seconds", self.connect_seconds, &mut limits.connect_timeout, 600)?;
        time("keep_alive_seconds_max", self.keep_alive_seconds_max, &mut limits.keep_alive_max, 65_535)?;
        let expiry = &mut limits.session_expiry_max;
        time("session_expiry_seconds_max", self.session_expiry_seconds_max, expiry, 4_000_000_000)?;
        time("stall_seconds", self.stall_seconds, &mut limits.stall_timeout, 3_600)
    }
}

/// Puts what the table says, if it says something that may be, in place of the default.
fn count<T>(key: &str, given: Option<T>, limit: &mut T, range: RangeInclusive<T>) -> Result<(), Problem>
where
    T: PartialOrd + Display + Copy,
{
    *limit = in_range(&format!("mqtt.limits.{key}"), given, *limit, range)?;
    Ok(())
}

fn bytes(key: &str, given: Option<u64>, limit: &mut usize, least: u64) -> Result<(), Problem> {
    let given = in_range(&format!("mqtt.limits.{key}"), given, *limit as u64, least..=65_536 * MIB)?;
    *limit = given as usize;
    Ok(())
}

fn time(key: &str, seconds: Option<u64>, limit: &mut Duration, most: u64) -> Result<(), Problem> {
    *limit = Duration::from_secs(in_range(&format!("mqtt.limits.{key}"), seconds, limit.as_secs(), 1..=most)?);
    Ok(())
}

impl BridgeTable {
    fn check(self) -> Result<BridgeConfig, Problem> {
        let bad = |why: &str| invalid(format!("mqtt.bridge.url is {:?}, {why}", self.url));
        let (is_tls, rest) = match self.url.split_once("://") {
            Some(("mqtt", rest)) => (false, rest),
            Some(("mqtts", rest)) => (true, rest),
            _ => return Err(bad("write it like mqtt://broker:1883 or mqtts://broker:8883")),
        };
        let authority: http::uri::Authority =
            rest.trim_end_matches('/').parse().map_err(|_| bad("what follows :// is no host and port"))?;
        if self.url.contains('@') {
            return Err(bad("name and password have keys of their own, user and password_file"));
        }
        let port = authority.port_u16().unwrap_or(if is_tls { 8_883 } else { 1_883 });
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let read = |key: &str, path: &PathBuf| {
            let failed = |error| invalid(format!("mqtt.bridge.{key} {}: {error}", path.display()));
            std::fs::read_to_string(path).map_err(failed)
        };
        let password = self.password_file.as_ref().map(|path| read("password_file", path)).transpose()?;
        let secure = match (is_tls, &self.ca) {
            (false, None) => None,
            (false, Some(_)) => return Err(bad("and mqtt.bridge.ca is given: write mqtts:// for TLS")),
            (true, None) => Some(Secure::PublicRoots),
            (true, Some(path)) => Some(Secure::Roots(read("ca", path)?)),
        };
        let qos_max = Qos::new(self.qos_max).ok_or_else(|| invalid("mqtt.bridge.qos_max must be 0, 1 or 2"))?;
        if self.client_id.is_empty() {
            return Err(invalid("mqtt.bridge.client_id is empty; the outside broker keeps messages under this name"));
        }
        Ok(BridgeConfig {
            host,
            port,
            secure,
            version: match self.version {
                BridgeVersion::V311 => Version::V311,
                BridgeVersion::V5 => Version::V5,
            },
            client_id: self.client_id,
            user: self.user,
            password: password.map(|text| text.trim_end_matches(['\r', '\n']).to_owned()),
            qos_max,
        })
    }
}

impl MqttArgs {
    /// What the command line says goes before the file; the rest of the file stays.
    pub fn or(self, file: Self) -> Self {
        Self(Table { listen: self.0.listen.or(file.0.listen), ..file.0 })
    }
}

impl std::str::FromStr for MqttArgs {
    type Err = std::net::AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(Table { listen: Some(text.parse()?), ..Table::default() }))
    }
}

impl<'de> Deserialize<'de> for MqttArgs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrTable;
        impl<'de> Visitor<'de> for TextOrTable {
            type Value = MqttArgs;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an address, or a table")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<MqttArgs, E> {
                text.parse().map_err(|_| E::custom(format!("mqtt is {text:?}, write an address like 127.0.0.1:1883")))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<MqttArgs, A::Error> {
                Table::deserialize(MapAccessDeserializer::new(map)).map(MqttArgs).map_err(A::Error::custom)
            }
        }
        deserializer.deserialize_any(TextOrTable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct File {
        mqtt: MqttArgs,
    }

    fn read(text: &str) -> Result<Option<Config>, Problem> {
        let file: File = toml::from_str(text).map_err(|error| invalid(error.to_string()))?;
        Config::new(file.mqtt, true, false)
    }

    #[test]
    fn an_address_is_enough() {
        let config = read("mqtt = \"127.0.0.1:1883\"").unwrap().unwrap();
        assert_eq!((config.listen.unwrap().port(), config.limits), (1883, Limits::default()));
        assert_eq!(read("[mqtt]").unwrap(), None);
        let line: MqttArgs = "127.0.0.1:1".parse().unwrap();
        let file: File = toml::from_str("[mqtt]\nlisten = \"127.0.0.1:2\"\nlimits.inflight_max = 3").unwrap();
        let config = Config::new(line.or(file.mqtt), false, false).unwrap().unwrap();
        assert_eq!((config.listen.unwrap().port(), config.limits.inflight_max), (1, 3));
    }

    #[test]
    fn beyond_this_machine_needs_tls_and_users() {
        let hash = gate_mqtt::hash_password(b"secret").unwrap();
        let user = format!("[mqtt.users.meter]\npassword = {hash:?}\npublish = [\"meter/{{client}}/#\"]");
        for (text, code) in [
            ("mqtt.listen = \"0.0.0.0:1883\"".to_owned(), Code::InsecureListen),
            (format!("mqtt.listen = \"0.0.0.0:1883\"\n{user}"), Code::InsecureListen),
            ("mqtt.tls_listen = \"0.0.0.0:8883\"".to_owned(), Code::InsecureListen),
        ] {
            assert_eq!(read(&text).unwrap_err().code, code, "{text}");
        }
        assert!(read(&format!("mqtt.tls_listen = \"0.0.0.0:8883\"\n{user}")).is_ok());
        assert!(read("mqtt.tls_listen = \"0.0.0.0:8883\"\n[mqtt.anonymous]\npublish = [\"#\"]").is_ok());
        let file: File = toml::from_str("mqtt.tls_listen = \"127.0.0.1:8883\"").unwrap();
        assert_eq!(Config::new(file.mqtt, false, false).unwrap_err().code, Code::ConfigInvalid);
    }

    #[test]
    fn a_bridge_says_where_and_as_whom() {
        let config = read("[mqtt.bridge]\nurl = \"mqtts://broker.example\"\nclient_id = \"node-7\"").unwrap().unwrap();
        let bridge = config.bridge.unwrap();
        assert_eq!((bridge.host.as_str(), bridge.port, bridge.version), ("broker.example", 8_883, Version::V5));
        for bad in ["broker:1883", "http://broker", "mqtt://user:pw@broker", "mqtt://"] {
            assert!(read(&format!("[mqtt.bridge]\nurl = {bad:?}\nclient_id = \"c\"")).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_cannot_be_used_is_refused_by_name() {
        for (text, named) in [
            ("mqtt = \"here\"", "here"),
            ("mqtt.lisen = \"127.0.0.1:1\"", "lisen"),
            ("mqtt.listen = \"127.0.0.1:1\"\nmqtt.limits.inflight_max = 0", "mqtt.limits.inflight_max"),
            ("mqtt.listen = \"127.0.0.1:1\"\nmqtt.users.u.password = \"secret\"", "\"u\""),
        ] {
            let problem = read(text).unwrap_err();
            assert!(problem.code == Code::ConfigInvalid && problem.detail.contains(named), "{problem:?}");
        }
    }
}
