//! The two Services: `<cluster>` gives every member its DNS name, `<cluster>-client` leads clients to voters. Only the
//! selector, the named ports, publishNotReadyAddresses and what the user asked of us by an annotation are ours; what
//! others add stays (H21).

use std::collections::BTreeMap;

use api::labels::annotation::CLIENT_TRAFFIC_DISTRIBUTION;
use api::{EtcdCluster, labels, names};
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};

use crate::view::{Ownership, Scene, owners_with, ownership};
use crate::{Action, Plan, metadata};

/// What Kubernetes takes as `trafficDistribution` of a Service.
const TRAFFIC_DISTRIBUTIONS: [&str; 3] = ["PreferClose", "PreferSameZone", "PreferSameNode"];

pub(crate) fn keep(scene: &Scene<'_>, plan: &mut Plan) {
    keep_one(scene, plan, scene.view.headless_service.as_ref(), headless(scene));
    let traffic = traffic_distribution(scene.cluster).unwrap_or_else(|why| {
        plan.complain(why);
        None
    });
    keep_one(scene, plan, scene.view.client_service.as_ref(), client(scene, traffic));
}

/// How the EtcdCluster's annotation wants clients to be distributed over the members.
fn traffic_distribution(cluster: &EtcdCluster) -> Result<Option<&str>, String> {
    let annotations = cluster.metadata.annotations.as_ref();
    let Some(asked) = annotations.and_then(|all| all.get(CLIENT_TRAFFIC_DISTRIBUTION)) else {
        return Ok(None);
    };
    if TRAFFIC_DISTRIBUTIONS.contains(&asked.as_str()) {
        return Ok(Some(asked));
    }
    Err(format!(
        "Annotation {CLIENT_TRAFFIC_DISTRIBUTION} of EtcdCluster {} is \"{asked}\" and has no effect: set it to {}, or \
         remove it",
        cluster.metadata.name.as_deref().unwrap_or_default(),
        TRAFFIC_DISTRIBUTIONS.join(", ")
    ))
}

fn keep_one(scene: &Scene<'_>, plan: &mut Plan, live: Option<&Service>, wanted: Service) {
    let Some(live) = live else {
        plan.act(Action::CreateService(Box::new(wanted)));
        return;
    };
    let name = wanted.metadata.name.clone().unwrap_or_default();
    match ownership(scene, &live.metadata) {
        Ownership::Ours => {}
        // Left behind when a cluster of this name was orphaned, or brought back from a backup.
        Ownership::Free => {
            let owners = owners_with(&live.metadata, scene);
            let uid = live.metadata.uid.clone().unwrap_or_default();
            plan.act(Action::AdoptService { name: name.clone(), uid, owners });
        }
        // T21: a Service that somebody else made is theirs, even under the name we want.
        Ownership::Foreign(owner) => {
            plan.complain(format!(
                "Service {name} is not owned by this EtcdCluster (owner: {owner}); delete or rename it"
            ));
            return;
        }
    }
    if let Some(patch) = repair(live, &wanted) {
        plan.act(Action::RepairService { name, patch });
    }
}

/// Why the name of the headless Service is not to be had.
pub(crate) fn foreign_headless(scene: &Scene<'_>) -> Option<String> {
    let live = scene.view.headless_service.as_ref()?;
    match ownership(scene, &live.metadata) {
        Ownership::Foreign(owner) => Some(format!(
            "Service {} is not owned by this EtcdCluster (owner: {owner}); its members need that name, so none is made",
            names::headless_service(&scene.view.name)
        )),
        _ => None,
    }
}

/// The headless Service: it also publishes members that are not ready, because a member must be found by its peers
/// before it can become ready.
fn headless(scene: &Scene<'_>) -> Service {
    let mut service = service(
        scene,
        names::headless_service(&scene.view.name),
        [("client", names::CLIENT_PORT), ("peer", names::PEER_PORT)],
    );
    let spec = service.spec.get_or_insert_default();
    spec.cluster_ip = Some("None".to_owned());
    spec.publish_not_ready_addresses = Some(true);
    spec.selector = Some(labels::select_cluster(&scene.view.name));
    service
}

