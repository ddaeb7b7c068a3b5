//! std 1.95's documentation examples for what directories have and files are. See main.rs.

pub fn dir_builder_new() {
    use kumihimo::fs::DirBuilder;

    let builder = DirBuilder::new();
}

pub fn dir_builder_recursive() {
    use kumihimo::fs::DirBuilder;

    let mut builder = DirBuilder::new();
    builder.recursive(true);
}

pub fn dir_builder_create() {
    use kumihimo::fs::{self, DirBuilder};

    let path = "/tmp/foo/bar/baz";
    DirBuilder::new()
        .recursive(true)
        .create(path).unwrap();

    assert!(fs::metadata(path).unwrap().is_dir());
}

pub fn dir_entry_path() {
    use kumihimo::fs;

    fn main() -> kumihimo::io::Result<()> {
        for entry in fs::read_dir(".")? {
            let dir = entry?;
            println!("{:?}", dir.path());
        }
        Ok(())
    }
    main().unwrap()
}

pub fn dir_entry_metadata() {
    fn main() -> std::io::Result<()> {
        use kumihimo::fs;

        if let Ok(entries) = fs::read_dir(".") {
            for entry in entries {
                if let Ok(entry) = entry {
                    // Here, `entry` is a `DirEntry`.
                    if let Ok(metadata) = entry.metadata() {
                        // Now let's show our entry's permissions!
                        println!("{:?}: {:?}", entry.path(), metadata.permissions());
                    } else {
                        println!("Couldn't get metadata for {:?}", entry.path());
                    }
                }
            }
        }
        Ok(())
    }
    main().unwrap()
}

pub fn dir_entry_file_type() {
    fn main() -> std::io::Result<()> {
        use kumihimo::fs;

        if let Ok(entries) = fs::read_dir(".") {
            for entry in entries {
                if let Ok(entry) = entry {
                    // Here, `entry` is a `DirEntry`.
                    if let Ok(file_type) = entry.file_type() {
                        // Now let's show our entry's file type!
                        println!("{:?}: {:?}", entry.path(), file_type);
                    } else {
                        println!("Couldn't get file type for {:?}", entry.path());
                    }
                }
            }
        }
        Ok(())
    }
    main().unwrap()
}

pub fn dir_entry_file_name() {
    fn main() -> std::io::Result<()> {
        use kumihimo::fs;

        if let Ok(entries) = fs::read_dir(".") {
            for entry in entries {
                if let Ok(entry) = entry {
                    // Here, `entry` is a `DirEntry`.
                    println!("{:?}", entry.file_name());
                }
            }
        }
        Ok(())
    }
    main().unwrap()
}

pub fn file_type_is_dir() {
    fn main() -> kumihimo::io::Result<()> {
        use kumihimo::fs;

        let metadata = fs::metadata("foo.txt")?;
        let file_type = metadata.file_type();

        assert_eq!(file_type.is_dir(), false);
        Ok(())
    }
    main().unwrap()
}

pub fn file_type_is_file() {
    fn main() -> kumihimo::io::Result<()> {
        use kumihimo::fs;

        let metadata = fs::metadata("foo.txt")?;
        let file_type = metadata.file_type();

        assert_eq!(file_type.is_file(), true);
        Ok(())
    }
    main().unwrap()
}

pub fn file_type_is_symlink() {
    use kumihimo::fs;

    fn main() -> kumihimo::io::Result<()> {
        let metadata = fs::symlink_metadata("foo.txt")?;
        let file_type = metadata.file_type();

        assert_eq!(file_type.is_symlink(), false);
        Ok(())
    }
    main().unwrap()
}

pub fn metadata_of_file_type() {
    fn main() -> kumihimo::io::Result<()> {
        use kumihimo::fs;

        let metadata = fs::metadata("foo.txt")?;

        println!("{:?}", metadata.file_type());
        Ok(())
    }
    main().unwrap()
}

pub fn metadata_of_is_dir() {
    fn main() -> kumihimo::io::Result<()> {
        use kumihimo::fs;

        let metadata = fs::metadata("foo.txt")?;

        assert!(!metadata.is_dir());
        Ok(())
    }
    main().unwrap()
}

pub fn metadata_of_is_file() {
    use kumihimo::fs;

    fn main() -> kumihimo::io::Result<()> {
        let metadata = fs::metadata("foo.txt")?;

        assert!(metadata.is_file());
        Ok(())
    }
    main().unwrap()
}

pub fn metadata_of_is_symlink() {
    use kumihimo::fs;
    use std::path::Path;
    use std::os::unix::fs::symlink;

    fn main() -> kumihimo::io::Result<()> {
        let link_path = Path::new("link");
        symlink("/origin_does_not_exist/", link_path)?;

        let metadata = fs::symlink_metadata(link_path)?;

        assert!(metadata.is_symlink());
        Ok(())
    }
    main().unwrap()
}

pub fn metadata_of_len() {
    use kumihimo::fs;

    fn main() -> kumihimo::io::Result<()> {
        let metadata = fs::metadata("foo.txt")?;

        assert_eq!(0, metadata.len());
        Ok(())
    }
    main().unwrap()
}

pub fn metadata_of_permissions() {
    use kumihimo::fs;

    fn main() -> kumihimo::io::Result<()> {
        let metadata = fs::metadata("foo.txt")?;

        assert!(!metadata.permissions().readonly());
        Ok(())
    }
    main().unwrap()
}

pub fn metadata_of_modified() {
    use kumihimo::fs;

    fn main() -> kumihimo::io::Result<()> {
        let metadata = fs::metadata("foo.txt")?;

        if let Ok(time) = metadata.modified() {
            println!("{time:?}");
        } else {
            println!("Not supported on this platform");
        }
        Ok(())
    }
    main().unwrap()
}

pub fn metadata_of_accessed() {
    use kumihimo::fs;

    fn main() -> kumihimo::io::Result<()> {
        let metadata = fs::metadata("foo.txt")?;

        if let Ok(time) = metadata.accessed() {
            println!("{time:?}");
        } else {
            println!("Not supported on this platform");
        }
        Ok(())
    }
    main().unwrap()
}

pub fn metadata_of_created() {
    use kumihimo::fs;

    fn main() -> kumihimo::io::Result<()> {
        let metadata = fs::metadata("foo.txt")?;

        if let Ok(time) = metadata.created() {
            println!("{time:?}");
        } else {
            println!("Not supported on this platform or filesystem");
        }
        Ok(())
    }
    main().unwrap()
}

pub fn permissions_readonly() {
    use kumihimo::fs::File;

    fn main() -> kumihimo::io::Result<()> {
        let mut f = File::create("foo.txt")?;
        let metadata = f.metadata()?;

        assert_eq!(false, metadata.permissions().readonly());
        Ok(())
    }
    main().unwrap()
}

pub fn permissions_set_readonly() {
    use kumihimo::fs::File;

    fn main() -> kumihimo::io::Result<()> {
        let f = File::create("foo.txt")?;
        let metadata = f.metadata()?;
        let mut permissions = metadata.permissions();

        permissions.set_readonly(true);

        // filesystem doesn't change, only the in memory state of the
        // readonly permission
        assert_eq!(false, metadata.permissions().readonly());

        // just this particular `permissions`.
        assert_eq!(true, permissions.readonly());
        Ok(())
    }
    main().unwrap()
}
