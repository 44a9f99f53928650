//! Runs seeds and tells what came of them.

use std::process::ExitCode;

fn main() -> ExitCode {
    simulation::cli::main()
}
