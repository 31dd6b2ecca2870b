//! Confidence intervals of figures that were measured in several rounds.

use serde_json::{Value, json};

/// Two-sided 95 % quantiles of Student's t distribution, by degrees of freedom from one on.
const T_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];
/// The quantile for more rounds than the table has.
const T_95_MANY: f64 = 1.96;

/// The range in which the mean of all rounds lies with 95 % confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ConfidenceInterval {
    /// Lower bound.
    pub(super) low: f64,
    /// Upper bound.
    pub(super) high: f64,
}

impl ConfidenceInterval {
    /// Computes the interval from the figures of the rounds; `None` for fewer than two.
    pub(super) fn of(rounds: &[f64]) -> Option<Self> {
        #[expect(clippy::cast_precision_loss, reason = "few rounds")]
        let count = rounds.len() as f64;
        let freedom = rounds.len().checked_sub(2)?;
        let mean = rounds.iter().sum::<f64>() / count;
        let squares: f64 = rounds.iter().map(|figure| (figure - mean).powi(2)).sum();
        let error = (squares / (count - 1.0) / count).sqrt();
        let half = error * T_95.get(freedom).copied().unwrap_or(T_95_MANY);
        Some(Self { low: mean - half, high: mean + half })
    }

    pub(super) fn json(self) -> Value {
        json!([self.low, self.high])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_students() {
        // Mean 2, standard deviation 1, standard error 0.577, quantile 4.303.
        let interval = ConfidenceInterval::of(&[1.0, 2.0, 3.0]).unwrap();
        assert!((interval.low - (2.0 - 2.484)).abs() < 0.001, "{interval:?}");
        assert!((interval.high - (2.0 + 2.484)).abs() < 0.001, "{interval:?}");
    }

    #[test]
    fn equal_rounds_leave_no_doubt_and_one_round_tells_nothing() {
        let interval = ConfidenceInterval::of(&[5.0, 5.0]).unwrap();
        assert_eq!((interval.low, interval.high), (5.0, 5.0));
        assert_eq!(ConfidenceInterval::of(&[5.0]), None);
        assert_eq!(ConfidenceInterval::of(&[]), None);
    }
}
