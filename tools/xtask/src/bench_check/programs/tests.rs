use super::*;

#[test]
fn best_of_several_slices_is_kept() {
    let mut sample = Sample::default();
    for value in [3.0, 1.0, 2.0] {
        sample.note("p99", Better::Lower, value);
        sample.note("rps", Better::Higher, value);
    }
    assert_eq!((sample.metrics["p99"], sample.metrics["rps"]), (1.0, 3.0));
}

#[test]
fn instructions_are_divided_by_operations() {
    assert_eq!(Sample::default().counted(Some(100), 4.0).instructions, Some(25.0));
    assert_eq!(Sample::default().counted(None, 4.0).instructions, None);
}

#[test]
fn line_of_numbers_has_exactly_as_many_as_wanted() {
    assert_eq!(numbers("1 2.5"), Some([1.0, 2.5]));
    for line in ["", "1", "1 2 3", "1 x", "1 NaN"] {
        assert_eq!(numbers::<2>(line), None, "{line}");
    }
}

#[test]
fn scratch_directories_are_distinct_and_removed() {
    let (one, other) = (Scratch::in_memory().unwrap(), Scratch::in_memory().unwrap());
    let paths = [one.path().to_owned(), other.path().to_owned()];
    assert!(paths[0] != paths[1] && paths.iter().all(|path| path.is_dir()));
    drop((one, other));
    assert!(paths.iter().all(|path| !path.exists()));
}

#[test]
fn directory_of_a_killed_run_is_removed_and_that_of_a_living_one_is_not() {
    let living = Scratch::in_memory().unwrap();
    // No process has an ID above the kernel's limit of 2^22.
    let dead = living.path().with_file_name(format!("{SCRATCH}4194305-0"));
    fs::create_dir_all(dead.join("machine")).unwrap();
    remove_stale();
    assert!(living.path().exists() && !dead.exists());
}
