//! Eight kernels that only compute, each in plain Rust without libraries: `compute` runs them in a unit, and the
//! benchmark as native code, from this one source.
//!
//! Each is a function that is not inlined, as in a program that has but one of them. It takes how many rounds to run
//! and gives a check sum of all it computed. Two targets agree on it, because no kernel depends on the width of a
//! pointer, and floats are added in the same order.

mod fibonacci;
mod image;
mod json;
mod matrix;
mod nbody;
mod random;
mod regex;
mod sha256;
mod sort;

pub const NAMES: [&str; 8] = ["fibonacci", "matrix", "sha256", "nbody", "json", "sort", "regex", "image"];

/// The check sum of the kernel after so many rounds; none if there is no such kernel.
pub fn run(name: &str, rounds: u32) -> Option<u64> {
    Some(match name {
        "fibonacci" => fibonacci::run(rounds),
        "matrix" => matrix::run(rounds),
        "sha256" => sha256::run(rounds),
        "nbody" => nbody::run(rounds),
        "json" => json::run(rounds),
        "sort" => sort::run(rounds),
        "regex" => regex::run(rounds),
        "image" => image::run(rounds),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_name_is_a_kernel_that_gives_the_same_twice() {
        for name in super::NAMES {
            assert_eq!(super::run(name, 2).unwrap(), super::run(name, 2).unwrap(), "{name}");
        }
        assert_eq!(super::run("none", 1), None);
    }
}
