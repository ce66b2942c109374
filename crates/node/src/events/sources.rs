//! What makes events: the triggers of all deployed functions, by kind. Gates watch it, and act when it changes.

use manifest::{CronTrigger, EveryTrigger, Function, MqttTrigger, Name};
use std::sync::Arc;

/// All triggers at one moment, in the order of the functions' names.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sources {
    pub mqtt: Vec<Source<MqttTrigger>>,
    pub every: Vec<Source<EveryTrigger>>,
    pub cron: Vec<Source<CronTrigger>>,
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
    /// `is_here` says whether the events of a queue are handled on this node.
    pub fn of<'a>(functions: impl Iterator<Item = (&'a Name, &'a Function)>, is_here: impl Fn(&Name) -> bool) -> Self {
        let mut sources = Self::default();
        for (name, function) in functions {
            let Some(handled) = function.handles(name) else { continue };
            let queue: Arc<str> = handled.as_str().into();
            add(&mut sources.mqtt, name, &queue, &function.mqtt);
            if is_here(handled) {
                add(&mut sources.every, name, &queue, &function.every);
                add(&mut sources.cron, name, &queue, &function.cron);
            }
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
        let sources = Sources::of(manifest.function.iter(), |_| true);
        let mqtt: Vec<_> =
            sources.mqtt.iter().map(|source| (&*source.queue, source.place, source.trigger.topic.as_str())).collect();
        assert_eq!(mqtt, [("lights", 0, "door/1"), ("lights", 1, "door/2")]);
        assert_eq!((sources.every.len(), &*sources.every[0].queue), (1, "readings"));
        assert_eq!((sources.cron.len(), sources.cron[0].function.as_str()), (1, "report"));
        let elsewhere = Sources::of(manifest.function.iter(), |queue| queue.as_str() != "readings");
        assert_eq!((elsewhere.mqtt.len(), elsewhere.every.len(), elsewhere.cron.len()), (2, 0, 0));
    }
}
