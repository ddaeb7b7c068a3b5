//! Flame graph of a profile.

use std::io::{self, Write};

use inferno::flamegraph::{self, Options};
use kumihimo_machine::handler::Space;
use kumihimo_machine::profile::{ProfileKind, ProfileQuery, Recording};

use super::report::{self, Resolved};
use crate::text::Plain;

/// Whether a picture has the scripts for search and zoom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scripts {
    Yes,
    No,
}

/// Writes an SVG picture: the width of a box is the value of its function with those that it calls.
pub(super) fn svg(
    out: &mut dyn Write,
    scripts: Scripts,
    space: &Space,
    query: &ProfileQuery,
    recording: &Recording,
    stacks: &[Resolved],
) -> io::Result<()> {
    let mut options = Options::default();
    options.no_javascript = scripts == Scripts::No;
    let program = Plain(&space.program).to_string();
    options.title = match query.kind {
        ProfileKind::Cpu => format!("CPU time of {program}"),
        ProfileKind::OffCpu => format!("Waits of {program}"),
        ProfileKind::Stacks => format!("Stacks of {program}"),
    };
    options.subtitle = Some(report::summary(recording, query));
    options.count_name = report::unit_of_lines(query.kind).into();
    if query.kind != ProfileKind::Cpu {
        options.colors = flamegraph::color::Palette::Basic(flamegraph::color::BasicPalette::Blue);
    }
    let lines = report::folded(stacks);
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), out)
        .map_err(io::Error::other)
}
