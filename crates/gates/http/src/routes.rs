//! Which route a request belongs to. Built once from all deployed functions, then only read.
//!
//! ```text
//!  host ──▶ that host ──▶ *.its parent … ──▶ any host        the first level with a match decides
//!  path ──▶ exact ──▶ longest prefix, part by part           then the method
//! ```
//! A lookup hashes the path once, and once for each of its parts that could end a prefix: how many routes there are
//! does not matter. The node swaps whole tables (`RwLock<Arc<RouteTable<_>>>`) when something is deployed.

use crate::host::{HOST_BYTES_MAX, request_host};
use crate::path::canonical;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use manifest::{HttpTrigger, RouteAuth};
use problem::{Code, Problem};
use std::collections::HashMap;

/// What the gate says about methods where a route takes all.
const ALL_METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// The routes of all functions.
#[derive(Debug)]
pub struct RouteTable<T> {
    routes: Vec<Route<T>>,
    any_host: Paths,
    hosts: HashMap<Box<str>, Paths>,
    /// `*.example.org` by `example.org`.
    hosts_below: HashMap<Box<str>, Paths>,
}

/// One route of one function.
#[derive(Debug)]
pub struct Route<T> {
    pub target: T,
    pub auth: Option<RouteAuth>,
    pub reply_type: Option<HeaderValue>,
    /// The route as the manifest has it.
    pub pattern: Box<str>,
    methods: Vec<Method>,
    owner: Box<str>,
}

/// Why a request has no route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The path can be read in two ways.
    Malformed(&'static str),
    NotFound,
    MethodNotAllowed {
        allow: HeaderValue,
    },
    /// Not refused at all: the gate answers OPTIONS for the function.
    Options {
        allow: HeaderValue,
    },
}

#[derive(Debug, Default)]
struct Paths {
    exact: HashMap<Box<str>, Endpoint>,
    /// `/files/*` by `/files`.
    prefix: HashMap<Box<str>, Endpoint>,
    /// Bytes of the longest prefix.
    prefix_bytes_max: usize,
}

/// The routes that share host and path, each with its own methods.
#[derive(Debug)]
struct Endpoint {
    routes: Vec<usize>,
    allow: HeaderValue,
}

impl<T> Default for RouteTable<T> {
    fn default() -> Self {
        Self { routes: Vec::new(), any_host: Paths::default(), hosts: HashMap::new(), hosts_below: HashMap::new() }
    }
}

impl<T> RouteTable<T> {
    /// Builds a table from the name of each function, its triggers, and what a match should give.
    ///
    /// # Errors
    /// L2010: two routes take the same host, path and method. L1004: a reply type is not a header value.
    pub fn build<'a>(triggers: impl IntoIterator<Item = (&'a str, &'a HttpTrigger, T)>) -> Result<Self, Problem> {
        let mut table = Self::default();
        for (owner, trigger, target) in triggers {
            let index = table.routes.len();
            table.routes.push(Route::new(owner, trigger, target)?);
            let Self { routes, any_host, hosts, hosts_below } = &mut table;
            let paths = match &trigger.host {
                None => any_host,
                Some(host) => match host.strip_prefix("*.") {
                    Some(parent) => hosts_below.entry(parent.into()).or_default(),
                    None => hosts.entry(host.as_str().into()).or_default(),
                },
            };
            paths.add(&trigger.route, index, routes)?;
        }
        Ok(table)
    }

    /// The route of a request that the gate has let through.
    ///
    /// # Errors
    /// There is none, or not for this method; [`Refusal::reply`] says so to the client.
    pub fn route<B>(&self, request: &Request<B>) -> Result<&Route<T>, Refusal> {
        let host = if self.has_hosts() { request_host(request) } else { None };
        self.find(host, request.uri().path(), request.method())
    }

    /// The route for a host without port, a path as it was sent, and a method.
    ///
    /// # Errors
    /// There is none, or not for this method.
    pub fn find(&self, host: Option<&str>, path: &str, method: &Method) -> Result<&Route<T>, Refusal> {
        let path = canonical(path).map_err(Refusal::Malformed)?;
        let endpoint = host.filter(|_| self.has_hosts()).and_then(|host| self.find_host(host, &path));
        let endpoint = endpoint.or_else(|| self.any_host.find(&path)).ok_or(Refusal::NotFound)?;
        self.choose(endpoint, method)
    }

    pub fn routes(&self) -> &[Route<T>] {
        &self.routes
    }

    fn has_hosts(&self) -> bool {
        !(self.hosts.is_empty() && self.hosts_below.is_empty())
    }

    fn find_host(&self, host: &str, path: &str) -> Option<&Endpoint> {
        let host = host.strip_suffix('.').unwrap_or(host);
        let mut buffer = [0; HOST_BYTES_MAX];
        let lower = buffer.get_mut(..host.len())?;
        lower.copy_from_slice(host.as_bytes());
        lower.make_ascii_lowercase();
        let host = std::str::from_utf8(lower).ok()?;
        if let Some(endpoint) = self.hosts.get(host).and_then(|paths| paths.find(path)) {
            return Some(endpoint);
        }
        let mut rest = host;
        while let Some((_, parent)) = rest.split_once('.') {
            if let Some(endpoint) = self.hosts_below.get(parent).and_then(|paths| paths.find(path)) {
                return Some(endpoint);
            }
            rest = parent;
        }
        None
    }

    fn choose(&self, endpoint: &Endpoint, method: &Method) -> Result<&Route<T>, Refusal> {
        let taking = |method: &Method| {
            let routes = endpoint.routes.iter().map(|index| &self.routes[*index]);
            routes.into_iter().find(|route| route.methods.is_empty() || route.methods.contains(method))
        };
        if let Some(route) = taking(method) {
            return Ok(route);
        }
        if *method == Method::HEAD
            && let Some(route) = taking(&Method::GET)
        {
            return Ok(route);
        }
        let allow = endpoint.allow.clone();
        Err(if *method == Method::OPTIONS { Refusal::Options { allow } } else { Refusal::MethodNotAllowed { allow } })
    }
}

