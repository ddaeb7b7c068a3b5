use super::*;

const NAMES: &[u8] =
    b"\0other\0task_struct\0__state\0flags\0__state_too\0btf_trace_sched_switch\0btf_trace_sched_process_exec\0\
    bpf_send_signal_task\0bpf_task_work_schedule_resume_impl\0";

fn name(text: &str) -> u32 {
    let text = format!("\0{text}\0");
    NAMES.windows(text.len()).position(|w| w == text.as_bytes()).expect("a name") as u32 + 1
}

fn file(types: &[u32]) -> Vec<u8> {
    let length = types.len() as u32 * 4;
    let header = [0x1_eb9f, 24, 0, length, length, NAMES.len() as u32];
    let words = header.iter().chain(types).flat_map(|w| w.to_le_bytes());
    words.chain(NAMES.iter().copied()).collect()
}

fn structure(text: &str, flag: u32, members: &[(&str, u32)]) -> Vec<u32> {
    let mut words = vec![name(text), flag << 31 | 4 << 24 | members.len() as u32, 64];
    members.iter().for_each(|(text, bits)| words.extend([name(text), 1, *bits]));
    words
}

#[test]
fn the_member_is_found_behind_other_kinds_and_other_names() {
    // An int, an enum of two, an array, a pointer; then a struct with the member but another
    // name.
    let mut types = vec![name("flags"), 1 << 24, 4, 32, name("flags"), 6 << 24 | 2, 4, 0, 0, 0, 1];
    types.extend([0, 3 << 24, 0, 1, 1, 8, 0, 2 << 24, 1]);
    types.extend(structure("other", 0, &[("__state", 8)]));
    types.extend(structure(
        "task_struct",
        0,
        &[("flags", 0), ("__state_too", 32), ("__state", 192)],
    ));
    assert_eq!(member_offset(&file(&types), b"task_struct", b"__state"), Some(24));
}

#[test]
fn with_bit_fields_the_offset_is_the_low_bits_and_a_bit_field_itself_is_refused() {
    let whole = structure("task_struct", 1, &[("flags", 1 << 24), ("__state", 64)]);
    assert_eq!(member_offset(&file(&whole), b"task_struct", b"__state"), Some(8));
    let part = structure("task_struct", 1, &[("__state", 3 << 24 | 65)]);
    assert_eq!(member_offset(&file(&part), b"task_struct", b"__state"), None);
}

#[test]
fn tracepoints_are_found_by_kind_and_name_and_task_work_is_optional() {
    let of = |kind: u32, text: &str| [name(text), kind << 24, 0];
    let all = [
        of(TYPEDEF, "btf_trace_sched_switch"),
        // A function of that name, as there is one for each tracepoint.
        of(FUNC, "btf_trace_sched_process_exec"),
        of(FUNC, "bpf_send_signal_task"),
        of(TYPEDEF, "btf_trace_sched_process_exec"),
        of(FUNC, "bpf_task_work_schedule_resume_impl"),
    ];
    let task_work = Some(TaskWork { schedule: 5, send: 3 });
    let expected = Traced { sched_switch: 1, sched_process_exec: 4, task_work };
    assert_eq!(find_traced(&file(&all.concat())), Some(expected));
    let older = Some(Traced { task_work: None, ..expected });
    assert_eq!(find_traced(&file(&all[..4].concat())), older);
    assert_eq!(find_traced(&file(&all[..3].concat())), None);
}

#[test]
fn broken_files_are_none() {
    let whole = file(&structure("task_struct", 0, &[("__state", 64)]));
    for length in 0..whole.len() {
        assert_eq!(
            member_offset(&whole[..length], b"task_struct", b"__state"),
            None,
            "{length} bytes"
        );
    }
    let strange = file(&[0, 30 << 24, 0]);
    assert_eq!(member_offset(&strange, b"task_struct", b"__state"), None);
}
