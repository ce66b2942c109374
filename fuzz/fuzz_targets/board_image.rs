//! Any file is an image or a fault, and an image stays one with other settings; a payload opens only as it was sealed.
#![no_main]

use board_link::{Image, Keys, PayloadFault, SETTINGS_BYTES, SETTINGS_MAGIC, Settings, open_payload, seal_payload};
use lighter_fuzz::fuzz_target;

const FORMATS: [&str; 2] = ["aarch64-unknown-none/1", "pulley64/1"];
const FLAT_BYTES_MAX: usize = (64 << 20) + 4_096 + SETTINGS_BYTES;

fuzz_target!(|data: &[u8]| {
    image(data);
    payload(data);
});

/// What the fuzzer thinks of, with a block for settings behind it, which chance would not find.
fn image(data: &[u8]) {
    let mut elf = data.to_vec();
    if elf.len() >= 8 {
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
    }
    elf.resize(elf.len().next_multiple_of(SETTINGS_BYTES), 0);
    let settings = elf.len();
    elf.extend_from_slice(&SETTINGS_MAGIC);
    elf.resize(settings + SETTINGS_BYTES, 0);
    let Ok(image) = Image::read(elf) else { return };
    let _ = image.kernel();
    // A kernel's memory is larger than its file.
    lighter_fuzz::allow(FLAT_BYTES_MAX);
    if let Ok(flat) = image.flat() {
        assert!(flat.len() <= FLAT_BYTES_MAX);
    }
    let given = Settings { name: "board".into(), seed: [7; 32], ..Settings::default() };
    let Ok(image) = image.with(&given) else { panic!("settings have room in every image") };
    assert_eq!(Settings::read(&image.elf()[settings..]), Ok(given));
    assert!(Image::read(image.elf().to_vec()).is_ok());
}

/// The first bytes say what is changed of a payload that was sound.
fn payload(data: &[u8]) {
    let (signer, stranger) = (Keys::from_seed(&[1; 32]), Keys::from_seed(&[2; 32]));
    let signers = [signer.id().0];
    // As it is, first.
    assert!(open_payload(data, &FORMATS, &signers).is_err());
    let Some((change, code)) = data.split_first_chunk::<4>() else { return };
    let mut sealed = seal_payload(code, FORMATS[usize::from(change[0] & 1)], &signer);
    assert_eq!(open_payload(&sealed, &FORMATS, &signers), Ok((code, usize::from(change[0] & 1))));
    assert!(matches!(open_payload(&sealed, &FORMATS, &[stranger.id().0]), Err(PayloadFault::SignerUnknown(_))));
    assert_eq!(open_payload(&sealed, &["x86_64-unknown-none/1"], &signers), Err(PayloadFault::Format));
    let at = usize::from(u16::from_le_bytes([change[1], change[2]])) % sealed.len();
    match change[3] {
        0 => sealed.truncate(at),
        bits => sealed[at] ^= bits,
    }
    assert!(open_payload(&sealed, &FORMATS, &signers).is_err());
}
