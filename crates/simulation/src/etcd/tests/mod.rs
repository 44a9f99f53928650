//! What the model owes to etcd, fact by fact.
