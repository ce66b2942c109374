//! What every engine must do, done by real servers.

use crate::town::{SOON, Town};
use facts::checks::{ALL, Ground, Way};
use facts::{Answer, Key, NodeName};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

impl Ground for Town {
    fn node<'a>(&'a self, name: &'a NodeName, is_anchor: bool) -> Answer<'a, Arc<dyn Way>> {
        let node: Arc<dyn Way> = Arc::new(self.way(name, is_anchor));
        Box::pin(async move {
            let key = Key::new("check.is-there").expect("it is a key");
            while node.get(&key).await.is_err() {
                sleep(Duration::from_millis(20)).await;
            }
            node
        })
    }
}

pub async fn kept(town: &Town) {
    for (claim, check) in ALL {
        timeout(SOON, check(town)).await.unwrap_or_else(|_| panic!("{claim}: not within {SOON:?}"));
    }
}
