//! How large a positive quantity is, and how sure that is.

/// The most variance that counts in what is expected.
const WIDE: f64 = 1.0;
/// The least value whose logarithm is taken: a tenth of a microsecond.
const LEAST: f64 = 1e-7;

/// A positive quantity: mean and variance of its natural logarithm.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Guess {
    pub log: f64,
    pub variance: f64,
    /// The part of the variance that is left when there is nothing more to learn.
    pub noise: f64,
}

impl Guess {
    /// The expected value of the log-normal. A wide guess counts as its middle times 1.65 at most: what takes very long
    /// would be given up.
    pub fn mean(&self) -> f64 {
        (self.log + self.variance.min(WIDE) / 2.0).exp()
    }
}

/// The logarithm of a quantity that is meant to be positive.
pub fn log(value: f64) -> f64 {
    value.max(LEAST).ln()
}
