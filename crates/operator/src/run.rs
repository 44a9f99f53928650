//! Starts everything, waits for the end, stops in order.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use api::{EtcdDefrag, EtcdSnapshot};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tracing::info;

use crate::args::Args;
use crate::cluster::reconcile::Reconciler;
use crate::cluster::report::Reporter;
use crate::runtime::ambient::{Ambient, Real};
use crate::runtime::cache::Cache;
use crate::runtime::cluster_domain::ClusterDomain;
use crate::runtime::controller::{Controllers, Workers};
use crate::runtime::events::Announcer;
use crate::runtime::http;
use crate::runtime::leader::{Candidate, Mandate};
use crate::runtime::metrics::Metrics;
use crate::runtime::metrics_server::MetricsServer;
use crate::runtime::requests::Network;
use crate::runtime::watch::{Pending, READ_TIMEOUT};
use crate::unsupported::{Named, Only, Unsupported};

/// Passes under way get this long to end before the process does.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// So long is tried to give the lease back.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// Runs the operator until it is told to stop or loses its leadership.
pub fn run(args: Args) -> anyhow::Result<()> {
    args.check()?;
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("starting the runtime")?
        .block_on(serve(args))
}

async fn serve(args: Args) -> anyhow::Result<()> {
    let config = kube_config(&args).await?;
    let namespace = config.default_namespace.clone();
    let client = Client::try_from(config).context("setting up the Kubernetes client")?;
    info!(version = env!("CARGO_PKG_VERSION"), "etcd-operator starts");

    let metrics = Arc::new(Metrics::default());
    let domain = ClusterDomain::find(&args.cluster_domain)?;
    info!(domain = domain.name, source = %domain.source, "the cluster's domain");
    metrics.cluster_domain(&domain);
    let mandate = Mandate::default();
    let mut controllers = controllers(&args, &args.settings(&domain), &client, &metrics, &mandate);
    let mut servers = serve_http(&args, &client, controllers.pending(), &metrics).await?;

    let mut stop = std::pin::pin!(stop_signal()?);
    let mut candidate = args.leader_elect.then(|| Candidate::new(client, &namespace, mandate));
    if let Some(candidate) = &mut candidate {
        tokio::select! {
            () = candidate.win() => {}
            () = &mut stop => return Ok(()),
        }
    }
    metrics.leader.set(1);

    let mut workers = Workers::default();
    let ended = lead(
        async {
            tokio::select! {
                () = &mut stop => Ok(()),
                Some(server) = servers.join_next() => Err(anyhow::anyhow!("an HTTP server ended: {server:?}")),
            }
        },
        async { match &mut candidate { Some(c) => c.hold().await, None => pending().await } },
        wait_for_caches(controllers.pending()),
        || controllers.begin(&mut workers),
    )
    .await;
    info!("stopping");
    // Without the lease there is no time to end what is under way.
    if ended.is_ok() {
        workers.drain(DRAIN_TIMEOUT).await;
    }
    workers.abort().await;
    if let (Ok(()), Some(candidate)) = (&ended, &mut candidate) {
        let _ = tokio::time::timeout(RELEASE_TIMEOUT, candidate.release()).await;
    }
    ended
}

/// All controllers, watching.
fn controllers(
    args: &Args,
    settings: &planner::Settings,
    client: &Client,
    metrics: &Arc<Metrics>,
    mandate: &Mandate,
) -> Controllers {
    let announcer = Announcer::new(client.clone(), std::env::var("HOSTNAME").ok());
    let etcd: Arc<dyn etcd::Etcd> = Arc::new(etcd::Pool::default());
    let network = Network { client: client.clone(), etcd, mandate: mandate.clone() };
    let ambient: Arc<dyn Ambient> = Arc::new(Real);

    let mut all = Controllers::new(client.clone(), args.namespaces(), metrics.clone());
    all.add(args.workers, |cache| {
        let reporter = Reporter { announcer: announcer.clone() };
        Reconciler::new(cache, network.clone(), reporter, metrics.clone(), settings.clone(), ambient.clone())
    });
    all.add(1, |cache| unsupported::<EtcdSnapshot>(cache, &network, &announcer, &ambient));
    all.add(1, |cache| unsupported::<EtcdDefrag>(cache, &network, &announcer, &ambient));
    all
}

