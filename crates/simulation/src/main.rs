//! Runs seeds and tells what came of them.

use std::process::ExitCode;

/// Half of a run is allocation.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    simulation::cli::main()
}
