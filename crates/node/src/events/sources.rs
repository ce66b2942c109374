//! What makes events: the triggers of all deployed functions, by kind. Gates watch it, and act when it changes.

use manifest::{CronTrigger, EveryTrigger, Function, MqttTrigger, Name};
use std::sync::Arc;

/// All triggers at one moment, in the order of the functions' names.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sources {
    pub mqtt: Vec<Source<MqttTrigger>>,
    pub timers: Timers,
    /// They do not run, for perhaps another node runs them; but if they are this one's, it will go on with them.
    pub unknown: Timers,
}

/// What the clock starts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Timers {
    pub every: Vec<Source<EveryTrigger>>,
    pub cron: Vec<Source<CronTrigger>>,
}

/// Where the events of a queue are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandledAt {
    Here,
    Elsewhere,
    /// The queue has a home, and the node has no part in a fleet: not yet, not any more, or just not now.
    Unknown,
}

/// One trigger of one function.
#[derive(Debug, Clone, PartialEq)]
pub struct Source<Trigger> {
    pub function: Name,
    /// Where its events go: the queue the function handles.
    pub queue: Arc<str>,
    /// Its place in the list of the manifest, from 0.
    pub place: usize,
    pub trigger: Trigger,
}

impl Sources {
    /// `handled_at` says where the events of a queue are handled.
    pub fn of<'a>(
        functions: impl Iterator<Item = (&'a Name, &'a Function)>,
        handled_at: impl Fn(&Name) -> HandledAt,
    ) -> Self {
        let mut sources = Self::default();
        for (name, function) in functions {
            let Some(handled) = function.handles(name) else { continue };
            let queue: Arc<str> = handled.as_str().into();
            add(&mut sources.mqtt, name, &queue, &function.mqtt);
            let timers = match handled_at(handled) {
                HandledAt::Here => &mut sources.timers,
                HandledAt::Unknown => &mut sources.unknown,
                HandledAt::Elsewhere => continue,
            };
            add(&mut timers.every, name, &queue, &function.every);
            add(&mut timers.cron, name, &queue, &function.cron);
        }
        sources
    }
}

fn add<Trigger: Clone>(all: &mut Vec<Source<Trigger>>, function: &Name, queue: &Arc<str>, triggers: &[Trigger]) {
    let sources = triggers.iter().enumerate().map(|(place, trigger)| Source {
        function: function.clone(),
        queue: queue.clone(),
        place,
        trigger: trigger.clone(),
    });
    all.extend(sources);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn triggers_lead_to_the_queue_their_function_handles() {
        let manifest = manifest::parse(
            r#"
            [function.lights]
            image = "x"
            mqtt = ["door/1", "door/2"]
            [function.report]
            image = "x"
            queue = "readings"
            every = "10s"
            cron = "0 7 * * *"
            [function.web]
            image = "x"
            http = "/"
            "#,
        );
        let manifest = manifest.unwrap();
        let sources = Sources::of(manifest.function.iter(), |_| HandledAt::Here);
        let mqtt: Vec<_> =
            sources.mqtt.iter().map(|source| (&*source.queue, source.place, source.trigger.topic.as_str())).collect();
        assert_eq!(mqtt, [("lights", 0, "door/1"), ("lights", 1, "door/2")]);
        let Timers { every, cron } = &sources.timers;
        assert_eq!((every.len(), &*every[0].queue), (1, "readings"));
        assert_eq!((cron.len(), cron[0].function.as_str()), (1, "report"));
        assert_eq!(sources.unknown, Timers::default());
        let elsewhere = Sources::of(manifest.function.iter(), |_| HandledAt::Elsewhere);
        assert_eq!(elsewhere, Sources { mqtt: sources.mqtt.clone(), ..Sources::default() });
        let unknown = Sources::of(manifest.function.iter(), |_| HandledAt::Unknown);
        assert_eq!((&unknown.unknown, &unknown.timers), (&sources.timers, &Timers::default()));
    }
}
