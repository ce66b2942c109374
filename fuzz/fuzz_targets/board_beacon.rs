//! Any datagram is a beacon or a typed fault; what is believed can be signed again; any block is settings or a fault.
#![no_main]

use board_link::{Beacon, Heard, Keys, SIGHTINGS_MAX, Settings, Sightings, find_settings, open_payload};
use lighter_fuzz::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let keys = Keys::from_seed(&[1; 32]);
    let mut sightings = Sightings::default();
    // As it is, and as the board itself would have sent it: chance alone never gets past a signature.
    for datagram in [data.to_vec(), signed(data, &keys)] {
        let read = Beacon::read(&datagram);
        let heard = sightings.hear(&datagram, (), 0, |_| false);
        match read {
            Ok(beacon) => {
                assert_eq!(heard, Heard::New(beacon.board));
                if beacon.channel_key == keys.channel_public() {
                    assert_eq!(Beacon::read(&beacon.sign(&keys)), Ok(beacon));
                }
            }
            Err(fault) => assert_eq!(heard, Heard::NoBeacon(fault)),
        }
    }
    assert!(sightings.all().count() <= SIGHTINGS_MAX);
    let _ = open_payload(data, &["", "pulley64/48"], &[keys.id().0]);
    if let Ok(at) = find_settings(data) {
        let _ = Settings::read(&data[at..at + board_link::SETTINGS_BYTES]);
    }
    if let Ok(settings) = Settings::read(&board_link::block_of_fields(data)) {
        assert_eq!(Settings::read(&settings.write().expect("what was read can be written")), Ok(settings));
    }
});

fn signed(data: &[u8], keys: &Keys) -> Vec<u8> {
    let mut said = data.to_vec();
    if said.len() > 37 {
        said[..5].copy_from_slice(b"LBCN\x01");
        said[5..37].copy_from_slice(&keys.id().0);
    }
    let signature = board_link::sign_beacon(keys, &said);
    said.extend_from_slice(&signature);
    said
}
