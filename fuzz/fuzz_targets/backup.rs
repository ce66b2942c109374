//! Any bytes are a backup or a typed error; what was written is read to its end. What only a passphrase opens is read
//! too, as if it had been opened.
#![no_main]

use backup::{Piece, Reader, Secret, BackupWriter};
use lighter_fuzz::fuzz_target;

fuzz_target!(|data: &[u8]| {
    read(data);
    // The same behind a sound head, with a sound end: chance alone never finds the hash.
    let mut writer = BackupWriter::default();
    let mut bytes = writer.begin(&backup::Head::default());
    for piece in data.chunks(300) {
        match piece.split_first() {
            Some((0, rest)) => bytes.extend(writer.sealed(rest)),
            Some((1, rest)) if !rest.is_empty() => {
                bytes.extend(writer.image(&[1; 32], rest.len() as u64));
                bytes.extend(writer.image_bytes(rest));
            }
            Some((part, rest)) => bytes.extend(writer.entries(*part, &[(rest.to_vec(), piece.to_vec())])),
            None => {}
        }
    }
    bytes.extend(writer.end());
    assert!(read(&bytes), "what was written is read to its end");
    if let Ok(secret) = Secret::from_bytes(data) {
        assert_eq!(Secret::from_bytes(&secret.to_bytes()).expect("what was read can be written"), secret);
        if let Secret::File { name, .. } = &secret {
            assert!(!name.starts_with('/') && !name.split('/').any(|word| word == ".."), "{name:?} leads away");
        }
    }
});

/// Whether it is a whole backup.
fn read(data: &[u8]) -> bool {
    let Ok(mut reader) = Reader::new(data) else { return false };
    loop {
        match reader.next() {
            Ok(Some(piece)) => {
                for entry in piece.entries() {
                    let Ok((key, value)) = entry else { return false };
                    assert!(key.len() + value.len() <= data.len());
                }
                if let Piece::Sealed(sealed) = piece {
                    Secret::from_bytes(&sealed).ok();
                }
            }
            Ok(None) => return reader.bytes() == data.len() as u64,
            Err(_) => return false,
        }
    }
}
