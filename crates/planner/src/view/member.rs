//! What is known of one member, and what follows from it alone.

use api::{ids, labels, names};
use etcd::{Membership, Status};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::ResourceExt;

use super::{MemberView, controlled_by, controller_uid};
use crate::{command, member_status};

/// A Pod that ends takes about its grace period; beyond that it is asked whether it still serves.
const LINGERS: SignedDuration = SignedDuration::from_secs(10);

impl MemberView {
    pub fn name(&self) -> &str {
        self.member.metadata.name.as_deref().unwrap_or_default()
    }

    pub fn uid(&self) -> &str {
        self.member.metadata.uid.as_deref().unwrap_or_default()
    }

    /// The Service whose DNS names the member uses; legacy members bring their own (H41).
    pub fn service_name(&self) -> String {
        self.member
            .annotations()
            .get(labels::annotation::HEADLESS_SERVICE_NAME)
            .unwrap_or(&self.member.spec.cluster_name)
            .clone()
    }

    pub fn namespace(&self) -> &str {
        self.member.metadata.namespace.as_deref().unwrap_or_default()
    }

    pub fn peer_url(&self) -> String {
        names::peer_url(self.member.spec.peer_tls(), self.name(), &self.service_name(), self.namespace())
    }

    /// Whether a row of etcd's list is about this member. By URL, because a member that has not started has no name there
    /// (H7); by id and by name as well, because a row that is overlooked would be taken for a member that is out.
    pub(crate) fn stands_for(&self, row: &etcd::Member) -> bool {
        let id = self.member.status.as_ref().and_then(|s| s.member_id.as_deref());
        row.peer_urls.contains(&self.peer_url())
            || id.is_some_and(|id| id == ids::format(row.id))
            || row.name == self.name()
    }

