//! `sensor publish`: readings at a steady pace, each confirmed by the broker before the program ends.

use clap::Args;
use rumqttc::{AsyncClient, Event, EventLoop, MqttOptions, Packet, QoS};
use sensor::{Kits, Options};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::{MissedTickBehavior, interval, sleep};

/// Messages on their way at once; then publishing waits for the broker.
const UNCONFIRMED_MAX: u16 = 100;

/// Pause before a broker that is not there is tried again.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub struct Publish {
    /// The broker, as HOST:PORT
    #[arg(long, default_value = "127.0.0.1:1883")]
    broker: String,
    /// Messages a second, of all kits together
    #[arg(long, default_value_t = 3.0, value_parser = rate)]
    rate: f64,
    /// End after so many messages
    #[arg(long)]
    count: Option<u64>,
    /// Share of the messages with a fault, from 0 to 1
    #[arg(long, default_value_t = 0.1)]
    faults: f64,
    /// The same seed gives the same values and faults
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Rooms with a kit each
    #[arg(long, default_value_t = 3)]
    kits: usize,
    /// Seconds in which a day passes, with its two times of full rooms
    #[arg(long, default_value_t = 120)]
    day_seconds: u64,
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|error| format!("{error}"))?;
    (0.001..=100_000.0).contains(&rate).then_some(rate).ok_or_else(|| "from 0.001 to 100000".to_owned())
}

impl Publish {
    pub async fn run(self) -> Result<(), String> {
        let (client, events) = self.connect()?;
        let confirmed = tokio::spawn(confirm(events, self.count));
        let mut kits = Kits::new(Options {
            seed: self.seed,
            kits: self.kits,
            faults: self.faults,
            day_ms: self.day_seconds.saturating_mul(1_000),
        });
        let mut pace = interval(Duration::from_secs_f64(1.0 / self.rate));
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for _ in 0..self.count.unwrap_or(u64::MAX) {
            pace.tick().await;
            let message = kits.next(now_ms());
            let sent = client.publish(message.topic, QoS::AtLeastOnce, false, message.payload).await;
            sent.map_err(|error| format!("publishing: {error}"))?;
        }
        let confirmed = confirmed.await.map_err(|error| error.to_string())?;
        println!("{confirmed} messages confirmed");
        Ok(())
    }

    fn connect(&self) -> Result<(AsyncClient, EventLoop), String> {
        let bad = || format!("--broker is {:?}, write HOST:PORT", self.broker);
        let (host, port) = self.broker.rsplit_once(':').ok_or_else(bad)?;
        let mut options =
            MqttOptions::new(format!("sensor-{}", std::process::id()), host, port.parse().map_err(|_| bad())?);
        options.set_keep_alive(Duration::from_secs(30)).set_inflight(UNCONFIRMED_MAX);
        Ok(AsyncClient::new(options, usize::from(UNCONFIRMED_MAX)))
    }
}

/// Drives the connection, and connects again when it is lost. Ends when `count` messages are confirmed.
async fn confirm(mut events: EventLoop, count: Option<u64>) -> u64 {
    let mut confirmed = 0;
    while count.is_none_or(|count| confirmed < count) {
        match events.poll().await {
            Ok(Event::Incoming(Packet::PubAck(_))) => confirmed += 1,
            Ok(_) => {}
            Err(error) => {
                eprintln!("sensor: broker: {error}; trying again");
                sleep(PAUSE).await;
            }
        }
    }
    confirmed
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
