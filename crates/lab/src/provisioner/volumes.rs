//! Volumes whose claim is gone: unmounted, their data removed, then the object deleted, in that order, so that a
//! crash in between leaves an object that says there is still something to do.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{Api, ResourceExt, api::DeleteParams, runtime::controller::Action};

use super::{Context, Error, NAME, PROVISIONED_BY, blocking, disk::Disk};

pub(super) async fn reconcile(volume: Arc<PersistentVolume>, context: Arc<Context>) -> Result<Action, Error> {
    if is_reclaimable(&volume) {
        let name = volume.name_any();
        let disk = Disk::new(&context.paths, &name);
        blocking(move || disk.remove()).await?;
        let volumes: Api<PersistentVolume> = Api::all(context.client.clone());
        match volumes.delete(&name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            other => drop(other?),
        }
        tracing::info!(volume = name, "reclaimed");
    }
    Ok(Action::await_change())
}

fn is_reclaimable(volume: &PersistentVolume) -> bool {
    let ours = volume.annotations().get(PROVISIONED_BY).is_some_and(|by| by == NAME);
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    ours && phase == Some("Released") && policy == Some("Delete")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn volume(by: &str, phase: &str, policy: &str) -> PersistentVolume {
        serde_json::from_value(json!({
            "metadata": { "name": "pvc-u", "annotations": { PROVISIONED_BY: by } },
            "spec": { "persistentVolumeReclaimPolicy": policy },
            "status": { "phase": phase },
        }))
        .unwrap()
    }

    #[test]
    fn only_our_own_released_volumes_are_reclaimed() {
        assert!(is_reclaimable(&volume(NAME, "Released", "Delete")));
        assert!(!is_reclaimable(&volume(NAME, "Bound", "Delete")));
        assert!(!is_reclaimable(&volume(NAME, "Released", "Retain")));
        assert!(!is_reclaimable(&volume("other", "Released", "Delete")));
    }
}
