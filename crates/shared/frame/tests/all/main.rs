//! What the frame promises: the cases of its contract, and claims about every frame.

mod cases;
mod conformance;
mod generate;
mod notation;
mod properties;
mod raw;
