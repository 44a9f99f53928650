//! The operator's requests, counted by the API server. It does not count by user, but it counts by FlowSchema, and a
//! FlowSchema can be made for every verb of one user. They lead to the priority level that service accounts have
//! anyway, so nothing is quicker or slower for being counted.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use k8s_openapi::api::flowcontrol::v1::FlowSchema;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::{Counts, Line};

const METRIC: &str = "apiserver_flowcontrol_dispatched_requests_total";
const PREFIX: &str = "etcd-operator-bench-";
const LABEL: &str = "etcd-operator-bench/requests";
const VERBS: [&str; 8] = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];
/// The lease of the leader election: two a renewal, whatever there is to do. Counted apart.
const LEASE: &str = "lease";
/// Long enough for the operator to have looked at every cluster.
const ROUND: Duration = Duration::from_secs(35);
/// Who still asks then is at rest as far as he ever is.
const PATIENCE: Duration = Duration::from_secs(300);

/// Counts the requests of one service account until it is closed.
pub struct Requests {
    client: Client,
}

impl Requests {
    pub async fn open(client: &Client, namespace: &str, service_account: &str) -> Result<Self> {
        let requests = Self { client: client.clone() };
        requests.clear().await?;
        let schemas = schemas(namespace, service_account);
        for schema in schemas {
            let schema: FlowSchema = serde_json::from_value(schema)?;
            requests.api().create(&PostParams::default(), &schema).await.context("making a FlowSchema")?;
        }
        Ok(requests)
    }

    fn api(&self) -> Api<FlowSchema> {
        Api::all(self.client.clone())
    }

    async fn clear(&self) -> Result<()> {
        let ours = ListParams::default().labels(LABEL);
        self.api().delete_collection(&DeleteParams::default(), &ours).await?;
        Ok(())
    }

    pub async fn close(self) -> Result<()> {
        self.clear().await
    }

    /// Requests so far, by verb.
    pub async fn count(&self) -> Result<Counts> {
        let page = self.client.request_text(http::Request::get("/metrics").body(Vec::new())?).await?;
        Ok(parse(&page))
    }

    /// Waits until the last steps are done and the last Events told, and nothing but the lease is asked for.
    pub async fn cease(&self) -> Result<()> {
        let began = Instant::now();
        let (mut before, mut since) = (self.work().await?, began);
        while since.elapsed() < ROUND && began.elapsed() < PATIENCE {
            tokio::time::sleep(Duration::from_secs(5)).await;
            let now = self.work().await?;
            if now != before {
                (before, since) = (now, Instant::now());
            }
        }
        Ok(())
    }

    async fn work(&self) -> Result<u64> {
        Ok(without_lease(&self.count().await?))
    }
}

/// All requests but those for the lease.
pub fn without_lease(requests: &Counts) -> u64 {
    requests.iter().filter(|(verb, _)| *verb != LEASE).map(|(_, count)| count).sum()
}

fn parse(page: &str) -> Counts {
    let verb = |line: Line<'_>| {
        let verb = line.label("flow_schema")?.strip_prefix(PREFIX)?.to_owned();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
        let count = line.value as u64;
        Some((verb, count))
    };
    Line::all(page, METRIC).filter_map(verb).collect()
}

fn schemas(namespace: &str, service_account: &str) -> Vec<Value> {
    let everywhere = |verbs: &[&str], group: &str, resource: &str| {
        json!([{ "verbs": verbs, "apiGroups": [group], "resources": [resource],
                 "namespaces": ["*"], "clusterScope": true }])
    };
    let schema = |name: &str, precedence: u32, resources: Option<Value>, other: Option<Value>| {
        json!({
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
            "kind": "FlowSchema",
            "metadata": { "name": format!("{PREFIX}{name}"), "labels": { LABEL: "true" } },
            "spec": {
                "matchingPrecedence": precedence,
                "priorityLevelConfiguration": { "name": "workload-low" },
                "distinguisherMethod": { "type": "ByUser" },
                "rules": [{
                    "subjects": [{
                        "kind": "ServiceAccount",
                        "serviceAccount": { "namespace": namespace, "name": service_account },
                    }],
                    "resourceRules": resources,
                    "nonResourceRules": other,
                }],
            },
        })
    };
    let lease = schema(LEASE, 500, Some(everywhere(&["*"], "coordination.k8s.io", "leases")), None);
    let other = schema("other", 502, None, Some(json!([{ "verbs": ["*"], "nonResourceURLs": ["*"] }])));
    let verbs = VERBS.map(|verb| schema(verb, 501, Some(everywhere(&[verb], "*", "*")), None));
    [lease, other].into_iter().chain(verbs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_apart_by_verb_and_other_users_are_left_out() {
        let page = r#"
apiserver_flowcontrol_dispatched_requests_total{flow_schema="etcd-operator-bench-get",priority_level="workload-low"} 7
apiserver_flowcontrol_dispatched_requests_total{flow_schema="etcd-operator-bench-lease",priority_level="workload-low"} 60
apiserver_flowcontrol_dispatched_requests_total{flow_schema="service-accounts",priority_level="workload-low"} 999
"#;
        assert_eq!(parse(page), Counts::from([("get".into(), 7), ("lease".into(), 60)]));
    }

    #[test]
    fn every_schema_is_one_that_kubernetes_knows() {
        let schemas = schemas("ns", "sa");
        assert_eq!(schemas.len(), VERBS.len() + 2);
        for schema in schemas {
            let schema: FlowSchema = serde_json::from_value(schema).unwrap();
            assert!(
                schema.spec.unwrap().matching_precedence.is_some_and(|p| p < 9000),
                "before service-accounts"
            );
        }
    }
}
