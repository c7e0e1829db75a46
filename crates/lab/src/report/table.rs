//! The rows of one experiment, grouped by cell.

use std::collections::BTreeMap;

use crate::load::{Arrival, Work};
use crate::report::figure::{FIGURES, Figure};
use crate::report::grid::{self, Axis, Parameters};
use crate::report::measurement::Measurement;
use crate::row::Verdict;
use crate::stats::{self, Estimate};

/// All measurements of one experiment.
#[derive(Debug)]
pub(crate) struct Table {
    /// As in the rows: `s1.t6`.
    pub(crate) name: String,
    /// In the order of the grid.
    pub(crate) cells: Vec<Cell>,
    pub(crate) axes: Vec<Axis>,
}

/// All repeats of one point of the grid.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) number: usize,
    pub(crate) parameters: Parameters,
    pub(crate) measurements: Vec<Measurement>,
    /// By the name of the figure: a cache, because resampling is slow and results are used several
    /// times.
    estimates: BTreeMap<&'static str, Estimate>,
}

impl Table {
    /// Groups the measurements of one experiment; there must be at least one.
    pub(crate) fn of(name: String, measurements: Vec<Measurement>) -> Self {
        let mut by_number: BTreeMap<usize, Cell> = BTreeMap::new();
        for measurement in measurements {
            let cell = by_number.entry(measurement.row.cell).or_insert_with(|| Cell {
                number: measurement.row.cell,
                parameters: measurement.row.parameters.clone(),
                measurements: Vec::new(),
                estimates: BTreeMap::new(),
            });
            cell.measurements.push(measurement);
        }
        let mut cells: Vec<Cell> = by_number.into_values().collect();
        for cell in &mut cells {
            cell.measurements.sort_by_key(|measurement| measurement.row.repeat);
            cell.estimate_all();
        }
        let parameters: Vec<&Parameters> = cells.iter().map(|cell| &cell.parameters).collect();
        let mut axes = grid::axes(&parameters);
        // The horizontal axis of charts varies fastest, so it is the last part of cell names.
        if let Some(along) = grid::layout(&axes).map(|layout| layout.x.name.clone()) {
            axes.sort_by_key(|axis| axis.name == along);
        }
        Self { name, cells, axes }
    }

    pub(crate) fn measurements(&self) -> impl Iterator<Item = &Measurement> {
        self.cells.iter().flat_map(|cell| &cell.measurements)
    }

    /// Returns the number of measurements with each verdict.
    pub(crate) fn verdicts(&self) -> BTreeMap<Verdict, usize> {
        let mut verdicts = BTreeMap::new();
        for measurement in self.measurements() {
            *verdicts.entry(measurement.row.verdict).or_default() += 1;
        }
        verdicts
    }

    /// Whether any measurement contains the figure, so that its column is displayed.
    pub(crate) fn has(&self, figure: &Figure) -> bool {
        self.cells.iter().any(|cell| cell.estimate(figure).is_some())
    }

    /// Returns the axis of the rate of an open loop.
    pub(crate) fn rate_axis(&self) -> Option<&Axis> {
        self.axes.iter().find(|axis| {
            axis.is_numeric()
                && self.cells.iter().all(|cell| {
                    let number = axis.index(&cell.parameters).map(|at| axis.values[at].number);
                    cell.offered_rate().is_some() && number.flatten() == cell.offered_rate()
                })
        })
    }

    /// Formats what distinguishes a cell: `64 · redis-server`.
    pub(crate) fn describe(&self, cell: &Cell) -> String {
        let texts = self.axes.iter().filter_map(|axis| {
            axis.index(&cell.parameters).map(|at| axis.values[at].text.as_str())
        });
        let texts: Vec<&str> = texts.collect();
        if texts.is_empty() { "all".to_owned() } else { texts.join(" · ") }
    }

    /// Formats it with the names of the axes, for sentences: `connections 64, redis-server`.
    pub(crate) fn describe_fully(&self, cell: &Cell) -> String {
        let texts = self
            .axes
            .iter()
            .filter_map(|axis| axis.index(&cell.parameters).map(|at| axis.describe(at)));
        texts.collect::<Vec<_>>().join(", ")
    }

    /// Returns the axis names for [`Self::describe`]: `connections · kind`.
    pub(crate) fn axis_labels(&self) -> String {
        let labels: Vec<&str> = self.axes.iter().map(|axis| axis.label.as_str()).collect();
        if labels.is_empty() { "cell".to_owned() } else { labels.join(" · ") }
    }
}

impl Cell {
    /// Only `ok` measurements count; if there are none, all results do, and the figure is struck
    /// through.
    pub(crate) fn estimate(&self, figure: &Figure) -> Option<Estimate> {
        self.estimates.get(figure.name).copied()
    }

    fn estimate_all(&mut self) {
        for figure in &FIGURES {
            let values: Vec<f64> = self.counted().filter_map(figure.of).collect();
            if !values.is_empty() {
                self.estimates.insert(figure.name, stats::median_interval(&values));
            }
        }
    }

    /// The measurements that enter the figures.
    pub(crate) fn counted(&self) -> impl Iterator<Item = &Measurement> {
        let all = !self.is_trusted();
        self.measurements.iter().filter(move |one| one.has_result() && (all || one.is_ok()))
    }

    /// The measurement with median throughput, for bars and windows.
    pub(crate) fn typical(&self) -> Option<&Measurement> {
        let mut counted: Vec<&Measurement> = self.counted().collect();
        let rate = |one: &Measurement| one.row.operations_per_second();
        counted.sort_by(|a, b| rate(a).total_cmp(&rate(b)));
        counted.get(counted.len() / 2).copied()
    }

    /// Whether at least one measurement is valid.
    pub(crate) fn is_trusted(&self) -> bool {
        self.measurements.iter().any(|one| one.is_ok() && one.has_result())
    }

    /// Requests per second that an open loop offers.
    pub(crate) fn offered_rate(&self) -> Option<f64> {
        match &self.measurements.first()?.row.load.work {
            Work::Socket(work) => match work.arrival {
                Arrival::Open { per_second, .. } => Some(per_second),
                Arrival::Closed => None,
            },
            Work::Append(_) => None,
        }
    }

    /// Verdicts other than `ok`, with their distinct reasons.
    pub(crate) fn doubts(&self) -> Vec<(Verdict, String)> {
        let doubtful = self.measurements.iter().filter(|one| !one.is_ok());
        let mut doubts: Vec<(Verdict, String)> =
            doubtful.map(|one| (one.row.verdict, one.row.reasons.join("; "))).collect();
        doubts.sort();
        doubts.dedup();
        doubts
    }
}
