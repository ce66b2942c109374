//! A real receiver of webhooks: an HTTP/1.1 server that notes what it was sent and answers as it is told.

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver as Notes, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Nothing here takes longer unless it hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// One request as it came.
pub struct Request {
    pub line: String,
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
    pub at: Instant,
}

impl Request {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// What to answer: status line and headers, as `503 Busy\r\nretry-after: 1`. None: the connection breaks.
type Answer = dyn Fn(usize, &Request) -> Option<String> + Send + Sync;

pub struct Receiver {
    pub url: String,
    notes: Notes<Request>,
    pub at_once_max: Arc<AtomicUsize>,
}

impl Receiver {
    /// `answer` is told the number of the request, from 0.
    pub fn start(answer: impl Fn(usize, &Request) -> Option<String> + Send + Sync + 'static) -> Self {
        Self::listen(None, answer)
    }

    /// By HTTPS, as `localhost`, with this certificate.
    pub fn start_tls(
        tls: ServerConfig,
        answer: impl Fn(usize, &Request) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        Self::listen(Some(Arc::new(tls)), answer)
    }

    fn listen(
        tls: Option<Arc<ServerConfig>>,
        answer: impl Fn(usize, &Request) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let url = match tls {
            Some(_) => format!("https://localhost:{port}"),
            None => format!("http://127.0.0.1:{port}"),
        };
        let (sender, notes) = channel();
        let (answer, number): (Arc<Answer>, _) = (Arc::new(answer), Arc::new(AtomicUsize::new(0)));
        let (running, at_once_max) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let seen = at_once_max.clone();
        thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                let (sender, answer, number) = (sender.clone(), answer.clone(), number.clone());
                let (running, seen, tls) = (running.clone(), seen.clone(), tls.clone());
                thread::spawn(move || {
                    let connection: Box<dyn Stream> = match tls {
                        Some(tls) => Box::new(StreamOwned::new(ServerConnection::new(tls).unwrap(), connection)),
                        None => Box::new(connection),
                    };
                    serve(connection, &sender, &*answer, &number, &|change| match change {
                        true => _ = seen.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst),
                        false => _ = running.fetch_sub(1, SeqCst),
                    })
                });
            }
        });
        Self { url, notes, at_once_max }
    }

    /// Waits for the next request.
    pub fn next(&self) -> Request {
        self.notes.recv_timeout(PATIENCE).expect("a request comes")
    }

    /// All that have come and were not asked for.
    pub fn rest(&self) -> Vec<Request> {
        self.notes.try_iter().collect()
    }
}

trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

fn serve(
    connection: Box<dyn Stream>,
    notes: &Sender<Request>,
    answer: &Answer,
    number: &AtomicUsize,
    running: &dyn Fn(bool),
) {
    let mut reader = BufReader::new(connection);
    loop {
        let Some(request) = read(&mut reader) else { return };
        running(true);
        let reply = answer(number.fetch_add(1, SeqCst), &request);
        running(false);
        if notes.send(request).is_err() {
            return;
        }
        let Some(reply) = reply else { return };
        let reply = format!("HTTP/1.1 {reply}\r\ncontent-length: 2\r\n\r\nok");
        let writer = reader.get_mut();
        if writer.write_all(reply.as_bytes()).and_then(|()| writer.flush()).is_err() {
            return;
        }
    }
}

fn read(reader: &mut impl BufRead) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
    let mut headers = BTreeMap::new();
    loop {
        let mut field = String::new();
        reader.read_line(&mut field).ok()?;
        let Some((name, value)) = field.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Request { line: line.trim_end().to_owned(), headers, body, at: Instant::now() })
}
