//! The subresource `scale`, by which `kubectl scale` and autoscalers write `spec.replicas` and nothing else.

use serde_json::{Value, json};

use super::{ApiError, ApiServer, Kind, Millis, meta};

impl ApiServer {
    pub fn scale(&self, kind: Kind, namespace: &str, name: &str) -> Result<Value, ApiError> {
        if !kind.scale {
            return Err(ApiError::no_such_path());
        }
        let object = self.existing(kind, namespace, name)?;
        Ok(scale_of(kind, &object))
    }

    pub(super) fn update_scale(
        &mut self,
        now: Millis,
        kind: Kind,
        namespace: &str,
        name: &str,
        scale: &Value,
    ) -> Result<Value, ApiError> {
        if !kind.scale {
            return Err(ApiError::no_such_path());
        }
        let old = self.existing(kind, namespace, name)?;
        let replicas = scale["spec"]["replicas"].as_i64().unwrap_or_default();
        if replicas < 0 {
            let problem =
                format!("spec.replicas: Invalid value: {replicas}: must be greater than or equal to 0");
            return Err(ApiError::invalid(kind, name, &[problem]));
        }
        let mut object = (*old).clone();
        let version = meta::text(scale, "resourceVersion");
        if !version.is_empty() {
            meta::set(&mut object, "resourceVersion", json!(version));
        }
        object["spec"]["replicas"] = json!(replicas);
        let written = self.replace(now, kind, &old, object, None)?;
        Ok(scale_of(kind, &written))
    }
}

fn scale_of(kind: Kind, object: &Value) -> Value {
    let replicas = if kind == super::kind::ETCD_CLUSTER { "readyMembers" } else { "replicas" };
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        metadata[field] = object["metadata"][field].clone();
    }
    let mut scale = json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": {},
        "status": { "replicas": object["status"][replicas].as_i64().unwrap_or_default() },
    });
    // Zero is written as absent, by the type's own rules.
    if let Some(replicas) = object["spec"]["replicas"].as_i64().filter(|replicas| *replicas != 0) {
        scale["spec"]["replicas"] = json!(replicas);
    }
    if let Some(selector) = object["status"]["selector"].as_str() {
        scale["status"]["selector"] = json!(selector);
    }
    scale
}
