//! A value that one piece of code uses at a time. Nothing ever waits: a second use is a mistake, and panics.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};

pub struct Exclusive<T> {
    is_used: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `with` hands the value to one at a time.
unsafe impl<T: Send> Sync for Exclusive<T> {}

impl<T> Exclusive<T> {
    pub const fn new(value: T) -> Self {
        Self { is_used: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// # Panics
    /// It is used already, further up the stack.
    pub fn with<R>(&self, use_it: impl FnOnce(&mut T) -> R) -> R {
        self.try_with(use_it).expect("used while it is used")
    }

    /// None: it is used already.
    pub fn try_with<R>(&self, use_it: impl FnOnce(&mut T) -> R) -> Option<R> {
        if self.is_used.swap(true, Acquire) {
            return None;
        }
        // SAFETY: the flag was down, and is up until the reference is gone.
        let result = use_it(unsafe { &mut *self.value.get() });
        self.is_used.store(false, Release);
        Some(result)
    }
}
