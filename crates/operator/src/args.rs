//! Command line and environment. Flags, defaults and spellings are those of the Go operator, so that manifests written
//! for it start this one.

use std::collections::BTreeSet;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{ArgAction, Parser};
use jiff::SignedDuration;
use tracing_subscriber::EnvFilter;

use crate::runtime::cluster_domain::ClusterDomain;

/// Image name that scaffolding leaves behind; Pods that use it would wait for ever.
const PLACEHOLDER_IMAGE: &str = "controller:latest";

/// Runs etcd clusters on Kubernetes.
#[derive(Clone, Debug, Parser)]
// Repeated flags: the last one counts, as with the Go operator.
#[command(name = "manager", version, args_override_self = true)]
pub struct Args {
    /// Address of /metrics, plain HTTP unless --metrics-secure; 0 turns it off
    #[arg(long, default_value = ":8080")]
    pub metrics_bind_address: String,

    /// Serve /metrics as HTTPS, to callers whose bearer token may GET it
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    pub metrics_secure: bool,

    /// Folder with the tls.crt and tls.key that --metrics-secure serves with, read again when they change; without it the
    /// operator makes a certificate of its own
    #[arg(long, default_value = "", hide_default_value = true)]
    pub metrics_cert_path: String,

    /// Address of /healthz and /readyz
    #[arg(long, default_value = ":8081")]
    pub health_probe_bind_address: String,

    /// Let only one replica act at a time
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    pub leader_elect: bool,

    /// DNS suffix of the Kubernetes cluster [default: found in /etc/resolv.conf, or else cluster.local]
    #[arg(long, default_value = "", hide_default_value = true)]
    pub cluster_domain: String,

    /// Image of this operator, for the Pods it starts from itself
    #[arg(long, env = "OPERATOR_IMAGE", default_value = "")]
    pub operator_image: String,

    /// Repository of the etcd image, without a tag [default: quay.io/coreos/etcd]
    #[arg(long, env = "ETCD_IMAGE_REPOSITORY", default_value = "", hide_default_value = true)]
    pub etcd_image_repository: String,

    /// Namespaces to watch, separated by commas; empty means all
    #[arg(long, env = "WATCH_NAMESPACE", default_value = "")]
    pub watch_namespace: String,

    /// Seconds a member may be stuck on a node that is gone before it is replaced; 0 means never
    #[arg(long, default_value = "300")]
    pub lost_member_timeout: u32,

    /// Kubeconfig to use instead of the Pod's service account
    #[arg(long)]
    pub kubeconfig: Option<String>,

    /// Clusters worked on at the same time; a cluster whose etcd is silent takes a place for up to some seconds
    #[arg(long, default_value = "64", value_parser = clap::value_parser!(u16).range(1..))]
    pub workers: u16,

    /// Log for people instead of machines
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    pub zap_devel: bool,

    /// json or console
    #[arg(long)]
    pub zap_encoder: Option<String>,

    /// debug, info, warn, error, or a number (higher says more)
    #[arg(long)]
    pub zap_log_level: Option<String>,

    /// Accepted for compatibility, without effect
    #[arg(long, hide = true)]
    pub zap_stacktrace_level: Option<String>,

    /// Accepted for compatibility, without effect
    #[arg(long, hide = true)]
    pub zap_time_encoding: Option<String>,
}

/// Go programs take `-flag` for `--flag`; so do we.
pub fn normalize(args: impl Iterator<Item = String>) -> Vec<String> {
    args.enumerate()
        .map(|(position, arg)| {
            let long = arg.strip_prefix('-').filter(|rest| !rest.starts_with('-') && rest.len() > 1);
            match long {
                Some(rest) if position > 0 && !rest.starts_with(|c: char| c.is_ascii_digit()) => {
                    format!("--{rest}")
                }
                _ => arg,
            }
        })
        .collect()
}

impl Args {
    /// What must be wrong before anything is started.
    pub fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.operator_image != PLACEHOLDER_IMAGE,
            "OPERATOR_IMAGE is still the placeholder {PLACEHOLDER_IMAGE}: set it to the image this operator runs from"
        );
        anyhow::ensure!(
            self.metrics_secure || self.metrics_cert_path.is_empty(),
            "--metrics-cert-path={} is of no use without --metrics-secure",
            self.metrics_cert_path
        );
        Ok(())
    }

    /// The namespaces to watch; empty means all.
    pub fn namespaces(&self) -> Vec<String> {
        let named = self.watch_namespace.split(',').map(str::trim).filter(|n| !n.is_empty());
        named.collect::<BTreeSet<_>>().into_iter().map(str::to_owned).collect()
    }

    /// What the planner has to know.
    pub fn settings(&self, domain: &ClusterDomain) -> planner::Settings {
        let mut settings =
            planner::Settings { cluster_domain: domain.name.clone(), ..planner::Settings::default() };
        if !self.etcd_image_repository.is_empty() {
            settings.etcd_image_repository = self.etcd_image_repository.clone();
        }
        let patience = i64::from(self.lost_member_timeout);
        settings.lost_member_timeout = (patience > 0).then(|| SignedDuration::from_secs(patience));
        settings
    }

    pub fn health_address(&self) -> anyhow::Result<Option<SocketAddr>> {
        address("--health-probe-bind-address", &self.health_probe_bind_address)
    }

    pub fn metrics_address(&self) -> anyhow::Result<Option<SocketAddr>> {
        address("--metrics-bind-address", &self.metrics_bind_address)
    }

    /// Where the certificate for /metrics is, if it is not the operator that makes it.
    pub fn metrics_certificates(&self) -> Option<PathBuf> {
        (!self.metrics_cert_path.is_empty()).then(|| PathBuf::from(&self.metrics_cert_path))
    }

    pub fn start_logging(&self) {
        let level = match self.zap_log_level.as_deref().unwrap_or("info") {
            "0" => "info",
            number if number.parse::<u8>().is_ok() => "debug",
            "panic" | "fatal" => "error",
            name => name,
        };
        // Libraries speak at warn: their info is not our users' info.
        let filter = format!("warn,operator={level},manager={level}");
        let filter = EnvFilter::try_from_default_env().or_else(|_| EnvFilter::try_new(filter));
        let filter = filter.unwrap_or_else(|_| EnvFilter::new("info"));
        let console = self.zap_encoder.as_deref().map_or(self.zap_devel, |encoder| encoder == "console");
        let builder =
            tracing_subscriber::fmt().with_env_filter(filter).with_target(false).with_writer(std::io::stderr);
        if console {
            builder.init();
        } else {
            builder.json().flatten_event(true).with_current_span(false).init();
        }
    }
}

