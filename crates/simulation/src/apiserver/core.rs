//! What the API server knows of the kinds it was born with: their fields, defaults, and what may never change.

use k8s_openapi::ByteString;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod, Secret, Service};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::garbage::{CLAIM_PROTECTION, VOLUME_PROTECTION};
use super::kind::{BUDGET, CLAIM, EVENT, LEASE, NODE, POD, SECRET, SERVICE, VOLUME};
use super::{ApiError, Kind, meta};

mod pod;

/// Drops fields Kubernetes does not know, refuses values of the wrong type, fills in defaults.
pub fn decode(kind: Kind, object: Value) -> Result<Value, serde_json::Error> {
    let mut object = match kind {
        POD => typed::<Pod>(object),
        CLAIM => typed::<PersistentVolumeClaim>(object),
        VOLUME => typed::<PersistentVolume>(object),
        SERVICE => typed::<Service>(object),
        SECRET => secret(object),
        NODE => typed::<Node>(object),
        BUDGET => typed::<PodDisruptionBudget>(object),
        LEASE => typed::<Lease>(object),
        EVENT => typed::<Event>(object),
        _ => Ok(object),
    }?;
    match kind {
        POD => {
            pod::default(&mut object["spec"]);
            pod::default_status(&mut object);
        }
        CLAIM => or_insert(&mut object["spec"], &[("volumeMode", json!("Filesystem"))]),
        SERVICE => default_service(&mut object["spec"]),
        SECRET => or_insert(&mut object, &[("type", json!("Opaque"))]),
        _ => {}
    }
    Ok(object)
}

fn typed<T: DeserializeOwned + Serialize>(object: Value) -> Result<Value, serde_json::Error> {
    serde_json::to_value(serde_json::from_value::<T>(object)?)
}

/// Clear text is a way to write data, not to store it.
fn secret(object: Value) -> Result<Value, serde_json::Error> {
    let mut secret: Secret = serde_json::from_value(object)?;
    for (key, text) in secret.string_data.take().unwrap_or_default() {
        secret.data.get_or_insert_default().insert(key, ByteString(text.into_bytes()));
    }
    serde_json::to_value(secret)
}

fn or_insert(object: &mut Value, defaults: &[(&str, Value)]) {
    if object.is_null() {
        *object = json!({});
    }
    if let Some(object) = object.as_object_mut() {
        for (field, value) in defaults {
            object.entry(*field).or_insert_with(|| value.clone());
        }
    }
}

fn default_service(spec: &mut Value) {
    let defaults = [("sessionAffinity", json!("None")), ("type", json!("ClusterIP"))];
    or_insert(spec, &defaults);
    or_insert(spec, &[("internalTrafficPolicy", json!("Cluster"))]);
    for port in spec["ports"].as_array_mut().into_iter().flatten() {
        let number = port["port"].clone();
        or_insert(port, &[("protocol", json!("TCP")), ("targetPort", number)]);
    }
}

/// What happens to a new object on its way in, besides defaults. `number` tells Services apart.
pub fn admit_new(kind: Kind, object: &mut Value, number: u32) {
    match kind {
        POD => object["status"] = json!({ "phase": "Pending" }),
        CLAIM => {
            object["status"] = json!({ "phase": "Pending" });
            protect(object, CLAIM_PROTECTION);
        }
        VOLUME => {
            object["status"] = json!({ "phase": "Pending" });
            protect(object, VOLUME_PROTECTION);
        }
        SERVICE => {
            object["status"] = json!({ "loadBalancer": {} });
            let [_, _, high, low] = number.to_be_bytes();
            let address = json!(format!("10.96.{high}.{}", low.max(1)));
            let spec = &mut object["spec"];
            or_insert(spec, &[("clusterIP", address)]);
            let addresses = json!([spec["clusterIP"]]);
            let family = [("ipFamilies", json!(["IPv4"])), ("ipFamilyPolicy", json!("SingleStack"))];
            or_insert(spec, &[("clusterIPs", addresses)]);
            or_insert(spec, &family);
        }
        BUDGET => {
            object["status"] = json!({
                "currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0,
            });
        }
        _ => {}
    }
}

fn protect(object: &mut Value, finalizer: &str) {
    let mut finalizers = meta::finalizers(object);
    if !finalizers.iter().any(|f| f == finalizer) {
        finalizers.push(finalizer.to_owned());
        meta::set_finalizers(object, &finalizers);
    }
}

/// What is wrong with a new object of such a kind.
pub fn problems_of_new(kind: Kind, object: &Value) -> Vec<String> {
    match kind {
        POD => pod::problems_of_new(&object["spec"]),
        BUDGET => problems_of_budget(object),
        EVENT if object["regarding"]["namespace"] != object["metadata"]["namespace"] => {
            vec!["involvedObject.namespace: Invalid value: does not match event.namespace".to_owned()]
        }
        CLAIM => {
            let size =
                object["spec"]["resources"]["requests"]["storage"].as_str().and_then(api::quantity::parse);
            let problem = "spec.resources[storage]: Required value";
            size.is_none().then(|| problem.to_owned()).into_iter().collect()
        }
        _ => vec![],
    }
}

/// What an update of such a kind must not do.
pub fn problems_of_update(kind: Kind, old: &Value, new: &Value) -> Vec<String> {
    match kind {
        POD => pod::problems_of_update(&old["spec"], &new["spec"]),
        BUDGET => problems_of_budget(new),
        CLAIM => problems_of_claim(old, new),
        SERVICE if old["spec"]["clusterIP"] != new["spec"]["clusterIP"] => {
            vec!["spec.clusterIPs[0]: Invalid value: may not change once set".to_owned()]
        }
        SECRET if old["type"] != new["type"] => vec!["type: Invalid value: field is immutable".to_owned()],
        SECRET if old["immutable"] == true && old["data"] != new["data"] => {
            vec!["data: Forbidden: field is immutable when `immutable` is set".to_owned()]
        }
        _ => vec![],
    }
}

fn problems_of_budget(object: &Value) -> Vec<String> {
    let spec = &object["spec"];
    let both = !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null();
    let problem = "spec: Invalid value: minAvailable and maxUnavailable cannot be both set";
    both.then(|| problem.to_owned()).into_iter().collect()
}

/// A claim stays what it was: it may be bound once and, once bound, ask for more.
fn problems_of_claim(old: &Value, new: &Value) -> Vec<String> {
    let mut allowed = new["spec"].clone();
    if old["spec"]["volumeName"].is_null() {
        pod::copy(&mut allowed, &old["spec"], "volumeName");
    }
    let size = |object: &Value| {
        let size = object["spec"]["resources"]["requests"]["storage"].as_str().map(str::to_owned);
        size.as_deref().and_then(api::quantity::parse)
    };
    if old["status"]["phase"] == "Bound" {
        if size(new) < size(old) {
            let problem =
                "spec.resources.requests.storage: Forbidden: field can not be less than previous value";
            return vec![problem.to_owned()];
        }
        pod::copy(&mut allowed["resources"]["requests"], &old["spec"]["resources"]["requests"], "storage");
    }
    let problem = "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
    (allowed != old["spec"]).then(|| problem.to_owned()).into_iter().collect()
}

/// What admission plugins refuse after validation: without a class that can, no claim grows.
pub fn admit_update(kind: Kind, old: &Value, new: &Value) -> Result<(), ApiError> {
    if kind == CLAIM && old["spec"]["resources"] != new["spec"]["resources"] {
        let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize";
        return Err(ApiError::forbidden(kind, meta::name(old), why));
    }
    Ok(())
}
