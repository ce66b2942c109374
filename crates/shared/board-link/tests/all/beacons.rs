//! Beacons: what is believed, what is not, and what a flood of them can do.

use crate::world::{beacon, board_keys};
use board_link::{
    BEACON_BYTES_MAX, Beacon, BeaconFault, Heard, Keys, SIGHTINGS_MAX, Sightings, VERIFICATIONS_PER_SECOND_MAX,
};

#[test]
fn a_beacon_reads_as_it_was_signed() {
    let beacon = beacon();
    let datagram = beacon.sign(&board_keys());
    assert!(datagram.len() < BEACON_BYTES_MAX / 2, "{} bytes", datagram.len());
    assert_eq!(Beacon::read(&datagram), Ok(beacon));
}

#[test]
fn a_beacon_at_every_limit_fits_into_a_datagram() {
    let long = "x".repeat(300);
    let mut beacon = beacon();
    beacon.name.clone_from(&long);
    beacon.formats = vec![long; 20];
    let read = Beacon::read(&beacon.sign(&board_keys())).unwrap();
    assert_eq!((read.name.len(), read.formats.len(), read.formats[0].len()), (32, 8, 64));
}

#[test]
fn no_byte_of_a_beacon_can_be_changed() {
    let datagram = beacon().sign(&board_keys());
    for at in 0..datagram.len() {
        let mut changed = datagram.clone();
        changed[at] ^= 1;
        assert!(Beacon::read(&changed).is_err(), "byte {at}");
    }
    for length in 0..datagram.len() {
        assert!(Beacon::read(&datagram[..length]).is_err(), "{length} bytes");
    }
    assert_eq!(Beacon::read(&[0; 65_507]), Err(BeaconFault::TooLarge));
}

#[test]
fn a_spoofed_beacon_is_nobodys() {
    // The words of one board under the key of another.
    let liar = Keys::from_seed(&[66; 32]);
    let mut spoofed = beacon();
    spoofed.board = liar.id();
    spoofed.channel_key = liar.channel_public();
    let mut datagram = spoofed.sign(&liar);
    datagram[5..37].copy_from_slice(&board_keys().id().0);
    assert_eq!(Beacon::read(&datagram), Err(BeaconFault::Signature));
}

#[test]
fn a_replayed_beacon_changes_nothing() {
    let mut sightings = Sightings::default();
    let [first, second] = [1, 2].map(|sequence| Beacon { sequence, ..beacon() }.sign(&board_keys()));
    let id = board_keys().id();
    assert_eq!(sightings.hear(&first, "10.0.0.1", 0, |_| true), Heard::New(id));
    assert_eq!(sightings.hear(&second, "10.0.0.1", 1_000, |_| true), Heard::Again(id));
    assert_eq!(sightings.hear(&first, "10.6.6.6", 2_000, |_| true), Heard::Stale);
    assert_eq!(sightings.hear(&second, "10.6.6.6", 2_000, |_| true), Heard::Stale);
    assert_eq!(sightings.get(&id).map(|seen| seen.address), Some("10.0.0.1"));
    let started_again = Beacon { boot: [8; 16], sequence: 1, ..beacon() }.sign(&board_keys());
    assert_eq!(sightings.hear(&started_again, "10.0.0.1", 3_000, |_| true), Heard::New(id));
}

#[test]
fn a_flood_of_strangers_costs_little_and_pushes_out_nobody_enrolled() {
    let mut sightings = Sightings::default();
    let ours = board_keys().id();
    assert_eq!(sightings.hear(&beacon().sign(&board_keys()), 0, 0, |id| *id == ours), Heard::New(ours));
    let mut shed = 0;
    for number in 0..SIGHTINGS_MAX as u32 * 2 {
        let keys = Keys::from_seed(&board_link::hash(&number.to_le_bytes()));
        let beacon = Beacon { board: keys.id(), channel_key: keys.channel_public(), ..beacon() };
        let now_ms = 1_000 + u64::from(number);
        shed += usize::from(sightings.hear(&beacon.sign(&keys), number, now_ms, |id| *id == ours) == Heard::Shed);
    }
    assert!(shed >= SIGHTINGS_MAX * 2 - VERIFICATIONS_PER_SECOND_MAX as usize);
    assert!(sightings.all().count() <= SIGHTINGS_MAX);
    assert!(sightings.get(&ours).is_some());
    // Neither garbage nor strangers nor forgeries from elsewhere take the turn of one that is enrolled.
    let mut forged = beacon().sign(&board_keys());
    *forged.last_mut().unwrap() ^= 1;
    for number in 0..VERIFICATIONS_PER_SECOND_MAX * 2 {
        assert_eq!(sightings.hear(b"garbage", number, 9_000, |id| *id == ours), Heard::NoBeacon(BeaconFault::Garbled));
        sightings.hear(&forged, number + 1, 9_000, |id| *id == ours);
    }
    let next = Beacon { sequence: 2, ..beacon() }.sign(&board_keys());
    assert_eq!(sightings.hear(&next, 7, 9_000, |id| *id == ours), Heard::Shed);
    assert_eq!(sightings.hear(&next, 0, 9_000, |id| *id == ours), Heard::Again(ours));
}
