//! std 1.95's documentation examples for File and OpenOptions. See main.rs.

pub fn file() {
    use kumihimo::fs::File;
    use kumihimo::io::prelude::*;

    fn main() -> kumihimo::io::Result<()> {
        let mut file = File::create("foo.txt")?;
        file.write_all(b"Hello, world!")?;
        Ok(())
    }
    main().unwrap()
}

pub fn file_2() {
    use kumihimo::fs::File;
    use kumihimo::io::prelude::*;

    fn main() -> kumihimo::io::Result<()> {
        let mut file = File::open("foo.txt")?;
        let mut contents = String::new();
        file.read_to_string(&mut contents)?;
        assert_eq!(contents, "Hello, world!");
        Ok(())
    }
    main().unwrap()
}

pub fn file_3() {
    use kumihimo::fs::File;
    use kumihimo::io::BufReader;
    use kumihimo::io::prelude::*;

    fn main() -> kumihimo::io::Result<()> {
        let file = File::open("foo.txt")?;
        let mut buf_reader = BufReader::new(file);
        let mut contents = String::new();
        buf_reader.read_to_string(&mut contents)?;
        assert_eq!(contents, "Hello, world!");
        Ok(())
    }
    main().unwrap()
}

pub fn file_open() {
    use kumihimo::fs::File;
    use kumihimo::io::Read;

    fn main() -> kumihimo::io::Result<()> {
        let mut f = File::open("foo.txt")?;
        let mut data = vec![];
        f.read_to_end(&mut data)?;
        Ok(())
    }
    main().unwrap()
}

pub fn file_create() {
    use kumihimo::fs::File;
    use kumihimo::io::Write;

    fn main() -> kumihimo::io::Result<()> {
        let mut f = File::create("foo.txt")?;
        f.write_all(&1234_u32.to_be_bytes())?;
        Ok(())
    }
    main().unwrap()
}

pub fn file_create_new() {
    use kumihimo::fs::File;
    use kumihimo::io::Write;

    fn main() -> kumihimo::io::Result<()> {
        let mut f = File::create_new("foo.txt")?;
        f.write_all("Hello, world!".as_bytes())?;
        Ok(())
    }
    main().unwrap()
}

pub fn file_options() {
    use kumihimo::fs::File;
    use kumihimo::io::Write;

    fn main() -> kumihimo::io::Result<()> {
        let mut f = File::options().append(true).open("example.log")?;
        writeln!(&mut f, "new line")?;
        Ok(())
    }
    main().unwrap()
}

pub fn file_sync_all() {
    use kumihimo::fs::File;
    use kumihimo::io::prelude::*;

    fn main() -> kumihimo::io::Result<()> {
        let mut f = File::create("foo.txt")?;
        f.write_all(b"Hello, world!")?;

        f.sync_all()?;
        Ok(())
    }
    main().unwrap()
}

pub fn file_sync_data() {
    use kumihimo::fs::File;
    use kumihimo::io::prelude::*;

    fn main() -> kumihimo::io::Result<()> {
        let mut f = File::create("foo.txt")?;
        f.write_all(b"Hello, world!")?;

        f.sync_data()?;
        Ok(())
    }
    main().unwrap()
}

pub fn file_lock() {
    use kumihimo::fs::File;

    fn main() -> kumihimo::io::Result<()> {
        let f = File::create("foo.txt")?;
        f.lock()?;
        Ok(())
    }
    main().unwrap()
}

pub fn file_lock_shared() {
    use kumihimo::fs::File;

    fn main() -> kumihimo::io::Result<()> {
        let f = File::open("foo.txt")?;
        f.lock_shared()?;
        Ok(())
    }
    main().unwrap()
}

pub fn file_try_lock() {
    use kumihimo::fs::{File, TryLockError};

    fn main() -> kumihimo::io::Result<()> {
        let f = File::create("foo.txt")?;
        // Explicit handling of the WouldBlock error
        match f.try_lock() {
            Ok(_) => (),
            Err(TryLockError::WouldBlock) => (), // Lock not acquired
            Err(TryLockError::Error(err)) => return Err(err),
        }
        // Alternately, propagate the error as an io::Error
        f.try_lock()?;
        Ok(())
    }
    main().unwrap()
}

pub fn file_try_lock_shared() {
    use kumihimo::fs::{File, TryLockError};

    fn main() -> kumihimo::io::Result<()> {
        let f = File::open("foo.txt")?;
        // Explicit handling of the WouldBlock error
        match f.try_lock_shared() {
            Ok(_) => (),
            Err(TryLockError::WouldBlock) => (), // Lock not acquired
            Err(TryLockError::Error(err)) => return Err(err),
        }
        // Alternately, propagate the error as an io::Error
        f.try_lock_shared()?;

        Ok(())
    }
    main().unwrap()
}

