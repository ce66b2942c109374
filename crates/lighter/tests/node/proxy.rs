//! A way between two nodes that can be cut, and may be long.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

pub struct Proxy {
    pub address: SocketAddr,
    way: Arc<Mutex<Way>>,
}

#[derive(Default)]
struct Way {
    to: Option<SocketAddr>,
    open: Vec<TcpStream>,
}

impl Proxy {
    /// Leads nowhere before [`Proxy::lead`].
    pub fn new() -> Self {
        Self::long(Duration::ZERO)
    }

    /// Each piece of data takes so long in either direction.
    pub fn long(takes: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let way = Arc::<Mutex<Way>>::default();
        let shared = way.clone();
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let mut way = shared.lock().unwrap();
                let Some(far) = way.to.and_then(|to| TcpStream::connect(to).ok()) else { continue };
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    thread::spawn(move || {
                        carry(&mut from, &mut to, takes).ok();
                        to.shutdown(Shutdown::Both).ok();
                    });
                }
                way.open.extend([near, far]);
            }
        });
        Self { address, way }
    }

    pub fn lead(&self, to: &str) {
        self.way.lock().unwrap().to = Some(to.parse().unwrap());
    }

    /// Ends all connections, and lets none through.
    pub fn cut(&self) {
        let mut way = self.way.lock().unwrap();
        way.to = None;
        way.open.drain(..).for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
    }
}

fn carry(from: &mut TcpStream, to: &mut TcpStream, takes: Duration) -> io::Result<()> {
    let mut piece = [0; 1 << 16];
    loop {
        let count = from.read(&mut piece)?;
        if count == 0 {
            return Ok(());
        }
        thread::sleep(takes);
        to.write_all(&piece[..count])?;
    }
}
