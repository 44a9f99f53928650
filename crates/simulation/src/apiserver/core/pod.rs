//! Pods: their many defaults, and the few fields of a spec that may change.

use serde_json::{Value, json};

use super::or_insert;

pub fn default(spec: &mut Value) {
    let account = spec["serviceAccountName"].as_str().unwrap_or("default").to_owned();
    let defaults = [
        ("dnsPolicy", json!("ClusterFirst")),
        ("enableServiceLinks", json!(true)),
        ("preemptionPolicy", json!("PreemptLowerPriority")),
        ("priority", json!(0)),
        ("restartPolicy", json!("Always")),
        ("schedulerName", json!("default-scheduler")),
        ("securityContext", json!({})),
        ("serviceAccount", json!(account)),
        ("serviceAccountName", json!(account)),
        ("terminationGracePeriodSeconds", json!(30)),
    ];
    or_insert(spec, &defaults);
    tolerate(spec);
    for list in ["containers", "initContainers"] {
        spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten().for_each(default_container);
    }
}

/// One address is also a list of one.
pub fn default_status(pod: &mut Value) {
    let Some(status) = pod.get_mut("status") else { return };
    for (one, many) in [("podIP", "podIPs"), ("hostIP", "hostIPs")] {
        if let Some(ip) = status.get(one).cloned() {
            or_insert(status, &[(many, json!([{ "ip": ip }]))]);
        }
    }
}

/// Every Pod stays five minutes on a node that does not answer.
fn tolerate(spec: &mut Value) {
    or_insert(spec, &[("tolerations", json!([]))]);
    let Some(tolerations) = spec["tolerations"].as_array_mut() else { return };
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let covers = |t: &Value| {
            (t["key"] == key || t["key"].is_null()) && (t["effect"] == "NoExecute" || t["effect"].is_null())
        };
        if !tolerations.iter().any(covers) {
            let toleration =
                json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 });
            tolerations.push(toleration);
        }
    }
}

fn default_container(container: &mut Value) {
    let image = container["image"].as_str().unwrap_or_default();
    let newest = image.ends_with(":latest") || !image.rsplit('/').next().unwrap_or_default().contains(':');
    let defaults = [
        ("imagePullPolicy", json!(if newest { "Always" } else { "IfNotPresent" })),
        ("resources", json!({})),
        ("terminationMessagePath", json!("/dev/termination-log")),
        ("terminationMessagePolicy", json!("File")),
    ];
    or_insert(container, &defaults);
    for port in container.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        or_insert(port, &[("protocol", json!("TCP"))]);
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = container.get_mut(probe) else { continue };
        let defaults = [
            ("failureThreshold", json!(3)),
            ("periodSeconds", json!(10)),
            ("successThreshold", json!(1)),
            ("timeoutSeconds", json!(1)),
        ];
        or_insert(probe, &defaults);
        if let Some(get) = probe.get_mut("httpGet") {
            or_insert(get, &[("scheme", json!("HTTP"))]);
        }
    }
}

pub fn problems_of_new(spec: &Value) -> Vec<String> {
    let mut problems = vec![];
    let containers = spec["containers"].as_array().map(Vec::as_slice).unwrap_or_default();
    if containers.is_empty() {
        problems.push("spec.containers: Required value".to_owned());
    }
    for container in containers {
        for field in ["name", "image"] {
            if container[field].as_str().unwrap_or_default().is_empty() {
                problems.push(format!("spec.containers[].{field}: Required value"));
            }
        }
    }
    problems
}

/// Only images, a shorter deadline, more tolerations and a repaired grace period may differ.
pub fn problems_of_update(old: &Value, new: &Value) -> Vec<String> {
    let mut allowed = new.clone();
    for list in ["containers", "initContainers"] {
        let before = old.get(list).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let after = allowed.get_mut(list).and_then(Value::as_array_mut);
        if let Some(after) = after.filter(|after| after.len() == before.len()) {
            after.iter_mut().zip(before).for_each(|(after, before)| copy(after, before, "image"));
        }
    }
    let deadline = |spec: &Value| spec["activeDeadlineSeconds"].as_i64().unwrap_or(i64::MAX);
    if deadline(new) <= deadline(old) {
        copy(&mut allowed, old, "activeDeadlineSeconds");
    }
    let tolerated = |spec: &Value| spec["tolerations"].as_array().cloned().unwrap_or_default();
    let now = tolerated(new);
    if tolerated(old).iter().all(|toleration| now.contains(toleration)) {
        copy(&mut allowed, old, "tolerations");
    }
    if old["terminationGracePeriodSeconds"].as_i64() < Some(0) && new["terminationGracePeriodSeconds"] == 1 {
        copy(&mut allowed, old, "terminationGracePeriodSeconds");
    }
    let problem = "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
    (allowed != *old).then(|| problem.to_owned()).into_iter().collect()
}

/// Takes a field over, or its absence.
pub fn copy(object: &mut Value, from: &Value, field: &str) {
    let Some(object) = object.as_object_mut() else { return };
    match from.get(field) {
        Some(value) => object.insert(field.to_owned(), value.clone()),
        None => object.remove(field),
    };
}