impl<T> Route<T> {
    fn new(owner: &str, trigger: &HttpTrigger, target: T) -> Result<Self, Problem> {
        let bad = |what: String| Problem::new(Code::ManifestValue, format!("function {owner:?}: {what}"));
        let methods = trigger.methods.iter().map(|method| {
            Method::from_bytes(method.as_bytes()).map_err(|_| bad(format!("{method:?} is not an HTTP method")))
        });
        let reply_type = trigger.reply_type.as_deref().map(|kind| {
            HeaderValue::from_str(kind).map_err(|_| bad(format!("{kind:?} cannot be sent as a content type")))
        });
        Ok(Self {
            target,
            auth: trigger.auth,
            reply_type: reply_type.transpose()?,
            pattern: trigger.route.as_str().into(),
            methods: methods.collect::<Result<_, _>>()?,
            owner: owner.into(),
        })
    }

    fn meets<U>(&self, other: &Route<U>) -> bool {
        manifest::share_method(&self.methods, &other.methods)
    }
}

impl Paths {
    fn add<T>(&mut self, pattern: &str, index: usize, routes: &[Route<T>]) -> Result<(), Problem> {
        let (endpoints, path) = match pattern.strip_suffix("/*") {
            Some(prefix) => {
                self.prefix_bytes_max = self.prefix_bytes_max.max(prefix.len());
                (&mut self.prefix, prefix)
            }
            None => (&mut self.exact, pattern),
        };
        let endpoint = endpoints
            .entry(path.into())
            .or_insert_with(|| Endpoint { routes: Vec::new(), allow: HeaderValue::from_static(ALL_METHODS) });
        let route = &routes[index];
        if let Some(other) = endpoint.routes.iter().map(|index| &routes[*index]).find(|other| other.meets(route)) {
            return Err(Problem::new(
                Code::RouteTaken,
                format!(
                    "function {:?} wants the route {pattern:?}, which belongs to function {:?}",
                    route.owner, other.owner
                ),
            ));
        }
        endpoint.routes.push(index);
        endpoint.allow = allow(endpoint.routes.iter().flat_map(|index| &routes[*index].methods));
        Ok(())
    }

    fn find(&self, path: &str) -> Option<&Endpoint> {
        if let Some(endpoint) = self.exact.get(path) {
            return Some(endpoint);
        }
        if self.prefix.is_empty() {
            return None;
        }
        // Nothing beyond the longest prefix can match, so a long path costs no more than a short one.
        let bytes = path.as_bytes();
        let mut end = path.len();
        if end > self.prefix_bytes_max {
            end = self.prefix_bytes_max;
            if bytes[end] != b'/' {
                end = memchr::memrchr(b'/', &bytes[..end]).unwrap_or(0);
            }
        }
        loop {
            if let Some(endpoint) = self.prefix.get(&path[..end]) {
                return Some(endpoint);
            }
            end = memchr::memrchr(b'/', &bytes[..end])?;
        }
    }
}

fn allow<'a>(methods: impl Iterator<Item = &'a Method>) -> HeaderValue {
    let mut names: Vec<&str> = methods.map(Method::as_str).collect();
    if names.is_empty() {
        return HeaderValue::from_static(ALL_METHODS);
    }
    if names.contains(&"GET") {
        names.push("HEAD");
    }
    names.push("OPTIONS");
    names.sort_unstable();
    names.dedup();
    HeaderValue::try_from(names.join(", ")).expect("methods are tokens")
}

