//! The server's promises, one by one. That they are Kubernetes' own is what the conformance test is for.

#![allow(clippy::needless_pass_by_value, reason = "json! is written where it is sent")]

mod admission;
mod collecting;
mod deleting;
mod watching;
mod writing;

use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use serde_json::{Value, json};

use super::kind::{CLAIM, ETCD_CLUSTER, ETCD_MEMBER, POD};
use super::*;

/// A server with a clock that ticks and a die.
struct Bench {
    server: ApiServer,
    rng: SmallRng,
    now: Millis,
}

impl Bench {
    fn new() -> Self {
        Self { server: ApiServer::default(), rng: SmallRng::seed_from_u64(7), now: 0 }
    }

    fn create(&mut self, kind: Kind, object: Value) -> Result<Value, ApiError> {
        self.server.create(self.now, kind, "ns", object, &mut self.rng)
    }

    fn patch(&mut self, kind: Kind, name: &str, change: Value) -> Result<Value, ApiError> {
        self.server.patch_merge(self.now, kind, "ns", name, &change, None)
    }

    fn patch_status(&mut self, kind: Kind, name: &str, change: Value) -> Result<Value, ApiError> {
        self.server.patch_merge(self.now, kind, "ns", name, &change, Some(Sub::Status))
    }

    fn update(&mut self, kind: Kind, object: Value) -> Result<Value, ApiError> {
        let name = meta::name(&object).to_owned();
        self.server.update(self.now, kind, "ns", &name, object, None)
    }

    fn delete(&mut self, kind: Kind, name: &str, options: &DeleteOptions) -> Result<Deletion, ApiError> {
        self.server.delete(self.now, kind, "ns", name, options)
    }

    fn get(&self, kind: Kind, name: &str) -> Option<&Value> {
        self.server.peek(kind, "ns", name).map(|object| &**object)
    }

    fn collect_all(&mut self) {
        while self.server.collect_garbage(self.now) > 0 {}
    }
}

fn cluster(name: &str) -> Value {
    json!({ "metadata": { "name": name }, "spec": { "version": "3.6.16" } })
}

fn member(name: &str) -> Value {
    json!({ "metadata": { "name": name }, "spec": {
        "clusterName": "c", "version": "3.6.16", "storage": {}, "initialCluster": "", "clusterToken": "t",
    }})
}

fn pod(name: &str) -> Value {
    json!({ "metadata": { "name": name }, "spec": {
        "containers": [{ "name": "etcd", "image": "etcd:v3.6.16", "command": ["etcd"] }],
        "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }],
    }})
}

fn claim(name: &str) -> Value {
    let resources = json!({ "requests": { "storage": "1Gi" } });
    json!({ "metadata": { "name": name }, "spec": { "accessModes": ["ReadWriteOnce"], "resources": resources } })
}

fn owned(mut object: Value, owner: &Value) -> Value {
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
    }]);
    object
}

fn finalized(mut object: Value, finalizers: &[&str]) -> Value {
    object["metadata"]["finalizers"] = json!(finalizers);
    object
}

/// Code and reason of a refusal.
fn refusal<T: std::fmt::Debug>(result: Result<T, ApiError>) -> (u16, &'static str) {
    let error = result.expect_err("should be refused");
    (error.code, error.reason)
}
