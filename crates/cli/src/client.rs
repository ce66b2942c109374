//! The API from the outside: every word between a command and a node passes through here.

use super::locate::NodeAddress;
use super::output::Output;
use super::progress::Progress;
use super::prove::{NotProven, Prove};
use super::stop::{Result, Stop};
use problem::{Code, Problem};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::time::Duration;
use ureq::http::{Request, Response, header};
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{Connector, DefaultConnector};
use ureq::{Agent, AsSendBody, Body};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a node may take to answer a plain question.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Bodies from this size on wait for the node's word.
const ANNOUNCED_BYTES_MIN: usize = 64 << 10;
/// Bytes of a JSON document; a larger one is not read.
const DOCUMENT_BYTES_MAX: u64 = 64 << 20;
/// Bytes of one line of a stream.
const LINE_BYTES_MAX: u64 = 16 << 20;

/// A node's API.
pub struct Client {
    agent: Agent,
    address: NodeAddress,
    out: Output,
}

impl Client {
    /// `ca_cert`: a file of PEM certificates to trust instead of the public ones.
    pub fn new(address: NodeAddress, ca_cert: Option<&Path>, out: Output) -> Result<Self> {
        let mut tls = TlsConfig::builder();
        if let Some(file) = ca_cert {
            tls = tls.root_certs(roots(file)?);
        }
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .user_agent(concat!("lighter/", env!("CARGO_PKG_VERSION")))
            .tls_config(tls.build());
        if address.is_local {
            config = config.proxy(None);
        }
        let agent = match &address.identity {
            None => config.build().new_agent(),
            Some(identity) => {
                let connector = DefaultConnector::default().chain(Prove(identity.clone()));
                Agent::with_parts(config.build(), connector, DefaultResolver::default())
            }
        };
        Ok(Self { agent, address, out })
    }

    /// One that does not say that it waits: somebody else has the terminal.
    #[must_use]
    pub fn silent(self) -> Self {
        Self { out: self.out.silent(), ..self }
    }

    fn waiting(&self) -> Option<Progress> {
        self.out.waiting(format!("waiting for {}", self.address.url))
    }

