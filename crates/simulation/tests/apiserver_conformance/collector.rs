//! Garbage collection: the same families of objects, deleted in the same way, must end up the same.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kube::Client;
use serde_json::{Value, json};
use simulation::apiserver::http::Shared;
use simulation::apiserver::kind::{CLAIM, ETCD_CLUSTER, ETCD_MEMBER, SECRET, SERVICE};
use simulation::apiserver::{ApiServer, Kind};
use tokio::time::sleep;

use crate::bodies::contents;
use crate::side::{Question, Side, comparable};

const JSON: &str = "application/json";
/// The real collector needs a moment to learn of our kinds.
const LIMIT: Duration = Duration::from_secs(60);

/// How the head of the family is deleted, and whether a child holds on to itself.
const CASES: [(Option<&str>, bool); 6] = [
    (None, false),
    (Some("Background"), false),
    (Some("Foreground"), false),
    (Some("Orphan"), false),
    (Some("Foreground"), true),
    (Some("Background"), true),
];

pub async fn compare(real: &Client) -> Result<()> {
    for (number, (propagation, holds)) in CASES.into_iter().enumerate() {
        let namespace = format!("collector-{number}");
        crate::create_namespace(real, &namespace).await?;
        let shared = Shared::new(ApiServer::default(), 1);
        let model = Side::new(shared.client("collector", &namespace), namespace.clone());
        let real = Side::new(real.clone(), namespace);
        for side in [&model, &real] {
            found_family(side, holds).await?;
            let path = side.path(ETCD_CLUSTER, Some("head"), None);
            let body = propagation.map(|policy| json!({ "propagationPolicy": policy }));
            side.ask(&Question { method: "DELETE", path, content_type: JSON, accept: JSON, body }).await?;
        }
        while shared.with(|server, now| server.collect_garbage(now)) > 0 {}
        let expected = family(&model).await?;
        let began = Instant::now();
        let mut found = family(&real).await?;
        while found != expected && began.elapsed() < LIMIT {
            sleep(Duration::from_millis(100)).await;
            found = family(&real).await?;
        }
        ensure!(
            found == expected,
            "deleted with {propagation:?}, child holds on: {holds}\n  model {expected}\n  real  {found}"
        );
        // It must also stay so.
        sleep(Duration::from_millis(500)).await;
        ensure!(family(&real).await? == expected, "deleted with {propagation:?}: the real one went on");
    }
    Ok(())
}

/// A cluster with a member that has a claim, a Service, and a Secret that somebody else owns too.
async fn found_family(side: &Side, holds: bool) -> Result<()> {
    let head = create(side, ETCD_CLUSTER, "head", json!([]), false).await?;
    let other = create(side, ETCD_CLUSTER, "other", json!([]), false).await?;
    let member = create(side, ETCD_MEMBER, "member", json!([owner(&head, true)]), holds).await?;
    create(side, CLAIM, "claim", json!([owner(&member, true)]), false).await?;
    create(side, SERVICE, "service", json!([owner(&head, false)]), false).await?;
    create(side, SECRET, "shared", json!([owner(&head, true), owner(&other, true)]), false).await?;
    Ok(())
}

fn owner(of: &Value, blocks: bool) -> Value {
    json!({
        "apiVersion": of["apiVersion"], "kind": of["kind"], "name": of["metadata"]["name"],
        "uid": of["metadata"]["uid"], "blockOwnerDeletion": blocks,
    })
}

async fn create(side: &Side, kind: Kind, name: &str, owners: Value, holds: bool) -> Result<Value> {
    let mut body = contents(kind).swap_remove(0);
    let finalizers = if holds { json!(["x.io/hold"]) } else { json!([]) };
    body["apiVersion"] = json!(kind.api_version());
    body["kind"] = json!(kind.kind);
    body["metadata"] = json!({ "name": name, "ownerReferences": owners, "finalizers": finalizers });
    let path = side.path(kind, None, None);
    let question = Question { method: "POST", path, content_type: JSON, accept: JSON, body: Some(body) };
    let answer = side.ask(&question).await?;
    ensure!(answer.code == 201, "{}", answer.body);
    Ok(answer.body)
}

async fn family(side: &Side) -> Result<Value> {
    let mut family = json!({});
    for kind in [ETCD_CLUSTER, ETCD_MEMBER, CLAIM, SERVICE, SECRET] {
        let list = side.get(side.path(kind, None, None)).await?;
        let items = list.body["items"].as_array().cloned().unwrap_or_default();
        family[kind.plural] = items.iter().map(|item| comparable(kind, item)["metadata"].clone()).collect();
    }
    Ok(family)
}
