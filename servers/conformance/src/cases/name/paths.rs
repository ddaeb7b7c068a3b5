//! Errors of all calls for paths that cannot be resolved.

use rustix::fs::{Access, AtFlags, FileType, OFlags, Timespec, XattrFlags};

use crate::cases::case::Case;
use crate::trial::Trial;

type Call = fn(&mut Trial, &str);

/// Calls that take a path.
const CALLS: [(&str, Call); 18] = [
    ("open", |t, path| drop(t.open(path, OFlags::RDONLY, 0))),
    ("create", |t, path| drop(t.open(path, OFlags::CREATE | OFlags::WRONLY, 0o600))),
    ("mkdir", |t, path| t.mkdir(path, 0o700)),
    ("rmdir", |t, path| t.rmdir(path)),
    ("unlink", |t, path| t.unlink(path)),
    ("rename_from", |t, path| t.rename(path, "renamed")),
    ("rename_to", |t, path| t.rename("source", path)),
    ("link_from", |t, path| t.link(path, "linked")),
    ("link_to", |t, path| t.link("source", path)),
    ("symlink", |t, path| t.symlink("target", path)),
    ("readlink", |t, path| t.readlink(path)),
    ("mknod", |t, path| t.mknod(path, FileType::Fifo, 0o600, (0, 0))),
    ("chmod", |t, path| t.chmod(path, 0o600)),
    ("chown", |t, path| t.chown(path, Some(1), Some(1))),
    ("truncate", |t, path| t.truncate(path, 0)),
    ("utimens", |t, path| {
        let then = Timespec { tv_sec: 5, tv_nsec: 0 };
        t.utimens(path, then, then, AtFlags::empty());
    }),
    ("access", |t, path| t.access(path, Access::EXISTS)),
    ("setxattr", |t, path| t.set_xattr(path, "user.x", "y", XattrFlags::empty())),
];

/// Paths that cannot be resolved, each with a name for its cases.
const PATHS: [(&str, &str); 9] = [
    ("below_nothing", "none/x"),
    ("below_a_file", "file/x"),
    ("below_a_fifo", "fifo/x"),
    ("below_a_dangling_link", "dangling/x"),
    ("below_a_link_to_a_file", "tofile/x"),
    ("through_a_circle", "circle/x"),
    ("a_file_with_a_slash", "file/"),
    ("dot_dot_of_a_file", "file/../x"),
    ("a_link_with_a_slash", "dangling/"),
];

pub fn all() -> Vec<Case> {
    let long =
        ["n".repeat(256), format!("dir/{}", "n".repeat(300)), format!("{}/x", "n".repeat(256))];
    let long =
        [("too_long", &long[0]), ("too_long_below", &long[1]), ("too_long_on_the_way", &long[2])];
    let paths = PATHS.iter().map(|(name, path)| (*name, (*path).to_owned()));
    let paths: Vec<_> = paths.chain(long.map(|(name, path)| (name, path.clone()))).collect();
    let case = |name: &str, path: &str, (call_name, call): (&str, Call)| {
        let path = path.to_owned();
        Case::new("paths", &format!("{call_name}_{name}"), move |t| {
            t.file("file", "x");
            t.file("source", "y");
            t.directory("dir");
            t.mkfifo("fifo", 0o600);
            t.symlink("none", "dangling");
            t.symlink("file", "tofile");
            t.symlink("circle", "circle");
            call(t, &path);
            t.list(".");
        })
    };
    CALLS
        .into_iter()
        .flat_map(|call| paths.iter().map(move |(name, path)| case(name, path, call)))
        .collect()
}
