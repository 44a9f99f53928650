//! What a real API server admits and refuses: every admission rule with at least one object on either side of it.
//!
//! `KUBECONFIG` names the cluster. Without one the tests fail and say so; they never skip.

#![allow(clippy::needless_pass_by_value, reason = "specs are written where they are used and given away")]

mod arena;
mod cluster_rules;
mod defrag_rules;
mod shape_rules;
mod stored_objects;
mod surface;
mod tightened;
