//! The calls an operator makes to etcd, counted by etcd itself: its members tell on their metrics port.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::{Client, ResourceExt as _};

use super::{Counts, Line};

const METRIC: &str = "grpc_server_started_total";
const PORT: u16 = 2381;

/// Calls so far, by method, of all these members together. Read through the API server, which reaches every Pod.
pub async fn etcd_calls(client: &Client, pods: &[Pod]) -> Result<Counts> {
    let mut calls = Counts::new();
    for pod in pods {
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}:{PORT}/proxy/metrics");
        let page = client.request_text(http::Request::get(path).body(Vec::new())?).await;
        let page = page.with_context(|| format!("{name} does not tell its metrics"))?;
        for (method, count) in parse(&page) {
            *calls.entry(method).or_default() += count;
        }
    }
    Ok(calls)
}

fn parse(page: &str) -> Counts {
    let method = |line: Line<'_>| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
        let count = line.value as u64;
        (count > 0).then(|| Some((line.label("grpc_method")?.to_owned(), count)))?
    };
    Line::all(page, METRIC).filter_map(method).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_told_apart_by_method() {
        let page = r#"
grpc_server_started_total{grpc_method="Status",grpc_service="etcdserverpb.Maintenance",grpc_type="unary"} 4
grpc_server_started_total{grpc_method="Alarm",grpc_service="etcdserverpb.Maintenance",grpc_type="unary"} 0
grpc_server_handled_total{grpc_code="OK",grpc_method="Status"} 4
"#;
        assert_eq!(parse(page), Counts::from([("Status".into(), 4)]));
    }
}