    /// This member's row in etcd's list.
    pub fn row_in<'a>(&self, list: &'a Membership) -> Option<&'a etcd::Member> {
        list.members.iter().find(|row| self.stands_for(row))
    }

    pub fn is_deleting(&self) -> bool {
        self.member.metadata.deletion_timestamp.is_some()
    }

    /// Whether the operator's own finalizer keeps it until etcd has let it go.
    pub(crate) fn has_finalizer(&self) -> bool {
        self.member.metadata.finalizers.iter().flatten().any(|f| f == labels::FINALIZER)
    }

    /// Nobody here keeps it any more; somebody else's finalizer may.
    pub(crate) fn is_let_go(&self) -> bool {
        self.is_deleting() && !self.has_finalizer()
    }

    /// Created, but not yet told whom to join: it gets no volume and no Pod.
    pub fn is_pending(&self) -> bool {
        self.member.spec.is_pending()
    }

    /// An object and nothing else: its time to join has never come. It can wait beside members that sleep.
    pub fn is_unused(&self) -> bool {
        self.is_pending() && !self.has_joined() && self.pod.is_none() && self.volume.is_none()
    }

    /// Whether its etcd has been part of the cluster, and so has data that must not be lost or forgotten (T7).
    pub fn has_joined(&self) -> bool {
        self.member.status.as_ref().is_some_and(|s| s.member_id.is_some())
    }

    /// A seed whose Pod was told that its cluster has formed. Kept beside the record, so that it outlives it (T26).
    pub(crate) fn is_settled_seed(&self) -> bool {
        let settled = |pod: &Pod| self.owns(&pod.metadata) && command::is_settled(pod);
        self.member.spec.bootstrap && self.pod.as_ref().is_some_and(settled)
    }

    /// Whether it has been put to sleep with its data. Kept beside the record, so that it outlives it (T26).
    pub(super) fn has_been_paused(&self) -> bool {
        self.member.annotations().contains_key(labels::annotation::HAS_DATA)
    }

    /// A seed that begins anew whenever it has lost its data, under the ids it had before (T28).
    pub(crate) fn may_turn_impostor(&self) -> bool {
        self.member.spec.bootstrap && self.pod.as_ref().is_some_and(command::is_fixed_to_form)
    }

    /// Whether it is on record that the member is being taken out of etcd.
    pub(crate) fn is_told_to_leave(&self) -> bool {
        self.member.status.as_ref().is_some_and(|s| s.role.as_deref() == Some(member_status::LEAVING))
    }

    pub fn is_memory(&self) -> bool {
        self.member.spec.storage.medium.is_memory()
    }

    /// The member's own word in this pass, if it gave one.
    pub fn serving(&self) -> Option<&Status> {
        self.etcd.as_ref().and_then(|answer| answer.as_ref().ok())
    }

    /// The Pod, if it is this member's and not on its way out.
    pub fn living_pod(&self) -> Option<&Pod> {
        self.pod.as_ref().filter(|p| p.metadata.deletion_timestamp.is_none() && self.owns(&p.metadata))
    }

    /// The owners that an object of the member's own should have, if it has none that controls it: somebody has taken the
    /// owner off, or brought it back from a backup without. What a user orphans on purpose by deleting the member stays so.
    pub(crate) fn disowned(&self, metadata: &ObjectMeta) -> Option<Vec<OwnerReference>> {
        let leaves = self.is_deleting() || metadata.deletion_timestamp.is_some();
        if controller_uid(metadata).is_some() || leaves || !self.owns(metadata) {
            return None;
        }
        let present = metadata.owner_references.clone().unwrap_or_default();
        Some(present.into_iter().chain(controlled_by(&self.member)?).collect())
    }

    /// A Pod that should have ended long ago: whether it really has is asked, because one that answers serves.
    pub fn lingering_pod(&self) -> Option<&Pod> {
        let lingers = self.ends_for_longer_than(LINGERS);
        self.pod.as_ref().filter(|p| lingers && self.owns(&p.metadata))
    }

    /// Whether an object of the member's name is really its own (H14, H15): by its owner, or, if somebody has taken that
    /// off, because the member has this very object on record, or the Pod says for whom it was made. A claim can be brought
    /// back from a backup with all that it says; so it is taken at its word only while the member's own Pod runs on it.
    pub(crate) fn owns(&self, metadata: &ObjectMeta) -> bool {
        let otherwise =
            || self.has_on_record(metadata) || self.mounts(metadata) || self.is_made_for(metadata);
        self.controls(metadata).unwrap_or_else(otherwise)
    }

    /// Whether the owner that an object has is this member; `None` for one that nobody controls.
    fn controls(&self, metadata: &ObjectMeta) -> Option<bool> {
        controller_uid(metadata).map(|owner| !self.uid().is_empty() && owner == self.uid())
    }

    /// Whether its own Pod runs on this claim, of which the member has nothing on record: it can not be another one as long
    /// as that Pod runs.
    fn mounts(&self, metadata: &ObjectMeta) -> bool {
        let own = |pod: &Pod| self.controls(&pod.metadata).unwrap_or_else(|| self.is_made_for(&pod.metadata));
        let runs = |pod: &Pod| pod.status.as_ref().is_some_and(|s| s.phase.as_deref() == Some("Running"));
        let recorded = self.member.status.as_ref().is_some_and(|s| s.pvc_uid.is_some());
        metadata.name.as_deref() == Some(&names::pvc(self.name()))
            && !recorded
            && self.pod.as_ref().is_some_and(|pod| own(pod) && runs(pod))
    }

    fn is_made_for(&self, pod: &ObjectMeta) -> bool {
        let maker = pod.annotations.as_ref().and_then(|a| a.get(labels::annotation::MEMBER_UID));
        pod.name.as_deref() == Some(self.name())
            && maker.is_some_and(|uid| !uid.is_empty() && uid == self.uid())
    }

    fn has_on_record(&self, metadata: &ObjectMeta) -> bool {
        let recorded = self.member.status.iter().flat_map(|s| [&s.pod_uid, &s.pvc_uid]).flatten();
        recorded.into_iter().any(|uid| metadata.uid.as_ref() == Some(uid))
    }
}
