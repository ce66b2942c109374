//! Connections to hosts: opened in the time that a request gives, and so many in all.
//!
//! ```text
//!   request ─▶ one of its host is idle?  yes ─▶ used again
//!                       no └─▶ a place ─▶ name ─▶ address ─▶ TLS, with the place until it is closed
//! ```
//! Each connection is a file of the node. Without a bound a function could open so many that gates and stores had none.

use crate::resolve::Resolver;
use crate::shares::Shares;
use crate::{CALLER, Unsent};
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::{self, Connected, HttpConnector};
use hyper_util::rt::TokioIo;
use std::error::Error;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tower_service::Service;

pub type BoxError = Box<dyn Error + Send + Sync>;
pub type Boxed<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

/// Places for connections.
#[derive(Clone)]
pub struct Places {
    pub free: Arc<Semaphore>,
    /// Those of one function: nobody keeps all others out.
    pub of_function: Arc<Shares>,
    /// How long a request waits for one.
    pub wait: Duration,
}

/// Connects, in the time that the request gives it.
#[derive(Clone)]
pub struct Connector {
    pub https: HttpsConnector<HttpConnector<Resolver>>,
    pub places: Places,
}

impl Service<Uri> for Connector {
    type Response = Placed;
    type Error = BoxError;
    type Future = Boxed<Self::Response, BoxError>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.https.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connect_max = CALLER.try_with(|caller| caller.connect_max).ok().flatten();
        let function = CALLER.try_with(|caller| caller.function.clone()).ok();
        let (connecting, Places { free, of_function, wait }) = (self.https.call(uri), self.places.clone());
        Box::pin(async move {
            let taken = async {
                // The function's first: while it waits for that, it takes none from others.
                let own = of_function.take(function).await;
                (free.acquire_owned().await.expect("nobody closes it"), own)
            };
            let connected = async {
                // Nothing is opened before there is a place: a future does nothing until it is polled.
                let place = timeout(wait, taken).await.map_err(|_| Unsent::Full)?;
                Ok::<_, BoxError>(Placed { stream: connecting.await?, _place: place })
            };
            let Some(connect_max) = connect_max else { return connected.await };
            timeout(connect_max, connected).await.unwrap_or_else(|_| Err(Unsent::ConnectTimedOut.into()))
        })
    }
}

/// A connection, and its place.
pub struct Placed {
    stream: MaybeHttpsStream<TokioIo<TcpStream>>,
    _place: (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>),
}

impl connect::Connection for Placed {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}

impl Read for Placed {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl Write for Placed {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, pieces)
    }
}
