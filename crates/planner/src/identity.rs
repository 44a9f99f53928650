//! Who belongs to a cluster, and which etcd cluster they are. A name or a label proves nothing: people re-create clusters
//! under old names, orphan them, and bring objects back from backups. A member is ours if the UID of its owner says so;
//! without an owner, if its token and the id of its etcd cluster do. The status of the cluster is a record of that and
//! not its source: what is lost of it is read off the members again (T25, T26).

use std::collections::BTreeSet;

use api::conditions::{self, reason};
use api::{EtcdCluster, EtcdClusterStatus, EtcdMember, ids, labels, names};
use kube::ResourceExt;

use crate::view::{ClusterView, MemberView, Scene, controller_uid};

/// Which etcd cluster a cluster object stands for, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    pub token: Option<String>,
    pub cluster_id: Option<String>,
}

/// Why nothing may be made or deleted before a person has decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Conflict {
    /// The members are of more than one etcd cluster.
    Members(String),
    /// The members were made for another kind of cluster than the spec describes.
    Spec { field: &'static str, about: String },
}

/// The members of a cluster, and what they say about it.
pub(crate) struct Family<'a> {
    pub members: Vec<&'a MemberView>,
    pub identity: Identity,
    pub conflict: Option<Conflict>,
}

impl Family<'_> {
    pub fn has(&self, member: &MemberView) -> bool {
        self.members.iter().any(|own| own.uid() == member.uid())
    }
}

/// Sorts the members of a view into those that are the cluster's and those that are not.
pub(crate) fn family<'a>(view: &'a ClusterView, cluster: &EtcdCluster) -> Family<'a> {
    let record = cluster.status.clone().unwrap_or_default();
    let uid = cluster.metadata.uid.as_deref();
    let owned: Vec<_> =
        view.members.iter().filter(|m| uid.is_some() && controller_uid(&m.member.metadata) == uid).collect();
    let free: Vec<_> = view.members.iter().filter(|m| controller_uid(&m.member.metadata).is_none()).collect();

    // Whom a user has deleted decides nothing, as long as somebody stays: that is how a conflict is resolved. Nor does one
    // that nothing is left of; it is the rest of a cluster that was deleted.
    let (deciding, leaving): (Vec<_>, Vec<_>) = free.iter().copied().partition(|m| !m.is_deleting());
    let undecided = owned.iter().all(|m| m.is_deleting() && !m.has_joined());
    let deciding = if deciding.is_empty() && undecided {
        leaving.into_iter().filter(|m| !is_empty(m) || is_made_for(cluster, m)).collect()
    } else {
        deciding
    };

    // What the object is known to stand for. Before that, a token is only what a seed would be made with, and gives way
    // to that of members which were there before.
    let is_firm = record.cluster_id.is_some() || owned.iter().any(|m| m.has_joined());
    let mut tokens = BTreeSet::new();
    if is_firm && let Some(token) = &record.cluster_token {
        tokens.insert(token.as_str());
    } else {
        // One that its user has deleted, and that never joined, decides nothing either.
        tokens.extend(owned.iter().filter(|m| !m.is_deleting() || m.has_joined()).map(|m| token(m)));
        if !is_firm {
            tokens.extend(deciding.iter().map(|m| token(m)));
        }
    }
    let mut conflict = (tokens.len() > 1).then(|| {
        let members = owned.iter().chain(&free).map(|m| format!("{} has {}", m.name(), token(m)));
        Conflict::Members(format!("they have different cluster tokens: {}", listed(members)))
    });
    let known = tokens.first().map(|token| (*token).to_owned());

    let fits = |m: &&MemberView| known.as_deref() == Some(token(m)) && fits_record(&record, m);
    let taken_up: Vec<_> = free.into_iter().filter(fits).collect();
    if conflict.is_none() {
        conflict = taken_up.iter().find_map(|m| differs(cluster, &m.member));
    }
    let members: Vec<_> = owned.into_iter().chain(taken_up).collect();
    let cluster_ids = cluster_ids(&record, &members);
    if cluster_ids.len() > 1 && conflict.is_none() {
        let said = members.iter().filter_map(|m| Some(format!("{} is of {}", m.name(), said_id(m)?)));
        let own = record.cluster_id.iter().map(|id| format!("the cluster is {id}"));
        conflict = Some(Conflict::Members(format!(
            "they belong to different etcd clusters: {}",
            listed(own.chain(said))
        )));
    }
    let token = known.or_else(|| record.cluster_token.clone());
    Family { members, identity: Identity { token, cluster_id: cluster_ids.into_iter().next() }, conflict }
}

