use super::*;

/// A repository with two commits, removed when dropped.
struct Repository(PathBuf);

impl Repository {
    fn new(name: &str) -> Repository {
        let path = std::env::temp_dir().join(format!("bench-check-{name}-{}", std::process::id()));
        make(&path).unwrap();
        let repository = Repository(path);
        repository.git(&["init", "--quiet"]);
        fs::write(repository.0.join(".gitignore"), "target\n").unwrap();
        for subject in ["area: begin", "area: go on"] {
            fs::write(repository.0.join("file"), subject).unwrap();
            repository.git(&["add", "."]);
            repository.git(&["commit", "--quiet", "-m", subject]);
        }
        repository
    }

    fn git(&self, args: &[&str]) {
        let identity = [
            "-c",
            "user.name=Test",
            "-c",
            "user.email=test@localhost",
            "-c",
            "commit.gpgsign=false",
        ];
        git(&self.0, &[&identity, args].concat()).unwrap();
    }
}

impl Drop for Repository {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn unknown_commit_is_named() {
    let repository = Repository::new("unknown");
    let workshop = Workshop::open(&repository.0).unwrap();
    for commit in ["no-such-commit", "", "-x", "HEAD~5"] {
        let why = workshop.resolve(commit).unwrap_err();
        assert!(why.contains("BASE") && why.contains(&format!("{commit:?}")), "{why}");
    }
    assert_eq!(workshop.resolve("HEAD").unwrap().len(), 40);
}

#[test]
fn directory_outside_a_repository_is_an_error() {
    let why = Workshop::open(Path::new("/")).unwrap_err();
    assert!(why.contains("git") && why.contains("clone"), "{why}");
}

#[test]
fn second_run_beside_the_first_is_refused() {
    let repository = Repository::new("lock");
    let first = Workshop::open(&repository.0).unwrap();
    assert!(Workshop::open(&repository.0).unwrap_err().contains("another bench-check"));
    drop(first);
    assert!(Workshop::open(&repository.0).is_ok());
}

#[test]
fn changes_are_listed_and_ignored_files_are_not() {
    let repository = Repository::new("changes");
    let workshop = Workshop::open(&repository.0).unwrap();
    assert_eq!(workshop.changes().unwrap(), "");
    fs::write(repository.0.join("new"), "").unwrap();
    assert_eq!(workshop.changes().unwrap(), "?? new");
}

#[test]
fn worktree_follows_the_commit() {
    let repository = Repository::new("worktree");
    let workshop = Workshop::open(&repository.0).unwrap();
    for (commit, text) in
        [("HEAD~1", "area: begin"), ("HEAD", "area: go on"), ("HEAD~1", "area: begin")]
    {
        let source = workshop.check_out(&workshop.resolve(commit).unwrap()).unwrap();
        assert_eq!(fs::read_to_string(source.join("file")).unwrap(), text);
        fs::write(source.join("file"), "edited").unwrap();
        fs::write(source.join("left over"), "").unwrap();
    }
    let title = workshop.title(&workshop.resolve("HEAD").unwrap()).unwrap();
    assert!(title.ends_with(" area: go on"), "{title}");
}

#[test]
fn build_that_fails_names_the_commit() {
    let repository = Repository::new("build");
    let workshop = Workshop::open(&repository.0).unwrap();
    // The repository has no Cargo.toml.
    let why = workshop.commit("HEAD").unwrap_err();
    assert!(why.contains("area: go on") && why.contains("cargo"), "{why}");
}

#[test]
fn commit_without_a_laboratory_is_driven_through_kumi() {
    let repository = Repository::new("layout");
    assert_eq!(program_of(&repository.0), "kumi");
    let manifest = repository.0.join(LABORATORY);
    make(manifest.parent().unwrap()).unwrap();
    fs::write(manifest, "").unwrap();
    assert_eq!(program_of(&repository.0), "kumi-lab");
}
