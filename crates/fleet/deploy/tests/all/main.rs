//! Orders, records, fits and places, as an anchor and the nodes see them.

mod deciding;
mod elastic;
mod forged;
mod near;
mod placing;
mod rollout;
mod world;
