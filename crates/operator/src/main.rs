//! `manager`: the operator's entry point.

use std::process::ExitCode;

use clap::Parser as _;
use operator::{args::Args, run};

#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let args = Args::parse_from(operator::args::normalize(std::env::args()));
    args.start_logging();
    match run::run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "the operator stops");
            ExitCode::FAILURE
        }
    }
}
