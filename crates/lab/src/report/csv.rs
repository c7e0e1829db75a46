//! `rows.csv`: one line per measurement, a column per parameter and figure.

use std::collections::BTreeSet;

use anyhow::{Context, Result};

use crate::report::figure::{FIGURES, of_any_load};
use crate::report::folder::Run;
use crate::report::grid;
use crate::report::measurement::Measurement;

const FIRST: [&str; 5] = ["table", "cell", "repeat", "verdict", "reasons"];
const SUBJECT: [&str; 4] = ["subject", "version", "commit", "started_unix_ms"];

/// Returns the content of the file. It has columns for the parameters, additional loads, counters
/// and TCP counters of all rows; missing values are empty. Columns of an additional load begin with
/// its name.
pub(crate) fn csv(runs: &[Run]) -> Result<String> {
    let rows =
        || runs.iter().flat_map(|run| &run.tables).flat_map(super::table::Table::measurements);
    let parameters: BTreeSet<&String> = rows().flat_map(|one| one.row.parameters.keys()).collect();
    let side_loads: BTreeSet<&String> = rows().flat_map(|one| one.side_loads.keys()).collect();
    let describe_side_load =
        || side_loads.iter().flat_map(|name| of_any_load().map(move |figure| (*name, figure)));
    let counters: BTreeSet<&String> = rows().flat_map(|one| one.row.counters.keys()).collect();
    let tcp: BTreeSet<&String> = rows().flat_map(|one| one.row.tcp.keys()).collect();

    let mut writer = csv::Writer::from_writer(Vec::new());
    let head = FIRST
        .into_iter()
        .map(str::to_owned)
        .chain(parameters.iter().map(|name| (*name).clone()))
        .chain(FIGURES.iter().map(|figure| figure.name.to_owned()))
        .chain(describe_side_load().map(|(name, figure)| format!("{name}_{}", figure.name)))
        .chain(counters.iter().map(|name| format!("{name}_per_operation")))
        .chain(tcp.iter().map(|name| format!("tcp_{name}")))
        .chain(SUBJECT.into_iter().map(str::to_owned));
    writer.write_record(head)?;
    for one in rows() {
        let row = &one.row;
        let mut fields = vec![
            row.table.clone(),
            row.cell.to_string(),
            row.repeat.to_string(),
            row.verdict.name().to_owned(),
            row.reasons.join("; "),
        ];
        fields.extend(
            parameters
                .iter()
                .map(|name| row.parameters.get(*name).map(grid::show_whole).unwrap_or_default()),
        );
        fields.extend(FIGURES.iter().map(|figure| number(one, figure.of)));
        fields.extend(describe_side_load().map(|(name, figure)| {
            one.side_loads.get(name).map(|one| number(one, figure.of)).unwrap_or_default()
        }));
        fields.extend(
            counters
                .iter()
                .map(|name| row.counters.get(*name).map(f64::to_string).unwrap_or_default()),
        );
        fields.extend(
            tcp.iter().map(|name| row.tcp.get(*name).map(u64::to_string).unwrap_or_default()),
        );
        fields.extend([
            row.subject.kind.clone(),
            row.subject.version.clone(),
            row.commit.clone(),
            row.started_unix_ms.to_string(),
        ]);
        writer.write_record(fields)?;
    }
    let bytes = writer.into_inner().context("could not write rows.csv")?;
    String::from_utf8(bytes).context("could not write rows.csv")
}

fn number(measurement: &Measurement, of: fn(&Measurement) -> Option<f64>) -> String {
    let value = measurement.has_result().then(|| of(measurement)).flatten();
    value.map(|value| value.to_string()).unwrap_or_default()
}
