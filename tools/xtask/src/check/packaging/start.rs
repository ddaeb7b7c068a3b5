//! Follows the book's first part ("start") literally, in an empty folder, against the packages that
//! `cargo package` made.
//!
//! The packages stand in for crates.io: `cargo add` gets the folder of the unpacked `kumihimo`, and
//! a patch leads its dependencies to the other ones.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit};

use crate::{Failure, workspace};

/// Following the steps takes this long at most, builds apart.
const AT_MOST: Duration = Duration::from_secs(120);
/// Connections of the last step where the limit of descriptors does not allow the page's number.
const FEWER_CONNECTIONS: usize = 400;

/// A page and its program.
const HELLO: (&str, &str) = ("hello.md", "echo");
const MANY: (&str, &str) = ("many.md", "echo");
const ECHO: (&str, &str) = ("echo.md", "echo");
const LIMITS: (&str, &str) = ("limits.md", "echo");
const CLIENTS: (&str, &str) = ("clients.md", "clients");

/// Follows all steps. Returns the time that they took, builds apart.
///
/// # Errors
/// A command of a page fails, a program prints something else than its page shows, or the steps
/// take longer than [`AT_MOST`].
pub fn follow(version: &str) -> Result<Duration, Failure> {
    let place = Place::new(version)?;
    let mut ran = Duration::ZERO;

    place.project("echo")?;
    let hello = place.build(HELLO)?;
    let begun = Instant::now();
    let printed = output(&hello, &[])?;
    if printed != block(&page(HELLO.0)?, "text")? {
        return Err(format!("start/hello.md shows another output than:\n{printed}").into());
    }
    ran += begun.elapsed();

    let many = place.build(MANY)?;
    let begun = Instant::now();
    expect(&output(&many, &[])?, "the sum of their numbers is 50005000")?;
    ran += begun.elapsed();

    place.build(ECHO)?;
    let server = place.build(LIMITS)?;
    place.project("clients")?;
    let clients = place.build(CLIENTS)?;
    let begun = Instant::now();
    connections(&server, &clients)?;
    ran += begun.elapsed();

    if ran > AT_MOST {
        return Err(format!("following the steps took {ran:.1?}, not {AT_MOST:?} at most").into());
    }
    Ok(ran)
}

/// The server of step 4 and the clients of step 5, with the limit of descriptors and the number of
/// connections that the page states.
fn connections(server: &Path, clients: &Path) -> Result<(), Failure> {
    let shown = numbers(&block(&page(CLIENTS.0)?, "sh")?)?;
    let allowed = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let (descriptors, count) = if allowed >= shown.0 {
        (Some(shown.0), shown.1)
    } else {
        println!("start: {FEWER_CONNECTIONS} connections: the limit of descriptors is {allowed}");
        (None, FEWER_CONNECTIONS)
    };
    let mut server = Server::start(limited(server, descriptors).arg("127.0.0.1:0"))?;
    let mut clients = limited(clients, descriptors);
    let printed = output_of(clients.args([&server.address, &count.to_string()]))?;
    expect(&printed, &format!("{count} clients had 3 replies each"))?;
    server.stop(count)
}

/// The limit of descriptors and the number of connections in the commands of the last step.
fn numbers(commands: &str) -> Result<(u64, usize), Failure> {
    let mut lines = commands.lines().map(|line| line.rsplit(' ').next().unwrap_or(""));
    let (limit, count) = (lines.next().unwrap_or(""), lines.next().unwrap_or(""));
    let wrong = |_| format!("start/clients.md shows other commands than expected: {commands}");
    Ok((limit.parse().map_err(wrong)?, count.parse().map_err(wrong)?))
}

/// A program, with this limit of descriptors.
fn limited(program: &Path, descriptors: Option<u64>) -> Command {
    let Some(descriptors) = descriptors else { return Command::new(program) };
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("ulimit -n {descriptors} && exec \"$0\" \"$@\"")]).arg(program);
    shell
}

