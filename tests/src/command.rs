//! Programs that tests call as a user would: helm, kubectl, lab.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// A path of the checkout.
pub fn checkout(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// Runs a program in the checkout and returns what it printed. Failure is an error with all it said.
pub async fn run(program: &str, args: &[&str]) -> Result<String> {
    run_with_input(program, args, "").await
}

/// The same with something on standard input.
pub async fn run_with_input(program: &str, args: &[&str], input: &str) -> Result<String> {
    let line = format!("{program} {}", args.join(" "));
    let mut child = Command::new(program)
        .args(args)
        .current_dir(checkout(""))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot run {program}: is it on PATH? (`lab env` prints the setting)"))?;
    let mut stdin = child.stdin.take().context("stdin is piped")?;
    let write = async {
        // A program that does not read its input is no failure.
        let _ = stdin.write_all(input.as_bytes()).await;
        drop(stdin);
    };
    let (output, ()) = tokio::join!(child.wait_with_output(), write);
    let output = output?;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        bail!("`{line}` failed ({}):\n{out}{err}", output.status);
    }
    Ok(out.into_owned())
}
