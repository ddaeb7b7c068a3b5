//! Chapter 12: makes, mounts and uses an ext2 image; runs P1's first load on five organisations of
//! the same server; and checks the image with e2fsck.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use kumihimo_bench_files::{aligned::Aligned, clock, fileread, tree::BLOCK};
use kumihimo_bench_kit::work::Dice;

use crate::tour::page::text;
use crate::tour::processes::gates::bars;
use crate::tour::{Args, Figures, check};

const ORGANISATIONS: [&str; 5] =
    ["sequential", "user-threads", "processes", "kernel-threads", "microprocesses"];
/// Number of blocks of the file that is read, more than fit into the server's cache.
const BLOCKS: u64 = 4096;
const READS: u64 = 500;
/// Number of requests for the time meanwhile.
const QUESTIONS: u64 = 1_500;
/// Delay of each access to the store's disk.
const DELAY: &str = "200us";
/// Size of the image: room for the blocks and a clone of `CLONE`, whose files are in it twice.
const IMAGE: u64 = 96 << 20;
/// Largest sum of a repository's files that is cloned.
const CLONE: u64 = 32 << 20;
/// Time limit for a server's start and end.
const PATIENCE: Duration = Duration::from_secs(20);

pub fn run(_: &Args, figures: &mut Figures) -> Result<(), String> {
    if let (false, why) = kumihimo_files::can_mount() {
        text::say(&format!("Left out: this process cannot mount a file system: {why}."));
        return Ok(());
    }
    let Some(image) = Image::make()? else {
        text::say("Left out: mke2fs is not installed (apt-get install e2fsprogs).");
        return Ok(());
    };
    text::say(
        "`kumi mount` serves an ext2 image (or a directory) through FUSE. The same server code runs in five \
         organisations with different kinds of threads. An image, created by mke2fs, is mounted, and a repository is \
         cloned into it:",
    );
    println!();
    let server = image.mounted(&["--organisation", "microprocesses"])?;
    let told = image.cloned()?;
    println!("  {told}");
    server.end()?;
    println!("  unmounted; e2fsck -fn: {}", image.checked()?);
    println!();
    text::say(&format!(
        "Paper P1 compares organisations of a server, but neither kernel threads nor threads managed by kernel and \
         user code together. The first load of P1 on this machine: one program reads {READS} blocks of a file from \
         a disk with a delay of {DELAY} per block. Another program requests the time from the same server \
         {QUESTIONS} times. Duration of the second program during the first:",
    ));
    println!();
    let mut took = Vec::new();
    for organisation in ORGANISATIONS {
        let threads: &[&str] = match organisation {
            "sequential" | "processes" => &[],
            _ => &["--threads", "3"],
        };
        let how = [
            "--organisation",
            organisation,
            "--delay",
            DELAY,
            "--cache",
            "1m",
            "--timeout",
            "0",
            "--uring=off",
        ];
        let server = image.mounted(&[&how[..], threads].concat())?;
        let time = image.race()?;
        server.end()?;
        took.push((organisation, time));
    }
    bars(took.iter().map(|(name, time)| (*name, time.as_secs_f64(), text::time(*time))));
    println!();
    text::say(
        "With a single loop, or with threads unknown to the kernel, a request for the time waits for the disk. P1 \
         uses a separate process for the clock. Threads that block individually, microprocesses or kernel threads, \
         need no such process.",
    );
    println!();
    println!("  e2fsck -fn: {}", image.checked()?);
    println!();
    let [sequential, .., kernel, micro] = &took[..] else { unreachable!("five") };
    figures.add(
        format!(
            "{QUESTIONS} requests for the time during reads (one loop: {})",
            text::time(sequential.1)
        ),
        text::time(kernel.1),
        text::time(micro.1),
    );
    Ok(())
}

/// A directory with an image and the mount points. Removed when dropped.
struct Image(PathBuf);

