//! What any [`controller`] needs, and nothing of what one is about: watches that fill a [`cache`], a [`queue`] of keys,
//! [leadership](leader), bounded [`requests`] to the API server and to etcd, [`events`], [`metrics`] and the
//! [server](metrics_server) that protects them, [probes](http), and the [domain](cluster_domain) of the cluster.

pub mod ambient;
pub mod cache;
pub mod cluster_domain;
pub mod controller;
pub mod events;
pub mod http;
pub mod leader;
pub mod metrics;
pub mod metrics_server;
pub mod queue;
pub mod requests;
pub mod sentence;
pub mod watch;