fn unsupported<K: Named>(
    cache: Arc<Cache<Only<K>>>,
    network: &Network,
    announcer: &Announcer,
    ambient: &Arc<dyn Ambient>,
) -> Unsupported<K> {
    let (network, announcer, ambient) = (network.clone(), announcer.clone(), ambient.clone());
    Unsupported { cache, network, announcer, ambient }
}

/// Leads until there is a reason to stop. Work begins with filled caches; until then, too, the lease is renewed and the
/// signal heard (T36).
async fn lead(
    stop: impl Future<Output = anyhow::Result<()>>,
    lost: impl Future<Output = anyhow::Error>,
    synced: impl Future<Output = ()>,
    begin: impl FnOnce(),
) -> anyhow::Result<()> {
    let work = async {
        synced.await;
        begin();
        pending::<Infallible>().await
    };
    tokio::select! {
        stop = stop => stop,
        lost = lost => Err(lost),
        never = work => match never {},
    }
}

async fn serve_http(
    args: &Args,
    client: &Client,
    waiting: Arc<Pending>,
    metrics: &Arc<Metrics>,
) -> anyhow::Result<JoinSet<std::io::Result<()>>> {
    let mut servers = JoinSet::new();
    if let Some(address) = args.health_address()? {
        let listener = http::listen(address).await.context("--health-probe-bind-address")?;
        servers.spawn(http::serve(listener, http::probes(waiting)));
    }
    if let Some(address) = args.metrics_address()? {
        let listener = http::listen(address).await.context("--metrics-bind-address")?;
        let router = http::metrics(metrics.clone());
        if args.metrics_secure {
            let server = MetricsServer::new(client.clone(), router, args.metrics_certificates());
            let flags = || format!("--metrics-secure with --metrics-cert-path={:?}", args.metrics_cert_path);
            servers.spawn(server.with_context(flags)?.serve(listener));
        } else {
            servers.spawn(http::serve(listener, router));
        }
    }
    Ok(servers)
}

async fn wait_for_caches(waiting: Arc<Pending>) {
    while !waiting.is_synced() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn kube_config(args: &Args) -> anyhow::Result<Config> {
    let mut config = match &args.kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path).with_context(|| format!("reading kubeconfig {path}"))?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .context("using the kubeconfig")?
        }
        None => {
            Config::infer().await.context("neither a kubeconfig nor a service account is there to use")?
        }
    };
    // The queue retries, with limits of its own; the client's retries would hide a dead API server for minutes.
    config.default_retry = false;
    config.read_timeout = Some(READ_TIMEOUT);
    config.reset_reader_on_write = true;
    Ok(config)
}

/// Ends with SIGTERM or SIGINT.
fn stop_signal() -> anyhow::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn t36_a_leader_whose_caches_do_not_fill_hears_the_signal_and_renews_its_lease() {
        let limit = Duration::from_secs(60);
        let told = lead(ready(Ok(())), pending(), pending(), || panic!("nothing is known yet"));
        assert!(tokio::time::timeout(limit, told).await.is_ok_and(|told| told.is_ok()));

        let renewed = std::cell::Cell::new(0);
        let hold = async {
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_secs(2)).await;
                renewed.set(renewed.get() + 1);
            }
            anyhow::anyhow!("somebody took it")
        };
        let lost = lead(pending(), hold, pending(), || panic!("nothing is known yet"));
        let lost = tokio::time::timeout(limit, lost).await.unwrap().unwrap_err();
        assert_eq!((renewed.get(), lost.to_string().as_str()), (3, "somebody took it"));
    }

    #[tokio::test(start_paused = true)]
    async fn work_begins_with_filled_caches() {
        let began = std::cell::Cell::new(false);
        let stop = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            Ok(())
        };
        let synced = tokio::time::sleep(Duration::from_secs(1));
        lead(stop, pending(), synced, || began.set(true)).await.unwrap();
        assert!(began.get());
    }
}
