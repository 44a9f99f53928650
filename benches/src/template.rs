//! What the operator runs, as a pattern for running the same without it: its own Pods, claims and headless Service with
//! other names. So the floor can not drift away from what it is compared with, whichever operator that is.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use api::names;
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, Pod, PodSpec, Service, ServicePort, ServiceSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::flags;

/// On everything made by hand. Not the operator's own label: it would take an interest.
pub const LABEL: &str = "etcd-operator-bench/by-hand";

/// Pods, claims and Service of a cluster, to be made again under other names.
#[derive(Clone)]
pub struct Template {
    pod: PodSpec,
    claim: Option<PersistentVolumeClaimSpec>,
}

/// Whom a member starts with.
pub enum Start<'a> {
    /// Alone.
    Seed,
    /// With those on etcd's list, itself among them.
    Join(&'a str),
    /// On the data it has.
    Again,
}

impl Template {
    /// From a running member; `claim` if it is on a volume.
    pub fn of(pod: &Pod, claim: Option<&PersistentVolumeClaim>) -> Result<Self> {
        let mut pod = pod.spec.clone().context("the Pod has no spec")?;
        pod.node_name = None;
        let claim = claim.and_then(|claim| claim.spec.clone()).map(|mut claim| {
            claim.volume_name = None;
            claim
        });
        let template = Self { pod, claim };
        let line = template.line();
        line.context("no container of the operator's Pod runs etcd with --name")?;
        Ok(template)
    }

    fn line(&self) -> Option<&Vec<String>> {
        let lines = self.pod.containers.iter().flat_map(|c| [c.command.as_ref(), c.args.as_ref()]);
        lines.flatten().find(|line| flags::get(line, "name").is_some())
    }

    pub fn on_volume(&self) -> bool {
        self.claim.is_some()
    }

    pub fn pod(&self, namespace: &str, cluster: &str, member: &str, start: &Start<'_>) -> Pod {
        let mut spec = self.pod.clone();
        spec.hostname = Some(member.to_owned());
        spec.subdomain = Some(cluster.to_owned());
        // A Pod that knows its own name does not wait for DNS to tell it.
        for alias in spec.host_aliases.iter_mut().flatten() {
            alias.hostnames = Some(vec![names::dns_name(member, cluster, namespace)]);
        }
        for volume in spec.volumes.iter_mut().flatten() {
            if let Some(claim) = &mut volume.persistent_volume_claim {
                claim.claim_name = names::pvc(member);
            }
        }
        let lines = spec.containers.iter_mut().flat_map(|c| [c.command.as_mut(), c.args.as_mut()]);
        for line in lines.flatten().filter(|line| flags::get(line, "name").is_some()) {
            rename(line, namespace, cluster, member, start);
        }
        Pod { metadata: metadata(cluster, member), spec: Some(spec), status: None }
    }

    pub fn claim(&self, cluster: &str, member: &str) -> Option<PersistentVolumeClaim> {
        let spec = self.claim.clone()?;
        Some(PersistentVolumeClaim {
            metadata: metadata(cluster, &names::pvc(member)),
            spec: Some(spec),
            status: None,
        })
    }

    /// The Service that gives the members their names.
    pub fn service(cluster: &str) -> Service {
        let port =
            |name: &str, port| ServicePort { name: Some(name.to_owned()), port, ..ServicePort::default() };
        Service {
            metadata: metadata(cluster, cluster),
            spec: Some(ServiceSpec {
                cluster_ip: Some("None".to_owned()),
                publish_not_ready_addresses: Some(true),
                selector: Some(label(cluster)),
                ports: Some(vec![port("client", names::CLIENT_PORT), port("peer", names::PEER_PORT)]),
                ..ServiceSpec::default()
            }),
            status: None,
        }
    }
}

