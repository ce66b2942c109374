//! Mail through its public interface: what is refused, what is noticed, and how a long absence is caught up with.

mod catch_up;
mod poison;
mod support;
