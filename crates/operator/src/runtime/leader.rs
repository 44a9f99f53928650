//! Leader election on a Lease. The decision is a pure function of the lease, of when *this* process first saw it in its
//! present form, and of this process's own clock: clocks of other machines are never trusted.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client};
use tracing::{debug, info};

use crate::runtime::requests::is_reason;
use crate::runtime::sentence::refusal;

/// The Go operator's lease: while one of the two holds it, the other waits.
pub const LEASE: &str = "aa20b3a9.etcd-operator.cozystack.io";
/// How long others wait for a leader that says nothing.
pub const DURATION: Duration = Duration::from_secs(15);
/// A leader that could not renew for this long stops, well before others may take over.
pub const RENEW_DEADLINE: Duration = Duration::from_secs(10);
pub const RETRY: Duration = Duration::from_secs(2);

/// What to do about the lease now.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// It is ours: renew.
    Renew,
    /// Nobody holds it any more: take it.
    Take,
    /// Somebody holds it.
    Wait,
}

/// `since`: how long this process has seen the lease unchanged.
pub fn evaluate(lease: Option<&LeaseSpec>, me: &str, since: Duration) -> Step {
    let Some(lease) = lease else { return Step::Take };
    match lease.holder_identity.as_deref() {
        None | Some("") => Step::Take,
        Some(holder) if holder == me => Step::Renew,
        Some(_) => {
            let seconds = lease.lease_duration_seconds.and_then(|s| u64::try_from(s).ok());
            let lifetime = seconds.map_or(DURATION, Duration::from_secs);
            if since > lifetime { Step::Take } else { Step::Wait }
        }
    }
}

/// Until when this process may act: as long as nobody else can have the lease. A process that stood still for longer, and
/// wakes up in the middle of a plan, must not go on with it. Without leader election nothing ends it.
#[derive(Clone, Debug, Default)]
pub struct Mandate(Arc<Mutex<Option<Instant>>>);

impl Mandate {
    pub fn holds(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_none_or(|until| Instant::now() < until)
    }

    fn extend(&self, until: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
    }
}

/// This process as a candidate.
pub struct Candidate {
    api: Api<Lease>,
    me: String,
    mandate: Mandate,
    seen: Option<(LeaseSpec, Instant)>,
    /// The lease as this process last wrote it: as long as nobody else writes, renewing it takes no look at it.
    written: Option<Lease>,
    /// When the lease was last asked for with success: what others see is not older.
    renewed: Option<Instant>,
}

