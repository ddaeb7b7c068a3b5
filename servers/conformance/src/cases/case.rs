//! A single case, and the macro that declares the cases of a file.

use crate::trial::Trial;

/// Lists the cases of one topic.
pub(super) type Topic = fn() -> Vec<Case>;

/// One case: a name, and a function that runs in an initially empty directory.
pub struct Case {
    /// Topic and name.
    pub name: String,
    run: Box<dyn Fn(&mut Trial) + Send + Sync>,
}

impl Case {
    pub(super) fn new(
        topic: &str,
        name: &str,
        run: impl Fn(&mut Trial) + Send + Sync + 'static,
    ) -> Case {
        Case { name: format!("{topic}.{name}"), run: Box::new(run) }
    }

    /// The topic: the name without its last part.
    pub(super) fn topic(&self) -> &str {
        self.name.split('.').next().unwrap_or_default()
    }

    /// Runs the case in the current directory.
    pub fn run(&self, trial: &mut Trial) {
        (self.run)(trial);
    }
}

/// Defines the cases of a file as functions of a [`Trial`]. The topic is the file's name.
macro_rules! cases {
    ($($(#[doc = $why:literal])* fn $name:ident($t:ident) $body:block)*) => {
        $($(#[doc = $why])* fn $name($t: &mut $crate::trial::Trial) $body)*

        pub fn all() -> Vec<$crate::cases::case::Case> {
            let topic = module_path!().rsplit("::").next().unwrap_or_default();
            vec![$($crate::cases::case::Case::new(topic, stringify!($name), $name)),*]
        }
    };
}
pub(super) use cases;
