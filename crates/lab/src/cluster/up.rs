//! `lab up`: from whatever there is to a ready cluster. Running it again repairs what died and adds nodes.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail};

use super::{
    addons, api, control_plane, down,
    images::{self, Archive},
    node::{self, Start},
    pki::Pki,
    seed,
};
use crate::{
    addresses::{self, MAX_NODES, Node},
    image::bundled,
    paths::{self, Paths},
    progress::{Progress, seconds},
    state::{Phase, State, boot_id},
    sys::{cgroup::Cgroups, network, preflight, process::own_program},
    tools::Toolbox,
};

pub struct Options {
    /// Without a number a running lab keeps the nodes it has.
    pub nodes: Option<u8>,
    pub fast_failure_detection: bool,
}

pub fn run(paths: &Paths, options: &Options) -> Result<()> {
    let began = Instant::now();
    let progress = Progress::new();
    if options.nodes.is_some_and(|n| n == 0 || n > MAX_NODES) {
        bail!("--nodes takes a number from 1 to {MAX_NODES}");
    }
    preflight::disk_space(paths.root())?;
    preflight::kernel()?;
    preflight::packages(&progress)?;
    let cache = paths::cache_dir()?;
    let tools = Toolbox::ensure(&cache, &progress)?;
    let mut archives = bundled_archives(&cache, &tools, &progress)?;
    let seed = seed::ensure(&cache, &archives, &progress)?;

    let mut state = resume_or_begin(paths, options, &progress)?;
    archives.extend(images::loaded(paths)?);
    let step = progress.step("starting the control plane and the container runtimes");
    prepare_nodes(paths, &seed, &state)?;
    let mut starts: Vec<Start<'_>> = Node::all(state.nodes).map(|node| Start::new(node, paths)).collect();
    start(paths, &tools, &archives, &mut starts, &mut state)?;
    step.done();

    let step = progress.step(&format!("waiting for {} and DNS", count(state.nodes, "node")));
    let cluster = join(paths, &tools, &mut starts, &mut state)?;
    step.done();
    state.phase = Phase::Running;
    state.save(paths)?;
    let (version, nodes) = (cluster.version()?, count(state.nodes, "node"));
    progress.note(&format!("Kubernetes {version} with {nodes} is up after {}", seconds(began.elapsed())));
    Ok(())
}

/// Files, namespaces and cables of all nodes, and the ways between them; also undoes `lab node cut`.
fn prepare_nodes(paths: &Paths, seed: &Path, state: &State) -> Result<()> {
    for node in Node::all(state.nodes) {
        node::prepare(node, paths, seed, state.fast_failure_detection)?;
        network::heal(node)?;
    }
    Node::all(state.nodes)
        .try_for_each(|node| network::route_to_peers(node, &paths.node(node).netns(), state.nodes))
}

