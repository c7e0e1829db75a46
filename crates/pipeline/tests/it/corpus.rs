//! Replays every file of the fuzzer's corpus through the function that the fuzzer calls.

use std::fs;
use std::path::Path;

use pipeline::check::check_frames;

/// Minimum number of files: an empty corpus would make the test vacuous.
const FILES_MIN: usize = 20;

#[test]
fn frames() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/pipeline_frame");
    let mut count = 0;
    for file in fs::read_dir(&folder).expect("the corpus is checked in") {
        let path = file.unwrap().path();
        println!("{}", path.display());
        check_frames(&fs::read(&path).unwrap());
        count += 1;
    }
    assert!(count >= FILES_MIN, "{count} files in {}", folder.display());
}