impl Refusal {
    /// What the client gets.
    pub fn reply(&self) -> Response<Bytes> {
        let (mut reply, allow) = match self {
            Self::Malformed(what) => return crate::problem_reply(&Problem::new(Code::RequestMalformed, *what)),
            Self::NotFound => {
                return crate::problem_reply(&Problem::new(
                    Code::RouteUnknown,
                    "no function has a route for this path",
                ));
            }
            Self::MethodNotAllowed { allow } => {
                let detail = format!("this route takes {}", allow.to_str().unwrap_or_default());
                (crate::problem_reply(&Problem::new(Code::MethodNotAllowed, detail)), allow)
            }
            Self::Options { allow } => {
                let mut reply = Response::new(Bytes::new());
                *reply.status_mut() = StatusCode::NO_CONTENT;
                (reply, allow)
            }
        };
        reply.headers_mut().insert(header::ALLOW, allow.clone());
        reply
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    /// Builds from lines of `[METHOD,…] [host]/route`; a target is its line number.
    fn table(lines: &[&str]) -> Result<RouteTable<usize>, Problem> {
        let triggers: Vec<HttpTrigger> = lines
            .iter()
            .map(|line| {
                let (methods, rest) = line.split_once(' ').map_or(("", *line), |(methods, rest)| (methods, rest));
                let (host, route) = rest.split_at(rest.find('/').unwrap());
                let mut trigger = HttpTrigger::new(route);
                trigger.host = (!host.is_empty()).then(|| host.to_owned());
                trigger.methods = methods.split(',').filter(|m| !m.is_empty()).map(str::to_owned).collect();
                trigger
            })
            .collect();
        RouteTable::build(triggers.iter().enumerate().map(|(index, trigger)| ("f", trigger, index)))
    }

    /// `METHOD [host]/path` to the line it must lead to.
    #[track_caller]
    fn check(lines: &[&str], expected: &[(&str, Option<usize>)]) {
        let table = table(lines).unwrap();
        for (request, target) in expected {
            let (method, rest) = request.split_once(' ').unwrap();
            let (host, path) = rest.split_at(rest.find('/').unwrap());
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            let found = table.find(Some(host).filter(|host| !host.is_empty()), path, &method);
            assert_eq!(found.map(|route| route.target).ok(), *target, "{request}");
        }
    }

    #[test]
    fn exact_goes_before_prefix_and_long_before_short() {
        check(
            &["/a", "/a/*", "/a/b/*", "/*", "/a/b/c"],
            &[
                ("GET /a", Some(0)),
                ("GET /a/", Some(1)),
                ("GET /a/x", Some(1)),
                ("GET /a/b", Some(2)),
                ("GET /a/b/", Some(2)),
                ("GET /a/b/c", Some(4)),
                ("GET /a/b/c/d", Some(2)),
                ("GET /a/bc", Some(1)),
                ("GET /ab", Some(3)),
                ("GET /", Some(3)),
                ("GET /some/very/long/path/that/no/prefix/reaches", Some(3)),
            ],
        );
        check(
            &["/", "/x/*"],
            &[("GET /", Some(0)), ("GET /y", None), ("GET /x", Some(1)), ("GET /xy", None), ("GET /y/x", None)],
        );
    }

    #[test]
    fn a_host_goes_before_none() {
        check(
            &["/*", "a.org/x", "*.a.org/*", "b.a.org/y", "*.b.a.org/*"],
            &[
                ("GET a.org/x", Some(1)),
                ("GET A.ORG./x", Some(1)),
                ("GET a.org/y", Some(0)),
                ("GET b.a.org/y", Some(3)),
                ("GET b.a.org/x", Some(2)),
                ("GET c.b.a.org/x", Some(4)),
                ("GET d.c.b.a.org/x", Some(4)),
                ("GET xa.org/x", Some(0)),
                ("GET org/x", Some(0)),
                ("GET /x", Some(0)),
            ],
        );
    }

    #[test]
    fn methods_choose_among_routes_of_one_path() {
        let lines = ["GET /a", "POST,PUT /a", "GET,HEAD /b", "OPTIONS /c", "/d"];
        check(
            &lines,
            &[
                ("GET /a", Some(0)),
                ("HEAD /a", Some(0)),
                ("PUT /a", Some(1)),
                ("DELETE /a", None),
                ("OPTIONS /a", None),
                ("OPTIONS /c", Some(3)),
                ("OPTIONS /d", Some(4)),
                ("HEAD /d", Some(4)),
                ("BREW /d", Some(4)),
            ],
        );
        let table = table(&lines).unwrap();
        let allow = HeaderValue::from_static("GET, HEAD, OPTIONS, POST, PUT");
        assert_eq!(table.find(None, "/a", &Method::OPTIONS).unwrap_err(), Refusal::Options { allow: allow.clone() });
        assert_eq!(table.find(None, "/a", &Method::DELETE).unwrap_err(), Refusal::MethodNotAllowed { allow });
    }

    #[test]
    fn a_longer_route_without_the_method_does_not_fall_back_to_a_shorter_one() {
        check(&["/*", "POST /a/*"], &[("GET /a/b", None), ("GET /b", Some(0))]);
    }

    #[test]
    fn a_route_is_taken_once() {
        for lines in [
            &["/a", "/a"][..],
            &["/a/*", "GET /a/*"],
            &["GET,PUT /a", "PUT /a"],
            &["x.org/a", "x.org/a"],
            &["*.x.org/a", "*.x.org/a"],
        ] {
            assert_eq!(table(lines).unwrap_err().code, Code::RouteTaken, "{lines:?}");
        }
        for lines in [&["/a", "/a/*"][..], &["GET /a", "PUT /a"], &["x.org/a", "/a", "*.x.org/a"]] {
            table(lines).unwrap();
        }
    }

    #[test]
    fn no_spelling_of_a_path_gets_around_its_route() {
        let table = table(&["/*", "/admin/*", "/a:b"]).unwrap();
        for path in [
            "/admin",
            "/%61dmin",
            "/%61%64%6d%69%6E",
            "/admin/x",
            "/%61dmin/x",
            "/admin/%2541",
            "/admin/a%20b",
            "/admin/%ff",
        ] {
            assert_eq!(table.find(None, path, &Method::GET).unwrap().target, 1, "{path}");
        }
        assert_eq!(table.find(None, "/a%3Ab", &Method::GET).unwrap().target, 2);
        for path in [
            "//admin",
            "/./admin",
            "/x/../admin",
            "/%2fadmin",
            "/x/%2e%2e/admin",
            "/admin%2fx",
            "/\\admin",
            "/%5cadmin",
        ] {
            assert!(matches!(table.find(None, path, &Method::GET), Err(Refusal::Malformed(_))), "{path}");
        }
        // Case counts, and so does a slash at the end.
        assert_eq!(table.find(None, "/Admin", &Method::GET).unwrap().target, 0);
    }

    #[test]
    fn a_lookup_agrees_with_trying_every_route() {
        let parts = ["a", "b", "c"];
        let mut state = 3_u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..300 {
            let mut lines: Vec<String> = (0..next(9))
                .map(|_| {
                    let path: String = (0..next(4)).map(|_| format!("/{}", parts[next(3) as usize])).collect();
                    if next(2) == 0 { format!("{path}/*") } else { path + if next(4) == 0 { "/" } else { "/x" } }
                })
                .collect();
            lines.sort();
            lines.dedup();
            let table = table(&lines.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
            for _ in 0..50 {
                let mut path: String = (0..next(5)).map(|_| format!("/{}", parts[next(3) as usize])).collect();
                path += ["", "/", "/x"][next(3) as usize];
                if path.is_empty() {
                    path.push('/');
                }
                let expected = lines
                    .iter()
                    .enumerate()
                    .filter_map(|(index, line)| match line.strip_suffix("/*") {
                        Some(prefix) => {
                            let below = path.strip_prefix(prefix)?;
                            (below.is_empty() || below.starts_with('/')).then_some((false, prefix.len(), index))
                        }
                        None => (*line == path).then_some((true, 0, index)),
                    })
                    .max()
                    .map(|(_, _, index)| index);
                let found = table.find(None, &path, &Method::GET).ok().map(|route| route.target);
                assert_eq!(found, expected, "{path} in {lines:?}");
            }
        }
    }

    #[test]
    fn a_lookup_costs_the_same_with_ten_thousand_routes() {
        let names = |count: usize| (0..count).map(|n| format!("/function-{n}/*")).collect::<Vec<_>>();
        let time = |count: usize| {
            let lines = names(count);
            let table = table(&lines.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
            let best = (0..50).map(|_| {
                let begin = Instant::now();
                for _ in 0..200 {
                    std::hint::black_box(table.find(None, std::hint::black_box("/function-7/some/path"), &Method::GET))
                        .unwrap();
                }
                begin.elapsed()
            });
            best.min().unwrap()
        };
        let (few, many) = (time(10), time(10_000));
        assert!(many < few * 5, "{few:?} for 200 lookups among 10 routes, {many:?} among 10,000");
    }
}