/// Starts the control plane and, meanwhile, the nodes' container runtimes.
fn start(
    paths: &Paths,
    tools: &Toolbox,
    archives: &[Archive],
    starts: &mut [Start<'_>],
    state: &mut State,
) -> Result<()> {
    let before = state.clone();
    let (plane, runtimes) = std::thread::scope(|scope| {
        let runtimes: Vec<_> =
            starts.iter_mut().map(|start| scope.spawn(|| start.runtime(&before, archives))).collect();
        let plane = control_plane::ensure(paths, tools, state);
        let joined =
            runtimes.into_iter().map(|r| r.join().unwrap_or_else(|_| bail!("a node's start panicked")));
        (plane, joined.collect::<Result<Vec<()>>>())
    });
    // Records first: even after a failure, `status` and `down` must know what runs.
    record(starts, state, paths)?;
    plane?;
    runtimes.map(drop)
}

/// Lets the nodes join, and waits until the cluster is fit for use.
fn join(paths: &Paths, tools: &Toolbox, starts: &mut [Start<'_>], state: &mut State) -> Result<api::Cluster> {
    control_plane::ensure_provisioner(paths, state)?;
    for start in starts {
        let joined = start.join(state, tools);
        record(std::slice::from_mut(start), state, paths)?;
        joined?;
    }
    addons::apply(paths, tools, state.nodes)?;
    link_programs(paths, tools)?;
    let cluster = api::connect(paths)?;
    let names: Vec<_> = Node::all(state.nodes).map(Node::name).collect();
    cluster.await_nodes(&names, Duration::from_secs(120))?;
    cluster.await_deployment(addons::DNS_NAMESPACE, addons::DNS_NAME, Duration::from_secs(120))?;
    Ok(cluster)
}

fn bundled_archives(cache: &Path, tools: &Toolbox, progress: &Progress) -> Result<Vec<Archive>> {
    bundled::ensure(cache, tools, progress)?.iter().map(|path| Archive::open(path)).collect()
}

/// Goes on with a running lab, or clears away the remains of an earlier one and begins.
fn resume_or_begin(paths: &Paths, options: &Options, progress: &Progress) -> Result<State> {
    // A damaged record is a leftover like any other.
    let known = State::load(paths).unwrap_or_default().filter(State::is_current);
    if let Some(mut state) = known {
        if options.fast_failure_detection && !state.fast_failure_detection {
            bail!("the lab runs without --fast-failure-detection: `lab down` first, then up again with it");
        }
        let wanted = options.nodes.unwrap_or(state.nodes);
        if wanted < state.nodes {
            let have = count(state.nodes, "node");
            progress.note(&format!("the lab keeps its {have}: for fewer, `lab down` and up again"));
        }
        state.nodes = wanted.max(state.nodes);
        state.save(paths)?;
        return Ok(state);
    }
    if down::leftovers(paths)?.any() {
        let step = progress.step("clearing away what an earlier lab left behind");
        down::clean(paths)?;
        step.done();
    }
    begin(paths, options).inspect_err(|_| {
        // Nothing runs yet, so there is nothing to look into either. The first failure is the one to report.
        let _ = down::clean(paths);
    })
}

fn begin(paths: &Paths, options: &Options) -> Result<State> {
    Cgroups::detect()?;
    for dir in [paths.root(), &paths.logs(), &paths.volumes(), &paths.images(), &paths.bin()] {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    let mut state = State {
        phase: Phase::Starting,
        boot: boot_id(),
        nodes: options.nodes.unwrap_or(1),
        fast_failure_detection: options.fast_failure_detection,
        ..State::default()
    };
    state.save(paths)?;
    network::ensure_bridge()?;
    preflight::ports()?;
    state.set_kernel(paths, Path::new(network::BRIDGE_FILTER), "0")?;
    Pki::create(paths)?;
    Ok(state)
}

fn record(starts: &mut [Start<'_>], state: &mut State, paths: &Paths) -> Result<()> {
    for process in starts.iter_mut().flat_map(|start| start.started.drain(..)) {
        state.record(process);
    }
    state.save(paths)
}

/// Puts kubectl, helm, etcdctl and the lab itself where `lab env` points the search path.
fn link_programs(paths: &Paths, tools: &Toolbox) -> Result<()> {
    let me = own_program()?;
    for program in tools.for_users()?.into_iter().chain([me.as_path()]) {
        let link = paths.bin().join(program.file_name().context("a program has a name")?);
        let _ = fs::remove_file(&link);
        symlink(program, &link).with_context(|| format!("cannot make the link {}", link.display()))?;
    }
    Ok(())
}

fn count(number: u8, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

/// Starts one node again after `lab node stop`.
pub fn start_node(paths: &Paths, node: Node) -> Result<()> {
    let progress = Progress::new();
    let cache = paths::cache_dir()?;
    let tools = Toolbox::ensure(&cache, &progress)?;
    let mut archives = bundled_archives(&cache, &tools, &progress)?;
    archives.extend(images::loaded(paths)?);
    let mut state = State::running(paths)?;
    let mut start = Start::new(node, paths);
    let started = start.runtime(&state, &archives).and_then(|()| start.join(&state, &tools));
    record(std::slice::from_mut(&mut start), &mut state, paths)?;
    started?;
    let cluster = api::connect(paths)?;
    cluster.await_nodes(&[node.name()], Duration::from_secs(60)).map_err(|error| {
        if network::is_cut(node) { anyhow!("{} runs, but its network is cut", node.name()) } else { error }
    })
}

/// What the shell needs to use the lab.
pub fn env(paths: &Paths) -> String {
    format!(
        "export KUBECONFIG='{}'\nexport PATH='{}':\"$PATH\"\n# API server: {}; use with: eval \"$(lab env)\"\n",
        paths.admin_kubeconfig().display(),
        paths.bin().display(),
        addresses::api_url()
    )
}
