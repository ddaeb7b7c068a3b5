//! Permissions of different users: directories of other owners, sticky directories, groups.

use rustix::fs::OFlags;

use crate::cases::case::cases;

cases! {
    fn reading(t) {
        for (n, bits) in [0o600, 0o640, 0o644, 0o004, 0o000].into_iter().enumerate() {
            let name = format!("f{n}");
            t.file(name.as_str(), "x");
            t.chmod(name.as_str(), bits);
            t.as_user(1000, |t| t.content(name.as_str()));
        }
    }
    fn writing(t) {
        for (n, bits) in [0o600, 0o660, 0o666, 0o002, 0o000].into_iter().enumerate() {
            let name = format!("f{n}");
            t.file(name.as_str(), "x");
            t.chmod(name.as_str(), bits);
            t.as_user(1000, |t| {
                t.open(name.as_str(), OFlags::WRONLY, 0);
                t.open(name.as_str(), OFlags::WRONLY | OFlags::TRUNC, 0);
            });
            t.stat(name.as_str());
        }
    }
    /// Only the owner's bits apply to the owner, even if the bits for others allow more.
    fn the_owner_has_only_the_owners_bits(t) {
        t.file("f", "x");
        t.chown("f", Some(1000), Some(1000));
        t.chmod("f", 0o077);
        t.as_user(1000, |t| {
            t.content("f");
            t.open("f", OFlags::WRONLY, 0);
        });
    }
    fn the_group_has_only_the_groups_bits(t) {
        t.file("f", "x");
        t.chown("f", Some(1), Some(1000));
        t.chmod("f", 0o606);
        t.as_user(1000, |t| t.content("f"));
        t.as_member(1001, &[1001, 1000], |t| t.content("f"));
        t.as_user(1002, |t| t.content("f"));
    }
    fn a_second_group_counts(t) {
        t.file("f", "x");
        t.chown("f", Some(1), Some(2000));
        t.chmod("f", 0o060);
        t.as_member(1000, &[1000, 3000, 2000], |t| {
            t.content("f");
            t.open("f", OFlags::RDWR, 0);
        });
        t.as_user(1000, |t| t.content("f"));
    }
    fn root_may_all(t) {
        t.file("f", "x");
        t.chown("f", Some(1000), None);
        t.chmod("f", 0);
        t.content("f");
        t.opened("f");
        t.directory("d");
        t.chmod("d", 0);
        t.file("d/f", "y");
        t.list("d");
    }
    fn making_in_a_closed_directory(t) {
        t.directory("d");
        t.as_user(1000, |t| {
            t.open("d/f", OFlags::CREATE | OFlags::WRONLY, 0o600);
            t.mkdir("d/e", 0o700);
            t.symlink("x", "d/s");
            t.mkfifo("d/p", 0o600);
            t.file("f", "");
            t.link("f", "d/l");
            t.rename("f", "d/r");
        });
        t.list("d");
    }
    fn removing_from_a_closed_directory(t) {
        t.directory("d");
        t.file("d/f", "");
        t.chown("d/f", Some(1000), None);
        t.directory("d/e");
        t.chown("d/e", Some(1000), None);
        t.as_user(1000, |t| {
            t.unlink("d/f");
            t.rmdir("d/e");
            t.rename("d/f", "f");
            t.rename("d/f", "d/g");
        });
        t.list("d");
    }
    fn removing_what_others_own(t) {
        t.file("f", "");
        t.chmod("f", 0);
        t.as_user(1000, |t| t.unlink("f"));
        t.list(".");
    }
    fn without_search(t) {
        t.directory("d");
        t.file("d/f", "x");
        t.chmod("d", 0o666);
        t.as_user(1000, |t| {
            t.stat("d/f");
            t.content("d/f");
            t.stat("d/none");
            t.unlink("d/f");
            t.file("d/g", "");
            t.list("d");
            t.chdir("d");
            t.stat("d");
            t.stat("d/.");
            t.access("d/f", rustix::fs::Access::EXISTS);
        });
    }
    fn without_reading(t) {
        t.directory("d");
        t.file("d/f", "x");
        t.chmod("d", 0o711);
        t.as_user(1000, |t| {
            t.stat("d/f");
            t.list("d");
            t.content("d/f");
            t.stat("d/none");
        });
    }
    fn search_all_the_way(t) {
        t.directory("a");
        t.directory("a/b");
        t.file("a/b/f", "x");
        t.as_user(1000, |t| t.content("a/b/f"));
        t.chmod("a", 0o600);
        t.as_user(1000, |t| t.content("a/b/f"));
        t.symlink("a/b/f", "s");
        t.as_user(1000, |t| {
            t.content("s");
            t.readlink("s");
        });
    }
    fn sticky_unlink(t) {
        t.mkdir("d", 0o1777);
        t.file("d/f", "");
        t.file("d/g", "");
        t.chown("d/g", Some(1000), None);
        t.as_user(1000, |t| {
            t.unlink("d/f");
            t.unlink("d/g");
        });
        t.list("d");
    }
    fn sticky_directory_of_ones_own(t) {
        t.mkdir("d", 0o1777);
        t.chown("d", Some(1000), None);
        t.file("d/f", "");
        t.as_user(1000, |t| t.unlink("d/f"));
        t.file("d/g", "");
        t.as_user(1001, |t| t.unlink("d/g"));
    }
    fn sticky_rmdir(t) {
        t.mkdir("d", 0o1777);
        t.directory("d/e");
        t.directory("d/g");
        t.chown("d/g", Some(1000), None);
        t.as_user(1000, |t| {
            t.rmdir("d/e");
            t.rmdir("d/g");
        });
        t.list("d");
    }
    fn sticky_rename_out(t) {
        t.mkdir("d", 0o1777);
        t.file("d/f", "");
        t.file("d/g", "");
        t.chown("d/g", Some(1000), None);
        t.as_user(1000, |t| {
            t.rename("d/f", "f");
            t.rename("d/g", "g");
            t.rename("d/f", "d/h");
        });
        t.list("d");
    }
    fn sticky_rename_over(t) {
        t.mkdir("d", 0o1777);
        t.file("d/f", "root's");
        t.as_user(1000, |t| {
            t.file("d/mine", "mine");
            t.file("other", "mine");
            t.rename("d/mine", "d/f");
            t.rename("other", "d/f");
        });
        t.content("d/f");
    }
    fn sticky_link_and_symlink(t) {
        t.mkdir("d", 0o1777);
        t.as_user(1000, |t| {
            t.file("f", "");
            t.link("f", "d/l");
            t.symlink("f", "d/s");
        });
        t.as_user(1001, |t| {
            t.unlink("d/l");
            t.unlink("d/s");
        });
        t.list("d");
    }
    fn moving_a_directory_one_may_not_write(t) {
        t.directory("a");
        t.directory("b");
        t.directory("a/d");
        t.chmod("a", 0o777);
        t.chmod("b", 0o777);
        t.as_user(1000, |t| t.rename("a/d", "b/d"));
        t.chmod("a/d", 0o777);
        t.as_user(1000, |t| t.rename("a/d", "b/d"));
        t.list("b");
    }
    fn permissions_are_asked_at_open(t) {
        t.file("f", "content");
        t.chown("f", Some(1000), None);
        t.as_user(1000, |t| {
            let f = t.opened("f");
            t.chmod("f", 0);
            t.read(&f, 3);
            t.write(&f, "X");
            t.open("f", OFlags::RDONLY, 0);
        });
        t.content("f");
    }
    fn executing_needs_a_bit(t) {
        t.file("f", "#!/bin/sh\n");
        for bits in [0o666, 0o766, 0o667, 0o111] {
            t.chmod("f", bits);
            t.access("f", rustix::fs::Access::EXEC_OK);
            t.as_user(1000, |t| t.access("f", rustix::fs::Access::EXEC_OK));
        }
    }
    fn noatime_of_anothers_file(t) {
        t.file("f", "x");
        t.chmod("f", 0o666);
        t.as_user(1000, |t| {
            t.open("f", OFlags::RDONLY | OFlags::NOATIME, 0);
        });
    }
    fn xattrs_follow_the_mode(t) {
        t.file("f", "x");
        t.set_xattr("f", "user.x", "y", rustix::fs::XattrFlags::empty());
        t.chmod("f", 0o600);
        t.as_user(1000, |t| {
            t.get_xattr("f", "user.x", 10);
            t.set_xattr("f", "user.z", "", rustix::fs::XattrFlags::empty());
            t.list_xattr("f", 100);
        });
        t.chmod("f", 0o644);
        t.as_user(1000, |t| {
            t.get_xattr("f", "user.x", 10);
            t.set_xattr("f", "user.z", "", rustix::fs::XattrFlags::empty());
            t.remove_xattr("f", "user.x");
        });
    }
    fn xattrs_of_the_trusted(t) {
        t.file("f", "x");
        t.chmod("f", 0o666);
        t.set_xattr("f", "trusted.x", "y", rustix::fs::XattrFlags::empty());
        t.as_user(1000, |t| {
            t.get_xattr("f", "trusted.x", 10);
            t.set_xattr("f", "trusted.z", "", rustix::fs::XattrFlags::empty());
            t.list_xattr("f", 100);
        });
        t.list_xattr("f", 100);
    }
    fn xattrs_on_a_sticky_directory(t) {
        t.mkdir("d", 0o1777);
        t.as_user(1000, |t| t.set_xattr("d", "user.x", "y", rustix::fs::XattrFlags::empty()));
        t.mkdir("e", 0o777);
        t.as_user(1000, |t| t.set_xattr("e", "user.x", "y", rustix::fs::XattrFlags::empty()));
    }
}
