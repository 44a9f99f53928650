//! Faults of containers: killed from outside, as the kernel would when memory runs out, or frozen, as by a disk that
//! does not answer.

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Pod;

use crate::{
    addresses::Node,
    cli,
    cluster::{api, images},
    paths::Paths,
    state::State,
};

pub fn run(paths: &Paths, args: cli::Container) -> Result<()> {
    let (args, signal, done) = match args {
        cli::Container::Kill(target) => (target, "SIGKILL", "killed"),
        cli::Container::Freeze(target) => (target, "SIGSTOP", "froze"),
        cli::Container::Thaw(target) => (target, "SIGCONT", "thawed"),
    };
    let cli::Target { pod: name, namespace, container } = args;
    let state = State::running(paths)?;
    let pod = api::connect(paths)?.pod(&namespace, &name)?;
    let at = || format!("Pod {namespace}/{name}");
    let (node, id) = locate(&pod, container.as_deref()).with_context(at)?;
    let node = Node::by_name(&node, state.nodes)?;
    images::ctr(&paths.node(node).containerd_socket(), &["tasks", "kill", "--signal", signal, &id])
        .with_context(at)?;
    eprintln!("  {done} container {} of {} on {}", &id[..12.min(id.len())], at(), node.name());
    Ok(())
}

/// The node of a Pod and the runtime's id of one of its containers.
fn locate(pod: &Pod, container: Option<&str>) -> Result<(String, String)> {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    let Some(node) = node else { bail!("it is not on a node yet") };
    let statuses =
        pod.status.as_ref().and_then(|status| status.container_statuses.clone()).unwrap_or_default();
    let known: Vec<_> = statuses.iter().map(|status| status.name.clone()).collect();
    let found = match (container, statuses.as_slice()) {
        (Some(name), all) => all.iter().find(|status| status.name == name),
        (None, [only]) => Some(only),
        (None, []) => bail!("it has no containers yet"),
        (None, _) => bail!("it has several containers: choose with --container from {}", known.join(", ")),
    };
    let Some(found) = found else { bail!("it has no such container, only {}", known.join(", ")) };
    let running = found.state.as_ref().is_some_and(|state| state.running.is_some());
    match found.container_id.as_deref().and_then(|id| id.split_once("://")) {
        Some((_, id)) if running => Ok((node, id.to_owned())),
        _ => bail!("its container {} does not run", found.name),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(containers: &[&str]) -> Pod {
        let statuses: Vec<_> = containers
            .iter()
            .map(|name| {
                json!({ "name": name, "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "containerID": format!("containerd://id-{name}"), "state": { "running": {} } })
            })
            .collect();
        serde_json::from_value(json!({
            "metadata": { "name": "p" },
            "spec": { "nodeName": "node1", "containers": [] },
            "status": { "containerStatuses": statuses },
        }))
        .unwrap()
    }

    #[test]
    fn the_only_container_needs_no_name() {
        assert_eq!(locate(&pod(&["etcd"]), None).unwrap(), ("node1".into(), "id-etcd".into()));
    }

    #[test]
    fn one_of_several_must_be_chosen() {
        let two = pod(&["etcd", "agent"]);
        assert!(locate(&two, None).unwrap_err().to_string().contains("etcd, agent"));
        assert_eq!(locate(&two, Some("agent")).unwrap().1, "id-agent");
        assert!(locate(&two, Some("other")).is_err());
    }
}
