//! Both neighbours of the metrics server, for its tests: the API server that it asks, and the client that asks it.

mod api;
mod client;

pub use api::{FakeApi, Mood};
pub use client::{request, shake_hands};
