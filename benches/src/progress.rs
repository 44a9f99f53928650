//! What is being done, how far it is, and how long it takes: a line that moves on a terminal, plain lines elsewhere. On
//! standard error, because standard output is for results.

use std::io::{IsTerminal as _, stderr};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Something that takes a while. Ends with [`Step::done`], or silently when dropped after a failure.
pub struct Step {
    what: String,
    began: Instant,
    bar: Option<ProgressBar>,
}

impl Step {
    pub fn begin(what: impl Into<String>) -> Self {
        let what = what.into();
        let bar = stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            let style = ProgressStyle::with_template("  {spinner} {msg} {elapsed}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            bar.enable_steady_tick(Duration::from_millis(120));
            bar.set_message(what.clone());
            bar
        });
        if bar.is_none() {
            eprintln!("  … {what}");
        }
        Self { what, began: Instant::now(), bar }
    }

    /// How far it is.
    pub fn far(&self, far: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(format!("{}: {far}", self.what)),
            None => eprintln!("  … {}: {far} ({:.0} s)", self.what, self.began.elapsed().as_secs_f64()),
        }
    }

    /// Ends it, with what came out.
    pub fn done(self, result: &str) {
        let line = format!("  ✓ {}: {result} ({:.0} s)", self.what, self.began.elapsed().as_secs_f64());
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{line}")),
            None => eprintln!("{line}"),
        }
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A heading between steps.
pub fn chapter(title: &str) {
    eprintln!("── {title}");
}
