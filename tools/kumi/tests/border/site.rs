//! A site of two machines: `build8` asks, and `build7` is asked. Each is a run-time directory with
//! a border and a folder of certificates.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use kumihimo_tests::until;

use super::double::Folder;

/// Two machines with certificates of one authority.
pub struct Site {
    /// The run-time directory of `build8`.
    pub here: Folder,
    /// The run-time directory of `build7`.
    pub there: Folder,
    base: PathBuf,
}

/// A running border, which is killed when this value is dropped.
pub struct Border {
    pub child: Child,
    /// Where it listens.
    pub place: String,
    /// The epoch that it has printed.
    pub epoch: String,
}

impl Site {
    /// Makes the directories and certificates. `build7` allows `build8` everything.
    pub fn new(test: &str) -> Site {
        let base = std::env::temp_dir().join(format!("kumi-{test}-site-{}", std::process::id()));
        let _ = fs::remove_dir_all(&base);
        fs::create_dir(&base).expect("a folder");
        let here = Folder::new(&format!("{test}-here"));
        let there = Folder::new(&format!("{test}-there"));
        let site = Site { here, there, base };
        let config = site.folder().display().to_string();
        let members = ["build8=127.0.0.1:1", "build7=127.0.0.1:1"];
        let init = [&["border", "init", "--config", &config][..], &members].concat();
        let (code, lines, complaints) = site.here.kumi(&init);
        assert_eq!((code, complaints.as_str()), (0, ""));
        assert_eq!(lines.lines().count(), 2, "{lines}");
        site.allow("observe steer level=63");
        site
    }

    /// The folder of `build8`.
    pub fn folder(&self) -> PathBuf {
        self.base.join("border")
    }

    /// The folder of `build7`.
    pub fn other_folder(&self) -> PathBuf {
        self.base.join("border-build7")
    }

    /// Writes what `build7` allows `build8`.
    pub fn allow(&self, rights: &str) {
        self.write_other(&format!("allow build8 {rights}\n"));
    }

    /// Writes the configuration of `build7`.
    pub fn write_other(&self, text: &str) {
        fs::write(self.other_folder().join("border.conf"), text).expect("writable");
    }

    /// Writes the configuration of `build8`.
    pub fn write(&self, text: &str) {
        fs::write(self.folder().join("border.conf"), text).expect("writable");
    }

    /// Starts the border of `build7`.
    pub fn serve_there(&self, listen: &str) -> Border {
        start(&self.there, &self.other_folder(), Some(listen))
    }

    /// Starts the border of `build8`, with `build7` at `place` as its peer.
    pub fn serve_here(&self, place: &str) -> Border {
        self.write(&format!("peer build7 {place}\n"));
        start(&self.here, &self.folder(), None)
    }

    /// Starts both borders.
    pub fn serve(&self) -> (Border, Border) {
        let there = self.serve_there("127.0.0.1:0");
        let here = self.serve_here(&there.place);
        (here, there)
    }

    /// Waits until `kumi border list` of `build8` contains a text.
    pub fn until_listed(&self, text: &str) {
        let list = || self.here.kumi(&["border", "list"]).1;
        until(text, list, || list().contains(text));
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.base);
    }
}

/// Starts a border, and waits until it has printed where it listens.
pub fn start(folder: &Folder, config: &Path, listen: Option<&str>) -> Border {
    let config = config.to_str().expect("text");
    let mut args = vec!["border", "--config", config];
    args.extend(listen.iter().flat_map(|listen| ["--listen", listen]));
    let mut child = folder
        .command(&args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("kumi border");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut next = || lines.next().and_then(Result::ok).unwrap_or_default();
    let (first, second) = (next(), next());
    let epoch = first.rsplit_once("epoch ").map(|(_, epoch)| epoch.to_owned());
    let Some(epoch) = epoch else {
        let mut complaints = String::new();
        let _ = child.stderr.take().expect("a pipe").read_to_string(&mut complaints);
        panic!("{first:?}: {complaints}");
    };
    let place = second.strip_prefix("listening ").unwrap_or_default().to_owned();
    Border { child, place, epoch }
}

impl Border {
    /// Kills the border.
    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Border {
    fn drop(&mut self) {
        self.end();
    }
}
