//! A cable to a node that can be pulled: then nothing goes through it, and nobody is told.

use fleet_trust::Address;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub struct Cable {
    /// Where its other end is reached.
    pub address: Address,
    is_pulled: Arc<watch::Sender<bool>>,
    carried: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Cable {
    pub async fn to(node: &Address) -> Self {
        let Address::Ip(node) = *node else { panic!("tests have addresses") };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = Address::Ip(listener.local_addr().unwrap());
        let (is_pulled, carried) = (Arc::new(watch::Sender::new(false)), Arc::<AtomicU64>::default());
        let (pulled, counted) = (is_pulled.clone(), carried.clone());
        let task = tokio::spawn(async move {
            // Both ways of each connection live as long as this task.
            let mut ways = tokio::task::JoinSet::new();
            loop {
                let (near, _) = listener.accept().await.unwrap();
                let far = TcpStream::connect(node).await.unwrap();
                let ((from_near, to_near), (from_far, to_far)) = (near.into_split(), far.into_split());
                ways.spawn(carry(from_near, to_far, pulled.subscribe(), counted.clone()));
                ways.spawn(carry(from_far, to_near, pulled.subscribe(), counted.clone()));
            }
        });
        Self { address, is_pulled, carried, task }
    }

    pub fn pull(&self, is_pulled: bool) {
        self.is_pulled.send_replace(is_pulled);
    }

    /// Bytes of both ways.
    pub fn carried(&self) -> u64 {
        self.carried.load(Relaxed)
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut is_pulled: watch::Receiver<bool>,
    carried: Arc<AtomicU64>,
) {
    let mut bytes = vec![0; 64 << 10];
    loop {
        let Ok(count @ 1..) = from.read(&mut bytes).await else { return };
        if is_pulled.wait_for(|is_pulled| !is_pulled).await.is_err() || to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
        carried.fetch_add(count as u64, Relaxed);
    }
}
