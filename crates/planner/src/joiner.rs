//! New EtcdMembers: what a member is born with.

use std::collections::BTreeMap;

use api::{EtcdMember, MemberTemplate, labels, names};
use etcd::Membership;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::metadata;
use crate::view::Scene;

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

/// What the next member is made from.
pub(crate) fn template(scene: &Scene<'_>) -> MemberTemplate {
    MemberTemplate::from_target(&scene.target(), scene.cluster)
}

fn new(scene: &Scene<'_>, name: &str) -> EtcdMember {
    let (cluster, template) = (scene.view.name.as_str(), template(scene));
    let token = scene.cluster.status.as_ref().and_then(|s| s.cluster_token.clone()).unwrap_or_default();
    let mut annotations = BTreeMap::new();
    // One that is made for a cluster which was taken up has a token that does not say whose it is.
    let owner = scene.cluster.metadata.uid.clone().unwrap_or_default();
    if token != names::cluster_token(&scene.view.namespace, cluster, &owner) {
        annotations.insert(labels::annotation::ADOPTED_BY.to_owned(), owner);
    }
    let metadata = metadata::of(
        scene.cluster,
        name.to_owned(),
        labels::for_member(cluster, name),
        annotations,
        template.additional_metadata.as_ref(),
    );
    EtcdMember {
        // On from birth: a member that is in etcd without it would be forgotten there (T9).
        metadata: ObjectMeta { finalizers: Some(vec![labels::FINALIZER.to_owned()]), ..metadata },
        spec: template.into_member(cluster.to_owned(), token),
        status: None,
    }
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
    use api::EtcdCluster;
    use etcd::Member;
    use kube::ResourceExt as _;

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
