//! Claims: made once the scheduler has chosen a node, grown when they ask for more.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::{Context as _, bail};
use api::quantity;
use k8s_openapi::{
    api::core::v1::{
        LocalVolumeSource, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, ObjectReference,
        PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec, VolumeNodeAffinity,
    },
    apimachinery::pkg::api::resource::Quantity,
};
use kube::{
    Api, Resource, ResourceExt,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
    runtime::{
        controller::Action,
        events::{Event, EventType},
    },
};
use serde_json::json;

use super::{
    Context, Error, NAME, PROVISIONED_BY, blocking,
    disk::{Disk, MIN_SIZE},
};

/// Set by the scheduler: the node on which the first Pod of the claim will run.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Set by Kubernetes' volume controller: who is to make the volume.
const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";

/// What a claim needs from us.
#[derive(Debug, PartialEq)]
enum Need {
    Nothing,
    /// A volume of that size on that node.
    Volume(String, Size),
    /// The named volume, grown to that size.
    Growth(String, Size),
}

/// In bytes, and as the user wrote it: `1Gi` should not come back as 1073741824.
#[derive(Clone, Debug, PartialEq)]
struct Size {
    bytes: u64,
    text: Quantity,
}

impl Size {
    fn parse(text: &Quantity) -> anyhow::Result<Self> {
        match bytes(text)? {
            bytes if bytes < MIN_SIZE => {
                Ok(Self { bytes: MIN_SIZE, text: Quantity(format!("{}Mi", MIN_SIZE >> 20)) })
            }
            bytes => Ok(Self { bytes, text: text.clone() }),
        }
    }

    fn capacity(&self) -> BTreeMap<String, Quantity> {
        BTreeMap::from([("storage".to_owned(), self.text.clone())])
    }
}

/// A size in bytes, rounded up as Kubernetes does.
fn bytes(size: &Quantity) -> anyhow::Result<u64> {
    let value = quantity::value(size).map(quantity::Value::units);
    let bytes = value.and_then(|units| u64::try_from(units).ok());
    let bytes =
        bytes.with_context(|| format!("{:?} is not a size: write for example 1Gi or 500M", size.0))?;
    // Where the values of Kubernetes end.
    if value == Some(i64::MAX) {
        bail!("{:?} is larger than any disk", size.0);
    }
    Ok(bytes)
}

pub(super) async fn reconcile(
    claim: Arc<PersistentVolumeClaim>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    let served = serve(&claim, &context).await;
    if let Err(error) = &served {
        // Shown by `kubectl describe`; the failure itself is retried and logged by the controller.
        let event = Event {
            type_: EventType::Warning,
            reason: "ProvisioningFailed".into(),
            note: Some(error.to_string()),
            action: "Provision".into(),
            secondary: None,
        };
        let _ = context.events.publish(&event, &claim.object_ref(&())).await;
    }
    served.map(|()| Action::await_change())
}

async fn serve(claim: &PersistentVolumeClaim, context: &Context) -> Result<(), Error> {
    match need(claim).map_err(Error::Disk)? {
        Need::Nothing => Ok(()),
        Need::Volume(node, size) => provision(claim, &node, &size, context).await,
        Need::Growth(volume, size) => grow(claim, &volume, &size, context).await,
    }
}

fn need(claim: &PersistentVolumeClaim) -> anyhow::Result<Need> {
    let annotation = |key: &str| claim.annotations().get(key).map(String::as_str);
    if annotation(PROVISIONER) != Some(NAME) || claim.metadata.deletion_timestamp.is_some() {
        return Ok(Need::Nothing);
    }
    let spec = claim.spec.clone().unwrap_or_default();
    let requests = spec.resources.and_then(|resources| resources.requests).unwrap_or_default();
    let Some(wanted) = requests.get("storage") else { return Ok(Need::Nothing) };
    let wanted = Size::parse(wanted)?;
    match (spec.volume_name, annotation(SELECTED_NODE)) {
        (None, None) => Ok(Need::Nothing),
        (None, Some(node)) => Ok(Need::Volume(node.to_owned(), wanted)),
        (Some(volume), _) => {
            let capacity = claim.status.as_ref().and_then(|status| status.capacity.as_ref());
            let has = capacity.and_then(|capacity| capacity.get("storage"));
            // No capacity yet means that binding is still going on.
            let Some(has) = has else { return Ok(Need::Nothing) };
            if wanted.bytes > bytes(has)? { Ok(Need::Growth(volume, wanted)) } else { Ok(Need::Nothing) }
        }
    }
}