pub fn file_unlock() {
    use kumihimo::fs::File;

    fn main() -> kumihimo::io::Result<()> {
        let f = File::open("foo.txt")?;
        f.lock()?;
        f.unlock()?;
        Ok(())
    }
    main().unwrap()
}

pub fn file_set_len() {
    use kumihimo::fs::File;

    fn main() -> kumihimo::io::Result<()> {
        let mut f = File::create("foo.txt")?;
        f.set_len(10)?;
        Ok(())
    }
    main().unwrap()
}

pub fn file_metadata() {
    use kumihimo::fs::File;

    fn main() -> kumihimo::io::Result<()> {
        let mut f = File::open("foo.txt")?;
        let metadata = f.metadata()?;
        Ok(())
    }
    main().unwrap()
}

pub fn file_try_clone() {
    use kumihimo::fs::File;

    fn main() -> kumihimo::io::Result<()> {
        let mut file = File::open("foo.txt")?;
        let file_copy = file.try_clone()?;
        Ok(())
    }
    main().unwrap()
}

pub fn file_try_clone_2() {
    use kumihimo::fs::File;
    use kumihimo::io::SeekFrom;
    use kumihimo::io::prelude::*;

    fn main() -> kumihimo::io::Result<()> {
        let mut file = File::open("foo.txt")?;
        let mut file_copy = file.try_clone()?;

        file.seek(SeekFrom::Start(3))?;

        let mut contents = vec![];
        file_copy.read_to_end(&mut contents)?;
        assert_eq!(contents, b"def\n");
        Ok(())
    }
    main().unwrap()
}

pub fn file_set_permissions() {
    fn main() -> kumihimo::io::Result<()> {
        use kumihimo::fs::File;

        let file = File::open("foo.txt")?;
        let mut perms = file.metadata()?.permissions();
        perms.set_readonly(true);
        file.set_permissions(perms)?;
        Ok(())
    }
    main().unwrap()
}

pub fn file_set_times() {
    fn main() -> kumihimo::io::Result<()> {
        use kumihimo::fs::{self, File, FileTimes};

        let src = fs::metadata("src")?;
        let dest = File::open("dest")?;
        let times = FileTimes::new()
            .set_accessed(src.accessed()?)
            .set_modified(src.modified()?);
        dest.set_times(times)?;
        Ok(())
    }
    main().unwrap()
}

pub fn file_from() {
    fn main() -> std::io::Result<()> {
        use kumihimo::fs::File;
        use kumihimo::process::Command;

        // With the `foo.txt` file containing "Hello, world!"
        let file = File::open("foo.txt")?;

        let reverse = Command::new("rev")
            .stdin(file)  // Implicit File conversion into a Stdio
            .output()?;

        assert_eq!(reverse.stdout, b"!dlrow ,olleH");
        Ok(())
    }
    main().unwrap()
}

pub fn open_options() {
    use kumihimo::fs::OpenOptions;

    let file = OpenOptions::new().read(true).open("foo.txt");
}

pub fn open_options_2() {
    use kumihimo::fs::OpenOptions;

    let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .open("foo.txt");
}

pub fn open_options_new() {
    use kumihimo::fs::OpenOptions;

    let mut options = OpenOptions::new();
    let file = options.read(true).open("foo.txt");
}

pub fn open_options_read() {
    use kumihimo::fs::OpenOptions;

    let file = OpenOptions::new().read(true).open("foo.txt");
}

pub fn open_options_write() {
    use kumihimo::fs::OpenOptions;

    let file = OpenOptions::new().write(true).open("foo.txt");
}

pub fn open_options_append() {
    use kumihimo::fs::OpenOptions;

    let file = OpenOptions::new().append(true).open("foo.txt");
}

pub fn open_options_truncate() {
    use kumihimo::fs::OpenOptions;

    let file = OpenOptions::new().write(true).truncate(true).open("foo.txt");
}

pub fn open_options_create() {
    use kumihimo::fs::OpenOptions;

    let file = OpenOptions::new().write(true).create(true).open("foo.txt");
}

pub fn open_options_create_new() {
    use kumihimo::fs::OpenOptions;

    let file = OpenOptions::new().write(true)
                                 .create_new(true)
                                 .open("foo.txt");
}

pub fn open_options_open() {
    use kumihimo::fs::OpenOptions;

    let file = OpenOptions::new().read(true).open("foo.txt");
}
