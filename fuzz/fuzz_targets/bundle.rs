//! Any bytes are a bundle or a typed error, and so is any lock file: what is read is written the same again, and a lock
//! file has nothing for pip but packages and hashes.
#![no_main]

use lighter_fuzz::fuzz_target;
use unit_process::Lock;
use unit_process::bundle::Bundle;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(bundle) = Bundle::read(bytes) {
        let packed = bundle.pack().expect("what was read can be written");
        assert_eq!(Bundle::read(&packed).expect("what was written can be read").files, bundle.files);
    }
    if let Ok(lock) = Lock::read(bytes) {
        let text = lock.text();
        assert_eq!(Lock::read(text.as_bytes()).expect("what was written can be read"), lock);
        for line in text.lines() {
            assert!(line.starts_with(|first: char| first.is_ascii_alphanumeric()), "{line:?} is no package");
            let mut options = line.split_whitespace().filter(|word| word.starts_with('-'));
            assert!(options.all(|option| option.starts_with("--hash=")), "{line:?} has options");
        }
    }
});
