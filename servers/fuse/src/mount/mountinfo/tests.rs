use super::*;

#[test]
fn mountinfo_line_is_parsed() {
    let line =
        br"536 29 0:55 / /mnt/a\040b rw,nosuid shared:1 master:2 - fuse.kumi /images/x\134y.img rw,user_id=0";
    let found = parse(line).expect("a mount");
    assert_eq!(found.point, Path::new("/mnt/a b"));
    assert_eq!(found.kind, "fuse.kumi");
    assert_eq!(found.source, OsString::from(r"/images/x\y.img"));
    assert_eq!(parse(b""), None);
    assert_eq!(parse(b"1 2 3"), None);
}

#[test]
fn root_is_a_mount_point() {
    assert!(at(Path::new("/")).expect("proc").is_some());
}