/// `:8080`, `127.0.0.1:8080`, or `0` for none.
fn address(flag: &str, value: &str) -> anyhow::Result<Option<SocketAddr>> {
    if value == "0" || value.is_empty() {
        return Ok(None);
    }
    if let Some(port) = value.strip_prefix(':') {
        let port = port.parse().with_context(|| format!("{flag}={value}: {port:?} is not a port"))?;
        return Ok(Some(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))));
    }
    let parsed =
        value.parse().with_context(|| format!("{flag}={value}: want [ip]:port, or 0 to turn it off"))?;
    Ok(Some(parsed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Args {
        let args = std::iter::once("manager").chain(args.iter().copied()).map(str::to_owned);
        Args::try_parse_from(normalize(args)).unwrap()
    }

    #[test]
    fn flags_of_the_go_operator_parse() {
        let args = parse(&[
            "--health-probe-bind-address=:8081",
            "--metrics-bind-address=127.0.0.1:8080",
            "-leader-elect",
            "--zap-devel=false",
            "-zap-log-level=debug",
            "--zap-time-encoding=iso8601",
            "--zap-stacktrace-level=error",
            "--cluster-domain=cluster.local",
        ]);
        assert!(args.leader_elect);
        assert!(!args.zap_devel);
        assert_eq!(args.metrics_address().unwrap().unwrap().to_string(), "127.0.0.1:8080");
    }

    #[test]
    fn of_repeated_flags_the_last_one_counts() {
        assert!(!parse(&["--leader-elect", "--leader-elect=false"]).leader_elect);
        assert_eq!(parse(&["--workers=2", "--workers=3"]).workers, 3);
    }

    #[test]
    fn booleans_take_a_value() {
        assert!(!parse(&["--leader-elect=false"]).leader_elect);
        assert!(!parse(&[]).leader_elect);
    }

    #[test]
    fn namespaces_are_trimmed_and_empties_and_repetitions_dropped() {
        assert_eq!(parse(&["--watch-namespace= a , ,b, a"]).namespaces(), ["a", "b"]);
        assert!(parse(&["--watch-namespace= , ,, "]).namespaces().is_empty());
    }

    #[test]
    fn i7_only_the_exact_placeholder_is_refused() {
        assert!(parse(&["--operator-image=controller:latest"]).check().is_err());
        assert!(parse(&["--operator-image=mirror/controller:latest"]).check().is_ok());
        assert!(parse(&[]).check().is_ok());
    }

    #[test]
    fn metrics_are_plain_unless_they_are_asked_to_be_secure() {
        assert!(!parse(&[]).metrics_secure);
        assert!(parse(&["-metrics-secure"]).metrics_secure);
        assert!(!parse(&["--metrics-secure", "--metrics-secure=false"]).metrics_secure);
        assert_eq!(parse(&["--metrics-secure"]).metrics_certificates(), None);
        let args = parse(&["--metrics-secure", "--metrics-cert-path=/certificates"]);
        assert_eq!(args.metrics_certificates(), Some(PathBuf::from("/certificates")));
        assert!(args.check().is_ok());
        let error = parse(&["--metrics-cert-path=/certificates"]).check().unwrap_err().to_string();
        assert!(error.contains("--metrics-secure"), "{error}");
    }

    #[test]
    fn what_was_found_out_and_what_was_said_reach_the_planner() {
        let domain = ClusterDomain::find("cozy.local").unwrap();
        let settings =
            parse(&["--etcd-image-repository=mirror/etcd", "--lost-member-timeout=0"]).settings(&domain);
        let said = (settings.etcd_image_repository.as_str(), settings.lost_member_timeout);
        assert_eq!((said, settings.cluster_domain.as_str()), (("mirror/etcd", None), "cozy.local"));
    }

    #[test]
    fn zero_turns_an_endpoint_off() {
        assert_eq!(parse(&["--metrics-bind-address=0"]).metrics_address().unwrap(), None);
        assert!(parse(&["--metrics-bind-address=:http"]).metrics_address().is_err());
    }

    /// What `manager --version`, the log and the metrics say is what the chart installs.
    #[test]
    fn chart_and_program_have_the_same_version() {
        let chart =
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../charts/etcd-operator/Chart.yaml"));
        let field = |name: &str| chart.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        let version = <Args as clap::CommandFactory>::command().render_version();
        let version = version.trim().strip_prefix("manager ").unwrap();
        assert_eq!(field("version"), Some(version));
        assert_eq!(field("appVersion"), Some(format!("v{version}").as_str()));
    }
}
