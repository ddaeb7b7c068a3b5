use super::*;

fn encoded(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    Acl { entries: entries.to_vec() }.encode()
}

const NONE: u32 = u32::MAX;

#[test]
fn list_without_a_mask_is_a_mode() {
    let list = encoded(&[(USER_OBJ, 6, NONE), (GROUP_OBJ, 4, NONE), (OTHER, 0, NONE)]);
    let list = Acl::decode(&list).expect("valid");
    assert!(list.is_mode());
    assert_eq!(list.mode(), 0o640);
}

#[test]
fn group_bits_of_a_mode_are_the_mask() {
    let value = encoded(&[
        (USER_OBJ, 7, NONE),
        (USER, 0, 1234),
        (GROUP_OBJ, 5, NONE),
        (MASK, 7, NONE),
        (OTHER, 5, NONE),
    ]);
    let mut list = Acl::decode(&value).expect("valid");
    assert_eq!((list.is_mode(), list.mode()), (false, 0o775));
    list.set_mode(0o640);
    assert_eq!(list.mode(), 0o640);
    assert!(list.entries.contains(&(GROUP_OBJ, 5, NONE)), "the group keeps its entry");
    assert_eq!(Acl::decode(&list.encode()), Some(list));
}

#[test]
fn default_list_replaces_the_umask() {
    let list = encoded(&[(USER_OBJ, 7, NONE), (GROUP_OBJ, 5, NONE), (OTHER, 0, NONE)]);
    let list = Acl::decode(&list).expect("valid");
    assert_eq!(mode_of_new(Some(&list), 0o2666, 0o077), 0o2640);
    assert_eq!(list.inherited(0o666).mode(), 0o640);
    assert_eq!(mode_of_new(None, 0o2666, 0o077), 0o2600);
}

#[test]
fn invalid_lists_are_refused() {
    let base = [(USER_OBJ, 7, NONE), (GROUP_OBJ, 5, NONE), (OTHER, 0, NONE)];
    let with = |more: (u16, u16, u32)| encoded(&[base.as_slice(), &[more]].concat());
    for (case, value) in [
        ("nothing", Vec::new()),
        ("another version", [1, 0, 0, 0].to_vec()),
        ("no entries", [2, 0, 0, 0].to_vec()),
        ("no mask", with((USER, 7, 3))),
        ("two owners", with((USER_OBJ, 7, NONE))),
        ("an unknown tag", with((0x40, 7, NONE))),
        ("an unknown permission", with((MASK, 8, NONE))),
        ("half an entry", encoded(&base)[..24].to_vec()),
    ] {
        assert_eq!(Acl::decode(&value), None, "{case}");
    }
}