/// Runs another program. Fails with its error output.
fn done(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(|e| format!("{name}: {e}"))?;
    check(output.status.success(), || {
        format!(
            "{name}: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )
    })
}

/// A command of e2fsprogs, whose directory is not on every user's PATH.
fn e2fs(program: &str) -> Command {
    let sbin = Path::new("/sbin").join(program);
    if sbin.is_file() { Command::new(sbin) } else { Command::new(program) }
}

impl Image {
    /// Returns `None` if mke2fs is not installed.
    fn make() -> Result<Option<Image>, String> {
        let path = std::env::temp_dir().join(format!("kumi-tour-{}", std::process::id()));
        let image = Image(path);
        let told = |e: std::io::Error| format!("{}: {e}", image.0.display());
        // Fails if another user was there first.
        fs::create_dir(&image.0).map_err(told)?;
        for directory in ["files", "clock"] {
            fs::create_dir(image.0.join(directory)).map_err(told)?;
        }
        let file = File::create(image.file()).map_err(told)?;
        file.set_len(IMAGE).map_err(told)?;
        let mut mke2fs = e2fs("mke2fs");
        mke2fs.args(["-q", "-F", "-t", "ext2", "-b", "4096", "-m", "0"]).arg(image.file());
        match mke2fs.output() {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(format!("mke2fs: {e}")),
            Ok(_) => done(&mut mke2fs).map(|()| Some(image)),
        }
    }

    fn file(&self) -> PathBuf {
        self.0.join("image")
    }

    fn files(&self) -> PathBuf {
        self.0.join("files")
    }

    fn clock(&self) -> PathBuf {
        self.0.join("clock")
    }

    fn mounted(&self, how: &[&str]) -> Result<Server, String> {
        let program = std::env::current_exe().map_err(|e| format!("path of this program: {e}"))?;
        let mut command = Command::new(program);
        command
            .args(["mount", "--foreground"])
            .args(how)
            .arg("--clock")
            .arg(self.clock())
            .arg(self.file())
            .arg(self.files());
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("kumi mount: {e}"))?;
        let mut line = String::new();
        if let Some(said) = child.stdout.take() {
            BufReader::new(said).read_line(&mut line).map_err(|e| format!("kumi mount: {e}"))?;
        }
        let server = Server(child);
        check(line.starts_with("mounted "), || "kumi mount ended instead of serving".to_owned())?;
        Ok(server)
    }

    /// Clones the repository of the current directory or a new one, and checks the clone with git.
    fn cloned(&self) -> Result<String, String> {
        let inside = Command::new("git").args(["rev-parse", "--show-toplevel"]).output();
        let Ok(inside) = inside else {
            return Ok("(git is not installed, so no repository is cloned)".to_owned());
        };
        let from = match std::str::from_utf8(&inside.stdout) {
            Ok(path) if inside.status.success() && fits(Path::new(path.trim_end())) => {
                PathBuf::from(path.trim_end())
            }
            _ => self.repository()?,
        };
        let to = self.files().join("clone");
        let git = |arguments: &[&std::ffi::OsStr]| {
            let mut git = Command::new("git");
            // Not the repository of a test or a hook.
            git.env_remove("GIT_DIR").env_remove("GIT_WORK_TREE").args(arguments);
            done(&mut git)
        };
        let start = Instant::now();
        git(&[
            "clone".as_ref(),
            "-q".as_ref(),
            "--no-hardlinks".as_ref(),
            "--depth".as_ref(),
            "1".as_ref(),
            source(&from)?.as_ref(),
            to.as_ref(),
        ])?;
        let cloned = start.elapsed();
        git(&["-C".as_ref(), to.as_ref(), "fsck".as_ref(), "--no-progress".as_ref()])?;
        Ok(format!("git clone in {}; git fsck: nothing is missing or damaged", text::time(cloned)))
    }

    /// Creates a repository with one commit.
    fn repository(&self) -> Result<PathBuf, String> {
        let path = self.0.join("repository");
        fs::create_dir(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        for n in 0..100 {
            let mut file =
                File::create(path.join(format!("file{n}"))).map_err(|e| e.to_string())?;
            write!(file, "{}", format!("line of {n}\n").repeat(n + 1))
                .map_err(|e| e.to_string())?;
        }
        let author = ["-c", "user.name=kumi", "-c", "user.email=kumi@example.invalid"];
        for arguments in [&["init", "-q"][..], &["add", "."], &["commit", "-q", "-m", "one"]] {
            done(Command::new("git").current_dir(&path).args(author).args(arguments))?;
        }
        Ok(path)
    }

    /// Reads the file and requests the time concurrently. Returns the duration of the requests.
    fn race(&self) -> Result<Duration, String> {
        let path = self.files().join("blocks");
        if !path.exists() {
            let mut bytes = vec![0; BLOCKS as usize * BLOCK];
            for (n, block) in (0_u64..).zip(bytes.chunks_exact_mut(BLOCK)) {
                block[..8].copy_from_slice(&n.to_ne_bytes());
            }
            fs::write(&path, bytes).map_err(|e| format!("{}: {e}", path.display()))?;
        }
        let (begins, began) = mpsc::channel();
        std::thread::scope(|scope| {
            let path = &path;
            let reads = scope.spawn(move || {
                let file = fileread::open(path)?;
                let (mut buffer, mut dice) = (Aligned::new(BLOCK), Dice::new(1));
                (0..READS).try_for_each(|_| {
                    let read = fileread::block(&file, dice.below(BLOCKS), &mut buffer);
                    let _ = begins.send(());
                    read
                })
            });
            // Otherwise all requests could be served before the reads begin on a busy machine. (An
            // error means that the reader failed, which is reported below.)
            let _ = began.recv();
            let start = Instant::now();
            let asked = clock::run(&self.clock(), QUESTIONS, &mut || ());
            let took = start.elapsed();
            reads.join().map_err(|_| "the reads panicked".to_owned())??;
            asked.map(|_| took)
        })
    }

    fn checked(&self) -> Result<&'static str, String> {
        done(e2fs("e2fsck").args(["-f", "-n"]).arg(self.file())).map(|()| "clean")
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns whether a clone of the repository's last commit has room in the image.
fn fits(repository: &Path) -> bool {
    let mut git = Command::new("git");
    git.arg("-C").arg(repository).args(["ls-tree", "-r", "-l", "HEAD"]);
    let Ok(output) = git.output() else { return false };
    let tree = String::from_utf8_lossy(&output.stdout);
    // Mode, kind, object, size and path. Submodules have no size.
    let sizes = tree.lines().filter_map(|line| line.split_whitespace().nth(3)?.parse().ok());
    // A file has whole blocks.
    let sum: u64 = sizes.map(|size: u64| size.next_multiple_of(BLOCK as u64)).sum();
    output.status.success() && sum <= CLONE
}

/// A URL, with which git makes a shallow clone. With a path it makes a complete one.
fn source(path: &Path) -> Result<String, String> {
    let path = path.canonicalize().map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(format!("file://{}", path.display()))
}

/// A running server, ended when dropped.
struct Server(Child);

impl Server {
    fn tell(&self) {
        if let Some(pid) = i32::try_from(self.0.id()).ok().and_then(rustix::process::Pid::from_raw)
        {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
    }

    /// Unmounts, and waits until the store is closed.
    fn end(mut self) -> Result<(), String> {
        self.tell();
        let end = Instant::now() + PATIENCE;
        loop {
            match self.0.try_wait().map_err(|e| format!("kumi mount: {e}"))? {
                Some(status) => {
                    return check(status.success(), || format!("kumi mount failed: {status}"));
                }
                None if Instant::now() > end => {
                    return Err(format!("kumi mount did not end within {PATIENCE:?}"));
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            self.tell();
            let _ = self.0.wait();
        }
    }
}
