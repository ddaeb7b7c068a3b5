use super::*;

#[test]
fn every_read_returns_a_fresh_time() {
    let clock = Clock::new();
    let node = clock.lookup(ROOT, b"monotonic").expect("it is there").attributes.node;
    let mut last = 0;
    for _ in 0..1000 {
        let mut answer = [0; 64];
        let count = clock.read(node, Handle(0), 0, &mut answer).expect("a read");
        let text = std::str::from_utf8(&answer[..count]).expect("digits");
        let now: i64 = text.strip_suffix('\n').expect("a line").parse().expect("a number");
        assert!(now >= last);
        last = now;
    }
    assert_eq!(clock.read(node, Handle(0), ANSWER, &mut [0; 8]), Ok(0));
    assert_eq!(clock.read(node, Handle(0), u64::MAX, &mut [0; 8]), Ok(0));
    assert_eq!(clock.read(ROOT, Handle(0), 0, &mut [0; 8]), Err(Errno::ISDIR));
}

#[test]
fn listing_resumes_at_its_offset() {
    let clock = Clock::new();
    let mut names = Vec::new();
    let mut from = 0;
    loop {
        let before = names.len();
        clock
            .read_directory(ROOT, Handle(0), from, &mut |listed| {
                if names.len() - before == 2 {
                    return false;
                }
                from = listed.next;
                names.push(String::from_utf8(listed.name.to_vec()).expect("text"));
                true
            })
            .expect("a listing");
        if names.len() == before {
            break;
        }
    }
    assert_eq!(names, [".", "..", "now", "monotonic", "uptime"]);
}

#[test]
fn nothing_can_be_changed() {
    let clock = Clock::new();
    let caller = Caller { uid: 0, gid: 0, pid: 1, umask: 0 };
    assert_eq!(clock.make(&caller, ROOT, b"x", New::File { mode: 0o644 }), Err(Errno::ROFS));
    assert_eq!(clock.unlink(ROOT, b"now"), Err(Errno::ROFS));
    assert_eq!(clock.write(Node(2), Handle(0), 0, b"1"), Err(Errno::ROFS));
    assert_eq!(clock.attributes(Node(9)), Err(Errno::STALE));
    assert_eq!(clock.lookup(ROOT, b"then"), Err(Errno::NOENT));
}
