//! How the kubelet looks after etcd.

use api::names;
use k8s_openapi::api::core::v1::{HTTPGetAction, Probe, TCPSocketAction};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::command::METRICS_PORT;

/// Looks each second, so that a member is ready the moment it is. It must never end in a restart, because etcd without
/// a quorum can not become healthy by being restarted: a day of failures comes first.
pub(super) fn startup() -> Probe {
    Probe {
        http_get: Some(health()),
        period_seconds: Some(1),
        failure_threshold: Some(86_400),
        ..Probe::default()
    }
}

/// Only whether the process lives; never whether it has a quorum (H17).
pub(super) fn liveness() -> Probe {
    Probe {
        tcp_socket: Some(TCPSocketAction { port: IntOrString::Int(names::PEER_PORT), host: None }),
        initial_delay_seconds: Some(15),
        period_seconds: Some(10),
        failure_threshold: Some(3),
        ..Probe::default()
    }
}

pub(super) fn readiness() -> Probe {
    Probe {
        http_get: Some(health()),
        period_seconds: Some(5),
        timeout_seconds: Some(3),
        failure_threshold: Some(3),
        ..Probe::default()
    }
}

/// A full database must not take the endpoints away (T18): the user has to reach etcd to make room.
fn health() -> HTTPGetAction {
    HTTPGetAction {
        path: Some("/health?exclude=NOSPACE".to_owned()),
        port: IntOrString::Int(METRICS_PORT),
        ..HTTPGetAction::default()
    }
}
