//! What one function may have at once of something that all share.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// So many for each function, by name.
pub struct Shares {
    each: usize,
    /// Functions that have one, or wait for it.
    functions: Mutex<HashMap<Arc<str>, Arc<Semaphore>>>,
}

impl Shares {
    pub fn new(each: usize) -> Self {
        Self { each, functions: Mutex::default() }
    }

    /// Waits until the function has one more. None for nobody: what is done for no function any more.
    pub async fn take(&self, function: Option<Arc<str>>) -> Option<OwnedSemaphorePermit> {
        let share = self.of(function?);
        Some(share.acquire_owned().await.expect("nobody closes it"))
    }

    fn of(&self, function: Arc<str>) -> Arc<Semaphore> {
        let mut functions = self.functions.lock();
        // Whoever waits or has one holds the semaphore too.
        functions.retain(|_, share| Arc::strong_count(share) > 1);
        functions.entry(function).or_insert_with(|| Arc::new(Semaphore::new(self.each))).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    #[tokio::test]
    async fn one_function_waits_for_its_own_and_keeps_nobody_out() {
        let shares = Shares::new(1);
        let more = async |function: &str| {
            let taken = timeout(Duration::from_millis(20), shares.take(Some(function.into()))).await;
            taken.ok().map(|share| share.expect("there is a function"))
        };
        let first = more("a").await.unwrap();
        assert!(more("a").await.is_none());
        let other = more("b").await.unwrap();
        drop(first);
        assert!(more("a").await.is_some());
        drop(other);
        assert!(shares.take(None).await.is_none());
        assert_eq!(shares.of("c".into()).available_permits(), 1);
        assert_eq!(shares.functions.lock().len(), 1, "those that have nothing are forgotten");
    }
}