/// A folder with the unpacked packages and the reader's projects.
struct Place {
    folder: PathBuf,
    version: String,
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Place {
    fn new(version: &str) -> Result<Place, Failure> {
        let folder = std::env::temp_dir().join(format!("kumihimo-start-{}", std::process::id()));
        let place = Place { folder, version: version.to_owned() };
        let crates = place.folder.join("crates");
        // Fails if another user was there first.
        std::fs::create_dir(&place.folder)?;
        std::fs::create_dir(&crates)?;
        std::fs::create_dir(place.folder.join(".cargo"))?;
        let mut patch = String::from("[patch.crates-io]\n");
        let packages = std::fs::read_dir(workspace::target().join("package"))?.flatten();
        let ending = format!("-{version}.crate");
        for package in packages.map(|entry| entry.path()) {
            let file = package.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let Some(name) = file.strip_suffix(&ending) else { continue };
            run(Command::new("tar").arg("-xzf").arg(&package).arg("-C").arg(&crates))?;
            let unpacked = crates.join(format!("{name}-{version}"));
            writeln!(patch, "{name} = {{ path = {:?} }}", unpacked.to_string_lossy())
                .expect("a string takes all");
        }
        std::fs::write(place.folder.join(".cargo/config.toml"), patch)?;
        Ok(place)
    }

    /// Runs the commands of "Make a project", for a project of this name.
    fn project(&self, name: &str) -> Result<(), Failure> {
        let commands = block(&page("index.md")?, "sh")?;
        let mut folder = self.folder.clone();
        for line in commands.replace("echo", name).lines() {
            match line.split_whitespace().collect::<Vec<_>>()[..] {
                ["cd", below] => folder.push(below),
                ["cargo", "add", "kumihimo"] => {
                    let unpacked = format!("crates/kumihimo-{}", self.version);
                    let mut add = cargo(&folder);
                    run(add.args(["add", "kumihimo", "--path"]).arg(self.folder.join(unpacked)))?;
                }
                ["cargo", ref arguments @ ..] => run(cargo(&folder).args(arguments))?,
                _ => return Err(format!("start/index.md: this cannot be followed: {line}").into()),
            }
        }
        Ok(())
    }

    /// Puts the program of a page into its project and builds it. The path of the program.
    fn build(&self, (name, project): (&str, &str)) -> Result<PathBuf, Failure> {
        let folder = self.folder.join(project);
        let code = block(&page(name)?, "rs")?;
        let included = code.trim().strip_prefix("{{#include ").and_then(|c| c.strip_suffix("}}"));
        let included = included.ok_or_else(|| format!("start/{name} includes no program"))?;
        let source = workspace::root().join("docs/src/start").join(included);
        std::fs::copy(source, folder.join("src/main.rs"))?;
        // The versions that the workspace is tested with; no others need be fetched.
        std::fs::copy(workspace::root().join("Cargo.lock"), folder.join("Cargo.lock"))?;
        // A page's program has the name of its project, so that a later page replaces it.
        let target = self.folder.join("target");
        run(cargo(&folder)
            .args(["build", "--release", "--quiet"])
            .env("CARGO_TARGET_DIR", &target))?;
        let kept = self.folder.join(name);
        std::fs::copy(target.join("release").join(project), &kept)?;
        Ok(kept)
    }
}

/// Cargo in the reader's folder, which knows nothing of this workspace.
fn cargo(folder: &Path) -> Command {
    let mut cargo = workspace::cargo();
    cargo.current_dir(folder).env_remove("CARGO_TARGET_DIR").env_remove("RUSTFLAGS");
    cargo
}

/// A page of the first part.
fn page(name: &str) -> Result<String, Failure> {
    let path = workspace::root().join("docs/src/start").join(name);
    Ok(std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?)
}

/// The first code block of a page with this info string.
fn block(page: &str, info: &str) -> Result<String, Failure> {
    let fence = format!("```{info}\n");
    let begun = page.split_once(&fence).map(|(_, rest)| rest);
    let block = begun.and_then(|rest| rest.split_once("```")).map(|(block, _)| block.to_owned());
    Ok(block.ok_or_else(|| format!("start: no block {info}"))?)
}

fn expect(printed: &str, wanted: &str) -> Result<(), Failure> {
    if printed.contains(wanted) {
        return Ok(());
    }
    Err(format!("expected {wanted:?} in:\n{printed}").into())
}

fn run(command: &mut Command) -> Result<(), Failure> {
    let status = command.stdin(Stdio::null()).status()?;
    if status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {status}").into())
}

fn output(program: &Path, arguments: &[&str]) -> Result<String, Failure> {
    output_of(Command::new(program).args(arguments))
}

fn output_of(command: &mut Command) -> Result<String, Failure> {
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", output.status).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// The server of step 4. Killed when it is dropped.
struct Server {
    child: Child,
    lines: BufReader<ChildStdout>,
    address: String,
}

impl Server {
    fn start(command: &mut Command) -> Result<Server, Failure> {
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().ok_or("no standard output")?;
        let mut server = Server { child, lines: BufReader::new(stdout), address: String::new() };
        let line = server.line()?;
        let address = line.trim().strip_prefix("listening on ");
        server.address = address.ok_or_else(|| format!("the server printed {line:?}"))?.to_owned();
        Ok(server)
    }

    fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        Ok(line)
    }

    /// Presses Ctrl-C and reads the two lines that the page shows.
    fn stop(&mut self, connections: usize) -> Result<(), Failure> {
        run(Command::new("kill").args(["-INT", &self.child.id().to_string()]))?;
        expect(&self.line()?, "draining ")?;
        expect(&self.line()?, &format!("served {connections} connections, refused 0"))?;
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { Err(format!("the server: {status}").into()) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::{block, numbers};

    #[test]
    fn numbers_of_the_last_step_are_read() {
        let commands = "ulimit -n 12000\ncargo run --release -- 127.0.0.1:7000 10000\n";
        assert_eq!(numbers(commands).expect("both"), (12_000, 10_000));
        assert!(numbers("cargo run\n").is_err());
    }

    #[test]
    fn blocks_are_found_by_their_info() {
        let page = "a\n```rust\nx\n```\n```sh\ncargo new echo\n```\n";
        assert_eq!(block(page, "sh").expect("there is one"), "cargo new echo\n");
        assert!(block(page, "text").is_err());
    }
}
