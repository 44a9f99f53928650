//! Probes over plain HTTP, and the page of metrics, which is served so as well unless it is [protected](super::metrics_server).

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

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

/// Connections at the same time. For one more, the oldest is ended: a probe takes a moment, so that it is never the oldest.
const CONNECTIONS: usize = 128;
/// For all headers of a request, from the moment the connection is free for one.
pub(super) const HEADERS_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes and number of headers of a request.
pub(super) const HEADERS_SIZE: usize = 16 * 1024;
pub(super) const HEADERS_COUNT: usize = 64;
/// A connection ends after the request that it is at by then, or soon after.
const CONNECTION_LIFETIME: Duration = Duration::from_mins(2);
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves whoever comes. Does not end.
pub async fn serve(listener: TcpListener, router: Router) -> io::Result<()> {
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let Some(stream) = accept(&listener).await else { continue };
        open.retain(|connection| !connection.is_finished());
        if open.len() >= CONNECTIONS
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        let router = router.clone();
        open.push_back(tokio::spawn(async move { answer(stream, router).await }).abort_handle());
    }
}

/// The next connection, if one came about.
pub async fn accept(listener: &TcpListener) -> Option<TcpStream> {
    match listener.accept().await {
        Ok((stream, _)) => Some(stream),
        // The caller has gone again.
        Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => None,
        // There may be no file descriptors left for a moment.
        Err(_) => {
            sleep(Duration::from_secs(1)).await;
            None
        }
    }
}

/// Answers the requests of one connection, within limits. What goes wrong is between the caller and their network.
pub async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, router: Router) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADERS_TIMEOUT);
    http.max_header_size(HEADERS_SIZE).max_buf_size(2 * HEADERS_SIZE).max_headers(HEADERS_COUNT);
    let service = TowerToHyperService::new(router);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    let ended = timeout(CONNECTION_LIFETIME, connection.as_mut()).await;
    if ended.is_err() {
        connection.as_mut().graceful_shutdown();
        drop(timeout(SHUTDOWN_TIMEOUT, connection).await);
    }
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    async fn ask(address: SocketAddr) -> String {
        let mut caller = TcpStream::connect(address).await.unwrap();
        caller.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut text = String::new();
        caller.read_to_string(&mut text).await.unwrap();
        text
    }

    #[tokio::test]
    async fn a_crowd_of_half_requests_keeps_no_probe_waiting_and_little_memory() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, probes(Arc::default())));
        let mut crowd = vec![];
        for _ in 0..2 * CONNECTIONS {
            let mut caller = TcpStream::connect(address).await.unwrap();
            caller.write_all(b"GET /healthz HTTP/1.1\r\nx: ").await.unwrap();
            // Who says more than is listened to is cut off.
            drop(caller.write_all(&vec![b'a'; 64 * 1024]).await);
            crowd.push(caller);
            assert!(
                timeout(Duration::from_secs(20), ask(address)).await.unwrap().starts_with("HTTP/1.1 200")
            );
        }
        let mut slow = vec![];
        for _ in 0..2 * CONNECTIONS {
            let mut caller = TcpStream::connect(address).await.unwrap();
            caller.write_all(b"GET /healthz HTTP/1.1\r\nx: ").await.unwrap();
            slow.push(caller);
        }
        assert!(timeout(Duration::from_secs(20), ask(address)).await.unwrap().starts_with("HTTP/1.1 200"));
        let oldest = timeout(Duration::from_secs(20), slow[0].read(&mut [0])).await;
        assert!(oldest.is_ok(), "the oldest made room");
    }
}
