//! A connection with TLS whose client was let in: two sides that wait for each other, because TLS has no halves.

use crate::bell::Ring;
use crate::client::{LAST_WORDS, charge, feed};
use crate::gate::GateInner;
use crate::line::Line;
use crate::node::Node;
use budget::Purpose;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// Serves it to its end. `rest` is what came after the CONNECT.
pub(crate) async fn serve_tls<N: Node>(
    shared: Arc<GateInner<N>>,
    stream: TlsStream<TcpStream>,
    line: Arc<Line>,
    rest: Vec<u8>,
) {
    let _left = Leave { shared: &shared, line: &line };
    if shared.has_ended() {
        return;
    }
    let (reader, writer) = tokio::io::split(stream);
    tokio::select! {
        () = read_tls(reader, &line, &shared, rest) => {}
        () = write_tls(writer, &line, &shared) => {}
        () = line.bell.hear(Ring::Cut) => {}
    }
}

/// Takes the connection from the broker however it ends.
struct Leave<'a, N: Node> {
    shared: &'a Arc<GateInner<N>>,
    line: &'a Arc<Line>,
}

impl<N: Node> Drop for Leave<'_, N> {
    fn drop(&mut self) {
        self.shared.leave(self.line.key);
    }
}

/// Goes on with what was left until the broker takes more.
async fn hold_up<N: Node>(shared: &Arc<GateInner<N>>, line: &Line, kept: &mut Vec<u8>, mut may_read: bool) {
    while !may_read {
        line.bell.hear(Ring::Read).await;
        let (rest, may) = feed(shared, line, kept);
        let done = kept.len() - rest.len();
        kept.drain(..done);
        may_read = may;
    }
    if kept.is_empty() {
        *kept = Vec::new();
    }
}

async fn read_tls<N: Node>(
    mut reader: ReadHalf<TlsStream<TcpStream>>,
    line: &Line,
    shared: &Arc<GateInner<N>>,
    mut kept: Vec<u8>,
) {
    let mut room = shared.budget.share(Purpose::Connections);
    loop {
        if !charge(&mut room, &kept) {
            return tracing::debug!("no memory is left for a packet that is not whole");
        }
        let (rest, may_read) = feed(shared, line, &kept);
        let done = kept.len() - rest.len();
        kept.drain(..done);
        hold_up(shared, line, &mut kept, may_read).await;
        kept.reserve(4_096);
        match reader.read_buf(&mut kept).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
}

async fn write_tls<N: Node>(mut writer: WriteHalf<TlsStream<TcpStream>>, line: &Arc<Line>, shared: &Arc<GateInner<N>>) {
    loop {
        let bytes = line.take();
        if !bytes.is_empty() {
            let deadline = async {
                while !line.is_closing() {
                    line.bell.hear(Ring::Write).await;
                }
                tokio::time::sleep(LAST_WORDS).await;
            };
            let send = async {
                writer.write_all(&bytes).await?;
                writer.flush().await
            };
            tokio::select! {
                sent = send => if sent.is_err() { return },
                () = deadline => return,
            }
        }
        drop(bytes);
        line.sent();
        if line.has_more() && shared.refill(line) {
            continue;
        }
        if line.is_over() {
            let _ = tokio::time::timeout(LAST_WORDS, writer.shutdown()).await;
            return;
        }
        line.bell.hear(Ring::Write).await;
    }
}
