//! Report: tells of every step in the log and as an Event.

use api::conditions::reason;
use api::{EtcdClusterStatus, EtcdMember, EtcdMemberSpec, EtcdMemberStatus, conditions};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use planner::pass::{Error, Told};
use planner::{Action, ClusterView, Plan};
use tracing::{info, warn};

use crate::runtime::cache::Key;
use crate::runtime::events::{Announcer, News, Tone};

/// Tells.
pub struct Reporter {
    pub announcer: Announcer,
}

impl Reporter {
    /// Tells what a pass tells.
    pub fn tell(&self, key: &Key, view: &ClusterView, plan: &Plan, told: &Told) {
        match told {
            Told::Waiting(what) => info!(cluster = %key, "{what}"),
            Told::Complaint(about) => self.complain(key, view, about),
            Told::Unreadable { object, why } => self.unreadable(key, object, why),
            Told::Done(action) => self.done(key, view, action),
            Told::Failed { error, .. } => self.failed(key, view, error),
            Told::Reported => {
                if let Some(status) = &plan.cluster_status {
                    self.announce_flips(view, status);
                    self.announce_target(view, status);
                }
                self.announce_drift(view, plan);
            }
            Told::Planned | Told::Changed(_) => {}
        }
    }

    /// An action was carried out.
    fn done(&self, key: &Key, view: &ClusterView, action: &Action) {
        if action.is_progress() {
            info!(cluster = %key, "{action}");
        }
        if let Some(reason) = action.reason() {
            let related = action.member().map(|name| reference(view, name));
            self.announce(view, Tone::Normal, reason, capitalized(&action.to_string()), related);
        }
    }

    /// An action failed.
    fn failed(&self, key: &Key, view: &ClusterView, error: &Error) {
        match error {
            // Ordinary: somebody else wrote, or etcd is not ready for it yet. The next pass decides anew.
            Error::Stale(_) | Error::Deposed => tracing::debug!(cluster = %key, "{error}"),
            Error::Relabelled(_) => info!(cluster = %key, "{error}"),
            Error::Etcd { source: etcd::Error::LearnerNotReady, .. } => {
                info!(cluster = %key, "learner not yet promotable; will retry: {error}");
            }
            Error::Etcd { source: etcd::Error::Unhealthy, .. } => {
                info!(cluster = %key, "membership not yet changeable; will retry: {error}");
            }
            Error::Refused(about) => self.complain(key, view, about),
            // The whole namespace goes; there is nobody left to tell.
            error if error.is_terminating() => tracing::debug!(cluster = %key, "{error}"),
            _ => {
                warn!(cluster = %key, "{error}");
                self.announce(view, Tone::Warning, "ReconcileFailed", error.to_string(), None);
            }
        }
    }

    /// Something only the user can change.
    fn complain(&self, key: &Key, view: &ClusterView, about: &str) {
        warn!(cluster = %key, "{about}");
        self.announce(view, Tone::Warning, "Blocked", capitalized(about), None);
        // Without a cluster, those that it is about are told.
        for member in view.members.iter().filter(|m| view.cluster.is_none() && about.contains(m.name())) {
            self.publish(member.member.object_ref(&()), Tone::Warning, "Blocked", capitalized(about), None);
        }
    }

    /// An object can not be read, so its cluster is left alone. `object` is its kind and name.
    fn unreadable(&self, key: &Key, object: &str, why: &str) {
        let note =
            format!("{object} can not be read, its cluster is left alone until it is corrected: {why}");
        warn!(cluster = %key, "{note}");
        let (kind, name) = object.split_once(' ').unwrap_or((object, ""));
        let about = ObjectReference {
            api_version: Some(EtcdMember::api_version(&()).into_owned()),
            kind: Some(kind.to_owned()),
            name: Some(name.to_owned()),
            namespace: Some(key.namespace.clone()),
            ..ObjectReference::default()
        };
        self.publish(about, Tone::Warning, "Unreadable", note, None);
    }

