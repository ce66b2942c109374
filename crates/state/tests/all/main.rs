//! What the state promises, each promise in a file of its own. One program, because linking takes longer than most of
//! them.

mod answers;
mod backup;
mod buckets;
mod common;
mod damage;
mod damaged_tables;
mod durability;
mod ended_queues;
mod format_one;
mod migration;
mod model;
mod parts;
mod plain_queue;
mod queue_load;
mod queue_model;
mod queues;
mod renames;
mod transactions;
mod transfer;
