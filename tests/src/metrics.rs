//! `/metrics` of the installed operator, as a scraper gets it: HTTPS to its Pod, with the token of a service account. The
//! operator makes its certificate itself, so there is nothing to check it against.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::{Client, Config};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::command::run;

/// Name of the port, in the Pod and in the Service.
const PORT: &str = "https";

/// Host and port to scrape.
pub fn address(pod: &Pod) -> Result<String> {
    let ip = pod.status.as_ref().and_then(|status| status.pod_ip.as_deref());
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
    let port = ports.find(|port| port.name.as_deref() == Some(PORT));
    let port = port.with_context(|| format!("the operator's Pod has no port named {PORT}"))?.container_port;
    Ok(format!("{}:{port}", ip.context("the operator's Pod has no address")?))
}

/// The page, or the code of the refusal.
pub async fn scrape(pod: &Pod, token: Option<&str>) -> Result<Result<String, u16>> {
    let mut config = Config::new(format!("https://{}", address(pod)?).parse()?);
    config.accept_invalid_certs = true;
    config.default_retry = false;
    config.auth_info.token = token.map(|token| token.to_owned().into());
    let page = Client::try_from(config)?.request_text(http::Request::get("/metrics").body(vec![])?).await;
    match page {
        Ok(page) => Ok(Ok(page)),
        Err(kube::Error::Api(refusal)) => Ok(Err(refusal.code)),
        Err(error) => Err(error).context("the operator does not answer a scraper"),
    }
}

/// What a client gets that speaks no TLS.
pub async fn scrape_plain(pod: &Pod) -> Result<String> {
    let mut stream = TcpStream::connect(address(pod)?).await?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await?;
    let mut answer = vec![];
    // It may hang up without a word.
    let _ = stream.read_to_end(&mut answer).await;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// A service account of its own, and a token of it.
pub async fn account(namespace: &str, name: &str) -> Result<String> {
    run("kubectl", &["create", "serviceaccount", name, "--namespace", namespace]).await?;
    let token = run("kubectl", &["create", "token", name, "--namespace", namespace]).await?;
    Ok(token.trim().to_owned())
}