    pub fn url(&self) -> &str {
        &self.address.url
    }

    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.document(self.ask("GET", path, ())?)
    }

    pub fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T> {
        self.document(self.ask("POST", path, json(body))?)
    }

    /// A request without a body, whose answer is a document.
    pub fn document_of<T: DeserializeOwned>(&self, method: &str, path: &str) -> Result<T> {
        self.document(self.ask(method, path, ())?)
    }

    /// A request whose answer has nothing to read.
    pub fn send(&self, method: &str, path: &str, body: impl AsSendBody) -> Result {
        self.ask(method, path, body).map(drop)
    }

    /// A plain question; a status that means failure becomes the node's problem.
    pub fn ask(&self, method: &str, path: &str, body: impl AsSendBody) -> Result<Response<Body>> {
        let request = self.request(method, path).body(body).map_err(|error| self.malformed(&error))?;
        let request = self.agent.configure_request(request).timeout_recv_response(Some(ANSWER_TIMEOUT)).build();
        let _waiting = self.waiting();
        self.succeeded(self.agent.run(request).map_err(|error| self.unreachable(&error, sends(method)))?)
    }

    /// A request that may take as long as the node allows; any status is an answer.
    pub fn exchange(&self, request: ureq::http::request::Builder, body: impl AsSendBody) -> Result<Response<Body>> {
        let request = request.body(body).map_err(|error| self.malformed(&error))?;
        let sends = sends(request.method().as_str());
        let _waiting = self.waiting();
        self.agent.run(request).map_err(|error| self.unreachable(&error, sends))
    }

    /// Begins a request with the token.
    pub fn request(&self, method: &str, path: &str) -> ureq::http::request::Builder {
        let request = Request::builder().method(method).uri(format!("{}{path}", self.address.url));
        match &self.address.token {
            Some(token) => request.header(header::AUTHORIZATION, format!("Bearer {token}")),
            None => request,
        }
    }

    /// Lines of JSON, as they come.
    pub fn lines<T: DeserializeOwned>(&self, response: Response<Body>) -> Lines<'_, T> {
        let reader = BufReader::new(response.into_body().into_reader());
        Lines { client: self, reader, kind: std::marker::PhantomData }
    }

    /// The answer itself, or the problem it tells of.
    pub fn succeeded(&self, response: Response<Body>) -> Result<Response<Body>> {
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        Err(self.problem_in(response)?.map(Stop::from).unwrap_or_else(|| {
            let detail = format!("{} answered with status {status}, as a node would not", self.address.url);
            Stop::new(Code::NodeUnreachable, detail)
        }))
    }

    /// The problem in an answer, if it is one of ours: a function may send such a status and type too.
    fn problem_in(&self, response: Response<Body>) -> Result<Option<Problem>> {
        if !is_problem(&response) {
            return Ok(None);
        }
        let problem = Problem::from_json(&self.bytes(response, DOCUMENT_BYTES_MAX)?);
        Ok(problem.map(|problem| match problem.code {
            Code::TokenMissing => problem.with_hint("give one with --token-file or LIGHTER_TOKEN"),
            Code::RouteUnknown => {
                let detail = format!("{} is where functions are called; the API listens elsewhere", self.address.url);
                Problem::new(Code::NodeUnreachable, detail)
                    .with_hint("give the API's address with --node: port 8701 unless the node was told another")
            }
            // Where the API is described is of use to who writes requests.
            Code::ApiRequest if problem.hint == problem.code.hint() => problem.with_hint(""),
            // All that a path holds beside our own words is names.
            Code::RequestMalformed => problem.with_hint(
                "a function, queue or sink has lower-case letters, digits and - in its name; a bucket also . and _, \
                 but no . at the beginning",
            ),
            _ => problem,
        }))
    }

    /// The whole answer, at most `max` bytes.
    pub fn bytes(&self, response: Response<Body>, max: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut reader = response.into_body().into_reader().take(max + 1);
        reader.read_to_end(&mut bytes).map_err(|error| self.broken(&error))?;
        if bytes.len() as u64 > max {
            return Err(Stop::new(
                Code::ReplyTooLarge,
                format!("the answer is larger than {}", super::words::bytes(max)),
            ));
        }
        Ok(bytes)
    }

    /// The document in an answer.
    pub fn read<T: DeserializeOwned>(&self, response: Response<Body>) -> Result<T> {
        self.document(response)
    }

    fn document<T: DeserializeOwned>(&self, response: Response<Body>) -> Result<T> {
        let bytes = self.bytes(response, DOCUMENT_BYTES_MAX)?;
        serde_json::from_slice(&bytes).map_err(|error| self.strange(&error))
    }

    fn strange(&self, error: &serde_json::Error) -> Stop {
        let detail = format!("what {} answered cannot be read: {error}", self.address.url);
        Problem::new(Code::Unknown, detail)
            .with_hint(
                "`lighter version` shows both versions; where they are the same, please report this with the answer",
            )
            .into()
    }

    pub fn broken(&self, error: &io::Error) -> Stop {
        Stop::new(Code::NodeUnreachable, format!("the connection to {} broke: {error}", self.address.url))
    }

    fn malformed(&self, error: &ureq::http::Error) -> Stop {
        Stop::new(Code::Usage, format!("this cannot be sent to {}: {error}", self.address.url))
    }

    /// `sends`: whether the request has a body.
    fn unreachable(&self, error: &ureq::Error, sends: bool) -> Stop {
        let url = &self.address.url;
        let problem = |detail| Problem::new(Code::NodeUnreachable, detail);
        match error {
            ureq::Error::Io(error) if error.to_string().contains("certificate") => {
                problem(format!("the certificate of {url} is not trusted: {error}"))
                    .with_hint(certificate_hint(&error.to_string()))
            }
            ureq::Error::Io(error) if error.to_string().contains("InvalidContentType") => {
                problem(format!("what listens at {url} does not speak TLS")).with_hint("write the address with http://")
            }
            ureq::Error::Io(error) if matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof) => {
                match sends {
                    true => problem(format!("{url} closed the connection before it had read everything"))
                        .with_hint("the body may be larger than the node takes"),
                    // Something listens there, so starting a node is no help.
                    false => problem(format!("{url} closed the connection without an answer")).with_hint(
                        "the node has ended or failed at it: see its log; `lighter version` says whether it is there",
                    ),
                }
            }
            ureq::Error::Io(error) => problem(format!("no node answers at {url}: {error}")),
            ureq::Error::Timeout(_) => problem(format!("{url} does not answer in time")),
            ureq::Error::Other(error) if error.is::<NotProven>() => Problem::new(
                Code::NodeUnproven,
                format!("what listens at {url} is not the node of the data folder; no token was sent to it"),
            ),
            ureq::Error::HostNotFound => problem(format!("no node answers at {url}: no machine has this name")),
            error => problem(format!("no node answers at {url}: {error}")),
        }
        .into()
    }
}

/// Documents that arrive one line at a time.
pub struct Lines<'a, T> {
    client: &'a Client,
    reader: BufReader<ureq::BodyReader<'static>>,
    kind: std::marker::PhantomData<T>,
}