    /// Tells of every condition of the cluster that turned, or that is bad for another reason than before: `kubectl
    /// describe` shows when it went wrong, and when right. What belongs to a start, a growth or a resume is no news.
    fn announce_flips(&self, view: &ClusterView, status: &EtcdClusterStatus) {
        let before = view.cluster.as_ref().and_then(|c| c.status.as_ref());
        let growing = conditions::find(&status.conditions, conditions::PROGRESSING).is_some_and(|c| {
            let starts = [reason::INITIAL_SNAPSHOT, reason::WAITING_FOR_SEED, reason::SPEC_CHANGED];
            c.status == "True" && starts.contains(&c.reason.as_str())
        });
        for new in &status.conditions {
            let old = before.and_then(|s| conditions::find(&s.conditions, &new.type_));
            let bad = if new.type_ == conditions::AVAILABLE { "False" } else { "True" };
            let is_bad = new.status == bad;
            let same =
                old.is_some_and(|old| old.status == new.status && (!is_bad || old.reason == new.reason));
            let resumes =
                old.is_some_and(|old| old.reason == reason::PAUSED) && new.reason == reason::QUORUM_LOST;
            let grows = growing && new.reason == reason::MEMBERS_UNHEALTHY;
            let quiet = new.type_ == conditions::PROGRESSING || (old.is_none() && !is_bad);
            // A lost quorum is told once, by Available.
            let twice = new.type_ == conditions::DEGRADED
                && is_bad
                && conditions::find(&status.conditions, conditions::AVAILABLE)
                    .is_some_and(|a| a.status == "False" && a.reason == new.reason);
            if same || resumes || grows || quiet || twice || new.reason == reason::PAUSED {
                continue;
            }
            let tone = if is_bad { Tone::Warning } else { Tone::Normal };
            let note = format!("{} is {}: {}", new.type_, new.status, new.message);
            self.announce(view, tone, &new.reason, note, None);
        }
    }

    /// Tells of a target that was taken up, or was not reached in time, and of what is doubtful about it.
    fn announce_target(&self, view: &ClusterView, status: &EtcdClusterStatus) {
        let before = view.cluster.as_ref().and_then(|c| c.status.as_ref());
        let found = |s: &EtcdClusterStatus| conditions::find(&s.conditions, conditions::PROGRESSING).cloned();
        let Some(new) = found(status) else { return };
        let taken_up = before.and_then(|s| s.observed.as_ref()) != status.observed.as_ref();
        if !taken_up && before.and_then(found).is_some_and(|old| old.reason == new.reason) {
            return;
        }
        let (what, tone) = match &*new.reason {
            reason::INITIAL_SNAPSHOT => ("initialising cluster status", Tone::Normal),
            reason::SPEC_CHANGED => ("previous target reached; adopting new spec", Tone::Normal),
            reason::RETRY_AFTER_DEADLINE => ("deadline exceeded; adopting new spec", Tone::Normal),
            reason::DEADLINE_EXCEEDED | reason::BOOTSTRAP_FAILED => ("deadline exceeded", Tone::Warning),
            reason::WAITING_FOR_LEFTOVERS => ("not bootstrapping", Tone::Warning),
            _ => return,
        };
        let message = &new.message;
        info!(cluster = %format_args!("{}/{}", view.namespace, view.name), detail = message, "{what}");
        self.announce(view, tone, &new.reason, capitalized(message), None);
        let doubts = view.cluster.as_ref().filter(|_| taken_up).map(|c| c.spec.doubts()).unwrap_or_default();
        for doubt in doubts {
            self.announce(view, Tone::Warning, "DoubtfulSpec", capitalized(&doubt), None);
        }
    }

    /// Tells of members that run another version than they were made for.
    fn announce_drift(&self, view: &ClusterView, plan: &Plan) {
        let drifted = |s: &EtcdMemberStatus| conditions::is_true(&s.conditions, conditions::VERSION_DRIFTED);
        for member in &view.members {
            let (old, new) = (member.member.status.as_ref(), plan.member_statuses.get(member.name()));
            let Some(new) = new.filter(|new| drifted(new) && !old.is_some_and(drifted)) else { continue };
            let message = conditions::find(&new.conditions, conditions::VERSION_DRIFTED);
            let message = message.map(|c| c.message.clone()).unwrap_or_default();
            let note = format!("etcd member version drift detected: member {}, {message}", member.name());
            info!(cluster = %format_args!("{}/{}", view.namespace, view.name), "{note}");
            let related = reference(view, member.name());
            self.announce(
                view,
                Tone::Warning,
                conditions::VERSION_DRIFTED,
                capitalized(&note),
                Some(related),
            );
        }
    }

    /// Publishes an Event about the cluster without making the pass wait for it.
    fn announce(
        &self,
        view: &ClusterView,
        tone: Tone,
        reason: &str,
        note: String,
        related: Option<ObjectReference>,
    ) {
        if let Some(cluster) = &view.cluster {
            self.publish(cluster.object_ref(&()), tone, reason, note, related);
        }
    }

    fn publish(
        &self,
        about: ObjectReference,
        tone: Tone,
        reason: &str,
        note: String,
        related: Option<ObjectReference>,
    ) {
        self.announcer.tell(News { tone, reason: reason.to_owned(), note, about, related });
    }
}

/// The member of that name, as it was seen; one that has just been made has no UID yet.
fn reference(view: &ClusterView, name: &str) -> ObjectReference {
    let seen = view.members.iter().find(|m| m.name() == name).map(|m| m.member.object_ref(&()));
    let fresh = || ObjectReference {
        namespace: Some(view.namespace.clone()),
        ..EtcdMember::new(name, EtcdMemberSpec::default()).object_ref(&())
    };
    seen.unwrap_or_else(fresh)
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
