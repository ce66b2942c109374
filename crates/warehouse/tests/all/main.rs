//! What the warehouse promises: what is stored, what goes when there is too much, and what a broken disk leaves.

mod eviction;
mod faults;
mod faulty;
mod storing;
