//! `/metrics` over HTTPS, for callers whose bearer token (`guard`) may `GET` it, as the API server says (`reviewer`). Metrics
//! are secondary: whatever happens here, the operator goes on, and what strangers can make it do has limits. There is no
//! way past the door: while the API server can not be asked, nobody new is let in.

mod certificates;
mod guard;
mod reviewer;
mod verdicts;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use kube::Client;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::runtime::http;

use certificates::Certificates;
use reviewer::Reviewer;

/// What is read, and what callers need the right for.
const PATH: &str = "/metrics";

/// Connections at the same time; the next ones wait to be accepted.
const CONNECTIONS: usize = 64;
/// A connection keeps its place for that long at least: handshakes cost time that the operator needs for its work, and a
/// crowd that calls and hangs up gets no more than that many in a second.
const AT_LEAST: Duration = Duration::from_secs(1);
const HANDSHAKE: Duration = Duration::from_secs(5);
/// The protected endpoint, before it has a port.
pub struct MetricsServer {
    router: Router,
    certificates: Arc<Certificates>,
}

impl MetricsServer {
    /// Serves what the router has, with the certificate from this folder or with one of its own making.
    pub fn new(client: Client, router: Router, certificates: Option<PathBuf>) -> anyhow::Result<Self> {
        let router = guard::guarded(router, Arc::new(Reviewer::new(client)));
        Ok(Self { router, certificates: Arc::new(Certificates::open(certificates)?) })
    }

    /// Serves whoever comes. Does not end.
    pub async fn serve(self, listener: TcpListener) -> io::Result<()> {
        let this = Arc::new(self);
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let place = places.clone().acquire_owned().await;
            let Some(stream) = http::accept(&listener).await else { continue };
            let this = this.clone();
            tokio::spawn(async move {
                tokio::join!(this.connection(stream), sleep(AT_LEAST));
                drop(place);
            });
        }
    }

    /// What goes wrong here is between the caller and their network.
    async fn connection(&self, stream: TcpStream) {
        let handshake = async { TlsAcceptor::from(self.certificates.current().await).accept(stream).await };
        let Ok(Ok(stream)) = timeout(HANDSHAKE, handshake).await else { return };
        http::answer(stream, self.router.clone()).await;
    }
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