impl Candidate {
    pub fn new(client: Client, namespace: &str, mandate: Mandate) -> Self {
        let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "etcd-operator".to_owned());
        let me = format!("{host}_{:016x}", rand::random::<u64>());
        Self {
            api: Api::namespaced(client, namespace),
            me,
            mandate,
            seen: None,
            written: None,
            renewed: None,
        }
    }

    /// Returns once this process leads.
    pub async fn win(&mut self) {
        info!(lease = LEASE, "waiting for leadership");
        loop {
            match tokio::time::timeout(RENEW_DEADLINE, self.step()).await {
                Ok(Ok(true)) => {
                    info!(lease = LEASE, identity = self.me, "leading");
                    return;
                }
                Ok(Ok(false)) => {}
                Ok(Err(error)) => tracing::warn!(lease = LEASE, "{error:#}"),
                Err(_) => tracing::warn!(lease = LEASE, "the API server does not answer"),
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Renews until that fails for too long; then this process must not act any more.
    pub async fn hold(&mut self) -> anyhow::Error {
        loop {
            tokio::time::sleep(RETRY).await;
            let left = RENEW_DEADLINE.saturating_sub(self.renewed.map_or(RENEW_DEADLINE, |at| at.elapsed()));
            match tokio::time::timeout(left, self.step()).await {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => {
                    return anyhow::anyhow!(
                        "the lease {LEASE} is no longer ours: another replica took it, or somebody deleted it"
                    );
                }
                Ok(Err(error)) if !left.is_zero() => debug!("lease not renewed: {error:#}"),
                Ok(Err(_)) | Err(_) => {
                    return anyhow::anyhow!("the lease {LEASE} could not be renewed for {RENEW_DEADLINE:?}");
                }
            }
        }
    }

    /// Gives the lease back, so that the next leader need not wait for it to run out.
    pub async fn release(&mut self) {
        let Ok(Some(mut lease)) = self.api.get_opt(LEASE).await else { return };
        let spec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_deref() == Some(&self.me) {
            spec.holder_identity = None;
            spec.lease_duration_seconds = Some(1);
            spec.renew_time = Some(MicroTime(Timestamp::now()));
            if let Err(error) = self.api.replace(LEASE, &PostParams::default(), &lease).await {
                debug!("lease not released: {}", refused(error));
            }
        }
    }

    /// Renews the lease, or looks at it and takes it. Whether it is ours now.
    async fn step(&mut self) -> anyhow::Result<bool> {
        if let Some(ours) = self.written.take()
            && self.write(Some(ours)).await?
        {
            return Ok(true);
        }
        let live = self.api.get_opt(LEASE).await.map_err(refused)?;
        let spec = live.as_ref().and_then(|l| l.spec.clone());
        let since = self.note(spec.as_ref());
        if evaluate(spec.as_ref(), &self.me, since) == Step::Wait {
            return Ok(false);
        }
        self.write(live).await
    }

    /// Writes the lease in place of the one that was seen. False when that one is not there any more.
    async fn write(&mut self, seen: Option<Lease>) -> anyhow::Result<bool> {
        let (asked, params) = (Instant::now(), PostParams::default());
        let written = match seen {
            None => self.api.create(&params, &self.lease(None)).await,
            Some(seen) => self.api.replace(LEASE, &params, &self.lease(Some(seen))).await,
        };
        match written {
            Ok(lease) => {
                self.mandate.extend(asked + RENEW_DEADLINE);
                self.renewed = Some(asked);
                self.written = Some(lease);
                Ok(true)
            }
            Err(error) if ["Conflict", "AlreadyExists", "NotFound"].iter().any(|r| is_reason(&error, r)) => {
                Ok(false)
            }
            Err(error) => Err(refused(error)),
        }
    }

    /// Remembers when the lease was first seen as it is now.
    fn note(&mut self, spec: Option<&LeaseSpec>) -> Duration {
        match (spec, &self.seen) {
            (Some(spec), Some((known, since))) if spec == known => since.elapsed(),
            (Some(spec), _) => {
                self.seen = Some((spec.clone(), Instant::now()));
                Duration::ZERO
            }
            (None, _) => Duration::ZERO,
        }
    }

    fn lease(&self, live: Option<Lease>) -> Lease {
        let now = MicroTime(Timestamp::now());
        let mut lease = live.unwrap_or_else(|| Lease {
            metadata: ObjectMeta { name: Some(LEASE.to_owned()), ..ObjectMeta::default() },
            ..Lease::default()
        });
        let spec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_deref() != Some(&self.me) {
            spec.lease_transitions = Some(spec.lease_transitions.map_or(0, |n| n + 1));
            spec.acquire_time = Some(now.clone());
        }
        spec.holder_identity = Some(self.me.clone());
        spec.lease_duration_seconds = i32::try_from(DURATION.as_secs()).ok();
        spec.renew_time = Some(now);
        lease
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it stands where errors are mapped")]
fn refused(error: kube::Error) -> anyhow::Error {
    anyhow::anyhow!(refusal(&format!("Lease {LEASE}"), &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held_by(holder: &str) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(15),
            ..LeaseSpec::default()
        }
    }

    #[test]
    fn a_lease_that_is_absent_released_or_stale_is_taken() {
        assert_eq!(evaluate(None, "me", Duration::ZERO), Step::Take);
        assert_eq!(evaluate(Some(&held_by("")), "me", Duration::ZERO), Step::Take);
        assert_eq!(evaluate(Some(&held_by("other")), "me", Duration::from_secs(16)), Step::Take);
    }

    #[test]
    fn a_lease_of_another_is_respected_for_its_whole_life() {
        assert_eq!(evaluate(Some(&held_by("other")), "me", Duration::from_secs(15)), Step::Wait);
    }

    #[test]
    fn our_own_lease_is_renewed() {
        assert_eq!(evaluate(Some(&held_by("me")), "me", Duration::from_secs(99)), Step::Renew);
    }

    /// A lease on a server that keeps it, with what was asked of it.
    #[derive(Clone, Default)]
    struct Server(Arc<Mutex<(Option<Lease>, Vec<http::Method>)>>);

    impl Server {
        fn candidate(&self) -> Candidate {
            let this = self.clone();
            let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
                let this = this.clone();
                async move { Ok::<_, std::io::Error>(this.answer(request).await) }
            });
            Candidate::new(Client::new(service, "ns"), "ns", Mandate::default())
        }

        async fn answer(
            &self,
            request: http::Request<kube::client::Body>,
        ) -> http::Response<kube::client::Body> {
            let method = request.method().clone();
            let sent = serde_json::from_slice::<Lease>(&request.into_body().collect_bytes().await.unwrap());
            let (lease, asked) = &mut *self.0.lock().unwrap();
            asked.push(method.clone());
            let known = lease.as_ref().and_then(|l| l.metadata.resource_version.clone());
            let refusal = match (&method, &known, &sent) {
                (&http::Method::GET | &http::Method::PUT, None, _) => Some((404, "NotFound")),
                (&http::Method::PUT, known, Ok(sent)) if sent.metadata.resource_version != *known => {
                    Some((409, "Conflict"))
                }
                _ => None,
            };
            if let Some((code, reason)) = refusal {
                let status = serde_json::json!({ "kind": "Status", "status": "Failure", "message": "",
                    "reason": reason, "code": code });
                let body = kube::client::Body::from(status.to_string().into_bytes());
                return http::Response::builder().status(code).body(body).unwrap();
            }
            if let Ok(sent) = sent {
                *lease = Some(sent);
                self.touched(lease);
            }
            http::Response::new(kube::client::Body::from(serde_json::to_vec(&lease).unwrap()))
        }

        fn touched(&self, lease: &mut Option<Lease>) {
            let version = &mut lease.as_mut().unwrap().metadata.resource_version;
            let before: u32 = version.as_deref().map_or(0, |v| v.parse().unwrap());
            *version = Some((before + 1).to_string());
        }

        fn asked(&self) -> String {
            let asked = std::mem::take(&mut self.0.lock().unwrap().1);
            asked.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        }

        /// Somebody else writes the lease.
        fn write(&self, holder: Option<&str>) {
            let lease = &mut self.0.lock().unwrap().0;
            if let Some(holder) = holder {
                lease.as_mut().unwrap().spec = Some(held_by(holder));
            }
            self.touched(lease);
        }
    }

    #[tokio::test]
    async fn a_leader_renews_with_one_request_until_somebody_else_writes() {
        let server = Server::default();
        let mut leader = server.candidate();
        assert!(leader.step().await.unwrap());
        assert_eq!(server.asked(), "GET POST");
        for _ in 0..2 {
            assert!(leader.step().await.unwrap());
            assert_eq!(server.asked(), "PUT");
        }

        server.write(None);
        assert!(leader.step().await.unwrap(), "it is still ours");
        assert_eq!(server.asked(), "PUT GET PUT");
        assert!(!server.candidate().step().await.unwrap(), "and nobody else's");
        server.asked();

        server.write(Some("other"));
        assert!(!leader.step().await.unwrap());
        assert_eq!(server.asked(), "PUT GET");
        assert!(!leader.step().await.unwrap());
        assert_eq!(server.asked(), "GET", "what is not ours is not written");
    }

    #[test]
    fn a_mandate_ends_by_itself() {
        let mandate = Mandate::default();
        assert!(mandate.holds(), "without leader election");
        mandate.extend(Instant::now() + RENEW_DEADLINE);
        assert!(mandate.holds());
        mandate.extend(Instant::now());
        assert!(!mandate.holds());
    }

    #[test]
    fn a_leader_stops_before_another_may_start() {
        assert!(RENEW_DEADLINE + RETRY < DURATION);
    }
}
