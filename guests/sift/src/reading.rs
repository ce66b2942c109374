//! The work that the benchmark's handlers do: finds the reading in a sensor's message and says whether it is high.
//!
//! One text for both sides: the component `sift` and the native programs beside which it is measured.

/// Above this many parts of CO2 in a million the air of a room is bad.
const HIGH_PPM: f64 = 1_000.0;

/// Whether the reading `"co2":NUMBER` is high; `None` if there is none.
pub fn is_high(message: &[u8]) -> Option<bool> {
    let message = core::str::from_utf8(message).ok()?;
    let (_, rest) = message.split_once("\"co2\":")?;
    let end = rest.find([',', '}'])?;
    rest[..end].trim().parse::<f64>().ok().map(|ppm| ppm > HIGH_PPM)
}
