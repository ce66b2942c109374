//! Follows one event: its own handlings, those of the events that were pushed in them, and so on.

use super::{Kept, Past};
use api_types::HandlingInfo;
use handling::id_of_push;
use manifest::Name;
use std::collections::{HashMap, HashSet, VecDeque};

/// Events of one trail; those beyond are left out.
const EVENTS_MAX: usize = 200;

/// Pushes of one handling to one queue that are looked for; later ones are not found.
const PUSHES_MAX: u32 = 100;

impl Past {
    /// The handlings of all events with this id, the oldest first, and of what came of them. `pushes` says to which
    /// queues a function may push.
    pub fn follow(&self, id: &str, pushes: impl Fn(&Name) -> Vec<Name>) -> Vec<HandlingInfo> {
        let all: Vec<Kept> = self.0.lock().iter().cloned().collect();
        let mut by_event: HashMap<(String, String), Vec<&Kept>> = HashMap::new();
        for kept in &all {
            by_event.entry((kept.queue.to_string(), kept.id.to_string())).or_default().push(kept);
        }
        let roots = by_event.keys().filter(|(_, event)| event == id).map(|event| (event, None));
        let mut next: VecDeque<(_, Option<&str>)> = roots.collect();
        let mut known: HashSet<_> = next.iter().map(|(event, _)| *event).collect();
        let mut trail = Vec::new();
        while let Some((event, pushed_by)) = next.pop_front() {
            let tries = &by_event[event];
            let told = |kept: &&Kept| HandlingInfo { pushed_by: pushed_by.map(str::to_owned), ..kept.told() };
            trail.extend(tries.iter().map(told));
            for pushed in tries.iter().flat_map(|kept| kept.pushed(&pushes)) {
                let Some((found, _)) = by_event.get_key_value(&pushed) else { continue };
                if known.len() < EVENTS_MAX && known.insert(found) {
                    next.push_back((found, Some(&event.1)));
                }
            }
        }
        trail.sort_by_key(|one| (one.began_ms, one.attempt));
        trail
    }
}

impl Kept {
    /// Queues and ids of all events that its handling can have pushed: a crash of the node may have made two handlings
    /// of one push, so an id that is found is proof enough.
    fn pushed(&self, pushes: &impl Fn(&Name) -> Vec<Name>) -> Vec<(String, String)> {
        let Some(ran) = &self.ran else { return Vec::new() };
        let giver = self.giver.as_deref().unwrap_or(&self.source);
        let of_queue = |queue: Name| {
            let id = |number| id_of_push(giver, &self.id, number, queue.as_str());
            (1..=PUSHES_MAX).map(|number| (queue.to_string(), id(number))).collect::<Vec<_>>()
        };
        pushes(&ran.function).into_iter().flat_map(of_queue).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Became, Ran};
    use super::*;
    use event::Event;
    use state::{LeaseId, Leased, Ticket};
    use std::time::Duration;

    fn name(text: &str) -> Name {
        text.to_owned().try_into().unwrap()
    }

    fn note(past: &Past, queue: &str, id: &str, attempt: u32, became: Became) {
        let event = Event { id: id.into(), source: "/x".into(), kind: "k".into(), attempt, ..Event::default() };
        let leased = Leased {
            lease: LeaseId(1),
            queue: queue.into(),
            sequence: attempt.into(),
            event,
            pushed_ms: 1,
            ticket: Ticket::NOTHING_WRITTEN,
        };
        let ran = Ran { function: name(&format!("of-{queue}")), version: 3, times: None };
        past.note(&leased, Some(ran), became, (attempt.into(), Duration::from_micros(7)));
    }

    /// `of-a` may push to `b`, `of-b` to `b` and `c`.
    fn pushes(function: &Name) -> Vec<Name> {
        match function.as_str() {
            "of-a" => vec![name("b")],
            "of-b" => vec![name("b"), name("c")],
            _ => Vec::new(),
        }
    }

    #[test]
    fn an_event_is_followed_through_its_tries_and_what_it_pushed() {
        let past = Past::default();
        let second = id_of_push("/x", "mine", 2, "b");
        let third = id_of_push("/x", &second, 1, "c");
        note(&past, "a", "mine", 1, Became::Retry { again_ms: 9, reason: "L6004: later".into() });
        note(&past, "a", "mine", 2, Became::Done);
        note(&past, "b", &second, 3, Became::Done);
        note(&past, "c", &third, 4, Became::Dead { reason: "L6003: no".into() });
        note(&past, "c", "another", 5, Became::Done);
        // Not pushed by its handling: that may not push there.
        note(&past, "d", &id_of_push("/x", "mine", 1, "d"), 6, Became::Done);
        let trail = past.follow("mine", pushes);
        let told: Vec<_> = trail.iter().map(|one| (&*one.queue, &*one.outcome, one.pushed_by.as_deref())).collect();
        let expected = [
            ("a", "retry", None),
            ("a", "done", None),
            ("b", "done", Some("mine")),
            ("c", "dead", Some(second.as_str())),
        ];
        assert_eq!(told, expected);
        assert_eq!((trail[0].again_ms, trail[0].reason.as_deref()), (Some(9), Some("L6004: later")));
        assert!(past.follow("nobody", pushes).is_empty());
        let failed = past.newest(10, |one| one.reason.is_some());
        assert_eq!(failed.iter().map(|one| &*one.queue).collect::<Vec<_>>(), ["c", "a"], "the newest first");
    }

    /// A function that pushes to its own queue for ever.
    #[test]
    fn a_trail_ends() {
        let past = Past::default();
        let mut id = "first".to_owned();
        for _ in 0..2 * EVENTS_MAX {
            note(&past, "b", &id, 1, Became::Done);
            id = id_of_push("/x", &id, 1, "b");
        }
        assert_eq!(past.follow("first", pushes).len(), EVENTS_MAX);
    }
}
