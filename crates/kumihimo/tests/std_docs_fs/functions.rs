//! std 1.95's documentation examples for the functions of std::fs. See main.rs.

pub fn canonicalize() {
    use kumihimo::fs;

    fn main() -> kumihimo::io::Result<()> {
        let path = fs::canonicalize("../a/../foo.txt")?;
        Ok(())
    }
    main().unwrap()
}

pub fn copy() {
    use kumihimo::fs;

    fn main() -> kumihimo::io::Result<()> {
        fs::copy("foo.txt", "bar.txt")?;  // Copy foo.txt to bar.txt
        Ok(())
    }
    main().unwrap()
}

pub fn create_dir() {
    use kumihimo::fs;

    fn main() -> kumihimo::io::Result<()> {
        fs::create_dir("/some/dir")?;
        Ok(())
    }
    main().unwrap()
}

pub fn create_dir_all() {
    use kumihimo::fs;

    fn main() -> kumihimo::io::Result<()> {
        fs::create_dir_all("/some/dir")?;
        Ok(())
    }
    main().unwrap()
}

pub fn exists() {
    use kumihimo::fs;

    assert!(!fs::exists("does_not_exist.txt").expect("Can't check existence of file does_not_exist.txt"));
    assert!(fs::exists("/root/secret_file.txt").is_err());
}

pub fn hard_link() {
    use kumihimo::fs;

    fn main() -> kumihimo::io::Result<()> {
        fs::hard_link("a.txt", "b.txt")?; // Hard link a.txt to b.txt
        Ok(())
    }
    main().unwrap()
}

pub fn metadata() {
    use kumihimo::fs;

    fn main() -> kumihimo::io::Result<()> {
        let attr = fs::metadata("/some/file/path.txt")?;
        // inspect attr ...
        Ok(())
    }
    main().unwrap()
}

pub fn read() {
    use kumihimo::fs;

    fn main() -> Result<(), Box<dyn std::error::Error + 'static>> {
        let data: Vec<u8> = fs::read("image.jpg")?;
        assert_eq!(data[0..3], [0xFF, 0xD8, 0xFF]);
        Ok(())
    }
    main().unwrap()
}

pub fn read_dir() {
    fn main() -> std::io::Result<()> {
        use kumihimo::io;
        use kumihimo::fs::{self, DirEntry};
        use std::path::Path;

        // one possible implementation of walking a directory only visiting files
        fn visit_dirs(dir: &Path, cb: &dyn Fn(&DirEntry)) -> io::Result<()> {
            if dir.is_dir() {
                for entry in fs::read_dir(dir)? {
                    let entry = entry?;
                    let path = entry.path();
                    if path.is_dir() {
                        visit_dirs(&path, cb)?;
                    } else {
                        cb(&entry);
                    }
                }
            }
            Ok(())
        }
        Ok(())
    }
    main().unwrap()
}

pub fn read_dir_2() {
    use std::{fs, io};

    fn main() -> io::Result<()> {
        let mut entries = fs::read_dir(".")?
            .map(|res| res.map(|e| e.path()))
            .collect::<Result<Vec<_>, io::Error>>()?;

        // The order in which `read_dir` returns entries is not guaranteed. If reproducible
        // ordering is required the entries should be explicitly sorted.

        entries.sort();

        // The entries have now been sorted by their path.

        Ok(())
    }
    main().unwrap()
}

pub fn read_link() {
    use kumihimo::fs;

    fn main() -> kumihimo::io::Result<()> {
        let path = fs::read_link("a.txt")?;
        Ok(())
    }
    main().unwrap()
}

pub fn read_to_string() {
    use kumihimo::fs;
    use std::error::Error;

    fn main() -> Result<(), Box<dyn Error>> {
        let message: String = fs::read_to_string("message.txt")?;
        println!("{}", message);
        Ok(())
    }
    main().unwrap()
}

pub fn remove_dir() {
    use kumihimo::fs;

    fn main() -> kumihimo::io::Result<()> {
        fs::remove_dir("/some/dir")?;
        Ok(())
    }
    main().unwrap()
}

pub fn remove_dir_all() {
    use kumihimo::fs;

    fn main() -> kumihimo::io::Result<()> {
        fs::remove_dir_all("/some/dir")?;
        Ok(())
    }
    main().unwrap()
}

pub fn remove_file() {
    use kumihimo::fs;

    fn main() -> kumihimo::io::Result<()> {
        fs::remove_file("a.txt")?;
        Ok(())
    }
    main().unwrap()
}

pub fn rename() {
    use kumihimo::fs;

    fn main() -> kumihimo::io::Result<()> {
        fs::rename("a.txt", "b.txt")?; // Rename a.txt to b.txt
        Ok(())
    }
    main().unwrap()
}

pub fn set_permissions() {
    use kumihimo::fs;

    fn main() -> kumihimo::io::Result<()> {
        let mut perms = fs::metadata("foo.txt")?.permissions();
        perms.set_readonly(true);
        fs::set_permissions("foo.txt", perms)?;
        Ok(())
    }
    main().unwrap()
}

pub fn soft_link() {
    use kumihimo::fs;

    fn main() -> kumihimo::io::Result<()> {
        fs::soft_link("a.txt", "b.txt")?;
        Ok(())
    }
    main().unwrap()
}

pub fn symlink_metadata() {
    use kumihimo::fs;

    fn main() -> kumihimo::io::Result<()> {
        let attr = fs::symlink_metadata("/some/file/path.txt")?;
        // inspect attr ...
        Ok(())
    }
    main().unwrap()
}

pub fn write() {
    use kumihimo::fs;

    fn main() -> kumihimo::io::Result<()> {
        fs::write("foo.txt", b"Lorem ipsum")?;
        fs::write("bar.txt", "dolor sit")?;
        Ok(())
    }
    main().unwrap()
}
