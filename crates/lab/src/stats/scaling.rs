//! The universal scalability law: throughput as a function of the number of workers.

use serde::{Deserialize, Serialize};

use super::real;

/// `rate(n) = single * n / (1 + contention * (n - 1) + crosstalk * n * (n - 1))`.
// Source: N. J. Gunther, "Guerrilla Capacity Planning", 2007, chapter 4
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Scaling {
    /// Rate of one worker.
    pub single: f64,
    /// Share of the work that is serialized: sigma.
    pub contention: f64,
    /// Coordination cost of each pair: kappa.
    pub crosstalk: f64,
    /// Root mean squared error, relative to the rate.
    pub residual: f64,
}

impl Scaling {
    /// Returns the expected rate of `workers`.
    pub fn rate(&self, workers: f64) -> f64 {
        let others = workers - 1.0;
        self.single * workers / (1.0 + self.contention * others + self.crosstalk * workers * others)
    }
}

/// Fits the law to points `(workers, rate)`, minimizing the squared relative errors with
/// non-negative coefficients. Returns `None` for fewer than three points with rates above 0.
///
/// `n / rate` is linear in `1 / single`, `contention / single` and `crosstalk / single`; each
/// subset of the last two is tried, and the best without a negative term is chosen.
pub fn fit_scaling(points: &[(f64, f64)]) -> Option<Scaling> {
    let points: Vec<(f64, f64)> =
        points.iter().copied().filter(|&(workers, rate)| workers >= 1.0 && rate > 0.0).collect();
    if points.len() < 3 {
        return None;
    }
    let subsets: [&[usize]; 4] = [&[0], &[0, 1], &[0, 2], &[0, 1, 2]];
    let fits = subsets.into_iter().filter_map(|subset| fit_subset(&points, subset));
    fits.min_by(|first, second| first.residual.total_cmp(&second.residual))
}

/// Only the terms in `subset` may differ from 0.
fn fit_subset(points: &[(f64, f64)], subset: &[usize]) -> Option<Scaling> {
    let mut matrix = [[0.0; 4]; 3];
    for (index, row) in matrix.iter_mut().enumerate() {
        row[index] = f64::from(u8::from(!subset.contains(&index)));
    }
    for &(workers, rate) in points {
        let wanted = workers / rate;
        // Divided by the target value, so that errors are relative.
        let terms = terms(workers).map(|term| term / wanted);
        for &row in subset {
            for &column in subset {
                matrix[row][column] += terms[row] * terms[column];
            }
            matrix[row][3] += terms[row];
        }
    }
    let [base, contention, crosstalk] = solve(matrix)?;
    if base <= 0.0 || contention < 0.0 || crosstalk < 0.0 {
        return None;
    }
    let mut scaling = Scaling {
        single: 1.0 / base,
        contention: contention / base,
        crosstalk: crosstalk / base,
        residual: 0.0,
    };
    let squares =
        points.iter().map(|&(workers, rate)| (scaling.rate(workers) / rate - 1.0).powi(2));
    scaling.residual = (squares.sum::<f64>() / real(points.len())).sqrt();
    Some(scaling)
}

fn terms(workers: f64) -> [f64; 3] {
    [1.0, workers - 1.0, workers * (workers - 1.0)]
}

/// Gaussian elimination with partial pivoting; `None` if the system is singular.
fn solve(mut matrix: [[f64; 4]; 3]) -> Option<[f64; 3]> {
    for column in 0..3 {
        let pivot = (column..3)
            .max_by(|&a, &b| matrix[a][column].abs().total_cmp(&matrix[b][column].abs()))?;
        matrix.swap(column, pivot);
        if matrix[column][column].abs() < 1e-12 {
            return None;
        }
        let pivot_row = matrix[column];
        for (index, row) in matrix.iter_mut().enumerate() {
            if index == column {
                continue;
            }
            let factor = row[column] / pivot_row[column];
            for (cell, pivot) in row.iter_mut().zip(pivot_row) {
                *cell -= factor * pivot;
            }
        }
    }
    Some([0, 1, 2].map(|index| matrix[index][3] / matrix[index][index]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKERS: [f64; 6] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0];

    #[track_caller]
    fn check(contention: f64, crosstalk: f64) {
        let truth = Scaling { single: 1_000.0, contention, crosstalk, residual: 0.0 };
        let points = WORKERS.map(|workers| (workers, truth.rate(workers)));
        let found = fit_scaling(&points).unwrap();
        assert!((found.single - 1_000.0).abs() < 1e-3, "{found:?}");
        assert!((found.contention - contention).abs() < 1e-6, "{found:?}");
        assert!((found.crosstalk - crosstalk).abs() < 1e-6, "{found:?}");
        assert!(found.residual < 1e-6, "{found:?}");
    }

    #[test]
    fn known_laws_are_found() {
        check(0.0, 0.0);
        check(0.05, 0.0);
        check(0.05, 0.002);
        check(0.0, 0.001);
    }

    #[test]
    fn better_than_linear_is_called_linear() {
        let found = fit_scaling(&[(1.0, 100.0), (2.0, 220.0), (4.0, 480.0)]).unwrap();
        assert_eq!((found.contention, found.crosstalk), (0.0, 0.0));
        assert!(found.residual > 0.01);
    }

    #[test]
    fn too_few_points_have_no_law() {
        assert_eq!(fit_scaling(&[(1.0, 10.0), (2.0, 20.0), (4.0, 0.0)]), None);
    }
}
