//! The results as tables, for a terminal or for a document.

use comfy_table::presets::{ASCII_MARKDOWN, UTF8_FULL_CONDENSED};
use comfy_table::{CellAlignment, Table};

use crate::fleet::Fleet;
use crate::meter::Counts;
use crate::ready::Comparison;
use crate::rest::Rest;
use crate::results::Results;
use crate::size::Size;
use crate::timeline::WAITS;

#[derive(Clone, Copy)]
pub enum Style {
    Terminal,
    Markdown,
}

/// All tables of what was measured, with a line that says where.
pub fn all(results: &Results, style: Style) -> String {
    let run = &results.run;
    let mut parts = vec![format!(
        "Measured {} at commit {}, operator {}, Kubernetes {}, on {}.",
        run.date, run.commit, run.operator, run.kubernetes, run.machine
    )];
    let mut add = |title: &str, table: Table| {
        let title = match style {
            Style::Terminal => title.to_owned(),
            Style::Markdown => format!("**{title}**"),
        };
        parts.push(format!("{title}\n\n{table}"));
    };
    if !results.ready.is_empty() {
        add("Time to ready, seconds: median (fastest … slowest)", ready(&results.ready, style));
    }
    if !results.rest.is_empty() {
        add("At rest, per minute", rest(&results.rest, style));
    }
    if !results.fleets.is_empty() {
        add("A fleet of clusters of three members", fleets(&results.fleets, style));
        add("What its members waited for while it formed, seconds (median)", waits(&results.fleets, style));
    }
    if let Some(measured) = &results.size {
        add("Code size", size(measured, style));
    }
    parts.join("\n\n") + "\n"
}

fn new<const N: usize>(style: Style, header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(match style {
        Style::Terminal => UTF8_FULL_CONDENSED,
        Style::Markdown => ASCII_MARKDOWN,
    });
    table.set_header(header);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn ready(comparisons: &[Comparison], style: Style) -> Table {
    let mut table = new(style, ["", "medium", "operator", "by hand", "ratio"]);
    for c in comparisons {
        let ratio = c.operator.ratio(&c.floor).map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"));
        table.add_row([
            c.scenario.clone(),
            format!("{:?}", c.medium),
            c.operator.show(),
            c.floor.show(),
            ratio,
        ]);
    }
    table
}

fn rest(rests: &[Rest], style: Style) -> Table {
    let header = [
        "",
        "requests per cluster",
        "requests by verb, all",
        "etcd calls per cluster",
        "CPU s",
        "resident MB",
    ];
    let mut table = new(style, header);
    for r in rests {
        table.add_row([
            r.what.clone(),
            format!("{:.2}", r.requests_per_cluster()),
            counts(&r.requests, 60.0 / r.seconds.max(1.0)),
            format!("{:.2}", r.calls_per_cluster()),
            format!("{:.3}", r.cpu_per_minute()),
            megabytes(r.resident_bytes),
        ]);
    }
    table
}

fn fleets(fleets: &[Fleet], style: Style) -> Table {
    let header = [
        "clusters",
        "from cold, s",
        "CPU s for it",
        "resident MB",
        "most MB",
        "CPU s a minute at rest",
        "requests a minute and cluster",
        "etcd calls a minute and cluster",
        "loss told, s",
        "restart, s",
    ];
    let mut table = new(style, header);
    for f in fleets {
        table.add_row([
            f.clusters.to_string(),
            format!("{:.1}", f.converge_seconds),
            format!("{:.1}", f.converge_cpu_seconds),
            megabytes(f.resident_bytes),
            megabytes(f.peak_bytes),
            format!("{:.2}", f.rest.cpu_per_minute()),
            format!("{:.2}", f.rest.requests_per_cluster()),
            format!("{:.1}", f.rest.calls_per_cluster()),
            f.loss_seconds.show(),
            format!("{:.2}", f.restart_seconds),
        ]);
    }
    table
}

fn waits(fleets: &[Fleet], style: Style) -> Table {
    let names = WAITS.map(|(name, ..)| name);
    let mut table = new(style, ["clusters"]);
    table.set_header(std::iter::once("clusters").chain(names));
    for fleet in fleets {
        let wait = |name: &str| fleet.waits.get(name).map_or_else(|| "–".to_owned(), |s| format!("{s:.2}"));
        table.add_row(std::iter::once(fleet.clusters.to_string()).chain(names.map(wait)));
    }
    table
}

fn size(size: &Size, style: Style) -> Table {
    let mut table = new(style, ["", ""]);
    table.add_row(["binary".to_owned(), format!("{} MB", megabytes(size.binary_bytes))]);
    table.add_row(["image".to_owned(), format!("{} MB", megabytes(size.image_bytes))]);
    if let Some(seconds) = size.cold_build_seconds {
        table.add_row(["build from nothing".to_owned(), format!("{seconds:.0} s")]);
    }
    table
}

#[expect(clippy::cast_precision_loss, reason = "a digit behind the point is enough")]
fn megabytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1e6)
}

fn counts(counts: &Counts, per_minute: f64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "small counts")]
    let show = |(name, count): (&String, &u64)| format!("{name} {:.0}", *count as f64 * per_minute);
    let each: Vec<_> = counts.iter().map(show).collect();
    if each.is_empty() { "none".to_owned() } else { each.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ready::Medium;
    use crate::stats::Sample;

    #[test]
    fn a_document_gets_tables_it_can_show() {
        let comparison = Comparison {
            scenario: "apply".into(),
            medium: Medium::Volumes,
            operator: Sample(vec![2.0]),
            floor: Sample(vec![1.0]),
        };
        let results = Results { ready: vec![comparison], ..Results::default() };
        let text = all(&results, Style::Markdown);
        let row = text.lines().find(|line| line.contains("apply")).unwrap();
        assert!(row.starts_with('|') && row.contains("2.00"), "{row}");
        assert!(!text.contains("At rest"), "what was not measured is not shown");
    }
}
