//! Follows a whole connection of HTTP/1: where each request begins and ends.

use super::{Chunks, Head, Length, Refused};

/// Follows the requests of one connection.
#[derive(Debug)]
pub struct Framing {
    state: State,
    head_bytes_max: usize,
    heads: u64,
}

#[derive(Debug)]
enum State {
    Head(Head),
    Length { left: u64 },
    Chunked(Chunks),
}

/// What to do with bytes that arrived.
#[derive(Debug, PartialEq, Eq)]
pub struct Vetted {
    /// So many bytes may go on; the rest begins a head that is not whole yet, or is refused.
    pub pass: usize,
    /// Nothing after `pass` may go on, ever.
    pub refused: Option<Refused>,
}

impl Framing {
    pub fn new(head_bytes_max: usize) -> Self {
        Self { state: State::Head(Head::default()), head_bytes_max, heads: 0 }
    }

    /// Whole heads seen.
    pub fn heads(&self) -> u64 {
        self.heads
    }

    /// Whether the next bytes belong to a body, so that what is wrong with them ends a request already handed on.
    pub fn in_body(&self) -> bool {
        !matches!(self.state, State::Head(_))
    }

    /// Vets `bytes`: those that the last call did not pass, and those that arrived since.
    pub fn vet(&mut self, bytes: &[u8]) -> Vetted {
        let mut pass = 0;
        loop {
            match &mut self.state {
                State::Head(head) => match head.read(&bytes[pass..], self.head_bytes_max) {
                    Ok(None) => return Vetted { pass, refused: None },
                    Ok(Some((length, body))) => {
                        pass += length;
                        self.heads += 1;
                        self.state = match body {
                            Length::Bytes(0) => State::Head(Head::default()),
                            Length::Bytes(left) => State::Length { left },
                            Length::Chunked => State::Chunked(Chunks::default()),
                        };
                    }
                    Err(refused) => return Vetted { pass, refused: Some(refused) },
                },
                State::Length { left } => {
                    let take = (*left).min((bytes.len() - pass) as u64);
                    pass += usize::try_from(take).expect("no more than there are bytes");
                    *left -= take;
                    if *left == 0 {
                        self.state = State::Head(Head::default());
                    }
                }
                State::Chunked(chunks) => match chunks.read(&bytes[pass..]) {
                    Ok((length, ended)) => {
                        pass += length;
                        if ended {
                            self.state = State::Head(Head::default());
                        }
                    }
                    Err((length, refused)) => return Vetted { pass: pass + length, refused: Some(refused) },
                },
            }
            if pass == bytes.len() {
                return Vetted { pass, refused: None };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 1_024;

    /// Vets in one piece, in pieces of every small size, and wants the same each time.
    fn vet(bytes: &[u8]) -> (Vetted, u64) {
        let whole = feed(bytes, bytes.len().max(1));
        for size in 1..40 {
            assert_eq!(feed(bytes, size), whole, "in pieces of {size}: {:?}", String::from_utf8_lossy(bytes));
        }
        whole
    }

    fn feed(bytes: &[u8], size: usize) -> (Vetted, u64) {
        let mut framing = Framing::new(MAX);
        let mut passed = 0;
        let mut arrived = 0;
        while arrived < bytes.len() {
            arrived = (arrived + size).min(bytes.len());
            let vetted = framing.vet(&bytes[passed..arrived]);
            passed += vetted.pass;
            if vetted.refused.is_some() {
                return (Vetted { pass: passed, refused: vetted.refused }, framing.heads());
            }
        }
        (Vetted { pass: passed, refused: None }, framing.heads())
    }

    #[track_caller]
    fn passes(bytes: &str, heads: u64) {
        assert_eq!(vet(bytes.as_bytes()), (Vetted { pass: bytes.len(), refused: None }, heads), "{bytes:?}");
    }

    #[track_caller]
    fn refuses(bytes: &str, why: &str) {
        match vet(bytes.as_bytes()).0.refused {
            Some(refused) => {
                let problem = refused.problem();
                assert!(problem.detail.contains(why), "{bytes:?} is refused for {problem:?}, not {why:?}");
            }
            None => panic!("{bytes:?} is not refused"),
        }
    }

    #[test]
    fn sound_requests_pass_whole() {
        passes("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 1);
        passes("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 2);
        passes("GET / HTTP/1.0\r\n\r\n", 1);
        passes("OPTIONS * HTTP/1.1\r\nhost:a\r\n\r\n", 1);
        passes("GET http://A:80/x HTTP/1.1\r\nHost: \t a:80 \t\r\n\r\n", 1);
        passes("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nGET /GET / HTTP/1.1\r\nHost: a\r\n\r\n", 2);
        passes(
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n3;x=\"y\"\r\n\r\n\r\r\n0a\r\n0123456789\r\n0\r\nx: y\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
            2,
        );
        passes(
            "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nUpgrade: websocket\r\nConnection: upgrade\r\nX-Obs: \u{e9}\r\nempty:\r\n\r\n",
            1,
        );
    }

    #[test]
    fn a_head_that_is_not_whole_waits() {
        let whole = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let (vetted, heads) = vet(format!("{whole}{}", &whole[..20]).as_bytes());
        assert_eq!((vetted, heads), (Vetted { pass: whole.len(), refused: None }, 1));
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        let post = "POST / HTTP/1.1\r\nHost: a\r\n";
        for (fields, why) in [
            ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", "a content-length and a transfer-encoding"),
            ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", "a content-length and a transfer-encoding"),
            ("Content-Length: 5\r\nContent-Length: 5\r\n\r\n", "two content-length"),
            ("Content-Length: 5, 5\r\n\r\n", "not a number"),
            ("Content-Length: +5\r\n\r\n", "not a number"),
            ("Content-Length: -5\r\n\r\n", "not a number"),
            ("Content-Length: 0x5\r\n\r\n", "not a number"),
            ("Content-Length:\r\n\r\n", "not a number"),
            ("Content-Length: 18446744073709551616\r\n\r\n", "not a number"),
            ("Transfer-Encoding: identity\r\n\r\n", "only transfer-encoding"),
            ("Transfer-Encoding: gzip, chunked\r\n\r\n", "only transfer-encoding"),
            ("Transfer-Encoding: chunked, chunked\r\n\r\n", "only transfer-encoding"),
            ("Transfer-Encoding: xchunked\r\n\r\n", "only transfer-encoding"),
            ("Transfer-Encoding: \u{b}chunked\r\n\r\n", "control characters"),
            ("Transfer-Encoding : chunked\r\n\r\n", "not a word"),
            ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", "only transfer-encoding"),
            ("X: a\r\n Transfer-Encoding: chunked\r\n\r\n", "folded"),
            ("X: a\nTransfer-Encoding: chunked\r\n\r\n", "CR LF"),
            ("X: a\rTransfer-Encoding: chunked\r\n\r\n", "control characters"),
            ("X: a\r\n\n", "CR LF"),
            ("\n", "CR LF"),
            ("X: a\0b\r\n\r\n", "control characters"),
            ("X\r\n\r\n", "no colon"),
            (": a\r\n\r\n", "not a word"),
            ("X y: a\r\n\r\n", "not a word"),
            ("Host: a\r\n\r\n", "two host fields"),
        ] {
            refuses(&format!("{post}{fields}"), why);
        }
    }

    #[test]
    fn a_bad_request_line_is_refused() {
        for (line, why) in [
            ("GET /", "request line"),
            ("GET  / HTTP/1.1", "request line"),
            ("GET / HTTP/1.1 ", "request line"),
            ("GET / http/1.1", "request line"),
            ("GET / HTTP/2.0", "request line"),
            ("GET / HTTP/1.2", "request line"),
            ("GET\t/ HTTP/1.1", "request line"),
            (" GET / HTTP/1.1", "request line"),
            ("G@T / HTTP/1.1", "not a word"),
            ("GET x HTTP/1.1", "neither a path"),
            ("GET * HTTP/1.1", "neither a path"),
            ("GET ftp://a/ HTTP/1.1", "neither a path"),
            ("GET http:// HTTP/1.1", "neither a path"),
            ("GET http://u@a/ HTTP/1.1", "neither a path"),
            ("GET http://b/ HTTP/1.1", "two hosts"),
            ("GET http://a:81/ HTTP/1.1", "two hosts"),
            ("GET /# HTTP/1.1", "percent-encoded"),
            ("GET /\u{e9} HTTP/1.1", "percent-encoded"),
            ("GET /\u{1} HTTP/1.1", "percent-encoded"),
            ("CONNECT a:80 HTTP/1.1", "CONNECT"),
        ] {
            refuses(&format!("{line}\r\nHost: a\r\n\r\n"), why);
        }
        refuses("GET / HTTP/1.1\r\n\r\n", "no host");
        refuses("GET / HTTP/1.1\r\nHost:\r\n\r\n", "not a name");
        refuses("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", "not a name");
        refuses("GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", "not a name");
        refuses("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "empty lines");
        refuses("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.0");
    }

    #[test]
    fn bad_chunks_are_refused_where_they_begin() {
        let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        for (body, good, why) in [
            ("x\r\n", 0, "hexadecimal"),
            ("\r\n", 0, "hexadecimal"),
            ("-1\r\n", 0, "hexadecimal"),
            ("0x1\r\n", 1, "hexadecimal"),
            (" 1\r\n", 0, "hexadecimal"),
            ("1 \r\n", 1, "hexadecimal"),
            ("1\na\r\n", 1, "hexadecimal"),
            ("1;a\nb\r\n", 3, "control characters"),
            ("1\rx", 2, "CR LF"),
            ("1\r\nab\r\n", 4, "longer than its size"),
            ("1\r\na\n", 4, "longer than its size"),
            ("1\r\na\rb", 5, "longer than its size"),
            ("0\r\n x: y\r\n", 3, "folded"),
            ("0\r\nx: y\n", 7, "CR LF"),
            ("0\r\n\rx", 4, "CR LF"),
            ("1000000000000000\r\n", 15, "too large"),
        ] {
            refuses(&format!("{head}{body}"), why);
            let (vetted, heads) = vet(format!("{head}{body}").as_bytes());
            assert_eq!((vetted.pass, heads), (head.len() + good, 1), "{body:?}");
        }
        refuses(&format!("{head}1;{}\r\n", "a".repeat(5_000)), "extensions are too long");
        refuses(&format!("{head}0\r\n{}", "a: b\r\n".repeat(3_000)), "trailers are too long");
    }

    #[test]
    fn a_head_has_bounds() {
        refuses(&format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "a".repeat(MAX)), "more bytes");
        refuses(&"a".repeat(MAX), "more bytes");
        refuses(&format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "a:b\r\n".repeat(100)), "more than 100");
        passes(&format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "a:b\r\n".repeat(99)), 1);
        let start = "GET / HTTP/1.1\r\nHost: a\r\nX: ";
        passes(&format!("{start}{}\r\n\r\n", "a".repeat(MAX - 4 - start.len())), 1);
    }

    #[test]
    fn noise_never_panics_and_never_passes_more_than_there_is() {
        let words = [
            "GET / HTTP/1.1\r\n",
            "Host: a\r\n",
            "\r\n",
            "Content-Length: 3\r\n",
            "Transfer-Encoding: chunked\r\n",
            "3\r\nabc\r\n",
            "0\r\n\r\n",
            "\n",
            "\r",
            " ",
            "x",
            ":",
            "abc",
            "\0",
            "POST http://a/ HTTP/1.1\r\n",
            "0\r\nt: u\r\n\r\n",
        ];
        let mut state = 11_u64;
        for _ in 0..30_000 {
            let mut bytes = Vec::new();
            for _ in 0..8 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                bytes.extend_from_slice(words[(state >> 33) as usize % words.len()].as_bytes());
            }
            assert_eq!(feed(&bytes, 3), feed(&bytes, bytes.len()));
            assert!(feed(&bytes, 7).0.pass <= bytes.len());
        }
    }
}