/// The client Service: voters only, since a learner refuses what clients ask (T19).
fn client(scene: &Scene<'_>, traffic: Option<&str>) -> Service {
    let mut service =
        service(scene, names::client_service(&scene.view.name), [("client", names::CLIENT_PORT)]);
    let mut selector = labels::select_cluster(&scene.view.name);
    selector.insert(labels::ROLE.to_owned(), labels::VOTER.to_owned());
    let spec = service.spec.get_or_insert_default();
    spec.selector = Some(selector);
    if let Some(traffic) = traffic {
        spec.traffic_distribution = Some(traffic.to_owned());
        let annotations = service.metadata.annotations.get_or_insert_default();
        annotations.insert(CLIENT_TRAFFIC_DISTRIBUTION.to_owned(), traffic.to_owned());
    }
    service
}

fn service<const N: usize>(scene: &Scene<'_>, name: String, ports: [(&str, i32); N]) -> Service {
    let port = |(name, port): (&str, i32)| ServicePort {
        name: Some(name.to_owned()),
        port,
        protocol: Some("TCP".to_owned()),
        target_port: Some(IntOrString::Int(port)),
        ..ServicePort::default()
    };
    Service {
        metadata: metadata::of(
            scene.cluster,
            name,
            labels::for_cluster(&scene.view.name),
            BTreeMap::new(),
            scene.target().additional_metadata.as_ref(),
        ),
        spec: Some(ServiceSpec { ports: Some(ports.map(port).to_vec()), ..ServiceSpec::default() }),
        status: None,
    }
}

/// The merge patch that brings back what is ours, or nothing.
fn repair(live_service: &Service, wanted_service: &Service) -> Option<Value> {
    let (live, wanted) = (live_service.spec.as_ref()?, wanted_service.spec.as_ref()?);
    let mut spec = serde_json::Map::new();
    if live.selector != wanted.selector {
        // A merge patch removes a key only when told so.
        let gone = live.selector.iter().flatten().map(|(key, _)| (key.clone(), Value::Null));
        let kept = wanted.selector.iter().flatten().map(|(key, value)| (key.clone(), json!(value)));
        spec.insert("selector".into(), gone.chain(kept).collect::<BTreeMap<_, _>>().into_iter().collect());
    }
    if wanted.publish_not_ready_addresses == Some(true) && live.publish_not_ready_addresses != Some(true) {
        spec.insert("publishNotReadyAddresses".into(), json!(true));
    }
    let ports = repaired_ports(live, wanted);
    if Some(&ports) != live.ports.as_ref() {
        spec.insert("ports".into(), json!(ports));
    }
    let mut patch = serde_json::Map::new();
    if let Some((mark, traffic)) = repaired_traffic(live_service, wanted.traffic_distribution.as_deref()) {
        patch.insert("metadata".into(), json!({ "annotations": { CLIENT_TRAFFIC_DISTRIBUTION: mark } }));
        if live.traffic_distribution != traffic {
            spec.insert("trafficDistribution".into(), json!(traffic));
        }
    }
    if !spec.is_empty() {
        patch.insert("spec".into(), spec.into());
    }
    (!patch.is_empty()).then(|| patch.into())
}

/// Our mark on the client Service and its trafficDistribution, as they must be, unless they are. The mark tells a value
/// that we have set, and so must remove, from one that somebody else gave to the Service.
fn repaired_traffic(live: &Service, wanted: Option<&str>) -> Option<(Option<String>, Option<String>)> {
    let mark = live.metadata.annotations.as_ref().and_then(|all| all.get(CLIENT_TRAFFIC_DISTRIBUTION));
    let traffic = live.spec.as_ref().and_then(|spec| spec.traffic_distribution.as_ref());
    match (wanted, mark) {
        (Some(wanted), Some(mark)) if mark == wanted && traffic == Some(mark) => None,
        (Some(wanted), _) => Some((Some(wanted.to_owned()), Some(wanted.to_owned()))),
        (None, Some(mark)) => Some((None, traffic.filter(|traffic| *traffic != mark).cloned())),
        (None, None) => None,
    }
}

