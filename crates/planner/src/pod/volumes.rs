//! What is mounted into the container of etcd: each volume of the Pod together with the place where etcd finds it.

use api::{MemberTemplate, names};
use k8s_openapi::api::core::v1::{
    EmptyDirVolumeSource, PersistentVolumeClaimVolumeSource, Volume, VolumeMount,
};

use crate::command::DATA_ROOT;

/// All of them.
pub(super) fn mounted(member: &str, template: &MemberTemplate) -> Vec<(Volume, VolumeMount)> {
    vec![at(DATA_ROOT, data(member, template))]
}

fn at(path: &str, volume: Volume) -> (Volume, VolumeMount) {
    let (name, mount_path) = (volume.name.clone(), path.to_owned());
    (volume, VolumeMount { name, mount_path, ..VolumeMount::default() })
}

/// What etcd must not lose: on the member's claim, or in memory, where it goes with the Pod.
fn data(member: &str, template: &MemberTemplate) -> Volume {
    let mut volume = Volume { name: "data".to_owned(), ..Volume::default() };
    if template.storage.medium.is_memory() {
        volume.empty_dir = Some(EmptyDirVolumeSource {
            medium: Some("Memory".to_owned()),
            size_limit: Some(template.storage.size.clone()),
        });
    } else {
        let claim_name = names::pvc(member);
        volume.persistent_volume_claim =
            Some(PersistentVolumeClaimVolumeSource { claim_name, read_only: None });
    }
    volume
}
