//! POSIX, call by call.

mod access;
mod chmod;
mod chown;
mod directories;
mod link;
mod listing;
mod locks;
mod names;
mod open;
mod paths;
mod ranges;
mod rename;
mod setid;
mod special;
mod stat;
mod symlink;
mod times;
mod truncate;
mod unlink;
mod users;
mod write;
mod xattr;

use crate::trial::Trial;

/// One case: a name, and what is done in a directory that is empty at first.
pub struct Case {
    /// Topic and name.
    pub name: String,
    run: Box<dyn Fn(&mut Trial) + Send + Sync>,
}

impl Case {
    fn new(topic: &str, name: &str, run: impl Fn(&mut Trial) + Send + Sync + 'static) -> Case {
        Case { name: format!("{topic}.{name}"), run: Box::new(run) }
    }

    /// Does it, in the current directory.
    pub fn run(&self, trial: &mut Trial) {
        (self.run)(trial);
    }
}

/// The cases of a file, which are functions of a [`Trial`]; the topic is the file's name.
macro_rules! cases {
    ($($(#[doc = $why:literal])* fn $name:ident($t:ident) $body:block)*) => {
        $($(#[doc = $why])* fn $name($t: &mut $crate::trial::Trial) $body)*

        pub fn all() -> Vec<$crate::cases::Case> {
            let topic = module_path!().rsplit("::").next().unwrap_or_default();
            vec![$($crate::cases::Case::new(topic, stringify!($name), $name)),*]
        }
    };
}
use cases;

/// All of them.
#[must_use]
pub fn all() -> Vec<Case> {
    let topics = [
        access::all,
        chmod::all,
        chown::all,
        directories::all,
        link::all,
        listing::all,
        locks::all,
        names::all,
        open::all,
        paths::all,
        ranges::all,
        rename::all,
        setid::all,
        special::all,
        stat::all,
        symlink::all,
        times::all,
        truncate::all,
        unlink::all,
        users::all,
        write::all,
        xattr::all,
    ];
    topics.into_iter().flat_map(|topic| topic()).collect()
}
