//! Shells that share the permits of a workflow.

use super::*;
use crate::events::workflow::UnitPermits;

fn shared(script: &Arc<Script>, permits: &Arc<UnitPermits>) -> Cast {
    Cast { permits: Some(permits.clone()), ..cast(script.clone()) }
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let so = async {
        while !is_so() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, so).await.unwrap_or_else(|_| panic!("not {what}"));
}

/// A queue that was never empty kept all its workers for ever, whatever was deployed meanwhile.
#[tokio::test]
async fn a_lower_maximum_binds_those_who_work() {
    let world = World::new();
    let workers = || world.shell.numbers.workers.load(SeqCst);
    world.push(&["done"; 3_000]).await;
    until("four at work", || workers() == 4).await;
    let permits = UnitPermits::new(3);
    world.shell.replace(shared(&world.script, &permits));
    until("three at work", || workers() == 3 && permits.hold(None).left() == 0).await;
    permits.set_maximum(1);
    until("one at work", || workers() == 1).await;
    for _ in 0..20 {
        sleep(Duration::from_millis(2)).await;
        assert!(workers() <= 1 && world.queue.counts().ready > 0);
    }
    permits.set_maximum(4);
    until("four at work again", || workers() == 4).await;
    world.shell.replace(cast(world.script.clone()));
    until("nobody with a permit", || permits.hold(None).left() == 4).await;
}

/// A worker gave its permit back when its queue was empty, and until then no other step of the workflow had one.
#[tokio::test]
async fn a_step_that_is_never_done_leaves_the_others_their_turns() {
    let permits = UnitPermits::new(1);
    let [busy, second, third] = [(); 3].map(|()| World::new());
    for world in [&busy, &second, &third] {
        world.shell.replace(shared(&world.script, &permits));
    }
    busy.push(&["done"; 600]).await;
    until("the first at work", || busy.shell.is_working()).await;
    second.push(&["done"; 20]).await;
    third.push(&["done"; 20]).await;
    second.drained().await;
    third.drained().await;
    assert!(busy.queue.counts().ready > 0, "it was not done before");
    busy.drained().await;
    until("all given back", || permits.hold(None).left() == 1).await;
}
