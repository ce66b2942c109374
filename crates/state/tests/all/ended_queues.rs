//! Queues of workflows that have ended: they take no events until what handles them is deployed again.

use crate::queues::{NOW, event, fail, lease_at, push, push_of, with_queue};
use state::{CommitError, Failed, QueueConfig};

#[test]
fn a_queue_whose_workflow_has_ended_takes_no_new_events_and_its_own_stay() {
    with_queue(QueueConfig { events_max: 1, ..QueueConfig::default() }, |state, queue| {
        push(state, "a");
        queue.configure(QueueConfig { is_ended: true, ..queue.config() });
        let mut transaction = state.begin();
        transaction.push("q", &push_of(event("b")), NOW).unwrap();
        assert_eq!(transaction.commit().err(), Some(CommitError::QueueEnded("q".to_owned())));
        let leased = lease_at(queue, NOW).unwrap();
        fail(state, &leased, Failed::Retry { at_ms: NOW + 1, reason: "again".into() });
        assert_eq!((queue.counts().delayed, queue.counts().since_start.refused), (1, 0));
        queue.configure(QueueConfig { events_max: 2, is_ended: false, ..queue.config() });
        push(state, "b");
        assert_eq!(queue.counts().ready, 1);
    });
}
