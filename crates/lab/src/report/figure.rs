//! Values derived from a measurement: one row of a table per figure, for the page and the CSV
//! alike.

use crate::report::measurement::{Measurement, as_f64, exact};
use crate::report::number::Unit;

/// A numeric value of a measurement.
pub(crate) struct Figure {
    /// Name of the CSV column, and of a column in a source document.
    pub(crate) name: &'static str,
    /// Column heading on the page, and axis title.
    pub(crate) title: &'static str,
    pub(crate) unit: Unit,
    /// Returns `None` if the measurement does not contain it. Only called for measurements with a
    /// result.
    pub(crate) of: fn(&Measurement) -> Option<f64>,
}

pub(crate) const THROUGHPUT: Figure = Figure {
    name: "operations_per_second",
    title: "Throughput",
    unit: Unit::PerSecond,
    of: |measurement| Some(measurement.row.operations_per_second()),
};

pub(crate) const SERVER_CPU: Figure = Figure {
    name: "cpu_ns_per_operation",
    title: "Server CPU per operation",
    unit: Unit::Nanoseconds,
    of: cpu_ns_per_operation,
};

pub(crate) const CORRECTED_P50: Figure = Figure {
    name: "latency_ns_p50",
    title: "Latency p50",
    unit: Unit::Nanoseconds,
    of: |measurement| measurement.corrected.map(|latency| latency.p50),
};

pub(crate) const CORRECTED_P99: Figure = Figure {
    name: "latency_ns_p99",
    title: "Latency p99",
    unit: Unit::Nanoseconds,
    of: |measurement| measurement.corrected.map(|latency| latency.p99),
};

pub(crate) const CORRECTED_P999: Figure = Figure {
    name: "latency_ns_p999",
    title: "Latency p99.9",
    unit: Unit::Nanoseconds,
    of: |measurement| measurement.corrected.map(|latency| latency.p999),
};

pub(crate) const RAW_P50: Figure = Figure {
    name: "latency_raw_ns_p50",
    title: "Raw latency p50",
    unit: Unit::Nanoseconds,
    of: |measurement| measurement.raw.map(|latency| latency.p50),
};

pub(crate) const RAW_P99: Figure = Figure {
    name: "latency_raw_ns_p99",
    title: "Raw latency p99",
    unit: Unit::Nanoseconds,
    of: |measurement| measurement.raw.map(|latency| latency.p99),
};

pub(crate) const RAW_P999: Figure = Figure {
    name: "latency_raw_ns_p999",
    title: "Raw latency p99.9",
    unit: Unit::Nanoseconds,
    of: |measurement| measurement.raw.map(|latency| latency.p999),
};

pub(crate) const REACTORS_BUSY: Figure = Figure {
    name: "busy_reactors",
    title: "Reactors busy",
    unit: Unit::Count,
    of: |measurement| measurement.reactors().map(|workers| as_f64(workers.busy_count)),
};

pub(crate) const MAX_OVER_MEAN: Figure = Figure {
    name: "imbalance",
    title: "Busiest reactor over the mean",
    unit: Unit::Ratio,
    of: |measurement| measurement.reactors().and_then(|workers| workers.max_over_mean),
};

pub(crate) const CLIENT_CPU: Figure = Figure {
    name: "client_cpu_share",
    title: "CPU of the load generator",
    unit: Unit::Share,
    of: Measurement::client_share,
};

