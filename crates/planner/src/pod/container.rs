//! The container that runs etcd, in a Pod that is made, and in one that was found.

use api::{MemberTemplate, names};
use k8s_openapi::api::core::v1::{
    Container, ContainerPort, ContainerStatus, Pod, ResourceRequirements, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::{probes, security};
use crate::Settings;
use crate::command::{self, METRICS_PORT, Start};
use crate::view::MemberView;

/// Its name, in our Pods as in those of the Go operator.
const ETCD: &str = "etcd";

/// The container that runs etcd.
pub fn etcd_container(pod: &Pod) -> Option<&Container> {
    pod.spec.as_ref()?.containers.iter().find(|c| c.name == ETCD)
}

/// The state of the container that runs etcd.
pub(crate) fn etcd_status(pod: &Pod) -> Option<&ContainerStatus> {
    pod.status.as_ref()?.container_statuses.as_ref()?.iter().find(|c| c.name == ETCD)
}

pub(super) fn container(
    member: &MemberView,
    template: &MemberTemplate,
    settings: &Settings,
    start: &Start,
    mounts: Vec<VolumeMount>,
) -> Container {
    let port = |name: &str, port| ContainerPort {
        name: Some(name.to_owned()),
        container_port: port,
        ..ContainerPort::default()
    };
    Container {
        name: ETCD.to_owned(),
        image: Some(format!("{}:v{}", settings.etcd_image_repository, template.version)),
        command: Some(command::line(member, template, start)),
        env: start.environment(),
        ports: Some(vec![
            port("client", names::CLIENT_PORT),
            port("peer", names::PEER_PORT),
            port("metrics", METRICS_PORT),
        ]),
        resources: Some(resources(template.resources.as_ref())),
        security_context: Some(security::of_container()),
        volume_mounts: Some(mounts),
        // What etcd said last stands in the Pod's status, and from there in conditions.
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        startup_probe: Some(probes::startup()),
        liveness_probe: Some(probes::liveness()),
        readiness_probe: Some(probes::readiness()),
        ..Container::default()
    }
}

/// What the user asks for, as soon as they ask for anything (claims alone count, H37).
pub(super) fn resources(wanted: Option<&ResourceRequirements>) -> ResourceRequirements {
    let given = wanted.filter(|r| {
        r.requests.as_ref().is_some_and(|m| !m.is_empty())
            || r.limits.as_ref().is_some_and(|m| !m.is_empty())
            || r.claims.as_ref().is_some_and(|c| !c.is_empty())
    });
    given.cloned().unwrap_or_else(|| ResourceRequirements {
        requests: Some(
            [("cpu", "100m"), ("memory", "128Mi")]
                .map(|(k, v)| (k.to_owned(), Quantity(v.to_owned())))
                .into(),
        ),
        ..ResourceRequirements::default()
    })
}
