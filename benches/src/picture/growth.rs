//! How cost grows with the number of clusters: one small chart for each cost.

use super::svg::{Anchor, FAINT, GRID, INK, Sheet, number, tick};
use crate::fleet::Fleet;

const WIDTH: f64 = 960.0;
const CHART: (f64, f64) = (300.0, 200.0);
const COLOR: &str = "#3b82f6";

pub fn growth(fleets: &[Fleet]) -> String {
    #[expect(clippy::cast_precision_loss, reason = "bytes of a process")]
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    type Cost<'a> = (&'a str, Box<dyn Fn(&Fleet) -> Option<f64> + 'a>);
    let costs: [Cost<'_>; 6] = [
        ("resident memory, MB", Box::new(move |f| Some(megabytes(f.resident_bytes)))),
        ("from cold to all ready, s", Box::new(|f| Some(f.converge_seconds))),
        ("CPU seconds a minute, at rest", Box::new(|f| Some(f.rest.cpu_per_minute()))),
        ("a member loss told, s (median)", Box::new(|f| f.loss_seconds.median())),
        ("restart until all are known, s", Box::new(|f| Some(f.restart_seconds))),
        ("API requests a minute and cluster", Box::new(|f| Some(f.rest.requests_per_cluster()))),
    ];
    let mut sheet = Sheet::new(WIDTH);
    sheet.text(
        (20.0, 28.0),
        16,
        Anchor::Start,
        INK,
        "Cost against the number of clusters (of three members)",
    );
    for (index, (title, cost)) in costs.iter().enumerate() {
        #[expect(clippy::cast_precision_loss, reason = "a handful")]
        let (column, row) = ((index % 3) as f64, (index / 3) as f64);
        #[expect(clippy::cast_precision_loss, reason = "thousands")]
        let points: Vec<_> = fleets.iter().filter_map(|f| Some((f.clusters as f64, cost(f)?))).collect();
        chart(&mut sheet, (20.0 + column * 312.0, 50.0 + row * 230.0), title, &points);
    }
    sheet.finish(520.0)
}

fn chart(sheet: &mut Sheet, (left, top): (f64, f64), title: &str, points: &[(f64, f64)]) {
    let (x0, y0, width, height) = (left + 40.0, top + CHART.1 - 20.0, CHART.0 - 70.0, CHART.1 - 60.0);
    // What costs nothing at all is drawn on a scale of one.
    let most = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).reduce(f64::max).filter(|most| *most > 0.0);
    let (most_x, most_y) = (most(|p| p.0).unwrap_or(1.0), most(|p| p.1).unwrap_or(1.0));
    let at = |(x, y): (f64, f64)| (x0 + width * x / most_x, y0 - height * y / most_y);
    sheet.text((left + 40.0, top + 20.0), 12, Anchor::Start, INK, title);
    let every = tick(most_y);
    let mut mark = 0.0;
    while mark <= most_y * 1.001 {
        let (_, y) = at((0.0, mark));
        sheet.line((x0, y), (x0 + width, y), GRID);
        sheet.text((x0 - 6.0, y + 4.0), 10, Anchor::End, FAINT, &number(mark));
        mark += every;
    }
    let drawn: Vec<_> = points.iter().map(|point| at(*point)).collect();
    sheet.path(&drawn, COLOR);
    for ((x, y), (clusters, value)) in drawn.iter().zip(points) {
        sheet.dot((*x, *y), COLOR);
        sheet.text((*x, y - 8.0), 10, Anchor::Middle, INK, &number(*value));
        sheet.text((*x, y0 + 16.0), 10, Anchor::Middle, FAINT, &format!("{clusters}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_size_is_a_point_in_each_chart_that_has_a_value() {
        let fleet =
            |clusters| Fleet { clusters, converge_seconds: 1.0, restart_seconds: 2.0, ..Fleet::default() };
        let picture = growth(&[fleet(100), fleet(300)]);
        // No losses were measured: five of the six charts have points.
        assert_eq!(picture.matches("<circle").count(), 10);
        assert!(!picture.contains("NaN") && !picture.contains("inf"), "{picture}");
    }

    #[test]
    fn a_cost_of_nothing_has_marks_that_differ() {
        let mut sheet = Sheet::new(WIDTH);
        chart(&mut sheet, (0.0, 0.0), "nothing", &[(100.0, 0.0), (300.0, 0.0)]);
        let picture = sheet.finish(CHART.1);
        assert_eq!(picture.matches(">0.00<").count(), 0, "{picture}");
        assert!(picture.contains(">1.00<"), "{picture}");
    }
}
