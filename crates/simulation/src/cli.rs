//! The command line: one seed, a range of seeds on several threads, a named scenario, or as many as fit into some
//! minutes. A failure is told with its seed, the rule, the shortest script that still breaks it, and the last steps.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

use crate::coverage::Coverage;
use crate::mutations::{self, Mutation};
use crate::record::{self, Recorder};
use crate::script::Script;
use crate::{Outcome, minimise, planner_loop, real_loop, scenarios};

/// Steps of the past that a failure is told with, unless somebody wants more.
const TOLD: usize = 120;

/// The operator in a simulated world, from a seed
#[derive(Parser, Debug)]
struct Args {
    /// Run this seed and tell its history
    #[arg(long)]
    seed: Option<u64>,

    /// How many of the last steps before a violation are told
    #[arg(long, default_value_t = TOLD)]
    steps: usize,

    /// Run these seeds, such as 0..1000
    #[arg(long, value_parser = range)]
    seeds: Option<Range<u64>>,

    /// Run this scenario; an unknown name lists them
    #[arg(long)]
    scenario: Option<String>,

    /// Run fresh seeds for so long
    #[arg(long)]
    minutes: Option<u64>,

    /// Run fresh seeds until stopped
    #[arg(long)]
    forever: bool,

    /// Threads
    #[arg(long, default_value_t = 1)]
    jobs: usize,

    /// Break the operator on purpose, by name; an unknown name lists the ways
    #[arg(long)]
    mutation: Option<String>,

    /// Run the operator's own code instead of the planner alone: some hundred times slower
    #[arg(long)]
    real: bool,

    /// Go on after a failure and count them
    #[arg(long)]
    keep_going: bool,

    /// Write down the views and plans of the seeds that are run, to this file
    #[arg(long)]
    record: Option<PathBuf>,

    /// Plan the views of such a file again, and say which plans have changed
    #[arg(long)]
    replay: Option<PathBuf>,

    /// Show how often each branch of the planner was seen
    #[arg(long)]
    coverage: bool,
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text.split_once("..").ok_or("a range looks like 0..1000")?;
    let number = |text: &str| text.replace('_', "").parse::<u64>().map_err(|e| e.to_string());
    Ok(number(from)?..number(to)?)
}

