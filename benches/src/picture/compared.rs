//! Times to ready as bars, with the operator and by hand.

use super::svg::{Anchor, FAINT, GRID, INK, Sheet, number, tick};
use crate::ready::Comparison;

const WIDTH: f64 = 960.0;
const LEFT: f64 = 300.0;
const RIGHT: f64 = 860.0;
const LANE: f64 = 34.0;
const OPERATOR: &str = "#3b82f6";
const FLOOR: &str = "#9ca3af";

pub fn compared(comparisons: &[Comparison]) -> String {
    let slowest =
        comparisons.iter().flat_map(|c| [c.operator.max(), c.floor.max()]).flatten().fold(0.1, f64::max);
    let x = |seconds: f64| LEFT + (RIGHT - LEFT) * seconds / slowest;
    let mut sheet = Sheet::new(WIDTH);
    sheet.text(
        (20.0, 28.0),
        16,
        Anchor::Start,
        INK,
        "Time to ready, seconds (bar: median, line: fastest to slowest)",
    );
    sheet.rectangle((20.0, 42.0), (12.0, 12.0), OPERATOR);
    sheet.text((38.0, 52.0), 11, Anchor::Start, INK, "with the operator");
    sheet.rectangle((160.0, 42.0), (12.0, 12.0), FLOOR);
    sheet.text((178.0, 52.0), 11, Anchor::Start, INK, "by hand: the same Pods and calls, no operator");
    let mut y = 72.0;
    let top = y;
    for comparison in comparisons {
        let name = format!("{}, {:?}", comparison.scenario, comparison.medium);
        sheet.text((LEFT - 10.0, y + 18.0), 12, Anchor::End, INK, &name);
        for (sample, color, y) in
            [(&comparison.operator, OPERATOR, y + 4.0), (&comparison.floor, FLOOR, y + 16.0)]
        {
            let (Some(median), Some(min), Some(max)) = (sample.median(), sample.min(), sample.max()) else {
                continue;
            };
            sheet.rectangle((LEFT, y), (x(median) - LEFT, 10.0), color);
            sheet.line((x(min), y + 5.0), (x(max), y + 5.0), INK);
        }
        let ratio = comparison.operator.ratio(&comparison.floor).map(|ratio| format!("{} ×", number(ratio)));
        sheet.text((RIGHT + 14.0, y + 18.0), 12, Anchor::Start, INK, &ratio.unwrap_or_default());
        y += LANE;
    }
    let every = tick(slowest);
    let mut mark = 0.0;
    while mark <= slowest {
        sheet.line((x(mark), top), (x(mark), y), GRID);
        sheet.text((x(mark), y + 16.0), 11, Anchor::Middle, FAINT, &number(mark));
        mark += every;
    }
    sheet.finish(y + 30.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ready::Medium;
    use crate::stats::Sample;

    #[test]
    fn a_scenario_without_a_floor_has_one_bar_and_no_ratio() {
        let scenario = |floor| Comparison {
            scenario: "told".into(),
            medium: Medium::Memory,
            operator: Sample(vec![1.0]),
            floor: Sample(floor),
        };
        let both = compared(&[scenario(vec![0.5])]);
        let alone = compared(&[scenario(vec![])]);
        assert!(both.contains("2.00 ×") && !alone.contains('×'));
        assert_eq!(both.matches(FLOOR).count() - alone.matches(FLOOR).count(), 1);
    }
}
