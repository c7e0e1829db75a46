//! A report of plausible rows. `cargo xtask report` opens the page that
//! [`a_run_of_every_kind_becomes_one_page`] writes below `target/` in a browser.

use std::fs;
use std::path::Path;

use lab::report;
use lexopt::Parser;

use crate::fixture::{self, Maker, folder};

fn write_all(root: &Path) {
    let mut maker = Maker::new(1);
    let instances = fixture::instances();
    let first = root.join("1-instances");
    fixture::write_run(
        &first,
        "s1.t6",
        "Instances of a load tool on one reactor",
        &maker.rows("s1.t6", &instances),
    );
    fixture::write_source(&first, "s1.t6", &instances);
    for (name, title, cells) in [
        ("reactors", "Reactors by connections", fixture::reactors()),
        ("rates", "Latency at offered rates", fixture::rates()),
        ("appends", "Appends to a log, three ways", fixture::appends()),
        ("s1.t7", "Threads that share connections", fixture::pools()),
    ] {
        fixture::write_run(&root.join(name), name, title, &maker.rows(name, &cells));
    }
}

#[test]
fn a_run_of_every_kind_becomes_one_page() {
    let root = folder("report");
    write_all(&root);
    // Not part of the report: `cargo xtask report` also opens the live view, which shows it.
    fs::write(
        root.join("progress.json"),
        r#"{"number": 3, "count": 84, "cell": 4, "cells": 28, "repeat": 0, "phase": "measuring",
            "eta_s": 125, "last_rate": 81234.0}"#,
    )
    .unwrap();
    lab::run(&mut Parser::from_args([Path::new("report"), &root])).unwrap();
    let page = fs::read_to_string(root.join("report.html")).unwrap();

    assert!(page.len() < report::PAGE_BYTES_MAX, "{} bytes", page.len());
    for part in [
        "5 experiments",
        "Instances of a load tool on one reactor",
        "Comparison with the source document",
        "Latency against rate",
        "Every cell at a glance",
        "Throughput over time",
        "class=\"doubtful\"",
        "the generator used 91 % of its core",
        "AMD EPYC 9V74",
        "16 of 16",
        "unbalanced",
    ] {
        assert!(page.contains(part), "{part} is missing");
    }
    assert!(!page.contains("<script>alert"), "text of rows is not escaped");
    for outside in ["http://", "https://", "src=", "@import", "url("] {
        assert!(!page.contains(outside), "the page refers to {outside}");
    }
}

#[test]
fn the_csv_has_a_line_per_measurement() {
    let root = folder("report-csv");
    write_all(&root);
    report::write(&root).unwrap();
    let mut reader = csv::Reader::from_path(root.join("rows.csv")).unwrap();
    let head = reader.headers().unwrap().clone();
    let column = |name: &str| head.iter().position(|found| found == name).unwrap();
    let records: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert_eq!(records.len(), 3 * (28 + 25 + 14 + 15 + 90));
    let failed = records.iter().find(|one| &one[column("verdict")] == "failed").unwrap();
    assert_eq!(&failed[column("operations_per_second")], "");
    assert_eq!(&failed[column("reasons")], "the subject ended: \"exit status: 1\"");
    let first = &records[0];
    assert_eq!(&first[column("load.connections")], "1");
    assert!(first[column("cpu_ns_per_operation")].parse::<f64>().unwrap() > 0.0);
    assert!(first[column("latency_ns_p99")].parse::<f64>().unwrap() > 0.0);
    assert!(head.iter().all(|name| !name.starts_with("writers")));
}

#[test]
fn a_load_beside_the_first_has_columns_of_its_own() {
    let root = folder("report-beside");
    let rows = fixture::side_loads(&mut Maker::new(2));
    fixture::write_run(&root, "reads", "Reads with writes", &rows);
    let page = fs::read_to_string(report::write(&root).unwrap()).unwrap();
    for part in ["Additional loads", "writers: SET {key} {value}, 64 connections, pipeline 4"] {
        assert!(page.contains(part), "{part} is missing");
    }
    let mut reader = csv::Reader::from_path(root.join("rows.csv")).unwrap();
    let head = reader.headers().unwrap().clone();
    let column = |name: &str| head.iter().position(|found| found == name).unwrap();
    for (record, row) in reader.records().zip(&rows) {
        let record = record.unwrap();
        let number = |name: &str| record[column(name)].parse::<f64>().unwrap();
        let writers = &row.report.side_loads["writers"];
        let expected = writers.operations as f64 / 3.0;
        assert!((number("writers_operations_per_second") / expected - 1.0).abs() < 1e-9);
        assert!(number("writers_latency_ns_p99") > number("latency_ns_p99"));
        // The server did the work of both.
        let cpu_ns: u64 = row.threads.iter().map(lab::measure::ThreadUse::cpu_ns).sum();
        let all = (row.report.operations + writers.operations) as f64;
        assert!((number("cpu_ns_per_operation") / (cpu_ns as f64 / all) - 1.0).abs() < 1e-9);
    }
}

#[test]
fn a_torn_last_row_is_left_out_and_said() {
    let root = folder("report-torn");
    let rows = Maker::new(2).rows("s1.t6", &fixture::instances());
    fixture::write_run(&root, "s1.t6", "Torn", &rows[..3]);
    let path = root.join("rows.jsonl");
    let mut text = fs::read_to_string(&path).unwrap();
    text.truncate(text.len() - 20);
    fs::write(&path, text).unwrap();
    let page = fs::read_to_string(report::write(&root).unwrap()).unwrap();
    assert!(page.contains("the last row is incomplete and was ignored"));
    assert!(page.contains("2 measurements"));
}

#[test]
fn what_is_damaged_is_named() {
    let root = folder("report-damaged");
    let fault = |root: &Path| format!("{:#}", report::write(root).unwrap_err());
    assert!(fault(&root).contains("contains no rows"));
    let rows = Maker::new(3).rows("s1.t6", &fixture::instances());
    fixture::write_run(&root, "s1.t6", "Damaged", &rows[..2]);
    let path = root.join("rows.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{text}{{}}\n")).unwrap();
    let found = fault(&root);
    assert!(found.contains("rows.jsonl: line 3 is not a row"), "{found}");
    let mut damaged = rows[0].clone();
    damaged.report.latency_raw = "AAAA".into();
    fixture::write_rows(&root, &[damaged]);
    let found = fault(&root);
    assert!(found.contains("s1.t6, cell 0, repeat 0: latency_raw"), "{found}");
    assert!(!root.join("report.html").exists());
}

#[test]
fn arguments_are_checked() {
    let run = |arguments: &[&str]| lab::run(&mut Parser::from_args(arguments));
    let fault = run(&["report"]).unwrap_err().to_string();
    assert!(fault.contains("missing folder of a run"), "{fault}");
    assert!(run(&["report", "a", "b"]).is_err());
    assert!(run(&["report", "no such folder"]).is_err());
}
