//! What every object that is made for a cluster carries: the labels it is found by, the owner it goes with, and what the user
//! wants on everything.

use std::collections::BTreeMap;

use api::{AdditionalMetadata, metadata};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;

use crate::view::controlled_by;

/// Metadata of an object that belongs to `owner`, in its namespace. Own labels and annotations win over the user's (H39).
pub(crate) fn of<K: Resource<DynamicType = ()>>(
    owner: &K,
    name: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    extra: Option<&AdditionalMetadata>,
) -> ObjectMeta {
    let none = AdditionalMetadata::default();
    let extra = extra.unwrap_or(&none);
    ObjectMeta {
        name: Some(name),
        namespace: owner.meta().namespace.clone(),
        labels: metadata::merge(Some(labels), &extra.labels),
        annotations: metadata::merge(Some(annotations), &extra.annotations),
        owner_references: controlled_by(owner),
        ..ObjectMeta::default()
    }
}