/// Runs what the command line asks for.
pub fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(path) = &args.replay {
        return replay(path);
    }
    let mutation = match &args.mutation {
        None => &mutations::NONE,
        Some(name) => match mutations::all().iter().find(|m| m.name == name) {
            Some(found) => found,
            None => {
                for m in mutations::all() {
                    println!("{:32} {}", m.name, m.trap);
                }
                return ExitCode::FAILURE;
            }
        },
    };
    if let (Some(seed), true) = (args.seed, args.real) {
        return tell_real(&Script::from_seed(seed));
    }
    if let Some(seed) = args.seed {
        return tell(&Script::from_seed(seed), mutation, true, args.steps);
    }
    if let Some(name) = &args.scenario {
        return match scenarios::all().into_iter().find(|s| s.name == *name) {
            Some(found) if args.real => tell_real(&found.script),
            Some(found) => tell(&found.script, mutation, true, args.steps),
            None => {
                for s in scenarios::all() {
                    println!("{:32} {}", s.name, s.about);
                }
                ExitCode::FAILURE
            }
        };
    }
    let until = args.minutes.map(|m| Instant::now() + Duration::from_secs(60 * m));
    let fresh = || {
        let start = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let first = start.as_secs() << 24;
        first..u64::MAX
    };
    let endless = args.forever || args.minutes.is_some();
    let seeds = args.seeds.clone().unwrap_or_else(|| if endless { fresh() } else { 0..1000 });
    let (jobs, keep_going, real) = (args.jobs.max(1), args.keep_going, args.real);
    let record = match args.record.as_deref().map(Recorder::create).transpose() {
        Ok(record) => record,
        Err(error) => {
            println!("the record can not be written: {error}");
            return ExitCode::FAILURE;
        }
    };
    let campaign = Campaign { seeds, jobs, until, mutation, keep_going, real, record };
    let verdict = campaign.run(args.coverage);
    match campaign.record.map(Recorder::finish).transpose() {
        Ok(_) => verdict,
        Err(error) => {
            println!("the record is not complete: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Many seeds.
struct Campaign {
    seeds: Range<u64>,
    jobs: usize,
    until: Option<Instant>,
    mutation: &'static Mutation,
    keep_going: bool,
    real: bool,
    record: Option<Recorder>,
}

/// What came of many seeds.
#[derive(Default)]
struct Tally {
    runs: u64,
    steps: u64,
    simulated: u64,
    acknowledged: u64,
    faults: BTreeMap<String, u64>,
    coverage: Coverage,
    failed: Vec<(u64, String)>,
}

impl Tally {
    fn add(&mut self, seed: u64, outcome: &Outcome) {
        self.runs += 1;
        self.steps += outcome.steps;
        self.simulated += outcome.simulated;
        self.acknowledged += outcome.acknowledged;
        for (kind, count) in &outcome.faults {
            *self.faults.entry(kind.clone()).or_default() += count;
        }
        self.coverage.add(&outcome.coverage);
        if let Some(violation) = &outcome.violation {
            self.failed.push((seed, violation.to_string()));
        }
    }

    fn line(&self, took: Duration) -> String {
        let seconds = took.as_secs_f64().max(0.001);
        let faults: u64 = self.faults.values().sum();
        format!(
            "{} seeds in {seconds:.0} s, {:.1} seeds/s, {} steps ({:.0}/s), {:.1} simulated days, {faults} faults, {} writes acknowledged, {} things seen of the planner, {} failed",
            self.runs,
            self.runs as f64 / seconds,
            self.steps,
            self.steps as f64 / seconds,
            self.simulated as f64 / 86_400_000.0,
            self.acknowledged,
            self.coverage.counts.len(),
            self.failed.len(),
        )
    }
}

impl Campaign {
    fn run(&self, coverage: bool) -> ExitCode {
        let began = Instant::now();
        let next = AtomicU64::new(self.seeds.start);
        let stop = Arc::new(AtomicBool::new(false));
        stop_when_told(&stop);
        let tally = Mutex::new(Tally::default());
        std::thread::scope(|threads| {
            for _ in 0..self.jobs {
                threads.spawn(|| self.work(&next, &stop, &tally));
            }
            let mut told = Instant::now();
            while !stop.load(Ordering::Relaxed) && next.load(Ordering::Relaxed) < self.seeds.end {
                std::thread::sleep(Duration::from_millis(50));
                if told.elapsed() > Duration::from_secs(10) {
                    told = Instant::now();
                    println!(
                        "{}",
                        tally.lock().unwrap_or_else(PoisonError::into_inner).line(began.elapsed())
                    );
                }
            }
        });
        let tally = tally.into_inner().unwrap_or_else(PoisonError::into_inner);
        println!("{}", tally.line(began.elapsed()));
        if coverage {
            println!("\nfaults injected:");
            for (kind, count) in &tally.faults {
                println!("  {count:>9}  {kind}");
            }
            println!("\nseen of the planner:");
            for (what, count) in &tally.coverage.counts {
                println!("  {count:>9}  {what}");
            }
        }
        for (seed, what) in tally.failed.iter().filter(|_| !self.keep_going) {
            println!("seed {seed}: {what}");
        }
        match tally.failed.first() {
            None => ExitCode::SUCCESS,
            Some(_) if self.keep_going => ExitCode::FAILURE,
            Some((seed, _)) if self.real => tell_real(&Script::from_seed(*seed)),
            Some((seed, _)) => tell(&Script::from_seed(*seed), self.mutation, false, TOLD),
        }
    }

    fn work(&self, next: &AtomicU64, stop: &AtomicBool, tally: &Mutex<Tally>) {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let over = self.until.is_some_and(|until| Instant::now() > until);
            if seed >= self.seeds.end || over || stop.load(Ordering::Relaxed) {
                stop.store(true, Ordering::Relaxed);
                return;
            }
            let script = Script::from_seed(seed);
            let outcome = match (&self.record, self.real) {
                (Some(recorder), _) => planner_loop::record(&script, recorder),
                (None, false) => planner_loop::run(&script, self.mutation, false),
                (None, true) => real_loop::run(&script, false).unwrap_or_default(),
            };
            match &outcome.violation {
                Some(violation) if self.keep_going => println!("seed {seed}: {violation}"),
                Some(_) => stop.store(true, Ordering::Relaxed),
                None => {}
            }
            tally.lock().unwrap_or_else(PoisonError::into_inner).add(seed, &outcome);
        }
    }
}

/// Ctrl-C and SIGTERM end a campaign, not its summary; a second one ends both.
fn stop_when_told(stop: &Arc<AtomicBool>) {
    let stop = Arc::clone(stop);
    std::thread::spawn(move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
        runtime.block_on(async {
            let Ok(mut terminate) = signal(SignalKind::terminate()) else { return };
            let Ok(mut interrupt) = signal(SignalKind::interrupt()) else { return };
            let mut told = async || {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
            };
            told().await;
            stop.store(true, Ordering::Relaxed);
            told().await;
            std::process::exit(130);
        });
    });
}

/// Plans what was recorded again.
fn replay(path: &std::path::Path) -> ExitCode {
    match record::replay(path) {
        Ok(replayed) => {
            println!("{} views planned again, {} plans differ", replayed.views, replayed.differ);
            if let Some(first) = &replayed.first {
                println!("the first of them:\n{first}");
            }
            if replayed.views > 0 && replayed.differ == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            println!("{} can not be read: {error}", path.display());
            ExitCode::FAILURE
        }
    }
}

/// Runs one script with the operator's own code and tells how it went.
fn tell_real(script: &Script) -> ExitCode {
    let outcome = match real_loop::run(script, true) {
        Ok(outcome) => outcome,
        Err(error) => {
            println!("the runtime can not be started: {error}");
            return ExitCode::FAILURE;
        }
    };
    outcome.history.iter().for_each(|line| println!("{line}"));
    let (seed, seconds) = (script.seed, outcome.simulated / 1000);
    match outcome.violation {
        None => {
            println!("seed {seed}: no violation in {} steps, {seconds} s simulated", outcome.steps);
            ExitCode::SUCCESS
        }
        Some(violation) => {
            println!("seed {seed} breaks {violation}");
            ExitCode::FAILURE
        }
    }
}

/// Runs one script and tells how it went; a failure is shortened first.
fn tell(script: &Script, mutation: &'static Mutation, always: bool, steps: usize) -> ExitCode {
    let outcome = planner_loop::run(script, mutation, true);
    let Some(violation) = &outcome.violation else {
        if always {
            outcome.history.iter().for_each(|line| println!("{line}"));
        }
        let steps = outcome.steps;
        println!(
            "seed {}: no violation in {steps} steps, {} s simulated",
            script.seed,
            outcome.simulated / 1000
        );
        return ExitCode::SUCCESS;
    };
    println!("seed {} breaks {violation}", script.seed);
    let shortest = minimise::shorten(script, violation.rule, mutation);
    let outcome = planner_loop::run(&shortest, mutation, true);
    println!("\nshortened from {} incidents to {}:", script.incidents.len(), shortest.incidents.len());
    println!("  {:?}\n  {:?}", shortest.temper, shortest.clusters);
    shortest.incidents.iter().for_each(|timed| println!("  {timed}"));
    println!("  calm from {} ms\n\nthe last steps:", shortest.calm_at);
    let skip = outcome.history.len().saturating_sub(steps);
    outcome.history.iter().skip(skip).for_each(|line| println!("{line}"));
    if let Some(violation) = &outcome.violation {
        println!("\nseed {} breaks {violation}", script.seed);
    }
    println!("again: cargo run -p simulation -- --seed {}", script.seed);
    ExitCode::FAILURE
}
