//! The source files with decoders.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::decoders::DECODERS;

/// Files with decoders that are not in the table, with the reason.
const OTHERS: &[(&str, &[&str])] = &[
    (
        "fields of a fixed size, or a copy of the input",
        &[
            "base/src/memory.rs",
            "cql/src/duration.rs",
            "cql/src/expression/document.rs",
            "cql/src/function/number.rs",
            "cql/src/value/comparable.rs",
            "cql/src/value/constant.rs",
            "cql/src/value/number.rs",
            "server/src/commands/hyperloglog/sketch.rs",
            "server/src/commands/hyperloglog/sparse.rs",
            "server/src/cql/auth.rs",
            "server/src/cql/frames.rs",
            "server/src/cql/handshake.rs",
            "server/src/engine/hub.rs",
            "server/src/import/cassandra/state.rs",
            "server/src/import/live/target.rs",
            "server/src/import/place.rs",
            "server/src/statements/execute/paging.rs",
        ],
    ),
    (
        "values of the store: each element of the input is one of the result, and no memory is \
         allocated for a count",
        &[
            "store/src/change.rs",
            "store/src/object.rs",
            "store/src/stream_change.rs",
            "store/src/types/hash.rs",
            "store/src/types/list.rs",
            "store/src/types/partition/write.rs",
            "store/src/types/series.rs",
            "store/src/types/set.rs",
            "store/src/types/stream.rs",
            "store/src/types/stream/block.rs",
            "store/src/types/stream/group.rs",
            "store/src/types/stream/id.rs",
            "store/src/types/zset.rs",
            "store/src/versions.rs",
        ],
    ),
    (
        "only this program writes the input: its log, files, processes and schema",
        &[
            "binlog/src/manifest.rs",
            "binlog/src/record.rs",
            "binlog/src/segment.rs",
            "cql/src/schema/alter_table.rs",
            "objects/src/lock.rs",
            "pipeline/src/cli/processes.rs",
            "pipeline/src/collector/sink.rs",
            "server/src/engine/replication/history.rs",
            "server/src/engine/snapshots/format.rs",
            "web/src/master/upgrade.rs",
            "web/src/worker/mod.rs",
        ],
    ),
    (
        "calls a decoder of the table",
        &[
            "server/src/commands/generic/dump.rs",
            "server/src/cql/requests.rs",
            "server/src/cql/watch.rs",
            "server/src/replica/apply.rs",
            "server/src/statements/execute/change.rs",
        ],
    ),
    (
        "a frame takes no more memory than the file has bytes; contents are a frame of the table",
        &["server/src/backup/archive.rs"],
    ),
    (
        "frames of limited kinds, whose payload takes memory as it arrives: tests of `link` and \
         `check` in the pipeline",
        &[
            "server/src/replica/link.rs",
            "pipeline/src/carrier/nats.rs",
            "pipeline/src/frame.rs",
            "pipeline/src/generator/control.rs",
            "pipeline/src/link.rs",
            "pipeline/src/monitor/mod.rs",
        ],
    ),
];

/// Crates without a peer's data, or with measurements only.
const CRATES_LEFT_OUT: [&str; 3] = ["lab", "myriad-lab", "options"];

/// How a function or call begins that makes a value of bytes.
const MARKS: [&str; 12] = [
    "fn decode",
    "fn decompress",
    "fn expand",
    "fn inflate",
    "fn read_frame",
    "fn read_listpack",
    "fn read_stream",
    "fn read_value",
    "fn uncompress",
    "fn unpack",
    "decompress_",
    "serde_json::from_",
];

/// Every file with a decoder is listed, and every listed file has one.
pub(crate) fn check() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(&crates).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if !CRATES_LEFT_OUT.contains(&name.as_str()) {
            find(&path.join("src"), &crates, &mut found);
        }
    }
    let covered = DECODERS.iter().flat_map(|decoder| decoder.files);
    let others = OTHERS.iter().flat_map(|(_, files)| *files);
    let listed: BTreeSet<String> = covered.chain(others).map(|file| (*file).to_owned()).collect();
    let unlisted: Vec<_> = found.difference(&listed).collect();
    assert!(unlisted.is_empty(), "add to DECODERS, or with a reason to OTHERS: {unlisted:?}");
    let stale: Vec<_> = listed.difference(&found).collect();
    assert!(stale.is_empty(), "listed, but without a decoder: {stale:?}");
}

fn find(folder: &Path, crates: &Path, found: &mut BTreeSet<String>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            if !["tests", "simulation"].contains(&name) {
                find(&path, crates, found);
            }
        } else if !["tests.rs", "check.rs"].contains(&name) && has_decoder(&path) {
            found.insert(path.strip_prefix(crates).unwrap().to_str().unwrap().to_owned());
        }
    }
}

fn has_decoder(path: &Path) -> bool {
    let text = fs::read_to_string(path).unwrap();
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.into_iter().any(|line| MARKS.iter().any(|mark| line.contains(mark)))
}
