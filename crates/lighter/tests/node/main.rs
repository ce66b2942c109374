//! The node as its users meet it: the real program, a data folder of its own, functions from `guests/prebuilt`.

mod access;
mod boards;
mod bounds;
mod cli;
mod compiling;
mod connections;
mod crash;
mod damage;
mod dashboard;
mod deploy;
mod disk;
mod events;
mod fleet;
mod gates;
mod lacking;
mod later;
mod limits;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod microvm;
mod mqtt;
mod mqtt_client;
mod observe;
mod process;
mod receiver;
mod support;
mod timers;
mod toolchains;
mod webhooks;
mod workflows;
