//! Running other programs: a failure names the command line and shows what the program itself said.

use std::{
    ffi::OsStr,
    io::Write,
    process::{Command, Output, Stdio},
};

use anyhow::{Context, Result, bail};

/// Search path of every program we start: those of `sudo` and cron often lack the `sbin` directories.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Runs a program to its end and returns its standard output.
pub fn run<S: AsRef<OsStr>>(program: &str, args: &[S]) -> Result<String> {
    let mut command = command(program, args);
    finish(&mut command, None)
}

/// Like [`run`], with `input` on standard input.
pub fn run_with_input<S: AsRef<OsStr>>(program: &str, args: &[S], input: &str) -> Result<String> {
    let mut command = command(program, args);
    finish(&mut command, Some(input))
}

/// Runs a program and tells only whether it succeeded, for clean-up where "already gone" is fine.
pub fn succeeds<S: AsRef<OsStr>>(program: &str, args: &[S]) -> bool {
    command(program, args).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}

pub fn command<S: AsRef<OsStr>>(program: &str, args: &[S]) -> Command {
    let mut command = Command::new(program);
    command.args(args).env("PATH", PATH).stdin(Stdio::null());
    command
}

fn finish(command: &mut Command, input: Option<&str>) -> Result<String> {
    let line = describe(command);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    if input.is_some() {
        command.stdin(Stdio::piped());
    }
    let mut child = command.spawn().with_context(|| format!("cannot run `{line}`"))?;
    if let (Some(text), Some(mut stdin)) = (input, child.stdin.take()) {
        // A program that fails early closes its input; its own message is the better error.
        let _ = stdin.write_all(text.as_bytes());
    }
    let output = child.wait_with_output().with_context(|| format!("cannot wait for `{line}`"))?;
    check(&line, &output)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn check(line: &str, output: &Output) -> Result<()> {
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim();
    if said.is_empty() {
        bail!("`{line}` failed ({})", output.status);
    }
    bail!("`{line}` failed ({}): {}", output.status, tail(said, 8));
}

/// The command line as one would type it, for messages.
pub fn describe(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|part| part.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

/// The last `lines` lines of a text: where programs put the reason they gave up.
pub fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_command_and_its_words() {
        let error = run("sh", &["-c", "echo broken disk >&2; exit 3"]).unwrap_err().to_string();
        assert!(error.contains("sh -c"), "{error}");
        assert!(error.contains("broken disk"), "{error}");
    }

    #[test]
    fn input_reaches_the_program() {
        assert_eq!(run_with_input("cat", &[] as &[&str], "hello").unwrap(), "hello");
    }

    #[test]
    fn tail_keeps_the_end() {
        assert_eq!(tail("a\nb\nc", 2), "b\nc");
        assert_eq!(tail("a", 2), "a");
    }
}
