//! What an isolation class brings to a node beside its units. The list of classes is the program's.

use api_types::NodeInfo;
use futures_util::future::{BoxFuture, FutureExt, ready};
use problem::Problem;
use std::sync::Arc;
use unit::IsolationClass;

/// One isolation class, opened for a node. Whatever a class has nothing to say about has a default.
pub trait Class: Send + Sync + 'static {
    fn units(&self) -> Arc<dyn IsolationClass>;

    /// Begins what runs beside the calls. Called once, before anything is deployed.
    ///
    /// # Errors
    /// The node cannot start with it.
    fn start(&self) -> BoxFuture<'_, Result<(), Problem>> {
        ready(Ok(())).boxed()
    }

    /// Adds what the class knows to what the node says of itself. May wait for what has to be tried out first.
    fn describe<'a>(&'a self, info: &'a mut NodeInfo) -> BoxFuture<'a, ()> {
        let _ = info;
        ready(()).boxed()
    }

    /// Memory of its units that the kernel counts, and not the budget.
    fn memory(&self) -> Option<ClassMemory> {
        None
    }

    /// The header of a call that means something to this class alone.
    fn header(&self) -> Option<Header> {
        None
    }

    /// Whether a unit that trapped can leave a core dump.
    fn leaves_dumps(&self) -> bool {
        true
    }
}

/// Memory of the units of one class.
#[derive(Debug, Clone, Copy)]
pub struct ClassMemory {
    /// The word for it in the metrics.
    pub word: &'static str,
    pub bytes: u64,
    pub bytes_max: u64,
}

/// A header that one class reads.
#[derive(Debug, Clone, Copy)]
pub struct Header {
    pub name: &'static str,
    /// What it names, as `a board`.
    pub names: &'static str,
}
