//! Keeps web pages away from the API: a browser on this machine reaches 127.0.0.1, and so would any page it shows.
//!
//! Three signs give a page away: a `Host` that is not ours (a name someone pointed at 127.0.0.1: DNS rebinding), an
//! `Origin` that is not ours, and `Sec-Fetch-Site` saying the request comes from another site. Every request needs a
//! token anyway; this is the second lock.

use http::HeaderMap;
use http::header::{HOST, ORIGIN};
use problem::{Code, Problem};
use std::net::{IpAddr, SocketAddr};

/// What a request may call the API's address.
pub struct Guard {
    address: SocketAddr,
    /// Names beyond the address itself, from the configuration.
    names: Vec<String>,
}

impl Guard {
    pub fn new(address: SocketAddr, names: Vec<String>) -> Self {
        Self { address, names }
    }

    /// `is_page`: it asks for a file of the dashboard, which shows nothing by itself. A link to that may stand on any
    /// page or in a mail.
    ///
    /// # Errors
    /// [`Code::HostRefused`], with what gave the request away.
    pub fn check(&self, headers: &HeaderMap, authority: Option<&str>, is_page: bool) -> Result<(), Problem> {
        let refused = |what: String| Err(Problem::new(Code::HostRefused, what));
        let host = authority.or_else(|| headers.get(HOST).and_then(|host| host.to_str().ok())).unwrap_or_default();
        if !self.is_ours(host) {
            let hint = "address the node by its IP address or localhost, or name it with --api-name";
            return refused(format!("the request is addressed to {host:?}, this is {}", self.address))
                .map_err(|problem| problem.with_hint(hint));
        }
        if let Some(origin) = headers.get(ORIGIN) {
            let origin = origin.to_str().unwrap_or("?");
            let authority = origin.split_once("://").map_or(origin, |(_, authority)| authority);
            if authority != host {
                return refused(format!("the request comes from a page of {origin:?}"));
            }
        }
        let says = |name| headers.get(name).and_then(|value| value.to_str().ok());
        // Not in a frame or as a script: as what the window shows next.
        let is_followed_link = says("sec-fetch-mode") == Some("navigate") && says("sec-fetch-dest") == Some("document");
        match says("sec-fetch-site") {
            None | Some("same-origin" | "none") => Ok(()),
            Some(_) if is_page && is_followed_link => Ok(()),
            Some(site) => refused(format!("the request comes from a web page ({site})")),
        }
    }

    fn is_ours(&self, host: &str) -> bool {
        let (name, port) = split(host);
        if port.is_some_and(|port| port != self.address.port()) {
            return false;
        }
        if self.names.iter().any(|ours| ours.eq_ignore_ascii_case(name)) {
            return true;
        }
        let named = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        match (named, self.address.ip()) {
            // An address is never rebound: the browser has no name to point elsewhere.
            (Ok(named), ours) => named == ours || ours.is_unspecified() || (named.is_loopback() && ours.is_loopback()),
            (Err(_), ours) => name.eq_ignore_ascii_case("localhost") && (ours.is_loopback() || ours.is_unspecified()),
        }
    }
}

/// `name:port`, where the name may be `[::1]`.
fn split(host: &str) -> (&str, Option<u16>) {
    match host.rsplit_once(':') {
        Some((name, port)) if !name.contains(':') || name.ends_with(']') => match port.parse() {
            Ok(port) => (name, Some(port)),
            Err(_) => (host, None),
        },
        _ => (host, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(address: &str, headers: &[(&'static str, &str)]) -> bool {
        passes(address, headers, false)
    }

    fn passes(address: &str, headers: &[(&'static str, &str)], is_page: bool) -> bool {
        let guard = Guard::new(address.parse().unwrap(), vec!["node.example.org".to_owned()]);
        let headers = headers.iter().map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap()));
        guard.check(&headers.collect(), None, is_page).is_ok()
    }

    #[test]
    fn our_own_names_pass() {
        for host in
            ["127.0.0.1:8701", "localhost:8701", "LOCALHOST:8701", "[::1]:8701", "127.0.0.1", "node.example.org:8701"]
        {
            assert!(allowed("127.0.0.1:8701", &[("host", host)]), "{host}");
        }
        assert!(allowed("0.0.0.0:8701", &[("host", "192.0.2.7:8701")]));
        assert!(allowed("127.0.0.1:8701", &[("host", "127.0.0.1:8701"), ("origin", "http://127.0.0.1:8701")]));
        assert!(allowed("127.0.0.1:8701", &[("host", "localhost:8701"), ("sec-fetch-site", "none")]));
    }

    #[test]
    fn a_name_pointed_at_us_does_not() {
        for host in
            ["", "evil.example", "evil.example:8701", "127.0.0.1.evil.example:8701", "127.0.0.1:80", "10.0.0.1:8701"]
        {
            assert!(!allowed("127.0.0.1:8701", &[("host", host)]), "{host:?}");
        }
        assert!(!allowed("192.0.2.7:8701", &[("host", "localhost:8701")]));
    }

    #[test]
    fn a_web_page_does_not() {
        let host = ("host", "127.0.0.1:8701");
        for sign in [
            ("origin", "http://evil.example"),
            ("origin", "null"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            assert!(!allowed("127.0.0.1:8701", &[host, sign]), "{sign:?}");
        }
    }

    #[test]
    fn a_link_may_lead_to_the_dashboard_and_nowhere_else() {
        let link = |site, mode, dest| {
            let signs = [("sec-fetch-site", site), ("sec-fetch-mode", mode), ("sec-fetch-dest", dest)];
            [&[("host", "127.0.0.1:8701")], &signs[..]].concat()
        };
        let followed = link("cross-site", "navigate", "document");
        assert!(passes("127.0.0.1:8701", &followed, true));
        assert!(!passes("127.0.0.1:8701", &followed, false));
        for (mode, dest) in [("no-cors", "script"), ("navigate", "iframe"), ("cors", "empty")] {
            assert!(!passes("127.0.0.1:8701", &link("cross-site", mode, dest), true), "{mode} {dest}");
        }
        let foreign = [followed, vec![("origin", "http://evil.example")]].concat();
        assert!(!passes("127.0.0.1:8701", &foreign, true));
    }
}
