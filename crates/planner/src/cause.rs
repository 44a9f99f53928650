//! Why a member is not there yet, in one clause that names the object: for conditions, where people look first.

use api::names;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use crate::healing::{etcd_status, has_ended};
use crate::sightings::unschedulable;
use crate::view::{Assessed, MemberView, Scene};

/// Longest text that is passed on from somebody else.
const LONGEST: usize = 300;

/// What the first member that is not ready waits for; or what was refused of the cluster's own objects.
pub(crate) fn first(scene: &Scene<'_>) -> Option<String> {
    let mut waiting = scene.running().filter(|m| !m.is_ready());
    waiting.find_map(|m| of(scene, m)).or_else(|| refused(scene))
}

/// Something of the cluster's own that the API server does not take.
fn refused(scene: &Scene<'_>) -> Option<String> {
    scene.view.refused.values().next().map(|why| cut(why))
}

fn of(scene: &Scene<'_>, member: &Assessed<'_>) -> Option<String> {
    let (name, claim) = (member.name(), names::pvc(member.name()));
    let about = |object: String| scene.view.refused.get(&object).map(|why| cut(why));
    if let Some(why) = about(format!("PersistentVolumeClaim {claim}"))
        .or_else(|| about(format!("Pod {name}")))
        .or_else(|| about(format!("EtcdMember {name}")))
    {
        return Some(why);
    }
    let pod = member.pod.as_ref().filter(|p| member.owns(&p.metadata))?;
    pod_waits(member, pod).map(|why| format!("waiting for Pod {name}: {why}"))
}

fn pod_waits(member: &MemberView, pod: &Pod) -> Option<String> {
    if has_ended(pod) {
        let status = pod.status.as_ref()?;
        let why = status.reason.as_deref().or(status.message.as_deref()).unwrap_or("it has ended");
        return Some(cut(why));
    }
    if let Some(condition) = unschedulable(pod) {
        let why = condition.message.as_deref().unwrap_or("no node can run it");
        return Some(format!("Unschedulable, {}", cut(why)));
    }
    let etcd = etcd_status(pod)?;
    let waiting = etcd.state.as_ref()?.waiting.as_ref()?;
    let reason =
        waiting.reason.as_deref().filter(|r| !matches!(*r, "ContainerCreating" | "PodInitializing"))?;
    let last = last_words(etcd).or_else(|| waiting.message.as_deref().map(cut));
    let restarts = if etcd.restart_count > 0 {
        format!(" after {} restarts", etcd.restart_count)
    } else {
        String::new()
    };
    let image = if reason.contains("Image") {
        format!(" (etcd {})", member.member.spec.version)
    } else {
        String::new()
    };
    Some(match last {
        Some(words) => format!("{reason}{restarts}{image}, {words}"),
        None => format!("{reason}{restarts}{image}"),
    })
}

/// What etcd said last before it died: the end of its log, which the kubelet keeps as the termination message.
fn last_words(etcd: &ContainerStatus) -> Option<String> {
    let ended = etcd.last_state.as_ref()?.terminated.as_ref()?;
    let line = ended.message.as_deref()?.lines().rev().find(|line| !line.trim().is_empty())?;
    // etcd logs JSON; the sentence in it is what counts.
    let said = serde_json::from_str::<serde_json::Value>(line).ok();
    let text = said.as_ref().map(|json| {
        let part = |key: &str| json[key].as_str().filter(|text| !text.is_empty());
        match (part("msg"), part("error")) {
            (Some(msg), Some(error)) => format!("{msg}: {error}"),
            (Some(msg), None) => msg.to_owned(),
            _ => line.to_owned(),
        }
    });
    Some(format!("etcd said: {}", cut(&text.unwrap_or_else(|| line.to_owned()))))
}

fn cut(text: &str) -> String {
    let text = text.trim().replace('\n', " ");
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
