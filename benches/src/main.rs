//! How close to the limit the operator is. Every time is measured beside its floor in the same run, so that results hold
//! on a slow or busy machine too; every cost is counted by those who bear it, so that any operator for the same API can be
//! measured. `make bench` and `make bench-fleet` run it on the lab.

mod burst;
mod flags;
mod fleet;
mod foreign;
mod hand;
mod meter;
mod picture;
mod progress;
mod publish;
mod ready;
mod rest;
mod results;
mod size;
mod stage;
mod stats;
mod table;
mod target;
mod template;
mod timeline;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Parser, Subcommand, ValueEnum};

use progress::chapter;
use ready::Medium;
use results::{Record, Run};
use target::{DeploymentName, Target};

/// Measures an operator for EtcdClusters beside what is possible on the same machine
#[derive(Debug, Parser)]
#[command(name = "bench", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Real clusters: time to ready, a burst, the cost at rest, code size
    Clusters(Clusters),
    /// Hundreds of clusters on stand-ins for kubelets, volumes and etcd
    Fleet(FleetArgs),
    /// Put the results of a run into docs/performance.md
    Publish {
        /// Folder of the run
        folder: PathBuf,
    },
}

#[derive(Debug, Args)]
struct Common {
    /// The Kubernetes to use; the operator must be installed there
    #[arg(long, env = "KUBECONFIG")]
    kubeconfig: PathBuf,
    /// Deployment of the operator to measure, any that serves etcd-operator.cozystack.io/v1alpha2
    #[arg(long, default_value = "etcd-operator-system/etcd-operator")]
    deployment: DeploymentName,
    /// Where results go, in a folder named after the time
    #[arg(long, default_value = "target/bench")]
    output: PathBuf,
    /// Seconds over which the cost at rest is counted; ten times as many for a cluster alone
    #[arg(long, default_value_t = 60)]
    rest_seconds: u64,
    /// Binary of the operator
    #[arg(long, default_value = "dist/manager")]
    manager: PathBuf,
}

#[derive(Debug, Args)]
struct Clusters {
    #[command(flatten)]
    common: Common,
    /// How often each time is measured
    #[arg(long, default_value_t = 5)]
    repeat: usize,
    /// Clusters in a burst, and at rest
    #[arg(long, default_value_t = 30)]
    burst: usize,
    /// Foreign Secrets, ConfigMaps and Pods, of each so many
    #[arg(long, default_value_t = 5000)]
    foreign: usize,
    /// Archive of the operator's image; without it code size is left out
    #[arg(long)]
    image: Option<PathBuf>,
    /// Also build the operator from nothing, which takes minutes
    #[arg(long)]
    cold_build: bool,
    /// Only these
    #[arg(long, value_delimiter = ',', default_value = "timeline,ready,burst,rest,size")]
    only: Vec<Part>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Timeline,
    Ready,
    Burst,
    Rest,
    Size,
}

#[derive(Debug, Args)]
struct FleetArgs {
    #[command(flatten)]
    common: Common,
    /// Clusters in each fleet
    #[arg(long, value_delimiter = ',', default_value = "100,300,1000")]
    sizes: Vec<usize>,
}

#[tokio::main]
async fn main() -> Result<()> {
    match Cli::parse().command {
        // Ended from outside, it still takes its route, its operator and its token away.
        Command::Clusters(args) => tokio::select! {
            outcome = clusters(&args) => outcome,
            _ = tokio::signal::ctrl_c() => bail!("stopped; what it made in Kubernetes is left there"),
        },
        Command::Fleet(args) => fleet(&args).await,
        Command::Publish { folder } => publish::publish(&folder, &e2e::command::checkout("docs")),
    }
}

impl Common {
    async fn begin(&self) -> Result<(Target, Record)> {
        let target = Target::connect(&self.kubeconfig, self.deployment.clone()).await?;
        let record = Record::begin(&self.output, Run::describe(&target).await?)?;
        Ok((target, record))
    }

    fn window(&self) -> Duration {
        Duration::from_secs(self.rest_seconds)
    }
}

async fn clusters(args: &Clusters) -> Result<()> {
    let (target, mut record) = args.common.begin().await?;
    target.available().await?;
    for part in &args.only {
        measure(*part, args, &target, &mut record).await.with_context(|| format!("measuring {part:?}"))?;
        record.save()?;
    }
    show(&record)
}

async fn measure(part: Part, args: &Clusters, target: &Target, record: &mut Record) -> Result<()> {
    let results = &mut record.results;
    match part {
        Part::Timeline => {
            chapter("A bootstrap");
            results.timelines = timeline::measure(target).await?;
        }
        Part::Ready => {
            for medium in [Medium::Volumes, Medium::Memory] {
                chapter(&format!("Time to ready, {medium:?}"));
                results.ready.extend(ready::measure(target, medium, args.repeat).await?);
            }
        }
        Part::Burst => {
            chapter("A burst");
            results.ready.push(burst::measure(target, args.burst, args.repeat).await?);
        }
        Part::Rest => {
            chapter("At rest");
            results.rest = rest::measure(target, args.burst, args.foreign, args.common.window()).await?;
        }
        Part::Size => {
            let Some(image) = &args.image else { return Ok(()) };
            chapter("Code size");
            results.size = Some(size::measure(&args.common.manager, image, args.cold_build)?);
        }
    }
    Ok(())
}

async fn fleet(args: &FleetArgs) -> Result<()> {
    let (target, mut record) = args.common.begin().await?;
    let folder = record.folder.clone();
    let window = args.common.window();
    fleet::measure(&target, &args.common.manager, &folder, &args.sizes, window, |fleet| {
        record.results.fleets.push(fleet);
        record.save()
    })
    .await?;
    show(&record)
}

fn show(record: &Record) -> Result<()> {
    println!("{}", table::all(&record.results, table::Style::Terminal));
    println!("Results and pictures: {}", record.folder.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