fn rename(line: &mut Vec<String>, namespace: &str, cluster: &str, member: &str, start: &Start<'_>) {
    let peer_url = names::peer_url(false, member, cluster, namespace);
    let alone = format!("{member}={peer_url}");
    let (initial_cluster, state) = match start {
        Start::Seed => (alone.as_str(), "new"),
        Start::Join(list) => (*list, "existing"),
        Start::Again => (alone.as_str(), "existing"),
    };
    flags::set(line, "name", member);
    flags::set(line, "initial-advertise-peer-urls", &peer_url);
    flags::set(line, "advertise-client-urls", &names::client_url(false, member, cluster, namespace));
    flags::set(line, "initial-cluster", initial_cluster);
    flags::set(line, "initial-cluster-token", &format!("{namespace}-{cluster}"));
    flags::set(line, "initial-cluster-state", state);
    // Members that join before the others have their vote; another operator may not know of it.
    flags::set(line, "max-learners", "8");
}

fn label(cluster: &str) -> BTreeMap<String, String> {
    [(LABEL.to_owned(), cluster.to_owned())].into()
}

fn metadata(cluster: &str, name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), labels: Some(label(cluster)), ..ObjectMeta::default() }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Container, HostAlias, PersistentVolumeClaimVolumeSource, Volume};

    use super::*;

    fn template() -> Template {
        let words =
            ["etcd", "--name=c-abcde", "--initial-cluster=c-abcde=http://c-abcde.c.ns.svc:2380", "--quota=1"];
        let container = Container {
            name: "etcd".into(),
            image: Some("etcd:v1".into()),
            command: Some(words.map(str::to_owned).to_vec()),
            ..Container::default()
        };
        let source = PersistentVolumeClaimVolumeSource { claim_name: "data-c-abcde".into(), read_only: None };
        let volume =
            Volume { name: "data".into(), persistent_volume_claim: Some(source), ..Volume::default() };
        let spec = PodSpec {
            node_name: Some("node1".into()),
            containers: vec![container],
            volumes: Some(vec![volume]),
            host_aliases: Some(vec![HostAlias {
                ip: "127.0.0.1".into(),
                hostnames: Some(vec!["c-abcde.c.ns.svc".into()]),
            }]),
            ..PodSpec::default()
        };
        let claim = PersistentVolumeClaimSpec { volume_name: Some("pv".into()), ..Default::default() };
        Template::of(
            &Pod { spec: Some(spec), ..Pod::default() },
            Some(&PersistentVolumeClaim { spec: Some(claim), ..Default::default() }),
        )
        .unwrap()
    }

    #[test]
    fn a_pod_by_hand_is_the_operators_under_another_name() {
        let pod = template().pod("ns", "h", "h-0", &Start::Seed);
        let text = serde_json::to_string(&pod).unwrap();
        assert!(!text.contains("c-abcde"), "{text}");
        let spec = pod.spec.unwrap();
        assert_eq!(spec.node_name, None, "the scheduler has its part to do");
        assert_eq!(spec.containers[0].image.as_deref(), Some("etcd:v1"));
        assert_eq!(spec.volumes.unwrap()[0].persistent_volume_claim.as_ref().unwrap().claim_name, "data-h-0");
        let line = spec.containers[0].command.clone().unwrap();
        assert_eq!(flags::get(&line, "initial-cluster"), Some("h-0=http://h-0.h.ns.svc:2380"));
        assert_eq!(flags::get(&line, "initial-cluster-state"), Some("new"));
        assert_eq!(flags::get(&line, "quota"), Some("1"));
        assert_eq!(
            spec.host_aliases.unwrap()[0].hostnames.as_deref(),
            Some(&["h-0.h.ns.svc".to_owned()][..])
        );
    }

    #[test]
    fn a_claim_by_hand_is_not_bound_to_the_operators_volume() {
        let claim = template().claim("h", "h-0").unwrap();
        assert_eq!(claim.spec.unwrap().volume_name, None);
        assert_eq!(claim.metadata.name.as_deref(), Some("data-h-0"));
    }

    #[test]
    fn nothing_by_hand_carries_the_operators_label() {
        let pod = template().pod("ns", "h", "h-0", &Start::Join("x"));
        let claim = template().claim("h", "h-0").unwrap();
        let service = Template::service("h");
        for metadata in [pod.metadata, claim.metadata, service.metadata] {
            assert!(!metadata.labels.unwrap().contains_key(api::labels::CLUSTER));
        }
    }

    #[test]
    fn a_pod_that_does_not_run_etcd_is_no_pattern() {
        let pod = Pod { spec: Some(PodSpec::default()), ..Pod::default() };
        assert!(Template::of(&pod, None).is_err());
    }
}
