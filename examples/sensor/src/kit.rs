//! Kits: what they measure, and what goes wrong with them.

use crate::random::Random;
use crate::time::iso;

/// Sensors of a Smart Citizen Kit, by the numbers of its platform: CO2 (SCD30), temperature (SHT31), noise.
const CO2: u32 = 158;
const TEMPERATURE: u32 = 55;
const NOISE: u32 = 53;

/// How the simulation runs.
#[derive(Debug, Clone)]
pub struct Options {
    pub seed: u64,
    /// Rooms with a kit each.
    pub kits: usize,
    /// Share of the messages with a fault, from 0 to 1.
    pub faults: f64,
    /// How long a day takes, in milliseconds: short ones show the whole curve soon.
    pub day_ms: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { seed: 1, kits: 3, faults: 0.1, day_ms: 86_400_000 }
    }
}

/// One publish.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    pub topic: String,
    pub payload: String,
    pub fault: Option<Fault>,
    /// What the kit measured, whatever became of it on the way.
    pub time_ms: u64,
    pub co2_ppm: f64,
}

/// What can be wrong with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The CO2 sensor is left out.
    Missing,
    /// A bare NaN, which is not even JSON.
    NotANumber,
    /// A word for a number.
    Word,
    /// Per cent in the place of ppm.
    WrongUnit,
    /// A number no sensor measures.
    Absurd,
    /// The end is cut off.
    Torn,
    /// The clock of the kit is years ahead.
    Clock,
    /// The message before, once more.
    Twice,
    /// Made before the last one, and sent after it.
    Late,
}

impl Fault {
    pub const ALL: [Self; 9] = [
        Self::Missing,
        Self::NotANumber,
        Self::Word,
        Self::WrongUnit,
        Self::Absurd,
        Self::Torn,
        Self::Clock,
        Self::Twice,
        Self::Late,
    ];

    /// Whether nobody can make sense of the message. One that comes twice or late is as good as any.
    pub fn spoils(self) -> bool {
        !matches!(self, Self::Twice | Self::Late)
    }
}

/// A building with a kit in each room.
#[derive(Debug, Clone)]
pub struct Kits {
    options: Options,
    random: Random,
    next: usize,
    /// The last good message of each kit.
    last: Vec<Option<Message>>,
}

impl Kits {
    pub fn new(options: Options) -> Self {
        let last = vec![None; options.kits.max(1)];
        Self { random: Random::new(options.seed), options, next: 0, last }
    }

    /// What the next kit sends at `time_ms`. The kits take turns.
    pub fn next(&mut self, time_ms: u64) -> Message {
        let kit = self.next;
        self.next = (kit + 1) % self.last.len();
        let faulty = self.random.share() < self.options.faults;
        let fault = faulty.then(|| Fault::ALL[self.random.below(Fault::ALL.len())]);
        match (fault, self.last[kit].clone()) {
            (Some(Fault::Twice), Some(last)) => Message { fault, ..last },
            // A kit that has not sent anything yet cannot send it again.
            (Some(Fault::Twice | Fault::Late), None) => self.good(kit, time_ms),
            (Some(Fault::Late), Some(last)) => self.message(kit, last.time_ms.saturating_sub(1_000), fault),
            (Some(_), _) => self.message(kit, time_ms, fault),
            (None, _) => self.good(kit, time_ms),
        }
    }

    fn good(&mut self, kit: usize, time_ms: u64) -> Message {
        let message = self.message(kit, time_ms, None);
        self.last[kit] = Some(message.clone());
        message
    }

    fn message(&mut self, kit: usize, time_ms: u64, fault: Option<Fault>) -> Message {
        let people = people(self.day_share(kit, time_ms));
        let co2 = round(430.0 + 900.0 * people + self.random.noise(40.0));
        let temperature = round(19.0 + 4.0 * people + self.random.noise(0.5));
        let noise = round(34.0 + 25.0 * people + self.random.noise(6.0));
        let value = match fault {
            Some(Fault::NotANumber) => "NaN".to_owned(),
            Some(Fault::Word) => "\"n/a\"".to_owned(),
            Some(Fault::WrongUnit) => format!("{:.4}", co2 / 10_000.0),
            Some(Fault::Absurd) => if self.random.number() & 1 == 0 { "1e9" } else { "-3.4e38" }.to_owned(),
            _ => co2.to_string(),
        };
        let recorded = iso(if fault == Some(Fault::Clock) { time_ms + 20 * 365 * 86_400_000 } else { time_ms });
        let co2_sensor = match fault {
            Some(Fault::Missing) => String::new(),
            _ => format!(r#"{{"id": {CO2}, "value": {value}}}, "#),
        };
        let mut payload = format!(
            r#"{{"data": [{{"recorded_at": "{recorded}", "sensors": [{co2_sensor}{{"id": {TEMPERATURE}, "value": {temperature}}}, {{"id": {NOISE}, "value": {noise}}}]}}]}}"#
        );
        if fault == Some(Fault::Torn) {
            payload.truncate(payload.len() / 2);
        }
        let topic = format!("device/sck/room-{}/readings", kit + 1);
        Message { topic, payload, fault, time_ms, co2_ppm: co2 }
    }

    /// How much of its day has passed for a room, from 0 to 1: rooms fill one after the other.
    fn day_share(&self, kit: usize, time_ms: u64) -> f64 {
        let day_ms = self.options.day_ms.max(1);
        let shift = kit as f64 / self.last.len() as f64 * 0.25;
        ((time_ms % day_ms) as f64 / day_ms as f64 + shift).fract()
    }
}

/// How full a room is over a day, from 0 to 1: empty at night, full in the morning and in the afternoon.
fn people(day: f64) -> f64 {
    let bump = |middle: f64, width: f64| (1.0 - ((day - middle) / width).powi(2)).max(0.0);
    bump(0.44, 0.10).max(bump(0.64, 0.12))
}

/// To a tenth, as the sensors give it.
fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(options: &Options, count: u64) -> Vec<Message> {
        let mut kits = Kits::new(options.clone());
        (0..count).map(|step| kits.next(1_795_219_200_000 + step * 60_000)).collect()
    }

    #[test]
    fn a_seed_repeats_everything() {
        let options = Options { faults: 0.3, ..Options::default() };
        assert_eq!(messages(&options, 500), messages(&options, 500));
        assert_ne!(messages(&options, 500), messages(&Options { seed: 2, ..options }, 500));
    }

    #[test]
    fn a_day_has_good_and_bad_air_in_every_room() {
        let day = messages(&Options { faults: 0.0, ..Options::default() }, 1_440);
        for room in ["room-1", "room-2", "room-3"] {
            let co2: Vec<f64> =
                day.iter().filter(|message| message.topic.contains(room)).map(|message| message.co2_ppm).collect();
            assert!(co2.iter().any(|co2| *co2 > 1_100.0) && co2.iter().any(|co2| *co2 < 500.0), "{room}");
        }
    }

    #[test]
    fn messages_are_json_unless_their_fault_is_that_they_are_not() {
        let all = messages(&Options { faults: 0.5, ..Options::default() }, 2_000);
        for message in &all {
            let is_json = serde_json::from_str::<serde_json::Value>(&message.payload).is_ok();
            assert_eq!(is_json, !matches!(message.fault, Some(Fault::NotANumber | Fault::Torn)), "{message:?}");
        }
        for fault in Fault::ALL {
            assert!(all.iter().any(|message| message.fault == Some(fault)), "{fault:?}");
        }
    }
}
