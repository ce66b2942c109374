//! Units at work, by their numbers, for whoever attaches to one: what each class needs to reach it.

use parking_lot::Mutex;
use problem::Problem;
use std::collections::HashMap;
use std::sync::Arc;

/// Those of one function.
pub struct Desk<T>(Mutex<HashMap<u64, T>>);

/// A unit at work. Dropping it says that it no longer is.
pub struct AtWork<T> {
    desk: Arc<Desk<T>>,
    unit: u64,
}

impl<T> Default for Desk<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Desk<T> {
    /// From now on it can be reached by this.
    pub fn begins(self: &Arc<Self>, unit: u64, by: T) -> AtWork<T> {
        self.0.lock().insert(unit, by);
        AtWork { desk: self.clone(), unit }
    }

    /// How to reach it.
    ///
    /// # Errors
    /// [`Code::AttachRefused`](problem::Code::AttachRefused): it waits for its next call.
    pub fn find(&self, unit: u64) -> Result<T, Problem> {
        let found = self.0.lock().get(&unit).cloned();
        found.ok_or_else(|| unit::refused(format!("unit {unit} waits for a call, and runs nothing")))
    }

    /// Whether it still is at work.
    pub fn has(&self, unit: u64) -> bool {
        self.0.lock().contains_key(&unit)
    }
}

impl<T> Drop for AtWork<T> {
    fn drop(&mut self) {
        self.desk.0.lock().remove(&self.unit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use problem::Code;

    #[test]
    fn a_unit_can_be_reached_while_it_works() {
        let desk = Arc::new(Desk::default());
        let at_work = desk.begins(7, "by this");
        assert_eq!(desk.find(7).unwrap(), "by this");
        assert!(desk.has(7));
        drop(at_work);
        assert_eq!(desk.find(7).unwrap_err().code, Code::AttachRefused);
        assert!(!desk.has(7));
    }
}