fn token(member: &MemberView) -> &str {
    &member.member.spec.cluster_token
}

/// Whether a member is on its way out, and neither its Pod nor its volume is there any more.
pub(crate) fn is_empty(member: &MemberView) -> bool {
    member.is_deleting() && member.pod.is_none() && member.volume.is_none()
}

/// Whether a member was made for this very object.
pub(crate) fn is_made_for(cluster: &EtcdCluster, member: &MemberView) -> bool {
    let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
    let uid = cluster.metadata.uid.as_deref().unwrap_or_default();
    token(member) == names::cluster_token(&namespace, &name, uid)
}

/// The id of the etcd cluster that a member's own etcd named, on record or in this pass.
fn said_id(member: &MemberView) -> Option<String> {
    let recorded = member.member.status.as_ref().and_then(|s| s.cluster_id.clone());
    recorded.or_else(|| member.serving().filter(|s| s.cluster_id != 0).map(|s| ids::format(s.cluster_id)))
}

fn fits_record(record: &EtcdClusterStatus, member: &MemberView) -> bool {
    let recorded = member.member.status.as_ref().and_then(|s| s.cluster_id.as_deref());
    record.cluster_id.is_none() || recorded.is_none() || recorded == record.cluster_id.as_deref()
}

/// The record first, then what the members have on theirs. What an etcd answers in this pass is taken up by discovery,
/// which asks for more than one word; here it only has to agree.
fn cluster_ids(record: &EtcdClusterStatus, members: &[&MemberView]) -> BTreeSet<String> {
    let decides = |m: &&&MemberView| !m.is_deleting() || members.iter().all(|m| m.is_deleting());
    let recorded =
        members.iter().filter(decides).filter_map(|m| m.member.status.as_ref()?.cluster_id.clone());
    let mut known: BTreeSet<_> = record.cluster_id.clone().into_iter().chain(recorded).collect();
    if known.is_empty() {
        // Nobody has anything on record: two that answer for different clusters can not both be right.
        let answers: BTreeSet<_> = members.iter().filter_map(|m| said_id(m)).collect();
        if answers.len() > 1 {
            known = answers;
        }
    }
    known
}

/// What of the spec does not fit members that were there before it. What new members are made with may differ.
fn differs(cluster: &EtcdCluster, member: &EtcdMember) -> Option<Conflict> {
    let spec = &cluster.spec;
    let name = member.name_any();
    let auto =
        cluster.annotations().get(labels::annotation::PEER_AUTO_TLS).is_some_and(|value| value == "true");
    let (field, has, wants) = if spec.storage.medium.is_memory() != member.spec.storage.medium.is_memory() {
        let medium = |memory: bool| if memory { "Memory" } else { "a volume" };
        let of = |storage: &api::StorageSpec| medium(storage.medium.is_memory());
        ("spec.storage.medium", of(&member.spec.storage), of(&spec.storage))
    } else if spec.client_tls() != member.spec.client_tls() {
        ("spec.tls.client", tls(member.spec.client_tls()), tls(spec.client_tls()))
    } else if (spec.peer_tls() || auto) != member.spec.peer_tls() {
        ("spec.tls.peer", tls(member.spec.peer_tls()), tls(spec.peer_tls()))
    } else {
        return None;
    };
    Some(Conflict::Spec {
        field,
        about: format!("member {name} was made for {has}, the spec asks for {wants}"),
    })
}

fn tls(on: bool) -> &'static str {
    if on { "TLS" } else { "plaintext" }
}

fn listed(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join(", ")
}

/// Says why everything is held, and that nothing is touched meanwhile.
pub(crate) fn hold(scene: &Scene<'_>, status: &mut EtcdClusterStatus, conflict: &Conflict) -> String {
    let (reason, message) = match conflict {
        Conflict::Members(why) => (
            reason::IDENTITY_CONFLICT,
            format!(
                "the EtcdMembers of this name do not fit together, {why}; nothing is made or deleted until those that do \
                 not belong here are deleted. Their volumes and all data on them go with them"
            ),
        ),
        Conflict::Spec { field, about } => (
            reason::SPEC_CONFLICT,
            format!(
                "{field} does not fit the EtcdMembers that are there: {about}; nothing is made or deleted. Delete this \
                 EtcdCluster with --cascade=orphan and create it with the {field} of its members"
            ),
        ),
    };
    for (type_, on) in
        [(conditions::AVAILABLE, false), (conditions::PROGRESSING, false), (conditions::DEGRADED, true)]
    {
        scene.set_condition_of_newest_spec(status, type_, on, reason, &message);
    }
    message
}

#[cfg(test)]
mod tests;
