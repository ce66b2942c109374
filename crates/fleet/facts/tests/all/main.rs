//! What is in memory does what every engine must, with faults and without.

mod broken;
mod faults;
mod kept;
