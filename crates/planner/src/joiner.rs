//! New EtcdMembers: what a member is born with.

use api::{EtcdCluster, EtcdMember, EtcdMemberSpec, MemberTls, labels, metadata, names};
use etcd::Membership;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

use crate::view::{Scene, controlled_by};

/// The seed: knows from the start that it is alone.
pub(crate) fn seed(scene: &Scene<'_>, name: &str) -> EtcdMember {
    let mut member = new(scene, name);
    let (https, service) = (member.spec.peer_tls(), names::headless_service(&scene.view.name));
    let peer_url = names::peer_url(https, name, &service, &scene.view.namespace);
    member.spec.bootstrap = true;
    member.spec.initial_cluster = format!("{name}={peer_url}");
    member
}

/// A member that will join: pending until etcd has it on its list.
pub(crate) fn joiner(scene: &Scene<'_>, name: &str) -> EtcdMember {
    new(scene, name)
}

fn new(scene: &Scene<'_>, name: &str) -> EtcdMember {
    let target = scene.target();
    let extra = target.additional_metadata.clone().unwrap_or_default();
    let token = scene.cluster.status.as_ref().and_then(|s| s.cluster_token.clone()).unwrap_or_default();
    let mut annotations = metadata::merge(None, &extra.annotations);
    // One that is made for a cluster which was taken up has a token that does not say whose it is.
    let owner = scene.cluster.metadata.uid.clone().unwrap_or_default();
    if token != names::cluster_token(&scene.view.namespace, &scene.view.name, &owner) {
        annotations.get_or_insert_default().insert(labels::annotation::ADOPTED_BY.to_owned(), owner);
    }
    EtcdMember {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(scene.view.namespace.clone()),
            labels: metadata::merge(Some(labels::for_member(&scene.view.name, name)), &extra.labels),
            annotations,
            // On from birth: a member that is in etcd without it would be forgotten there (T9).
            finalizers: Some(vec![labels::FINALIZER.to_owned()]),
            owner_references: controlled_by(scene.cluster),
            ..ObjectMeta::default()
        },
        spec: EtcdMemberSpec {
            cluster_name: scene.view.name.clone(),
            cluster_token: token,
            initial_cluster: String::new(),
            version: target.version,
            storage: target.storage,
            resources: target.resources,
            additional_metadata: target.additional_metadata,
            affinity: target.affinity,
            topology_spread_constraints: target.topology_spread_constraints,
            options: target.options,
            image_pull_secrets: target.image_pull_secrets,
            tls: peer_auto_tls(scene.cluster),
            ..EtcdMemberSpec::default()
        },
        status: None,
    }
}

/// H42: adopted peers may speak TLS with certificates of their own making; who joins them has to do the same.
fn peer_auto_tls(cluster: &EtcdCluster) -> Option<MemberTls> {
    let wanted =
        cluster.annotations().get(labels::annotation::PEER_AUTO_TLS).is_some_and(|value| value == "true");
    wanted.then(|| MemberTls { peer_auto_tls: true, ..MemberTls::default() })
}

/// `--initial-cluster` from etcd's own list (H6): verbatim first peer URLs, and for a member that has not started yet
/// the name its URL was made from.
pub(crate) fn initial_cluster(list: &Membership) -> String {
    let mut entries: Vec<String> = list
        .members
        .iter()
        .filter_map(|m| {
            let url = m.peer_urls.first()?;
            let name = if m.name.is_empty() { first_label(url)? } else { &m.name };
            Some(format!("{name}={url}"))
        })
        .collect();
    entries.sort();
    entries.join(",")
}

/// `a` of `http://a.b.c:2380`.
fn first_label(url: &str) -> Option<&str> {
    let host = url.split_once("://")?.1;
    host.split(['.', ':', '/']).next().filter(|label| !label.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::World;
    use etcd::Member;

    #[test]
    fn h42_who_joins_adopted_peers_speaks_as_they_do() {
        let mut cluster = EtcdCluster::test("ns", "c").replicas(1);
        cluster.annotations_mut().insert(labels::annotation::PEER_AUTO_TLS.into(), "true".into());
        let mut world = World::settled(cluster);
        world.scale(2);
        for member in &world.view.members {
            assert!(member.peer_url().starts_with("https://"), "{}", member.peer_url());
            let etcd = crate::etcd_container(member.pod.as_ref().unwrap()).unwrap().clone();
            let flags = etcd.command.unwrap();
            assert!(flags.contains(&"--peer-auto-tls".to_owned()));
            assert!(flags.contains(&"--listen-peer-urls=https://0.0.0.0:2380".to_owned()));
        }
    }

    #[test]
    fn h6_initial_cluster_comes_from_etcd_and_names_the_unstarted_by_url() {
        let member = |name: &str, url: &str| Member {
            id: 1,
            name: name.into(),
            peer_urls: vec![url.into()],
            is_learner: false,
        };
        let list = Membership {
            cluster_id: 1,
            members: vec![member("", "http://c-new.c.ns.svc:2380"), member("c-a", "http://10.0.0.1:2380")],
        };
        assert_eq!(initial_cluster(&list), "c-a=http://10.0.0.1:2380,c-new=http://c-new.c.ns.svc:2380");
    }
}