impl<T: DeserializeOwned> Iterator for Lines<'_, T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        let mut line = Vec::new();
        loop {
            line.clear();
            return match (&mut self.reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
                Ok(0) => None,
                Ok(_) if line.trim_ascii().is_empty() => continue,
                Ok(_) => Some(serde_json::from_slice(&line).map_err(|error| self.client.strange(&error))),
                Err(error) => Some(Err(self.client.broken(&error))),
            };
        }
    }
}

/// Whether an answer is a problem document of a node.
pub fn is_problem(response: &Response<Body>) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    !response.status().is_success() && kind.split(';').next().map(str::trim) == Some(problem::MEDIA_TYPE)
}

/// Lets the node refuse a large body before it is sent: it answers 100 to have it, or says at once what is wrong.
pub fn announced(request: ureq::http::request::Builder, body_bytes: usize) -> ureq::http::request::Builder {
    match body_bytes {
        ..ANNOUNCED_BYTES_MIN => request,
        _ => request.header(header::EXPECT, "100-continue"),
    }
}

/// A JSON body.
pub fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("what we send is made of plain data")
}

/// A part of a path or a query, with everything but letters, digits and `-._~` as `%XX`.
pub fn encoded(part: &str) -> String {
    let mut text = String::with_capacity(part.len());
    for byte in part.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => text.push(char::from(byte)),
            _ => text += &format!("%{byte:02X}"),
        }
    }
    text
}

/// Whether requests of this method have a body.
fn sends(method: &str) -> bool {
    matches!(method, "POST" | "PUT")
}

fn certificate_hint(error: &str) -> &'static str {
    match error {
        // What `openssl req -x509` makes unless it is told otherwise.
        error if error.contains("CaUsedAsEndEntity") => {
            "it says of itself that it signs others: make it with `-addext basicConstraints=critical,CA:FALSE`"
        }
        error if error.contains("NotValidForName") => "use a name that the certificate has in --node",
        error if error.contains("Expired") => "it has expired: make a new one",
        _ => "name the certificate that signed it with --ca-cert",
    }
}

pub fn roots(file: &Path) -> Result<RootCerts> {
    let pem = std::fs::read(file).map_err(|error| Stop::file(file, &error))?;
    let certificates: Vec<_> = parse_pem(&pem)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if certificates.is_empty() {
        let problem =
            Problem::new(Code::FileUnusable, format!("{}: there is no PEM certificate in it", file.display()));
        return Err(problem.with_hint("a certificate begins with a line that says BEGIN CERTIFICATE").into());
    }
    Ok(RootCerts::new_with_certs(&certificates))
}

#[cfg(test)]
mod tests {
    use super::*;
    use api_types::identity::Identity;

    #[test]
    fn a_name_cannot_leave_its_place_in_a_path() {
        assert_eq!(encoded("hello-1"), "hello-1");
        assert_eq!(encoded("../x?y=1#z é"), "..%2Fx%3Fy%3D1%23z%20%C3%A9");
    }

    #[test]
    fn an_unreachable_node_is_named_with_its_address() {
        // Port 9 of this machine: nobody listens there.
        let address = NodeAddress { url: "http://127.0.0.1:9".into(), token: None, is_local: true, identity: None };
        let client = Client::new(address, None, Output::new(false, true)).unwrap();
        let Err(Stop::Problem(problem)) = client.get::<String>("/v1/node") else { panic!("nobody should answer") };
        assert_eq!(problem.code, Code::NodeUnreachable);
        assert!(problem.detail.contains("http://127.0.0.1:9"), "{problem}");
    }

