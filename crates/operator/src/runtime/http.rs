//! Probes over plain HTTP, and the page of metrics, which is served so as well unless it is [protected](super::metrics_server).

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::Context as _;
use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use tokio::net::TcpListener;

use crate::runtime::metrics::Metrics;
use crate::runtime::watch::Pending;

/// `/healthz` says that the process runs. `/readyz` also that it has read everything it is responsible for: without the
/// permission to do so, it is not ready.
pub fn probes(pending: Arc<Pending>) -> Router {
    let ready = move || {
        let synced = pending.is_synced();
        async move {
            if synced {
                (StatusCode::OK, "ok")
            } else {
                (StatusCode::SERVICE_UNAVAILABLE, "caches are not filled yet")
            }
        }
    };
    Router::new().route("/healthz", get(async || "ok")).route("/readyz", get(ready))
}

/// `/metrics`, for whoever asks.
pub fn metrics(metrics: Arc<Metrics>) -> Router {
    let render = move || {
        let text = metrics.render();
        async move { ([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text) }
    };
    Router::new().route("/metrics", get(render))
}

/// Opens the port. An address without a host means all of them, of either family.
pub async fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let everywhere_v4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port()));
    match TcpListener::bind(address).await {
        Ok(listener) => Ok(listener),
        Err(_) if address.ip().is_unspecified() => TcpListener::bind(everywhere_v4).await,
        Err(error) => Err(error),
    }
    .with_context(|| format!("can not listen on {address}"))
}
