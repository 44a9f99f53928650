//! The whole Pod, from what its member was made from.

use std::collections::BTreeMap;

use api::labels::annotation;
use api::{MemberTemplate, labels, names};
use k8s_openapi::api::core::v1::{HostAlias, Pod, PodSpec};

use super::container::container;
use super::{scheduling, security, volumes};
use crate::command::Start;
use crate::metadata;
use crate::view::{Assessed, MemberView, Scene};

/// The Pod that the member gets now.
pub(super) fn pod(scene: &Scene<'_>, member: &Assessed<'_>) -> Pod {
    let template = MemberTemplate::of_member(&member.member.spec);
    let start = Start::of(member, scene.is_formed(), !scene.is_newcomer(member));
    let (volumes, mounts) = volumes::mounted(member.name(), &template).into_iter().unzip();
    let etcd = container(member, &template, &scene.view.settings, &start, mounts);
    Pod {
        metadata: metadata::of(
            &member.member,
            member.name().to_owned(),
            own_labels(member),
            own_annotations(member, &start),
            template.additional_metadata.as_ref(),
        ),
        spec: Some(PodSpec {
            hostname: Some(member.name().to_owned()),
            subdomain: Some(member.service_name()),
            host_aliases: Some(vec![own_name(member)]),
            affinity: scheduling::affinity(&template, &member.member.spec.cluster_name),
            topology_spread_constraints: non_empty(template.topology_spread_constraints),
            image_pull_secrets: non_empty(template.image_pull_secrets),
            automount_service_account_token: Some(false),
            security_context: Some(security::of_pod()),
            containers: vec![etcd],
            volumes: Some(volumes),
            ..PodSpec::default()
        }),
        status: None,
    }
}

fn own_labels(member: &Assessed<'_>) -> BTreeMap<String, String> {
    let mut own = labels::for_member(&member.member.spec.cluster_name, member.name());
    if member.status.is_voter {
        own.insert(labels::ROLE.to_owned(), labels::VOTER.to_owned());
    }
    own
}

fn own_annotations(member: &MemberView, start: &Start) -> BTreeMap<String, String> {
    let mut notes = start.annotations();
    notes.insert(annotation::MEMBER_UID.to_owned(), member.uid().to_owned());
    // Only in the pass that makes its claim, and only after that was made.
    if !member.is_memory() && member.volume.is_none() {
        notes.insert(annotation::FIRST_START.to_owned(), "true".to_owned());
    }
    notes
}

/// etcd looks up its own name before it starts and waits a second if nobody knows it yet, which is the rule: the
/// cluster's DNS learns of a Pod only when it runs. So the Pod knows its own name by itself.
fn own_name(member: &MemberView) -> HostAlias {
    let name = names::dns_name(member.name(), &member.service_name(), member.namespace());
    HostAlias { ip: "127.0.0.1".to_owned(), hostnames: Some(vec![name]) }
}

fn non_empty<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}
