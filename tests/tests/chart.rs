//! What a user installs: the chart, the examples, and the operator as it runs.

use std::fs;

use anyhow::{Context, Result, ensure};
use e2e::command::{checkout, run, run_with_input};
use e2e::metrics::{account, address, scrape, scrape_plain};
use e2e::{Arena, LONG, SHORT, arena, connect, create_namespace, operator, wait_for};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, DeleteParams, ListParams};

const CHART: &str = "charts/etcd-operator";
/// What the image may weigh.
const LIMIT: i64 = 25_000_000;

#[tokio::test]
async fn the_chart_passes_helms_own_lint() -> Result<()> {
    run("helm", &["lint", "--strict", CHART]).await?;
    Ok(())
}

#[tokio::test]
async fn every_value_set_renders_or_is_refused_with_a_reason() -> Result<()> {
    run("charts/etcd-operator/ci/check.sh", &[]).await?;
    Ok(())
}

#[tokio::test]
async fn the_api_server_takes_what_the_chart_renders() -> Result<()> {
    connect().await?;
    let defaults = "charts/etcd-operator/values.yaml".to_owned();
    let accepted = ["no-proxy", "sidecar"].map(|set| format!("charts/etcd-operator/ci/accepted/{set}.yaml"));
    for values in [defaults].into_iter().chain(accepted) {
        // Not over the installed one: what is merged with that is not what the chart renders.
        let render = ["template", "etcd-operator", CHART, "--namespace", "default", "--values", &values];
        // The kind is another project's, and not installed here.
        let no_monitor = ["--set", "metrics.serviceMonitor.enabled=false"];
        let manifests = run("helm", &[&render[..], &no_monitor].concat()).await?;
        dry_run(&["--namespace", "default"], &manifests).await.with_context(|| values.clone())?;
    }
    Ok(())
}

#[tokio::test]
async fn the_api_server_takes_every_example() -> Result<()> {
    let client = connect().await?;
    let namespace = create_namespace(&client, "examples").await?;
    let outcome = apply_examples(&namespace).await;
    Api::<Namespace>::all(client).delete(&namespace, &DeleteParams::default()).await?;
    outcome
}

async fn apply_examples(namespace: &str) -> Result<()> {
    let mut files: Vec<_> =
        fs::read_dir(checkout("examples"))?.map(|e| Ok(e?.path())).collect::<Result<_>>()?;
    files.sort();
    ensure!(!files.is_empty(), "there are no examples");
    for file in files {
        let manifests = fs::read_to_string(&file)?;
        dry_run(&["--namespace", namespace], &manifests)
            .await
            .with_context(|| format!("{}", file.display()))?;
    }
    Ok(())
}

/// The API server admits the manifests, without a warning and without a field it does not know.
async fn dry_run(args: &[&str], manifests: &str) -> Result<()> {
    let apply = ["apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict"];
    let all = [&apply[..], &["--warnings-as-errors", "--filename", "-"], args].concat();
    run_with_input("kubectl", &all, manifests).await?;
    Ok(())
}

#[tokio::test]
async fn the_operator_runs_with_as_little_power_as_possible() -> Result<()> {
    let client = connect().await?;
    operator::wait_until_available(&client).await?;
    let spec = operator::pod(&client).await?.spec.context("a Pod has a spec")?;
    let pod = spec.security_context.unwrap_or_default();
    assert_eq!(pod.run_as_non_root, Some(true));
    assert_eq!(pod.seccomp_profile.map(|p| p.type_).as_deref(), Some("RuntimeDefault"));
    for container in &spec.containers {
        let security = container.security_context.clone().unwrap_or_default();
        assert_eq!(security.read_only_root_filesystem, Some(true), "{}", container.name);
        assert_eq!(security.allow_privilege_escalation, Some(false), "{}", container.name);
        let dropped = security.capabilities.unwrap_or_default().drop.unwrap_or_default();
        assert_eq!(dropped, ["ALL"], "{}", container.name);
        let resources = container.resources.clone().unwrap_or_default();
        assert!(resources.limits.is_some_and(|l| l.contains_key("memory")), "{}", container.name);
    }
    Ok(())
}

/// The installed chart has its own values, all but the image: what is looked at here is what users get.
#[tokio::test]
async fn i5_the_operator_protects_its_metrics_itself() -> Result<()> {
    arena(async |arena: Arena| {
        let pod = operator::pod(&arena.client).await?;
        let containers: Vec<_> = pod.spec.iter().flat_map(|s| &s.containers).map(|c| &c.name).collect();
        assert_eq!(containers, ["manager"], "another image than the operator's own is needed");
        assert_eq!(scrape(&pod, None).await?, Err(401));
        assert_eq!(scrape(&pod, Some("nonsense")).await?, Err(401));
        let plain = scrape_plain(&pod).await?;
        assert!(!plain.contains("HTTP/") && !plain.contains("etcd_operator"), "{plain}");

        let token = account(&arena.namespace, "scraper").await?;
        assert_eq!(scrape(&pod, Some(&token)).await?, Err(403));
        // The name is the namespace's, which nobody else has.
        let (name, account) = (&arena.namespace, format!("--serviceaccount={}:scraper", arena.namespace));
        let role = "--clusterrole=etcd-operator-metrics-reader";
        run("kubectl", &["create", "clusterrolebinding", name, role, &account]).await?;
        let page = readable(&pod, &token).await;
        run("kubectl", &["delete", "clusterrolebinding", name]).await?;
        let page = page?;
        for metric in ["etcd_operator_build_info", "leader_election_master_status", "etcd_operator_clusters"]
        {
            assert!(page.contains(metric), "{metric} is not in\n{page}");
        }
        let domain = r#"etcd_operator_cluster_domain_info{domain="cluster.local",source="resolv.conf"} 1"#;
        assert!(page.contains(domain), "{page}");

        assert_eq!(scrape(&pod, None).await?, Err(401), "and still nobody else");
        serves(&arena, &address(&pod)?).await
    })
    .await
}

