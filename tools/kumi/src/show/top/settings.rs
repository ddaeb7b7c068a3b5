//! Settings of `kumi top` that are remembered: `$XDG_CONFIG_HOME/kumihimo/top.json`.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use kumihimo_machine::top::{TopGroupSort, TopGrouping, TopSort};
use serde::{Deserialize, Serialize};

/// Largest file that is read.
const MOST_BYTES: u64 = 64 << 10;

/// The settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Sort key of microprocesses.
    pub sort: TopSort,
    /// Whether the order is reversed.
    pub backwards: bool,
    /// Order of groups.
    pub group_sort: TopGroupSort,
    /// Groups in place of microprocesses.
    pub group: TopGrouping,
    /// Whether the usage table is shown.
    pub usage: bool,
}

impl Settings {
    /// Returns these settings with the fields of `now` that differ from `before`: those that were
    /// changed by keys, rather than by options.
    fn changed(self, before: Settings, now: Settings) -> Settings {
        fn pick<T: PartialEq>(stored: T, before: T, now: T) -> T {
            if now == before { stored } else { now }
        }
        Settings {
            sort: pick(self.sort, before.sort, now.sort),
            backwards: pick(self.backwards, before.backwards, now.backwards),
            group_sort: pick(self.group_sort, before.group_sort, now.group_sort),
            group: pick(self.group, before.group, now.group),
            usage: pick(self.usage, before.usage, now.usage),
        }
    }
}

/// The settings in their file.
pub struct Stored {
    /// The file; `None` without a home directory.
    path: Option<PathBuf>,
    /// Its contents.
    pub settings: Settings,
    /// Why the contents are not used.
    pub complaint: Option<String>,
}

impl Stored {
    /// Reads the file of the user.
    pub fn read() -> Stored {
        let of = |name| std::env::var_os(name);
        Stored::at(place(of("XDG_CONFIG_HOME"), of("HOME")))
    }

    fn at(path: Option<PathBuf>) -> Stored {
        let read = path.as_deref().map_or_else(|| Ok(Settings::default()), read);
        let (settings, complaint) = match read {
            Ok(settings) => (settings, None),
            Err(why) => (
                Settings::default(),
                Some(format!("{why}; a changed setting replaces the file, or remove it")),
            ),
        };
        Stored { path, settings, complaint }
    }

    /// Writes the settings that were changed by keys, if there are any. `before` are the settings
    /// at the start of the program.
    ///
    /// # Errors
    /// Why the file was not written, and its path.
    pub fn write(&self, before: Settings, now: Settings) -> Result<(), String> {
        let Some(path) = self.path.as_deref().filter(|_| before != now) else { return Ok(()) };
        replace(path, &self.settings.changed(before, now))
            .map_err(|e| format!("the settings are not saved in {}: {e}", path.display()))
    }
}

/// Returns the path of the file. The XDG specification demands that relative paths are ignored.
fn place(config: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let config = config.map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || Some(PathBuf::from(home?).join(".config")).filter(|path| path.is_absolute());
    Some(config.or_else(home)?.join("kumihimo").join("top.json"))
}

fn read(path: &Path) -> Result<Settings, String> {
    let refused = |why: &dyn std::fmt::Display| {
        Err(format!("the settings are ignored: {why}: {}", path.display()))
    };
    let mut text = String::new();
    match File::open(path).and_then(|file| file.take(MOST_BYTES).read_to_string(&mut text)) {
        Ok(_) => {}
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Settings::default()),
        Err(e) => return refused(&e),
    }
    serde_json::from_str(&text).or_else(|e| refused(&e))
}

/// Replaces the file as a whole, so that another `kumi top` reads the old or the new contents.
fn replace(path: &Path, settings: &Settings) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder)?;
    let fresh = folder.join(format!(".top.json.{}", std::process::id()));
    let text = serde_json::to_string(settings)? + "\n";
    let done = fs::write(&fresh, text).and_then(|()| fs::rename(&fresh, path));
    if done.is_err() {
        let _ = fs::remove_file(&fresh);
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that is removed at the end.
    struct Folder(PathBuf);

    impl Folder {
        fn new(test: &str) -> Folder {
            let name = format!("kumi-settings-{test}-{}", std::process::id());
            Folder(std::env::temp_dir().join(name))
        }

        fn stored(&self) -> Stored {
            Stored::at(place(Some(self.0.clone().into()), None))
        }

        fn file(&self) -> PathBuf {
            self.0.join("kumihimo/top.json")
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn changed_settings_are_read_back() {
        let folder = Folder::new("back");
        let stored = folder.stored();
        assert_eq!((stored.settings, &stored.complaint), (Settings::default(), &None));
        let before = Settings { group: TopGrouping::Stack, ..Settings::default() };
        stored.write(before, before).expect("nothing to write");
        assert!(!folder.0.exists(), "options are not remembered");
        let now = Settings { sort: TopSort::WaitTime, backwards: true, ..before };
        stored.write(before, now).expect("written");
        let read = folder.stored().settings;
        assert_eq!(read, Settings { group: TopGrouping::None, ..now });
        let names: Vec<_> = fs::read_dir(folder.0.join("kumihimo"))
            .expect("a folder")
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        assert_eq!(names, ["top.json"]);
    }

    #[test]
    fn foreign_contents_are_ignored_and_named() {
        let folder = Folder::new("foreign");
        let file = folder.file();
        fs::create_dir_all(file.parent().expect("a folder")).expect("made");
        for contents in [
            &b"\xff\xfe"[..],
            b"{\"sort\":7}",
            b"\"cpu\"",
            b"",
            b"{\"sort\":\"cpu\"",
            &[b' '; 70_000],
        ] {
            fs::write(&file, contents).expect("written");
            let stored = folder.stored();
            assert_eq!(stored.settings, Settings::default());
            let complaint = stored.complaint.expect("a complaint");
            assert!(complaint.starts_with("the settings are ignored: "), "{complaint}");
        }
        // Fields of a later version are no error.
        fs::write(&file, "{\"sort\":\"stack\",\"theme\":1}").expect("written");
        let stored = folder.stored();
        assert_eq!((stored.settings.sort, stored.complaint), (TopSort::Stack, None));
    }

    #[test]
    fn unwritable_place_is_named() {
        let folder = Folder::new("place");
        fs::write(&folder.0, "a file").expect("written");
        let stored = folder.stored();
        assert!(stored.complaint.is_some());
        let now = Settings { usage: true, ..Settings::default() };
        let why = stored.write(Settings::default(), now).expect_err("no folder");
        assert!(why.contains("not saved in") && why.contains("top.json"), "{why}");
        fs::remove_file(&folder.0).expect("removed");
    }

    #[test]
    fn relative_places_are_not_used() {
        let text = |text: &str| Some(OsString::from(text));
        let home = Some(PathBuf::from("/h/.config/kumihimo/top.json"));
        assert_eq!(place(text("c"), text("/h")), home);
        assert_eq!(place(None, text("/h")), home);
        assert_eq!(place(text("/c"), text("/h")), Some("/c/kumihimo/top.json".into()));
        assert_eq!((place(None, text("")), place(text(""), None)), (None, None));
    }
}
