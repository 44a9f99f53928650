//! Progress for people: a line that moves on a terminal, plain lines with durations elsewhere (CI, pipes).

use std::{
    io::{IsTerminal, stderr},
    sync::Arc,
    time::{Duration, Instant},
};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// Where progress is shown. All of it goes to standard error: standard output is for results.
#[derive(Clone, Debug)]
pub struct Progress {
    bars: Option<Arc<MultiProgress>>,
}

/// Something that takes a while; ends with [`Step::done`], or silently when dropped after a failure.
#[derive(Debug)]
pub struct Step {
    what: String,
    began: Instant,
    bar: Option<ProgressBar>,
}

impl Progress {
    pub fn new() -> Self {
        Self { bars: stderr().is_terminal().then(|| Arc::new(MultiProgress::new())) }
    }

    pub fn step(&self, what: &str) -> Step {
        let bar = self.bars.as_ref().map(|bars| {
            let bar = bars.add(ProgressBar::new_spinner());
            let style = ProgressStyle::with_template("  {spinner} {msg} {elapsed}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            bar.enable_steady_tick(Duration::from_millis(120));
            bar.set_message(what.to_owned());
            bar
        });
        if bar.is_none() {
            eprintln!("  … {what}");
        }
        Step { what: what.to_owned(), began: Instant::now(), bar }
    }

    pub fn note(&self, text: &str) {
        match &self.bars {
            Some(bars) => drop(bars.println(format!("  {text}"))),
            None => eprintln!("  {text}"),
        }
    }
}

impl Step {
    /// Says how far it is: always where a line can move, elsewhere only when `aloud`.
    pub fn detail(&self, far: &str, aloud: bool) {
        match &self.bar {
            Some(bar) => bar.set_message(format!("{}: {far}", self.what)),
            None if aloud => eprintln!("  … {}: {far} ({})", self.what, seconds(self.began.elapsed())),
            None => {}
        }
    }

    pub fn done(self) {
        let line = format!("  ✓ {} ({})", self.what, seconds(self.began.elapsed()));
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

pub fn seconds(duration: Duration) -> String {
    if duration.as_secs() >= 100 {
        return format!("{} min {:02} s", duration.as_secs() / 60, duration.as_secs() % 60);
    }
    format!("{:.1} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_well() {
        assert_eq!(seconds(Duration::from_millis(1240)), "1.2 s");
        assert_eq!(seconds(Duration::from_secs(185)), "3 min 05 s");
    }
}
