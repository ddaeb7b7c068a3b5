//! Builds the test programs of the workspace in one call of cargo, and returns their paths.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::Failure;
use crate::workspace;

/// A test program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binary {
    /// Name of the package in Cargo.toml.
    pub package: String,
    /// Name of the target: `lib`, a program, or a file in `tests/`.
    pub target: String,
    /// Path of the program.
    pub path: PathBuf,
    /// Directory of the package, in which cargo runs the program.
    pub folder: PathBuf,
    /// Arguments with which cargo builds this program together with the others. With others, cargo
    /// chooses other features of the dependencies, and builds anew.
    pub packages: String,
}

impl Binary {
    /// `package/target`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.package, self.target)
    }
}

/// Builds all test programs and examples. `arguments` replace `--workspace`.
pub fn build(arguments: &[&str]) -> Result<Vec<Binary>, Failure> {
    let mut cargo = workspace::cargo();
    cargo.args(["test", "--no-run", "--message-format=json-render-diagnostics"]).args(arguments);
    cargo.stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = cargo.output().map_err(|e| format!("cargo: {e}"))?;
    if !output.status.success() {
        return Err(format!("the tests do not build: {}", output.status).into());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let packages = arguments.join(" ");
    let mut all: Vec<Binary> = text.lines().filter_map(|line| artifact(line, &packages)).collect();
    all.sort_by_key(Binary::name);
    Ok(all)
}

/// The test program that a line of cargo's output describes, if any.
fn artifact(line: &str, packages: &str) -> Option<Binary> {
    let message: Value = serde_json::from_str(line).ok()?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let path = text(&message["executable"])?;
    let manifest = PathBuf::from(text(&message["manifest_path"])?);
    let folder = manifest.parent()?.to_path_buf();
    let kind = text(&message["target"]["kind"][0])?;
    let name = text(&message["target"]["name"])?;
    // A package ID is `path+file:///folder#name@version`, or `...#version` if folder and name are
    // equal.
    let id = text(&message["package_id"])?;
    let after = id.rsplit('#').next()?;
    let package = match after.split_once('@') {
        Some((name, _version)) => name.to_owned(),
        None => folder.file_name()?.to_str()?.to_owned(),
    };
    let target = if kind == "test" || kind == "bin" { name } else { "lib".to_owned() };
    Some(Binary { package, target, path: path.into(), folder, packages: packages.to_owned() })
}

/// Names of the tests in `binary` that `arguments` select.
pub fn tests(binary: &Binary, arguments: &[String]) -> Result<Vec<String>, Failure> {
    let mut command = Command::new(&binary.path);
    command.args(arguments).args(["--list", "--format=terse"]).current_dir(&binary.folder);
    let output = command.output().map_err(|e| format!("{}: {e}", binary.name()))?;
    if !output.status.success() {
        return Err(format!("{} cannot list its tests: {}", binary.name(), output.status).into());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"reason":"compiler-artifact","package_id":"path+file:///w/crates/io#kumihimo-io@0.1.0","manifest_path":"/w/crates/io/Cargo.toml","target":{"kind":["test"],"name":"batches"},"profile":{"test":true},"executable":"/t/batches-1"}"#;

    #[test]
    fn artifact_line_gives_its_program() {
        let binary = artifact(LINE, "--workspace").expect("a test program");
        assert_eq!(binary.name(), "kumihimo-io/batches");
        assert_eq!(binary.path, PathBuf::from("/t/batches-1"));
        assert_eq!(binary.folder, PathBuf::from("/w/crates/io"));
    }

    #[test]
    fn library_is_called_lib() {
        let line = LINE.replace("[\"test\"]", "[\"lib\"]");
        assert_eq!(artifact(&line, "--workspace").expect("a test program").target, "lib");
    }

    #[test]
    fn package_without_a_name_in_its_id_is_called_as_its_folder() {
        let line = LINE.replace("#kumihimo-io@0.1.0", "#0.1.0");
        assert_eq!(artifact(&line, "--workspace").expect("a test program").package, "io");
    }

    #[test]
    fn other_lines_give_nothing() {
        for line in
            ["", "nonsense", &LINE.replace("true", "false"), "{\"reason\":\"build-finished\"}"]
        {
            assert_eq!(artifact(line, "--workspace"), None, "{line}");
        }
    }
}