async fn provision(
    claim: &PersistentVolumeClaim,
    node: &str,
    size: &Size,
    context: &Context,
) -> Result<(), Error> {
    let name = format!("pvc-{}", claim.uid().unwrap_or_default());
    let volumes: Api<PersistentVolume> = Api::all(context.client.clone());
    if volumes.get_opt(&name).await?.is_some() {
        return Ok(());
    }
    let disk = Disk::new(&context.paths, &name);
    let (work, bytes) = (disk.clone(), size.bytes);
    blocking(move || work.create(bytes)).await?;
    match volumes.create(&PostParams::default(), &volume(claim, &name, node, size, &disk)).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        other => drop(other?),
    }
    tracing::info!(
        claim = claim.name_any(),
        namespace = claim.namespace(),
        volume = name,
        node,
        size = size.text.0,
        "provisioned"
    );
    Ok(())
}

/// The PersistentVolume of a claim: a directory on one node, already bound to the claim.
fn volume(
    claim: &PersistentVolumeClaim,
    name: &str,
    node: &str,
    size: &Size,
    disk: &Disk,
) -> PersistentVolume {
    let spec = claim.spec.clone().unwrap_or_default();
    let on_node = NodeSelectorRequirement {
        key: "kubernetes.io/hostname".into(),
        operator: "In".into(),
        values: Some(vec![node.to_owned()]),
    };
    let term = NodeSelectorTerm { match_expressions: Some(vec![on_node]), ..NodeSelectorTerm::default() };
    PersistentVolume {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            annotations: Some(BTreeMap::from([(PROVISIONED_BY.to_owned(), NAME.to_owned())])),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeSpec {
            capacity: Some(size.capacity()),
            access_modes: spec.access_modes,
            persistent_volume_reclaim_policy: Some("Delete".into()),
            storage_class_name: spec.storage_class_name,
            volume_mode: Some("Filesystem".into()),
            claim_ref: Some(ObjectReference {
                api_version: Some("v1".into()),
                kind: Some("PersistentVolumeClaim".into()),
                namespace: claim.namespace(),
                name: claim.metadata.name.clone(),
                uid: claim.uid(),
                ..ObjectReference::default()
            }),
            local: Some(LocalVolumeSource {
                path: disk.mount_point().to_string_lossy().into_owned(),
                ..LocalVolumeSource::default()
            }),
            node_affinity: Some(VolumeNodeAffinity {
                required: Some(NodeSelector { node_selector_terms: vec![term] }),
            }),
            ..PersistentVolumeSpec::default()
        }),
        status: None,
    }
}

