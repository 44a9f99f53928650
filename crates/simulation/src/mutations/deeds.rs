//! Operators that want the right thing and do another.

use api::labels::annotation;
use planner::pass::{EtcdCall, Request};
use planner::{Action, ClusterView, MemberView};
use serde_json::{Value, json};

use crate::planner_loop::Call;

pub(super) fn born_without_finalizer(_: &ClusterView, action: &Action, mut call: Call) -> Call {
    if let (Action::CreateMember(_), Request::Create { object, .. }) = (action, &mut call.request) {
        object["metadata"]["finalizers"] = Value::Null;
    }
    call
}

pub(super) fn voting_add(_: &ClusterView, _: &Action, mut call: Call) -> Call {
    call.votes = matches!(call.request, Request::Etcd { call: EtcdCall::AddLearner { .. }, .. });
    call
}

pub(super) fn list_from_objects(view: &ClusterView, action: &Action, mut call: Call) -> Call {
    if let (Action::WireMember { .. }, Request::Patch { name, patch, .. }) = (action, &mut call.request)
        && view.members.len() > 1
    {
        let votes = |m: &&MemberView| m.member.status.as_ref().is_some_and(|s| s.is_voter);
        let known = view.members.iter().filter(|m| votes(m) || m.name() == *name);
        let mut list: Vec<String> = known.map(|m| format!("{}={}", m.name(), m.peer_url())).collect();
        list.sort();
        patch["spec"]["initialCluster"] = json!(list.join(","));
    }
    call
}

pub(super) fn seeds_start_new(view: &ClusterView, action: &Action, mut call: Call) -> Call {
    let Action::CreatePod(pod) = action else { return call };
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let Some(seed) = view.members.iter().find(|m| m.name() == name && m.member.spec.bootstrap) else {
        return call;
    };
    let Request::Create { object, .. } = &mut call.request else { return call };
    object["metadata"]["annotations"][annotation::INITIAL_CLUSTER] = json!(seed.member.spec.initial_cluster);
    object["metadata"]["annotations"][annotation::INITIAL_CLUSTER_STATE] = json!("new");
    let flags = object["spec"]["containers"][0]["command"].as_array_mut();
    for flag in flags.into_iter().flatten() {
        if flag.as_str().is_some_and(|f| f.starts_with("--initial-cluster-state=")) {
            *flag = json!("--initial-cluster-state=new");
        }
    }
    call
}
