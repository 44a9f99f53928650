//! A handful of repeated measurements: the middle one, and how far they lie apart. With so few of them, and on machines
//! that do other things too, a mean would tell more about the worst run than about the program.

use serde::{Deserialize, Serialize};

/// Repeated measurements of one thing, in the order they were taken.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sample(pub Vec<f64>);

impl Sample {
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    fn sorted(&self) -> Vec<f64> {
        let mut values = self.0.clone();
        values.sort_by(f64::total_cmp);
        values
    }

    /// The middle one; of an even number, the mean of the two in the middle.
    pub fn median(&self) -> Option<f64> {
        let values = self.sorted();
        let upper = *values.get(values.len() / 2)?;
        let lower = values[(values.len() - 1) / 2];
        Some(f64::midpoint(lower, upper))
    }

    pub fn min(&self) -> Option<f64> {
        self.sorted().first().copied()
    }

    pub fn max(&self) -> Option<f64> {
        self.sorted().last().copied()
    }

    /// `3.42 (3.31 … 3.80)`, or a dash if there is nothing to show.
    pub fn show(&self) -> String {
        match (self.median(), self.min(), self.max()) {
            (Some(median), Some(min), Some(max)) if self.0.len() > 1 => {
                format!("{median:.2} ({min:.2} … {max:.2})")
            }
            (Some(only), ..) => format!("{only:.2}"),
            _ => "–".to_owned(),
        }
    }

    /// How many times longer than `floor`, median against median.
    pub fn ratio(&self, floor: &Self) -> Option<f64> {
        let floor = floor.median().filter(|floor| *floor > 0.0)?;
        Some(self.median()? / floor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_whatever_the_order() {
        assert_eq!(Sample(vec![9.0, 1.0, 2.0]).median(), Some(2.0));
        assert_eq!(Sample(vec![4.0, 1.0, 2.0, 100.0]).median(), Some(3.0));
        assert_eq!(Sample::default().median(), None);
    }

    #[test]
    fn one_outlier_shows_in_the_spread_and_not_in_the_ratio() {
        let ours = Sample(vec![2.0, 2.0, 60.0]);
        let floor = Sample(vec![1.0, 1.0, 1.0]);
        assert_eq!(ours.ratio(&floor), Some(2.0));
        assert_eq!(ours.show(), "2.00 (2.00 … 60.00)");
    }

    #[test]
    fn nothing_is_not_compared() {
        assert_eq!(Sample::default().ratio(&Sample(vec![1.0])), None);
        assert_eq!(Sample(vec![1.0]).ratio(&Sample(vec![0.0])), None);
        assert_eq!(Sample::default().show(), "–");
    }
}
