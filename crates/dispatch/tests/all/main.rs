//! What the dispatcher promises: its line against a model of it, and the shell around it.

mod shell;
mod simulation;
