//! The two Services: `<cluster>` gives every member its DNS name, `<cluster>-client` leads clients to voters. Only the
//! selector, the named ports and publishNotReadyAddresses are ours; what others add stays (H21).

use std::collections::BTreeMap;

use api::{labels, metadata, names};
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};

use crate::view::{Scene, controlled_by, controller_uid};
use crate::{Action, Plan};

pub(crate) fn keep(scene: &Scene<'_>, plan: &mut Plan) {
    keep_one(scene, plan, scene.view.headless_service.as_ref(), headless(scene));
    keep_one(scene, plan, scene.view.client_service.as_ref(), client(scene));
}

fn keep_one(scene: &Scene<'_>, plan: &mut Plan, live: Option<&Service>, wanted: Service) {
    let Some(live) = live else {
        plan.act(Action::CreateService(Box::new(wanted)));
        return;
    };
    let name = wanted.metadata.name.clone().unwrap_or_default();
    // T21: a Service that somebody else made is theirs, even under the name we want.
    if controller_uid(&live.metadata) != scene.cluster.metadata.uid.as_deref() {
        plan.complain(format!("Service {name} belongs to somebody else; rename or delete it"));
        return;
    }
    if let Some(patch) = repair(live.spec.as_ref(), wanted.spec.as_ref()) {
        plan.act(Action::RepairService { name, patch });
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
fn client(scene: &Scene<'_>) -> Service {
    let mut service =
        service(scene, names::client_service(&scene.view.name), [("client", names::CLIENT_PORT)]);
    let mut selector = labels::select_cluster(&scene.view.name);
    selector.insert(labels::ROLE.to_owned(), labels::VOTER.to_owned());
    service.spec.get_or_insert_default().selector = Some(selector);
    service
}

fn service<const N: usize>(scene: &Scene<'_>, name: String, ports: [(&str, i32); N]) -> Service {
    let extra = scene.target().additional_metadata.unwrap_or_default();
    let port = |(name, port): (&str, i32)| ServicePort {
        name: Some(name.to_owned()),
        port,
        protocol: Some("TCP".to_owned()),
        target_port: Some(IntOrString::Int(port)),
        ..ServicePort::default()
    };
    Service {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some(scene.view.namespace.clone()),
            labels: metadata::merge(Some(labels::for_cluster(&scene.view.name)), &extra.labels),
            annotations: metadata::merge(None, &extra.annotations),
            owner_references: controlled_by(scene.cluster),
            ..ObjectMeta::default()
        },
        spec: Some(ServiceSpec { ports: Some(ports.map(port).to_vec()), ..ServiceSpec::default() }),
        status: None,
    }
}

/// The merge patch that brings back what is ours, or nothing.
fn repair(live: Option<&ServiceSpec>, wanted: Option<&ServiceSpec>) -> Option<Value> {
    let (live, wanted) = (live?, wanted?);
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
    (!spec.is_empty()).then(|| json!({ "spec": spec }))
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
    use api::EtcdCluster;

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
        assert!(plan.complaint.unwrap().contains("belongs to somebody else"));
    }

    #[test]
    fn h20_a_cluster_that_is_being_deleted_gets_no_services() {
        let world = World::new(EtcdCluster::test("ns", "c").formed().deleting());
        assert_eq!(world.plan(), Plan::default());
    }
}
