//! A logarithmic axis of multiples.

use std::cmp::Ordering;

/// The limits of the widest axis: figures beyond them are drawn at its ends.
const WIDEST: (f64, f64) = (0.01, 100.0);

/// The limits of the narrowest axis: equal times are in its middle, not at an edge.
const NARROWEST: (f64, f64) = (0.5, 2.0);

/// The steps of a decade that get a line.
const STEPS: [f64; 3] = [1.0, 2.0, 5.0];

/// A logarithmic axis from one multiple of the raw time to another.
pub(super) struct Axis {
    low: f64,
    high: f64,
    left: f64,
    width: f64,
}

impl Axis {
    /// An axis for `figures` and 1, drawn from `left` to `left + width`.
    pub(super) fn over(figures: impl Iterator<Item = f64>, left: f64, width: f64) -> Self {
        let (mut low, mut high) = NARROWEST;
        for figure in figures.filter(|figure| figure.is_finite() && *figure > 0.0) {
            low = low.min(figure);
            high = high.max(figure);
        }
        Self {
            // A margin, so that no mark touches the edge.
            low: (low / 1.2).max(WIDEST.0),
            high: (high * 1.2).min(WIDEST.1),
            left,
            width,
        }
    }

    /// Returns where a figure is drawn, and whether it lies before, on or after the axis.
    pub(super) fn place(&self, figure: f64) -> (f64, Ordering) {
        let share = (figure / self.low).ln() / (self.high / self.low).ln();
        let on_it = share.clamp(0.0, 1.0);
        (self.left + self.width * on_it, share.total_cmp(&on_it))
    }

    /// Multiples that get a line, in the order in which they get a label.
    pub(super) fn ticks(&self) -> Vec<f64> {
        let decades = || (-3..=3).map(|exponent| 10f64.powi(exponent));
        let all = STEPS.into_iter().flat_map(|step| decades().map(move |decade| step * decade));
        let mut ticks: Vec<f64> = all.filter(|it| (self.low..=self.high).contains(it)).collect();
        // The raw time itself comes first: it is the reference.
        ticks.sort_by_key(|tick| *tick != 1.0);
        ticks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_ratios_are_equal_distances() {
        let axis = Axis::over([0.1, 10.0].into_iter(), 100.0, 400.0);
        let x = |figure| axis.place(figure).0;
        assert!((x(1.0) - 300.0).abs() < 1e-6);
        assert!((x(2.0) - x(1.0) - (x(1.0) - x(0.5))).abs() < 1e-6);
        assert_eq!(axis.ticks(), [1.0, 0.1, 10.0, 0.2, 2.0, 0.5, 5.0]);
    }

    #[test]
    fn what_is_far_off_lies_at_the_end() {
        let axis = Axis::over([0.000_01, 1.1].into_iter(), 0.0, 100.0);
        assert_eq!(axis.place(0.000_01), (0.0, Ordering::Less));
        assert_eq!(axis.place(0.5).1, Ordering::Equal);
        assert_eq!(axis.place(1000.0), (100.0, Ordering::Greater));
        assert!(axis.ticks().contains(&0.01));
    }
}
