//! `lab`: a real Kubernetes on one machine, without Docker and without images from the internet.
//!
//! [`tools`] builds the programs, [`image`] the images, [`cluster`] starts and ends the whole, [`provisioner`] makes
//! volumes for it and [`faults`] breaks it on purpose. [`sys`] is what all of them ask of the operating system.

mod addresses;
mod cli;
mod cluster;
mod faults;
mod image;
mod paths;
mod progress;
mod provisioner;
mod state;
mod sys;
mod tools;

use std::{fs, path::Path, process::ExitCode, time::Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;

use crate::{
    cli::{Cli, Command},
    cluster::{down, images, status, up},
    paths::Paths,
    progress::{Progress, seconds},
    state::{Lock, State},
    sys::{
        command, preflight,
        process::{self, Place},
    },
    tools::Toolbox,
};

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<ExitCode> {
    let paths = Paths::from_env()?;
    match command {
        Command::Env => print!("{}", up::env(&paths)),
        Command::Image(args) => assemble(&args)?,
        Command::Tools => build_tools()?,
        Command::Enter { cgroup, netns, line } => process::enter(&Place { cgroup, netns }, &line)?,
        Command::Provisioner => tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?
            .block_on(provisioner::run(paths))?,
        Command::Logs(args) => logs(&paths, &args)?,
        Command::Status => {
            preflight::root()?;
            let (report, healthy) = status::report(&paths)?;
            print!("{report}");
            return Ok(if healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        changing => {
            preflight::root()?;
            let _lock = Lock::acquire(&paths)?;
            change(changing, &paths)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The commands that change the lab, one at a time.
fn change(command: Command, paths: &Paths) -> Result<()> {
    match command {
        Command::Up(args) => {
            let options =
                up::Options { nodes: args.nodes, fast_failure_detection: args.fast_failure_detection };
            up::run(paths, &options)
        }
        Command::Down => take_down(paths),
        Command::Load { archives } => load(paths, &archives),
        Command::Node(args) => faults::node::run(paths, args),
        Command::Container(args) => faults::container::run(paths, args),
        Command::Volume(args) => faults::volume::run(paths, args),
        other => bail!("{other:?} does not change the lab"),
    }
}

fn take_down(paths: &Paths) -> Result<()> {
    let began = Instant::now();
    if !down::leftovers(paths)?.any() {
        eprintln!("  there is no lab on this machine");
        return Ok(());
    }
    let step = Progress::new().step("removing the lab");
    down::clean(paths)?;
    drop(step);
    let left = down::leftovers(paths)?;
    if left.any() {
        bail!("something is still there: {left:?}");
    }
    eprintln!(
        "  the lab is gone after {}: no process, mount, loop device, link or cgroup is left",
        seconds(began.elapsed())
    );
    Ok(())
}

fn build_tools() -> Result<()> {
    let (cache, progress) = (paths::cache_dir()?, Progress::new());
    let tools = Toolbox::ensure(&cache, &progress)?;
    image::bundled::ensure(&cache, &tools, &progress)?;
    progress.note(&format!("all tools are in {}", cache.display()));
    Ok(())
}

fn assemble(args: &cli::Image) -> Result<()> {
    let text =
        fs::read_to_string(&args.file).with_context(|| format!("cannot read {}", args.file.display()))?;
    let recipe = image::Recipe::parse(&text).with_context(|| args.file.display().to_string())?;
    let name = image::reference::normalise(&args.tag);
    image::assemble(&recipe, &args.context, &name, &args.output)?;
    let size = fs::metadata(&args.output)?.len();
    eprintln!("  {name} in {} ({:.1} MB)", args.output.display(), size as f64 / 1e6);
    Ok(())
}

fn load(paths: &Paths, archives: &[std::path::PathBuf]) -> Result<()> {
    let state = State::running(paths)?;
    let archives: Vec<_> = archives.iter().map(|path| images::Archive::open(path)).collect::<Result<_>>()?;
    for node in addresses::Node::all(state.nodes) {
        if !state.is_alive(&cluster::node::daemon(node, "containerd")) {
            eprintln!("  {} is stopped and gets the images when it starts", node.name());
            continue;
        }
        images::import(node, &paths.node(node), &archives)?;
    }
    for archive in &archives {
        images::keep(paths, archive)?;
        let names: Vec<_> = archive.images.iter().map(|(name, _)| name.as_str()).collect();
        // An archive of an older builder does not say what it holds before it is imported.
        let what = if names.is_empty() { archive.path.display().to_string() } else { names.join(", ") };
        eprintln!("  {what} is on every node");
    }
    Ok(())
}

fn logs(paths: &Paths, args: &cli::Logs) -> Result<()> {
    let mut components: Vec<_> = fs::read_dir(paths.logs())
        .with_context(|| format!("there are no logs in {}: is the lab up?", paths.logs().display()))?
        .flatten()
        .filter_map(|entry| Some(entry.path().file_stem()?.to_string_lossy().into_owned()))
        .collect();
    components.sort();
    let Some(wanted) = &args.component else {
        for component in components {
            println!("==> {component} <==\n{}\n", process::last_words(&paths.log(&component), args.lines));
        }
        return Ok(());
    };
    if !components.contains(wanted) {
        bail!("there is no log of {wanted:?}; there are {}", components.join(", "));
    }
    let (lines, log) = (args.lines.to_string(), paths.log(wanted));
    let mut line = vec![Path::new("-n"), Path::new(&lines), &log];
    if args.follow {
        line.insert(0, Path::new("-F"));
    }
    command::command("tail", &line).status().context("cannot run tail")?;
    Ok(())
}