/// File, device and file system first; then the volume; the claim's status last, because that is the promise.
async fn grow(
    claim: &PersistentVolumeClaim,
    volume: &str,
    size: &Size,
    context: &Context,
) -> Result<(), Error> {
    let (disk, bytes) = (Disk::new(&context.paths, volume), size.bytes);
    blocking(move || disk.grow(bytes)).await?;
    let volumes: Api<PersistentVolume> = Api::all(context.client.clone());
    let patch = Patch::Merge(json!({ "spec": { "capacity": size.capacity() } }));
    volumes.patch(volume, &PatchParams::default(), &patch).await?;
    let namespace = claim.namespace().unwrap_or_default();
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(context.client.clone(), &namespace);
    // Without allocatedResources the kubelet would wait for its next sync, or for ever if the old value stood there.
    let patch = Patch::Merge(json!({ "status": {
        "capacity": size.capacity(),
        "allocatedResources": size.capacity(),
        "allocatedResourceStatuses": null,
        "conditions": null,
    }}));
    claims.patch_status(&claim.name_any(), &PatchParams::default(), &patch).await?;
    tracing::info!(claim = claim.name_any(), namespace, volume, size = size.text.0, "grown");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(patch: &serde_json::Value) -> PersistentVolumeClaim {
        let mut value = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": { "name": "data", "namespace": "ns", "uid": "u", "annotations": { PROVISIONER: NAME } },
            "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
        });
        merge(&mut value, patch);
        serde_json::from_value(value).unwrap()
    }

    fn merge(into: &mut serde_json::Value, from: &serde_json::Value) {
        match from.as_object() {
            Some(fields) => fields.iter().for_each(|(key, value)| merge(&mut into[key], value)),
            None => *into = from.clone(),
        }
    }

    #[test]
    fn nothing_happens_before_a_node_is_chosen() {
        assert_eq!(need(&claim(&json!({}))).unwrap(), Need::Nothing);
    }

    #[test]
    fn a_chosen_node_gets_the_volume() {
        let claim = claim(&json!({ "metadata": { "annotations": { SELECTED_NODE: "node2" } } }));
        let size = Size { bytes: 1 << 30, text: Quantity("1Gi".into()) };
        assert_eq!(need(&claim).unwrap(), Need::Volume("node2".into(), size.clone()));
        let paths = crate::paths::Paths::new("/var/lib/lab-test".into()).unwrap();
        let made = volume(&claim, "pvc-u", "node2", &size, &Disk::new(&paths, "pvc-u"));
        let spec = serde_json::to_value(made.spec).unwrap();
        assert_eq!(spec["local"]["path"], "/var/lib/lab-test/volumes/pvc-u");
        assert_eq!(spec["claimRef"]["uid"], "u");
        let term = &spec["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0];
        assert_eq!(term["values"][0], "node2");
    }

    #[test]
    fn a_tiny_request_gets_the_smallest_volume_there_is() {
        let size = Size::parse(&Quantity("1Mi".into())).unwrap();
        assert_eq!((size.bytes, size.text.0.as_str()), (64 << 20, "64Mi"));
    }

    #[test]
    fn what_is_no_size_of_a_disk_is_refused() {
        let refused = |text: &str| bytes(&Quantity(text.into())).unwrap_err().to_string();
        for text in ["", "Gi", "-1Gi", "one", "1KiB"] {
            assert!(refused(text).contains("is not a size"), "{text}");
        }
        assert!(refused("99999999999Ei").contains("larger than any disk"));
        assert_eq!(bytes(&Quantity("0.1Ki".into())).unwrap(), 103);
    }

    #[test]
    fn only_a_larger_request_grows_a_volume() {
        let sized = |size: &str| {
            claim(
                &json!({ "spec": { "volumeName": "pvc-u" }, "status": { "capacity": { "storage": size } } }),
            )
        };
        assert!(matches!(need(&sized("512Mi")).unwrap(), Need::Growth(_, size) if size.bytes == 1 << 30));
        assert_eq!(need(&sized("1073741824")).unwrap(), Need::Nothing);
        assert_eq!(need(&sized("2Gi")).unwrap(), Need::Nothing);
    }

    #[test]
    fn claims_of_others_and_dying_ones_are_left_alone() {
        let foreign = claim(
            &json!({ "metadata": { "annotations": { PROVISIONER: "other", SELECTED_NODE: "node1" } } }),
        );
        assert_eq!(need(&foreign).unwrap(), Need::Nothing);
        let dying = claim(&json!({ "metadata": {
            "annotations": { SELECTED_NODE: "node1" }, "deletionTimestamp": "2026-01-01T00:00:00Z",
        }}));
        assert_eq!(need(&dying).unwrap(), Need::Nothing);
    }
}