    /// A node that gives one answer, whatever it is asked.
    fn node_that_answers(answer: &'static str) -> Client {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = NodeAddress {
            url: format!("http://{}", listener.local_addr().unwrap()),
            token: None,
            is_local: true,
            identity: None,
        };
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1_024];
            let _ = stream.read(&mut request).unwrap();
            io::Write::write_all(&mut stream, answer.as_bytes()).unwrap();
        });
        Client::new(address, None, Output::new(false, true)).unwrap()
    }

    #[test]
    fn whoever_cannot_prove_to_be_the_node_gets_no_token() {
        // A node was killed, and somebody else listened at its address: they were sent the admin token.
        let proof = "0".repeat(64);
        for answer in [
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]".to_owned(),
            "HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n".to_owned(),
            format!("HTTP/1.1 200 OK\r\ncontent-length: 76\r\n\r\n{{\"proof\":\"{proof}\"}}"),
            String::new(),
        ] {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("http://{}", listener.local_addr().unwrap());
            let identity = Some(Identity::new("lighter_secret", &url));
            let address = NodeAddress { url, token: Some("lighter_secret".into()), is_local: true, identity };
            let heard = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut heard = vec![0; 4_096];
                let first = stream.read(&mut heard).unwrap();
                io::Write::write_all(&mut stream, answer.as_bytes()).unwrap();
                stream.shutdown(std::net::Shutdown::Write).unwrap();
                heard.truncate(first);
                stream.read_to_end(&mut heard).ok();
                String::from_utf8(heard).unwrap()
            });
            let client = Client::new(address, None, Output::new(false, true)).unwrap();
            let code = problem(client.get::<String>("/v1/node")).code;
            assert!(matches!(code, Code::NodeUnproven | Code::NodeUnreachable), "{code}");
            drop(client);
            let heard = heard.join().unwrap();
            assert!(heard.starts_with("GET /v1/identity?nonce="), "{heard}");
            assert!(!heard.contains("secret") && heard.matches("HTTP/1.1").count() == 1, "{heard}");
        }
    }

    fn problem<T>(result: Result<T>) -> Problem {
        match result {
            Err(Stop::Problem(problem)) => problem,
            _ => panic!("there should be a problem"),
        }
    }

    #[test]
    fn a_problem_of_the_node_is_told_as_it_is() {
        let client = node_that_answers(
            "HTTP/1.1 404 Not Found\r\ncontent-type: application/problem+json\r\nconnection: close\r\n\r\n\
             {\"title\":\"\",\"status\":404,\"detail\":\"there is no function\",\"code\":\"L2001\",\"hint\":\"look\"}",
        );
        let problem = problem(client.get::<String>("/v1/functions/x"));
        assert_eq!(
            (problem.code, &*problem.detail, &*problem.hint),
            (Code::FunctionUnknown, "there is no function", "look")
        );
    }

    #[test]
    fn whoever_does_not_answer_like_a_node_is_no_node() {
        let strange = "HTTP/1.1 404 Not Found\r\ncontent-type: text/html\r\nconnection: close\r\n\r\n<html>";
        assert_eq!(problem(node_that_answers(strange).get::<String>("/v1/node")).code, Code::NodeUnreachable);
        let no_json = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n<html>";
        assert_eq!(problem(node_that_answers(no_json).get::<String>("/v1/node")).code, Code::Unknown);
    }

    #[test]
    fn who_hangs_up_is_not_said_to_have_found_a_body_too_large_that_there_was_not() {
        let asked = problem(node_that_answers("").get::<String>("/v1/node"));
        assert_eq!((asked.code, asked.detail.contains("without an answer")), (Code::NodeUnreachable, true), "{asked}");
        assert!(asked.hint.contains("see its log") && !asked.hint.contains("lighter up"), "{asked}");
        let sent = problem(node_that_answers("").send("PUT", "/v1/x", &b"body"[..]));
        assert!(sent.hint.contains("larger than the node takes"), "{sent}");
    }

    #[test]
    fn the_gate_is_not_the_api() {
        let gate = "HTTP/1.1 404 Not Found\r\ncontent-type: application/problem+json\r\nconnection: close\r\n\r\n\
             {\"title\":\"\",\"status\":404,\"detail\":\"no function has a route for this path\",\"code\":\"L4001\",\"hint\":\"\"}";
        let problem = problem(node_that_answers(gate).get::<String>("/v1/functions"));
        assert_eq!(problem.code, Code::NodeUnreachable);
        assert!(problem.hint.contains("8701"), "{problem}");
    }

    #[test]
    fn lines_end_with_the_stream_and_a_broken_one_is_a_problem() {
        let client = node_that_answers("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n1\n\n2\n");
        let response = client.exchange(client.request("GET", "/"), ()).unwrap();
        let numbers: Vec<u32> = client.lines(response).map(|line| line.unwrap()).collect();
        assert_eq!(numbers, [1, 2]);
        let client = node_that_answers("HTTP/1.1 200 OK\r\ncontent-length: 100\r\nconnection: close\r\n\r\n1\n");
        let response = client.exchange(client.request("GET", "/"), ()).unwrap();
        let mut lines = client.lines::<u32>(response);
        assert_eq!(lines.next().unwrap().unwrap(), 1);
        assert_eq!(problem(lines.next().unwrap()).code, Code::NodeUnreachable);
    }

    #[test]
    fn a_file_without_certificates_is_no_authority() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let Err(Stop::Problem(problem)) = roots(file.path()) else { panic!("it should be refused") };
        assert_eq!(problem.code, Code::FileUnusable);
    }
}
