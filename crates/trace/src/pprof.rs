//! Writer of profiles in pprof's format, a gzipped message that `go tool pprof` and other viewers
//! read.

use std::collections::HashMap;
use std::io::Write;
use std::ops::Range;
use std::time::{Duration, SystemTime};

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

use crate::format::profile::{
    Function, Label, Line, Location, Mapping, Profile, Sample, ValueType,
};

/// A profile that is being put together.
#[derive(Debug)]
pub struct Builder {
    profile: Profile,
    strings: HashMap<String, i64>,
    /// By name and file.
    functions: HashMap<(i64, i64), u64>,
    /// By address.
    locations: HashMap<u64, u64>,
    /// The addresses of the mappings, in the order of their numbers.
    mapped: Vec<Range<u64>>,
}

impl Builder {
    /// Begins a profile whose samples have values of these kinds, each with its unit. Viewers show
    /// the last one unless another one is chosen.
    #[must_use]
    pub fn new(values: &[(&str, &str)]) -> Builder {
        let mut builder = Builder {
            profile: Profile::default(),
            strings: HashMap::new(),
            functions: HashMap::new(),
            locations: HashMap::new(),
            mapped: Vec::new(),
        };
        // The format demands that number 0 is the empty string.
        builder.string("");
        for (kind, unit) in values {
            let value =
                ValueType { kind: Some(builder.string(kind)), unit: Some(builder.string(unit)) };
            builder.profile.default_sample_type = value.kind;
            builder.profile.sample_type.push(value);
        }
        builder
    }

    fn string(&mut self, text: &str) -> i64 {
        if let Some(known) = self.strings.get(text) {
            return *known;
        }
        let number = self.profile.string_table.len() as i64;
        self.profile.string_table.push(text.to_owned());
        self.strings.insert(text.to_owned(), number);
        number
    }

    /// Records when the profile began and how long it took.
    pub fn set_time(&mut self, begin: SystemTime, duration: Duration) {
        let since = begin.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.profile.time_nanos = Some(since.as_nanos() as i64);
        self.profile.duration_nanos = Some(duration.as_nanos() as i64);
    }

    /// Records the mean distance between two samples.
    pub fn set_period(&mut self, kind: &str, unit: &str, period: i64) {
        let kind = ValueType { kind: Some(self.string(kind)), unit: Some(self.string(unit)) };
        self.profile.period_type = Some(kind);
        self.profile.period = Some(period);
    }

    /// Adds a line of text.
    pub fn add_comment(&mut self, text: &str) {
        let text = self.string(text);
        self.profile.comment.push(text);
    }

    /// Adds a loaded file.
    pub fn add_mapping(&mut self, addresses: Range<u64>, path: &str) {
        let mapping = Mapping {
            id: Some(self.mapped.len() as u64 + 1),
            memory_start: Some(addresses.start),
            memory_limit: Some(addresses.end),
            filename: Some(self.string(path)),
            // Otherwise a viewer would look up names by itself.
            has_functions: Some(true),
            has_filenames: Some(true),
            has_line_numbers: Some(true),
            has_inline_frames: Some(true),
        };
        self.mapped.push(addresses);
        self.profile.mapping.push(mapping);
    }

    /// Returns the number of the location of an address. Its lines, innermost first, are function,
    /// file and line number; they are not used if the address is known.
    pub fn location<'a>(
        &mut self,
        address: u64,
        lines: impl Iterator<Item = (&'a str, &'a str, u32)>,
    ) -> u64 {
        if let Some(known) = self.locations.get(&address) {
            return *known;
        }
        let id = self.profile.location.len() as u64 + 1;
        let mapping = self.mapped.iter().position(|range| range.contains(&address));
        let line = lines
            .map(|(function, file, line)| Line {
                function_id: Some(self.function(function, file)),
                line: Some(i64::from(line)),
            })
            .collect();
        self.profile.location.push(Location {
            id: Some(id),
            mapping_id: mapping.map(|at| at as u64 + 1),
            address: Some(address),
            line,
        });
        self.locations.insert(address, id);
        id
    }

    fn function(&mut self, name: &str, file: &str) -> u64 {
        let key = (self.string(name), self.string(file));
        if let Some(known) = self.functions.get(&key) {
            return *known;
        }
        let id = self.profile.function.len() as u64 + 1;
        self.profile.function.push(Function {
            id: Some(id),
            name: Some(key.0),
            system_name: Some(key.0),
            filename: Some(key.1),
        });
        self.functions.insert(key, id);
        id
    }

    /// Adds a sample: the locations of its stack, innermost first, its values, and its labels.
    /// Labels without text are left out.
    pub fn add_sample(&mut self, stack: Vec<u64>, values: Vec<i64>, labels: &[(&str, &str)]) {
        let label = labels
            .iter()
            .filter(|(_, text)| !text.is_empty())
            .map(|(key, text)| Label { key: Some(self.string(key)), str: Some(self.string(text)) })
            .collect();
        self.profile.sample.push(Sample { label, location_id: stack, value: values });
    }

    /// Returns the file.
    ///
    /// # Panics
    /// Never: writing to memory does not fail.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(&self.profile.encode_to_vec()).expect("memory");
        gzip.finish().expect("memory")
    }
}

/// Reads a file of this format.
///
/// # Errors
/// Returns what is wrong with it.
pub fn read(file: &[u8]) -> std::io::Result<Profile> {
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(file), &mut bytes)?;
    Profile::decode(&bytes[..]).map_err(std::io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profile_is_read_back() {
        let mut builder = Builder::new(&[("samples", "count"), ("cpu", "nanoseconds")]);
        builder.add_mapping(0x1000..0x2000, "/bin/program");
        builder.set_time(SystemTime::UNIX_EPOCH, Duration::from_secs(2));
        builder.set_period("cpu", "nanoseconds", 10);
        builder.add_comment("a comment");
        let lines = || [("inner", "a.rs", 1), ("outer", "b.rs", 2)].into_iter();
        let first = builder.location(0x1010, lines());
        let second = builder.location(0x3000, [("outer", "b.rs", 3)].into_iter());
        assert_eq!(builder.location(0x1010, std::iter::empty()), first);
        builder.add_sample(vec![first, second], vec![2, 30], &[("name", "worker"), ("state", "")]);
        let profile = read(&builder.finish()).expect("readable");
        let text = |at: Option<i64>| &*profile.string_table[at.expect("set") as usize];
        assert_eq!(profile.string_table[0], "");
        assert_eq!(text(profile.sample_type[1].kind), "cpu");
        assert_eq!(text(profile.default_sample_type), "cpu");
        let sample = &profile.sample[0];
        assert_eq!((&sample.location_id[..], &sample.value[..]), (&[1, 2][..], &[2, 30][..]));
        assert_eq!((sample.label.len(), text(sample.label[0].str)), (1, "worker"));
        let [inner, outer] = &profile.location[0].line[..] else { panic!() };
        assert_ne!(inner.function_id, outer.function_id);
        assert_eq!(outer.function_id, profile.location[1].line[0].function_id);
        assert_eq!(profile.location[0].mapping_id, Some(1));
        assert_eq!(profile.location[1].mapping_id, None);
        assert_eq!(text(profile.function[0].name), "inner");
        assert!(read(b"no profile").is_err());
    }
}
