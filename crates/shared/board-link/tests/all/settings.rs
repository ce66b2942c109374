//! Settings of a board: written, found in an image, and refused when they are not whole.

use board_link::{
    BEACON_TO_MAX, Destination, NODES_MAX, Network, SETTINGS_BYTES, SETTINGS_MAGIC, Settings, SettingsFault,
    find_settings,
};

fn settings() -> Settings {
    Settings {
        name: "shed".into(),
        seed: [1; 32],
        network: Network::Static { address: [10, 0, 2, 15], prefix: 24, gateway: Some([10, 0, 2, 2]) },
        beacon_to: vec![Destination { address: [10, 0, 2, 2], port: 7311 }; BEACON_TO_MAX],
        nodes: vec![[2; 32]; NODES_MAX],
        signers: vec![[3; 32]; NODES_MAX],
        ..Settings::default()
    }
}

#[test]
fn settings_at_every_limit_read_as_they_were_written() {
    for settings in [settings(), Settings { network: Network::Dhcp, ..settings() }, Settings::default()] {
        let block = settings.write().unwrap();
        assert_eq!(block.len(), SETTINGS_BYTES);
        assert_eq!(Settings::read(&block), Ok(settings));
    }
}

#[test]
fn settings_over_a_limit_are_not_written() {
    let nodes = vec![[2; 32]; NODES_MAX + 1];
    assert_eq!(Settings { nodes, ..settings() }.write(), Err(SettingsFault::TooLarge));
    assert_eq!(Settings { name: "x".repeat(33), ..settings() }.write(), Err(SettingsFault::TooLarge));
}

#[test]
fn a_block_that_was_not_written_to_its_end_is_refused() {
    let block = settings().write().unwrap();
    for at in 0..SETTINGS_BYTES {
        let mut torn = block.clone();
        torn[at] ^= 0x10;
        assert!(Settings::read(&torn).is_err(), "byte {at}");
    }
    let mut empty = vec![0; SETTINGS_BYTES];
    empty[..8].copy_from_slice(&SETTINGS_MAGIC);
    assert_eq!(Settings::read(&empty), Err(SettingsFault::Empty));
    assert_eq!(Settings::read(&[]), Err(SettingsFault::Garbled));
}

#[test]
fn an_image_has_one_block() {
    let mut image = vec![0; 3 * SETTINGS_BYTES];
    assert_eq!(find_settings(&image), Err(SettingsFault::NoBlock));
    image[SETTINGS_BYTES..2 * SETTINGS_BYTES].copy_from_slice(&settings().write().unwrap());
    assert_eq!(find_settings(&image), Ok(SETTINGS_BYTES));
    image[2 * SETTINGS_BYTES..][..8].copy_from_slice(&SETTINGS_MAGIC);
    assert_eq!(find_settings(&image), Err(SettingsFault::NoBlock));
}
