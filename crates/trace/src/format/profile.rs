//! The messages of pprof's format, with names and numbers as in its `profile.proto`. Strings are
//! indices into the string table, whose first entry is empty.

use crate::format::messages::messages;

messages! {
    /// The file.
    Profile {
        time_nanos: i64 as int64 = 9,
        duration_nanos: i64 as int64 = 10,
        period_type: ValueType as message = 11,
        period: i64 as int64 = 12,
        default_sample_type: i64 as int64 = 14,
        ; sample_type: ValueType = 1,
        ; sample: Sample = 2,
        ; mapping: Mapping = 3,
        ; location: Location = 4,
        ; function: Function = 5,
        ;; string_table: String as string = 6,
        ;; comment: i64 as int64 = 13,
    }
    /// What a value of a sample means, and its unit.
    ValueType {
        kind: i64 as int64 = 1,
        unit: i64 as int64 = 2,
    }
    /// The values of one stack.
    Sample {
        ; label: Label = 3,
        ;; location_id: u64 as uint64 = 1,
        ;; value: i64 as int64 = 2,
    }
    /// What else distinguishes a sample.
    Label {
        key: i64 as int64 = 1,
        str: i64 as int64 = 2,
    }
    /// A loaded file.
    Mapping {
        id: u64 as uint64 = 1,
        memory_start: u64 as uint64 = 2,
        memory_limit: u64 as uint64 = 3,
        filename: i64 as int64 = 5,
        has_functions: bool as bool = 7,
        has_filenames: bool as bool = 8,
        has_line_numbers: bool as bool = 9,
        has_inline_frames: bool as bool = 10,
    }
    /// An address with its lines, innermost first.
    Location {
        id: u64 as uint64 = 1,
        mapping_id: u64 as uint64 = 2,
        address: u64 as uint64 = 3,
        ; line: Line = 4,
    }
    /// A line of a function.
    Line {
        function_id: u64 as uint64 = 1,
        line: i64 as int64 = 2,
    }
    /// A function.
    Function {
        id: u64 as uint64 = 1,
        name: i64 as int64 = 2,
        system_name: i64 as int64 = 3,
        filename: i64 as int64 = 4,
    }
}
