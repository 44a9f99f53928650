//! A Pod as its kubelet knows it: what it is made from, and how far it has come.

use k8s_openapi::api::core::v1::{EnvVar, Pod};

use crate::Millis;
use crate::etcd::{DiskId, ProcessId};

/// How far a Pod has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// No node yet.
    Waiting,
    /// On a node, container to be started.
    Starting,
    Running,
    /// Between two starts.
    Backoff,
    /// Failed: never runs again.
    Ended,
    /// Its node is gone for good.
    Lost,
}

/// What the kubelet knows of a Pod.
#[derive(Clone, Debug)]
pub struct PodRun {
    pub uid: String,
    pub name: String,
    pub cluster: String,
    /// It asks for more than any node has.
    pub too_much: bool,
    /// The claim it mounts; none for memory.
    pub claim: Option<String>,
    pub command: Vec<String>,
    /// From the image's tag.
    pub version: (u8, u8, u8),
    /// Variables of the container that come from annotations: name and annotation.
    pub environment: Vec<(String, String)>,
    pub node: Option<usize>,
    pub ip: Option<String>,
    pub process: Option<ProcessId>,
    pub disk: Option<DiskId>,
    pub stage: Stage,
    pub restarts: u32,
    pub backoff: Millis,
    /// It waits for its next start now, and how long in all.
    pub pause: Millis,
    pub started_at: Millis,
    pub ended_at: Millis,
    /// Its probe fails until then, whatever etcd does.
    pub flaps_until: Millis,
    /// After a reboot its name leads nowhere until then.
    pub hidden_until: Millis,
    pub ready: bool,
    pub failed_probes: u32,
    pub terminating: bool,
    /// Taken out of the API by force while it may still run.
    pub object_gone: bool,
    pub unschedulable_since: Option<Millis>,
    /// How often etcd refused the list it was given, and since when.
    pub refused: u32,
    pub refused_since: Millis,
    /// etcd's last words.
    pub last_words: Option<String>,
}

impl PodRun {
    pub(super) fn new(pod: &Pod) -> Option<Self> {
        let spec = pod.spec.as_ref()?;
        let claim = spec.volumes.iter().flatten().find_map(|v| v.persistent_volume_claim.as_ref());
        let labels = pod.metadata.labels.as_ref();
        let container = planner::etcd_container(pod)?;
        Some(Self {
            uid: pod.metadata.uid.clone()?,
            name: pod.metadata.name.clone()?,
            cluster: labels.and_then(|l| l.get(api::labels::CLUSTER)).cloned().unwrap_or_default(),
            too_much: container
                .resources
                .as_ref()
                .is_some_and(|r| r.requests.iter().flatten().any(|(_, q)| q.0 == super::incidents::TOO_MUCH)),
            claim: claim.map(|c| c.claim_name.clone()),
            command: container.command.clone().unwrap_or_default(),
            version: version(container.image.as_deref().unwrap_or_default()),
            environment: container.env.iter().flatten().filter_map(from_annotation).collect(),
            node: None,
            ip: None,
            process: None,
            disk: None,
            stage: Stage::Waiting,
            restarts: 0,
            backoff: 0,
            pause: 0,
            started_at: 0,
            ended_at: 0,
            flaps_until: 0,
            hidden_until: 0,
            ready: false,
            failed_probes: 0,
            terminating: false,
            object_gone: false,
            unschedulable_since: None,
            refused: 0,
            refused_since: 0,
            last_words: None,
        })
    }

    pub fn is_memory(&self) -> bool {
        self.claim.is_none()
    }

    /// Its flags are the same at every start, whatever anybody writes on it.
    pub fn has_fixed_flags(&self) -> bool {
        let joins = |flag: &String| flag.starts_with("--initial-cluster=") && flag.contains(',');
        let forms = |flag: &String| flag == "--initial-cluster-state=new";
        self.environment.is_empty() && self.command.iter().any(|flag| joins(flag) || forms(flag))
    }
}

/// `metadata.annotations['…']`, which the kubelet looks up at every start.
fn from_annotation(variable: &EnvVar) -> Option<(String, String)> {
    let path = &variable.value_from.as_ref()?.field_ref.as_ref()?.field_path;
    let key = path.strip_prefix("metadata.annotations['")?.strip_suffix("']")?;
    Some((variable.name.clone(), key.to_owned()))
}

/// `…:v3.6.16`
fn version(image: &str) -> (u8, u8, u8) {
    let tag = image.rsplit_once(":v").map_or("", |(_, tag)| tag);
    let mut parts = tag.split('.').map(|part| part.parse().unwrap_or_default());
    (parts.next().unwrap_or_default(), parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
}
