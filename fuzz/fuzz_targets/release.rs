//! Any bytes are a release or a typed error, and so are a key, a signature and a version. What is packed soundly is
//! read on, since chance alone never packs.
#![no_main]

use lighter_fuzz::fuzz_target;
use release::{Archive, PublicKey, Signature, ReleaseVersion, making, processor};

fuzz_target!(|data: &[u8]| {
    read(data);
    read(&making::gzip(data));
    // Behind a sound beginning: headers with right sums, and contents that are too short or too long.
    let mut tar = making::header("lighter-1.0.0-x86_64-linux", b'5', 0);
    for piece in data.chunks(700) {
        let name = String::from_utf8_lossy(&piece[..piece.len().min(20)]).replace('\0', "/");
        let bytes = piece.iter().map(|byte| u64::from(*byte)).sum::<u64>() % 1_024;
        tar.extend(making::header(&format!("lighter-1.0.0-x86_64-linux/{name}"), piece[0], bytes));
        tar.extend_from_slice(piece);
        tar.resize(tar.len().next_multiple_of(512), 0);
    }
    read(&making::gzip(&tar));
    processor(data);
    let Ok(text) = str::from_utf8(data) else { return };
    if let Some(key) = PublicKey::parse(text) {
        assert_eq!(key.id().len(), 16);
    }
    if let Some(version) = ReleaseVersion::parse(text) {
        assert_eq!(ReleaseVersion::parse(&version.to_string()), Some(version.clone()), "what was read is read again");
        assert!(version <= version.clone());
    }
    let key = PublicKey::parse(&making::Signer::new(1).key()).expect("it is a key");
    if let Ok(signature) = Signature::parse(text) {
        assert!(signature.verify(&key, data).is_err(), "nobody has signed this");
    }
});

fn read(bytes: &[u8]) {
    let Ok(archive) = Archive::open(bytes) else { return };
    assert!(["x86_64", "aarch64"].contains(&archive.processor()));
    let mut written = 0;
    archive
        .program(|piece| {
            written += piece.len();
            Ok(())
        })
        .ok();
    // Deflate packs a thousand bytes into one at best.
    assert!(written <= 1_100 * bytes.len());
}