/// A refusal is remembered for some seconds.
async fn readable(pod: &Pod, token: &str) -> Result<String> {
    wait_for("the right to take effect", SHORT, async || {
        let answer = scrape(pod, Some(token)).await?;
        answer.map_err(|code| anyhow::anyhow!("it is refused with {code}"))
    })
    .await
}

/// The metrics Service leads there.
async fn serves(arena: &Arena, address: &str) -> Result<()> {
    let slices: Api<EndpointSlice> = Api::namespaced(arena.client.clone(), operator::NAMESPACE);
    let of = ListParams::default().labels("kubernetes.io/service-name=etcd-operator-metrics");
    let slices = slices.list(&of).await?.items;
    let leads_there = slices.iter().any(|slice| {
        let hosts = slice.endpoints.iter().flatten().flat_map(|endpoint| &endpoint.addresses);
        let ports: Vec<_> = slice.ports.iter().flatten().filter_map(|port| port.port).collect();
        hosts.into_iter().any(|host| ports.iter().any(|port| format!("{host}:{port}") == address))
    });
    ensure!(leads_there, "the Service etcd-operator-metrics does not lead to {address}");
    Ok(())
}

/// Renders the chart with these values.
async fn render(values: &[&str]) -> Result<String> {
    let sets = values.iter().flat_map(|value| ["--set", value]);
    let args: Vec<_> = ["template", "etcd-operator", CHART].into_iter().chain(sets).collect();
    run("helm", &args).await
}

#[tokio::test]
async fn i3_an_account_is_never_guessed() -> Result<()> {
    let error = render(&["serviceAccount.create=false"]).await.err().context("it should not render")?;
    ensure!(format!("{error:#}").contains("serviceAccount.name is required"), "{error:#}");
    Ok(())
}

#[tokio::test]
async fn i4_nothing_scrapes_a_port_that_is_not_there() -> Result<()> {
    let values = ["metrics.serviceMonitor.enabled=true", "kubeRbacProxy.enabled=false"];
    let error = render(&values).await.err().context("it should not render")?;
    ensure!(format!("{error:#}").contains("needs kubeRbacProxy.enabled"), "{error:#}");
    Ok(())
}

#[tokio::test]
async fn i5_with_a_sidecar_the_operator_is_on_loopback_and_unprotected_there_is_no_service() -> Result<()> {
    let sidecar = render(&["kubeRbacProxy.image.repository=mirror/kube-rbac-proxy"]).await?;
    ensure!(sidecar.contains("--metrics-bind-address=127.0.0.1:8080"), "{sidecar}");
    ensure!(sidecar.contains("image: mirror/kube-rbac-proxy:v0.22.0"), "{sidecar}");
    let open = render(&["kubeRbacProxy.enabled=false"]).await?;
    ensure!(open.contains("--metrics-bind-address=:8080") && !open.contains("kind: Service\n"), "{open}");
    Ok(())
}

#[tokio::test]
async fn h47_the_operator_was_never_refused_a_call() -> Result<()> {
    let client = connect().await?;
    operator::wait_until_available(&client).await?;
    let created = operator::pod(&client).await?.metadata.creation_timestamp;
    operator::was_never_refused(&client, created.context("a Pod was created some time")?.0).await
}

#[tokio::test]
async fn the_image_weighs_at_most_25_mb() -> Result<()> {
    let client = connect().await?;
    operator::wait_until_available(&client).await?;
    let pod = operator::pod(&client).await?;
    let image = pod.spec.and_then(|spec| spec.containers.into_iter().next()?.image).context("an image")?;
    let nodes: Api<Node> = Api::all(client);
    // Kubelets tell of new images now and then.
    let size = wait_for("a node to list the image", LONG, async || {
        let nodes = nodes.list(&ListParams::default()).await?;
        let mut images = nodes.iter().flat_map(|n| n.status.iter().flat_map(|s| s.images.iter().flatten()));
        let ours = images.find(|i| i.names.iter().flatten().any(|name| *name == image));
        ours.and_then(|i| i.size_bytes).with_context(|| format!("no node lists {image} yet"))
    })
    .await?;
    assert!(size <= LIMIT, "{image} weighs {} MB", size / 1_000_000);
    Ok(())
}
