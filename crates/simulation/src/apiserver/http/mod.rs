//! One API server for many clients: a `tower` service that speaks Kubernetes' REST API, so that a `kube::Client` and
//! all that is built on it run unchanged. A [`Hook`] decides the fate of every request, [`Shared::disturb`] that of
//! watches.
//!
//! Nothing here looks at a wall clock or runs on threads of its own: on a paused, single-threaded runtime one seed is
//! one run.

mod answer;
mod hook;
mod route;
mod stream;
mod taps;
#[cfg(test)]
mod tests;

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use kube::client::Body;
use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep};
use tower::Service;

use super::{ApiServer, Millis};
pub use hook::{Call, Calm, Fate, Hook, Outcome, Silence, Verb};
pub use taps::{Disturbance, Watchers};

use taps::Taps;

type Request = http::Request<Body>;
type Response = http::Response<UnsyncBoxBody<Bytes, std::io::Error>>;

/// An API server behind its front door. Clones are handles to the same one.
#[derive(Clone)]
pub struct Shared(Arc<Inner>);

struct Inner {
    server: Arc<Mutex<ApiServer>>,
    rng: Mutex<SmallRng>,
    clock: Box<dyn Fn() -> Millis + Send + Sync>,
    hook: Mutex<Arc<dyn Hook>>,
    taps: Mutex<Taps>,
    /// Wakes the watches: something was written, or somebody disturbs them.
    changed: watch::Sender<()>,
}

impl Shared {
    /// The time is that of the tokio runtime, counted from now.
    pub fn new(server: ApiServer, seed: u64) -> Self {
        let began = Instant::now();
        let clock = move || u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        Self::over(Arc::new(Mutex::new(server)), seed, clock)
    }

    /// In front of a server that others work on as well; they call [`Shared::wake`] when they have written.
    pub fn over(
        server: Arc<Mutex<ApiServer>>,
        seed: u64,
        clock: impl Fn() -> Millis + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Inner {
            server,
            rng: Mutex::new(SmallRng::seed_from_u64(seed)),
            clock: Box::new(clock),
            hook: Mutex::new(Arc::new(Calm)),
            taps: Mutex::new(Taps::default()),
            changed: watch::Sender::new(()),
        }))
    }

    pub fn now(&self) -> Millis {
        (self.0.clock)()
    }

    /// Works on the server directly, as kubelets, controllers and users do that need no client. Watches are woken.
    pub fn with<R>(&self, f: impl FnOnce(&mut ApiServer, Millis) -> R) -> R {
        let now = self.now();
        let mut server = lock(&self.0.server);
        let before = server.revision();
        let result = f(&mut server, now);
        let written = server.revision() != before;
        drop(server);
        if written {
            self.wake();
        }
        result
    }

    /// Lets the watches look for what has been written behind the front door.
    pub fn wake(&self) {
        self.0.changed.send_replace(());
    }

    /// From now on this decides the fate of requests.
    pub fn set_hook(&self, hook: Arc<dyn Hook>) {
        *lock(&self.0.hook) = hook;
    }

    /// Does something to the watches that are open now. Returns how many there were.
    pub fn disturb(&self, which: &Watchers, how: Disturbance) -> usize {
        let met = lock(&self.0.taps).disturb(which, how);
        self.0.changed.send_replace(());
        met
    }

    /// A client; `name` is what the hook knows it by. Needs a tokio runtime.
    pub fn client(&self, name: &str, namespace: &str) -> kube::Client {
        kube::Client::new(Front { shared: self.clone(), client: name.into() }, namespace)
    }

    fn fate(&self, call: &Call<'_>) -> Fate {
        let hook = lock(&self.0.hook).clone();
        hook.fate(call)
    }
}

/// The front door as one client meets it.
#[derive(Clone)]
pub struct Front {
    shared: Shared,
    client: Arc<str>,
}

impl Service<Request> for Front {
    type Response = Response;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response, std::io::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let front = self.clone();
        Box::pin(async move { front.take(request).await })
    }
}

impl Front {
    async fn take(self, request: Request) -> Result<Response, std::io::Error> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
        let request = match route::parse(&parts, &body) {
            Ok(request) => request,
            Err(refusal) => return Ok(answer::refusal(&refusal)),
        };
        let fate = self.shared.fate(&request.call(&self.client));
        let answer = if fate.is_immediate() {
            meet(&self.shared, &self.client, request, fate).await
        } else {
            // A request that is on its way arrives, whether its sender still waits for it or not.
            let (send, receive) = oneshot::channel();
            tokio::spawn(async move {
                let _ = send.send(meet(&self.shared, &self.client, request, fate).await);
            });
            receive.await.unwrap_or(Err(Silence::Hang))
        };
        match answer {
            Ok(response) => Ok(response),
            Err(Silence::Reset) => Err(std::io::ErrorKind::ConnectionReset.into()),
            Err(Silence::Hang) => pending().await,
        }
    }
}

/// A request meets its fate.
async fn meet(
    shared: &Shared,
    client: &str,
    request: route::Request,
    fate: Fate,
) -> Result<Response, Silence> {
    sleep(Duration::from_millis(fate.before)).await;
    let answer = match fate.outcome {
        Outcome::Pass => Ok(answer::answer(shared, client, request, fate.lag)),
        Outcome::Refuse(refusal) => Ok(answer::refusal(&refusal)),
        Outcome::Unreachable(silence) => Err(silence),
        Outcome::LoseAnswer(silence) => {
            answer::answer(shared, client, request, fate.lag);
            Err(silence)
        }
    };
    sleep(Duration::from_millis(fate.after)).await;
    answer
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
