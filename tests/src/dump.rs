//! Everything worth knowing about a test that failed.

use std::fmt::{Debug, Write as _};

use anyhow::Result;
use api::{EtcdCluster, EtcdMember};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ContainerState, Event, PersistentVolumeClaim, Pod};
use kube::api::LogParams;
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Arena, operator};

const LINES: i64 = 60;

/// The state of the test's namespace and the end of every log. What can not be read says so in its place.
pub async fn everything(arena: &Arena) -> String {
    let mut text = format!("\n──── namespace {} ────\n", arena.namespace);
    section(&mut text, "EtcdClusters", yaml::<EtcdCluster>(arena).await);
    section(&mut text, "EtcdMembers", yaml::<EtcdMember>(arena).await);
    section(&mut text, "Pods", pods(arena).await);
    section(&mut text, "PersistentVolumeClaims", claims(arena).await);
    section(&mut text, "Events", events(arena).await);
    section(&mut text, "etcd's words", etcd_logs(arena).await);
    section(&mut text, "the operator's words", operator::log_tail(&arena.client, LINES).await);
    text
}

fn section(text: &mut String, title: &str, content: Result<String>) {
    let content = content.unwrap_or_else(|error| format!("can not be read: {error:#}"));
    let _ = writeln!(text, "\n── {title}\n{}", if content.is_empty() { "none" } else { &content });
}

async fn yaml<K>(arena: &Arena) -> Result<String>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + DeserializeOwned
        + Debug
        + Serialize,
{
    let mut text = String::new();
    for mut object in arena.list::<K>().await? {
        object.managed_fields_mut().clear();
        let _ = writeln!(text, "---\n{}", serde_norway::to_string(&object)?);
    }
    Ok(text)
}

async fn pods(arena: &Arena) -> Result<String> {
    let mut text = String::new();
    for pod in arena.list::<Pod>().await? {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let status = pod.status.clone().unwrap_or_default();
        let going = if pod.metadata.deletion_timestamp.is_some() { ", terminating" } else { "" };
        let _ = writeln!(
            text,
            "{}: {} on {}, {}{going}",
            pod.name_any(),
            status.phase.unwrap_or_default(),
            node.as_deref().unwrap_or("no node"),
            status.pod_ip.as_deref().unwrap_or("no address"),
        );
        for c in status.conditions.unwrap_or_default() {
            let (reason, message) = (c.reason.unwrap_or_default(), c.message.unwrap_or_default());
            let _ = writeln!(text, "    {}={} {reason} {message}", c.type_, c.status);
        }
        for c in status.container_statuses.unwrap_or_default() {
            let now = c.state.as_ref().map(state).unwrap_or_default();
            let before =
                c.last_state.as_ref().map(state).filter(|s| !s.is_empty()).map(|s| format!(", before: {s}"));
            let _ = writeln!(
                text,
                "    container {}: {now}{}, {} restarts",
                c.name,
                before.unwrap_or_default(),
                c.restart_count
            );
        }
    }
    Ok(text)
}

fn state(state: &ContainerState) -> String {
    if let Some(running) = &state.running {
        format!("running since {}", running.started_at.as_ref().map(|t| t.0.to_string()).unwrap_or_default())
    } else if let Some(waiting) = &state.waiting {
        let (reason, message) = (waiting.reason.as_deref(), waiting.message.as_deref());
        format!("waiting: {} {}", reason.unwrap_or_default(), message.unwrap_or_default())
    } else if let Some(ended) = &state.terminated {
        format!("ended with {}: {}", ended.exit_code, ended.reason.as_deref().unwrap_or_default())
    } else {
        String::new()
    }
}

async fn claims(arena: &Arena) -> Result<String> {
    let mut text = String::new();
    for claim in arena.list::<PersistentVolumeClaim>().await? {
        let status = claim.status.clone().unwrap_or_default();
        let phase = status.phase.unwrap_or_default();
        let size = status.capacity.unwrap_or_default().get("storage").map(|q| q.0.clone());
        let going = if claim.metadata.deletion_timestamp.is_some() { ", terminating" } else { "" };
        let _ =
            writeln!(text, "{}: {phase} {}{going}", claim.name_any(), size.as_deref().unwrap_or("no size"));
    }
    Ok(text)
}

async fn events(arena: &Arena) -> Result<String> {
    let mut events = arena.list::<Event>().await?;
    let when = |e: &Event| {
        let seen = e.last_timestamp.as_ref().map(|t| t.0).or(e.event_time.as_ref().map(|t| t.0));
        seen.or(e.metadata.creation_timestamp.as_ref().map(|t| t.0))
    };
    events.sort_by_key(when);
    let mut text = String::new();
    for event in &events {
        let time = when(event).map(|t| t.strftime("%T").to_string()).unwrap_or_default();
        let about = &event.involved_object;
        let _ = writeln!(
            text,
            "{time} {}/{} {}: {}",
            about.kind.as_deref().unwrap_or_default(),
            about.name.as_deref().unwrap_or_default(),
            event.reason.as_deref().unwrap_or_default(),
            event.message.as_deref().unwrap_or_default()
        );
    }
    Ok(text)
}

async fn etcd_logs(arena: &Arena) -> Result<String> {
    let mut text = String::new();
    for pod in arena.list::<Pod>().await? {
        let params = LogParams { tail_lines: Some(LINES), ..LogParams::default() };
        let log = arena.api::<Pod>().logs(&pod.name_any(), &params).await;
        let log = log.unwrap_or_else(|error| format!("can not be read: {error}"));
        let _ = writeln!(text, "{}:\n{log}", pod.name_any());
    }
    Ok(text)
}