/// All figures, in the order of the CSV's columns.
pub(crate) const FIGURES: [Figure; 27] = [
    THROUGHPUT,
    Figure {
        name: "window_low_per_second",
        title: "Slowest window",
        unit: Unit::PerSecond,
        of: |measurement| measurement.window_rates().into_iter().reduce(f64::min),
    },
    Figure {
        name: "window_high_per_second",
        title: "Fastest window",
        unit: Unit::PerSecond,
        of: |measurement| measurement.window_rates().into_iter().reduce(f64::max),
    },
    SERVER_CPU,
    Figure {
        name: "cpu_share",
        title: "Server CPU",
        unit: Unit::Share,
        of: |measurement| {
            let report = &measurement.row.report;
            let per_operation = cpu_ns_per_operation(measurement)?;
            let operations = exact(report.operations_of_all());
            Some(per_operation * operations / exact(report.duration_ns))
        },
    },
    CORRECTED_P50,
    CORRECTED_P99,
    CORRECTED_P999,
    RAW_P50,
    RAW_P99,
    RAW_P999,
    Figure {
        name: "reactors",
        title: "Reactors",
        unit: Unit::Count,
        of: |measurement| measurement.reactors().map(|workers| as_f64(workers.shares.len())),
    },
    REACTORS_BUSY,
    MAX_OVER_MEAN,
    CLIENT_CPU,
    Figure {
        name: "client_lag_ns_p99",
        title: "Lag of the load generator p99",
        unit: Unit::Nanoseconds,
        of: |measurement| Some(exact(measurement.row.report.lag_ns_p99)),
    },
    Figure {
        name: "errors",
        title: "Error replies",
        unit: Unit::Count,
        of: |measurement| Some(exact(measurement.row.report.errors.values().sum())),
    },
    Figure {
        name: "lost",
        title: "Requests without a reply",
        unit: Unit::Count,
        of: |measurement| Some(exact(measurement.row.report.lost)),
    },
    Figure {
        name: "unfinished",
        title: "Requests in flight at the end",
        unit: Unit::Count,
        of: |measurement| Some(exact(measurement.row.report.unfinished)),
    },
    Figure {
        name: "listen_overflows",
        title: "Overflows of listen queues",
        unit: Unit::Count,
        of: |measurement| measurement.row.tcp.get("ListenOverflows").copied().map(exact),
    },
    Figure {
        name: "resident_bytes",
        title: "Resident memory",
        unit: Unit::Bytes,
        of: |measurement| Some(exact(measurement.row.resident_bytes)).filter(|bytes| *bytes > 0.0),
    },
    Figure {
        name: "records_per_write",
        title: "Records per write",
        unit: Unit::Count,
        of: |measurement| measurement.records_per_write,
    },
    Figure {
        name: "bytes_per_write",
        title: "Bytes per write",
        unit: Unit::Bytes,
        of: |measurement| measurement.bytes_per_write,
    },
    Figure {
        name: "operations_per_sync",
        title: "Appends per sync",
        unit: Unit::Count,
        of: operations_per_sync,
    },
    Figure {
        name: "bytes_per_second",
        title: "Bytes per second",
        unit: Unit::Bytes,
        of: log_bytes_per_second,
    },
    Figure {
        name: "machine_steal_share",
        title: "Taken by the hypervisor",
        unit: Unit::Share,
        of: |measurement| Some(measurement.row.noise.steal),
    },
    Figure {
        name: "machine_foreign_cores",
        title: "Cores used by other programs",
        unit: Unit::Count,
        of: |measurement| Some(measurement.row.noise.foreign_cores),
    },
];

/// Figures that additional loads have, by name.
const OF_ANY_LOAD: [&str; 9] = [
    "operations_per_second",
    "latency_ns_p50",
    "latency_ns_p99",
    "latency_ns_p999",
    "latency_raw_ns_p50",
    "latency_raw_ns_p99",
    "latency_raw_ns_p999",
    "errors",
    "lost",
];

/// Figures of additional loads, in the order of the CSV's columns.
pub(crate) fn of_any_load() -> impl Iterator<Item = &'static Figure> {
    static ALL: [Figure; 27] = FIGURES;
    ALL.iter().filter(|figure| OF_ANY_LOAD.contains(&figure.name))
}

/// Columns of source documents with other units: name, the figure's name, and the conversion
/// factor.
const OTHER_UNITS: [(&str, &str, f64); 3] = [
    ("latency_ms_p50", "latency_ns_p50", 1e6),
    ("latency_us_p99", "latency_ns_p99", 1e3),
    ("cpu_percent", "cpu_share", 0.01),
];

/// Returns the figure of a source document's column, and the conversion factor.
pub(crate) fn of_column(name: &str) -> Option<(&'static Figure, f64)> {
    static ALL: [Figure; 27] = FIGURES;
    let other = OTHER_UNITS.iter().find(|(column, _, _)| *column == name);
    let (name, factor) = other.map_or((name, 1.0), |(_, figure, factor)| (*figure, *factor));
    ALL.iter().find(|figure| figure.name == name).map(|figure| (figure, factor))
}

/// A log in the generator's process has no separate threads: its CPU time is that of the whole
/// process.
fn cpu_ns_per_operation(measurement: &Measurement) -> Option<f64> {
    let row = &measurement.row;
    if !row.threads.is_empty() {
        return Some(row.cpu_ns_per_operation());
    }
    let log = row.report.log.as_ref()?;
    Some(exact(log.process_cpu_ns) / exact(row.report.operations))
}

fn operations_per_sync(measurement: &Measurement) -> Option<f64> {
    let report = &measurement.row.report;
    let syncs = report.log.as_ref()?.syncs;
    (syncs > 0).then(|| exact(report.operations) / exact(syncs))
}

fn log_bytes_per_second(measurement: &Measurement) -> Option<f64> {
    let report = &measurement.row.report;
    Some(exact(report.log.as_ref()?.bytes) / exact(report.duration_ns) * 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_any_load_are_figures() {
        assert_eq!(of_any_load().count(), OF_ANY_LOAD.len());
    }

    #[test]
    fn columns_of_sources_are_figures() {
        for (column, name, factor) in [
            ("operations_per_second", "operations_per_second", 1.0),
            ("latency_ms_p50", "latency_ns_p50", 1e6),
            ("cpu_percent", "cpu_share", 0.01),
        ] {
            let (figure, found) = of_column(column).unwrap();
            assert_eq!((figure.name, found), (name, factor));
        }
        assert!(of_column("remark").is_none());
    }
}