/// Our ports as they must be, then whatever others added. Compared with defaults filled in: a bare comparison finds a
/// difference on every pass.
fn repaired_ports(live: &ServiceSpec, wanted: &ServiceSpec) -> Vec<ServicePort> {
    let mut ports = live.ports.clone().unwrap_or_default();
    for port in wanted.ports.iter().flatten() {
        match ports.iter_mut().find(|p| p.name == port.name) {
            Some(found) => {
                found.port = port.port;
                found.protocol = port.protocol.clone();
                found.target_port = port.target_port.clone();
            }
            None => ports.push(port.clone()),
        }
    }
    ports
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{World, estrange};

    fn world() -> World {
        World::settled(EtcdCluster::test("ns", "c").replicas(1))
    }

    fn patch(world: &World) -> Option<Value> {
        world.plan().actions.into_iter().find_map(|a| match a {
            Action::RepairService { patch, .. } => Some(patch),
            _ => None,
        })
    }

    #[test]
    fn services_as_made() {
        let world = world();
        insta::assert_yaml_snapshot!((&world.view.headless_service, &world.view.client_service));
    }

    #[test]
    fn defaults_of_the_api_server_are_no_difference() {
        let mut world = world();
        let spec = world.view.client_service.as_mut().unwrap().spec.as_mut().unwrap();
        spec.cluster_ip = Some("10.96.0.7".into());
        spec.type_ = Some("ClusterIP".into());
        spec.session_affinity = Some("None".into());
        assert_eq!(patch(&world), None);
    }

    #[test]
    fn t19_a_selector_that_also_takes_learners_is_narrowed() {
        let mut world = world();
        let spec = world.view.client_service.as_mut().unwrap().spec.as_mut().unwrap();
        spec.selector = Some(labels::select_cluster("c"));
        spec.selector.as_mut().unwrap().insert("stray".into(), "x".into());
        assert_eq!(
            patch(&world).unwrap(),
            json!({"spec": {"selector": {labels::CLUSTER: "c", labels::ROLE: "voter", "stray": null}}})
        );
    }

    #[test]
    fn h21_what_others_added_stays() {
        let mut world = world();
        let service = world.view.client_service.as_mut().unwrap();
        service.metadata.labels.as_mut().unwrap().insert("theirs".into(), "x".into());
        let spec = service.spec.as_mut().unwrap();
        spec.type_ = Some("NodePort".into());
        let ports = spec.ports.as_mut().unwrap();
        ports[0].node_port = Some(30123);
        ports.push(ServicePort { name: Some("extra".into()), port: 1, ..ServicePort::default() });
        assert_eq!(patch(&world), None);

        let spec = world.view.client_service.as_mut().unwrap().spec.as_mut().unwrap();
        spec.ports.as_mut().unwrap()[0].port = 1234;
        let repaired = patch(&world).unwrap();
        assert_eq!(repaired["spec"]["ports"][0]["port"], 2379);
        assert_eq!(repaired["spec"]["ports"][0]["nodePort"], 30123);
        assert_eq!(repaired["spec"]["ports"][1]["name"], "extra");
    }

    #[test]
    fn t21_a_service_of_somebody_else_is_left_alone() {
        let mut world = world();
        let service = world.view.headless_service.as_mut().unwrap();
        estrange(service);
        service.spec.as_mut().unwrap().selector = None;
        let plan = world.plan();
        assert_eq!(plan.actions, []);
        assert!(
            plan.complaint
                .unwrap()
                .contains("not owned by this EtcdCluster (owner: EtcdCluster c of UID somebody-else)")
        );
    }

    fn ask_for(world: &mut World, traffic: Option<&str>) {
        let annotations = world.view.cluster.as_mut().unwrap().metadata.annotations.get_or_insert_default();
        annotations.remove(CLIENT_TRAFFIC_DISTRIBUTION);
        annotations.extend(traffic.map(|value| (CLIENT_TRAFFIC_DISTRIBUTION.to_owned(), value.to_owned())));
    }

    /// What the API server makes of a merge patch.
    fn apply(world: &mut World, patch: &Value) {
        let service = world.view.client_service.as_mut().unwrap();
        let value = &patch["spec"]["trafficDistribution"];
        if patch["spec"].get("trafficDistribution").is_some() {
            service.spec.as_mut().unwrap().traffic_distribution = value.as_str().map(str::to_owned);
        }
        let annotations = service.metadata.annotations.get_or_insert_default();
        match patch["metadata"]["annotations"][CLIENT_TRAFFIC_DISTRIBUTION].as_str() {
            Some(mark) => annotations.insert(CLIENT_TRAFFIC_DISTRIBUTION.to_owned(), mark.to_owned()),
            None => annotations.remove(CLIENT_TRAFFIC_DISTRIBUTION),
        };
    }

    #[test]
    fn traffic_distribution_comes_and_goes_with_the_annotation() {
        let mut world = world();
        for value in TRAFFIC_DISTRIBUTIONS {
            ask_for(&mut world, Some(value));
            let set = patch(&world).unwrap();
            assert_eq!(set["spec"], json!({ "trafficDistribution": value }));
            apply(&mut world, &set);
            assert_eq!(patch(&world), None, "at rest");
        }
        world.view.client_service.as_mut().unwrap().spec.as_mut().unwrap().traffic_distribution = None;
        assert_eq!(patch(&world).unwrap()["spec"], json!({ "trafficDistribution": "PreferSameNode" }));

        ask_for(&mut world, None);
        world.view.client_service.as_mut().unwrap().spec.as_mut().unwrap().traffic_distribution =
            Some("PreferSameNode".into());
        let removed = patch(&world).unwrap();
        assert_eq!(
            removed,
            json!({ "metadata": { "annotations": { CLIENT_TRAFFIC_DISTRIBUTION: null } }, "spec": { "trafficDistribution": null } })
        );
        apply(&mut world, &removed);
        assert_eq!(patch(&world), None, "at rest");
    }

    #[test]
    fn a_new_client_service_is_made_with_its_traffic_distribution() {
        let mut world = World::new(EtcdCluster::test("ns", "c").replicas(1));
        ask_for(&mut world, Some("PreferClose"));
        world.settle();
        let client = world.view.client_service.as_ref().unwrap().spec.as_ref().unwrap();
        assert_eq!(client.traffic_distribution.as_deref(), Some("PreferClose"));
        let headless = world.view.headless_service.as_ref().unwrap().spec.as_ref().unwrap();
        assert_eq!(headless.traffic_distribution, None);
        assert_eq!(patch(&world), None, "at rest");
    }

    #[test]
    fn h21_a_traffic_distribution_that_somebody_else_set_stays() {
        let mut world = world();
        let service = world.view.client_service.as_mut().unwrap();
        service.spec.as_mut().unwrap().traffic_distribution = Some("PreferClose".into());
        assert_eq!(patch(&world), None);
    }

    #[test]
    fn an_unknown_traffic_distribution_is_reported_and_not_applied() {
        let mut world = world();
        ask_for(&mut world, Some("preferclose"));
        let plan = world.plan();
        assert_eq!(plan.actions, []);
        let complaint = plan.complaint.unwrap();
        for part in
            ["EtcdCluster c", CLIENT_TRAFFIC_DISTRIBUTION, "\"preferclose\"", "PreferClose, PreferSameZone"]
        {
            assert!(complaint.contains(part), "{complaint}");
        }
    }

    #[test]
    fn h20_a_cluster_that_is_being_deleted_gets_no_services() {
        let world = World::new(EtcdCluster::test("ns", "c").formed().deleting());
        assert_eq!(world.plan().actions, []);
    }
}
