//! The life of EtcdClusters on a real Kubernetes: they form, grow, shrink, sleep, lose members, rest and are deleted.
//!
//! The operator runs in the cluster (`make deploy`). Tests share nothing but the machine, so a few can run at a time.

mod correcting;
mod deleting;
mod forgetting;
mod forming;
mod growing;
mod healing;
mod kit;
mod losing;
mod orphaning;
mod quotas;
mod replacing;
mod resting;
mod shrinking;
mod strangers;
mod unsupported;
