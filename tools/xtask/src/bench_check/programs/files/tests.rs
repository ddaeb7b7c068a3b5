use super::*;

#[test]
fn outcome_is_read_by_name() {
    let read = outcome("max=9 ops=100 rate=250.5").unwrap();
    assert_eq!((read["ops"], read["rate"]), (100.0, 250.5));
    for line in ["failed: no such file", "ops=many", "ops"] {
        assert_eq!(outcome(line), None, "{line}");
    }
}

#[test]
fn blocks_of_the_large_file_begin_with_their_numbers() {
    let scratch = Scratch::in_memory().unwrap();
    let files = scratch.path().join("files");
    fill(&files).unwrap();
    let bytes = fs::read(files.join("cached")).unwrap();
    assert_eq!(bytes.len(), CACHED_BYTES);
    let last = CACHED_BYTES / BLOCK - 1;
    for number in [0, 1, last] {
        assert_eq!(bytes[number * BLOCK..][..8], (number as u64).to_ne_bytes());
    }
    assert_eq!(fs::read_dir(files.join("small")).unwrap().count(), SMALLS);
}
