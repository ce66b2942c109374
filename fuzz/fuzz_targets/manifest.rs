//! Any text is a manifest or a typed error; what is read can be written and reads the same again.
#![no_main]

use lighter_fuzz::fuzz_target;

fuzz_target!(|text: &str| {
    match manifest::parse(text) {
        Ok(manifest) => {
            let written = toml::to_string(&manifest).expect("what was read can be written");
            assert_eq!(manifest::parse(&written).expect("what was written can be read"), manifest);
        }
        Err(problem) => assert!(!problem.detail.is_empty(), "a problem says what is wrong"),
    }
});
