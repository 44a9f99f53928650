//! etcd's command line: what a member is started with, and what the flags of a Pod say.

mod start;

use api::labels::annotation;
use api::{EtcdMember, MemberTemplate, labels, names};
use etcd::Membership;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use crate::pod::etcd_container;
use crate::view::{MemberView, Scene};

pub use start::WITHDRAWN;
pub(crate) use start::{
    Start, alone, can_be_told, initial_cluster, is_anothers, is_fixed_to_form, is_settled, is_withdrawn,
    may_begin_anew,
};

pub(crate) const METRICS_PORT: i32 = 2381;
pub(crate) const DATA_ROOT: &str = "/var/lib/etcd";
/// etcd applies "add learner" on every member against that member's own `--max-learners`, so all members must agree on
/// one value for all time. It is a constant for that reason, larger than any sensible number of joiners at once.
const MAX_LEARNERS: usize = 8;

/// The whole command line. The order is the one the Go operator uses; what it does not have comes last.
pub(crate) fn line(member: &MemberView, template: &MemberTemplate, start: &Start) -> Vec<String> {
    let spec = &member.member.spec;
    let (name, service, namespace) = (member.name(), member.service_name(), member.namespace());
    let (initial_cluster, state) = start.flags();
    let mut command = vec![
        "etcd".to_owned(),
        format!("--name={name}"),
        format!("--data-dir={}", data_dir(&member.member)),
        format!("--listen-peer-urls={}://0.0.0.0:{}", names::scheme(spec.peer_tls()), names::PEER_PORT),
        format!("--listen-client-urls=http://0.0.0.0:{}", names::CLIENT_PORT),
        format!("--advertise-client-urls={}", names::client_url(false, name, &service, namespace)),
        format!("--initial-advertise-peer-urls={}", member.peer_url()),
        format!("--initial-cluster={initial_cluster}"),
        format!("--initial-cluster-token={}", spec.cluster_token),
        format!("--initial-cluster-state={state}"),
        format!("--listen-metrics-urls=http://0.0.0.0:{METRICS_PORT}"),
    ];
    if let Some(options) = &template.options {
        command.extend(options.quota_backend_bytes.map(|n| format!("--quota-backend-bytes={n}")));
        command
            .extend(options.auto_compaction_mode.map(|m| format!("--auto-compaction-mode={}", m.as_str())));
        let retention = options.auto_compaction_retention.as_ref();
        command.extend(retention.map(|r| format!("--auto-compaction-retention={r}")));
        command.extend(options.snapshot_count.map(|n| format!("--snapshot-count={n}")));
    }
    if template.tls.as_ref().is_some_and(|tls| tls.peer_auto_tls) {
        command.push("--peer-auto-tls".to_owned());
    }
    command.extend(max_learners_flag(&template.version));
    command
}

/// The command line that a Pod has.
fn flags(pod: &Pod) -> &[String] {
    etcd_container(pod).and_then(|c| c.command.as_deref()).unwrap_or_default()
}

fn max_learners_flag(version: &str) -> Option<String> {
    let mut parts = version.split('.').map_while(|part| part.parse::<u32>().ok());
    match (parts.next()?, parts.next()?) {
        // Before 3.6 there is no such flag, and one learner is all etcd takes.
        (3, ..6) => None,
        _ => Some(format!("--max-learners={MAX_LEARNERS}")),
    }
}

/// Adopted members keep their data below the root of the volume; a value that could leave it is ignored (H40).
fn data_dir(member: &EtcdMember) -> String {
    let below = member.annotations().get(annotation::DATA_DIR_SUBPATH);
    match below.and_then(|value| labels::data_dir_subpath(value)) {
        Some(directory) => format!("{DATA_ROOT}/{directory}"),
        None => DATA_ROOT.to_owned(),
    }
}

/// How many learners every member of the cluster accepts at once. Pods made by somebody else accept one, and so may those
/// that are not seen, of a member that has started, or of one that no EtcdMember stands for.
pub(crate) fn max_learners(scene: &Scene<'_>, list: &Membership) -> usize {
    let accepted =
        |pod: &Pod| flags(pod).iter().find_map(|flag| flag.split_once("max-learners=")?.1.parse().ok());
    let started = list.members.iter().filter(|row| !row.name.is_empty());
    let is_seen = |row: &etcd::Member| scene.member_of(row).is_some_and(|m| m.pod.is_some());
    let unseen = started.filter(|row| !is_seen(row)).map(|_| 1);
    let pods = scene.members.iter().filter_map(|m| m.pod.as_ref());
    pods.map(|pod| accepted(pod).unwrap_or(1)).chain(unseen).min().unwrap_or(1)
}

#[cfg(test)]
mod tests;
