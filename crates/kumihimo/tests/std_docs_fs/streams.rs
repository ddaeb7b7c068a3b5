//! std 1.95's documentation examples for the streams of std::io. See main.rs.

pub fn stdin_fn() {
    use kumihimo::io;

    fn main() -> io::Result<()> {
        let mut buffer = String::new();
        io::stdin().read_line(&mut buffer)?;
        Ok(())
    }
    main().unwrap()
}

pub fn stdin_fn_2() {
    use kumihimo::io::{self, BufRead};

    fn main() -> io::Result<()> {
        let mut buffer = String::new();
        let stdin = io::stdin();
        let mut handle = stdin.lock();

        handle.read_line(&mut buffer)?;
        Ok(())
    }
    main().unwrap()
}

pub fn stdout_fn() {
    use kumihimo::io::{self, Write};

    fn main() -> io::Result<()> {
        io::stdout().write_all(b"hello world")?;

        Ok(())
    }
    main().unwrap()
}

pub fn stdout_fn_2() {
    use kumihimo::io::{self, Write};

    fn main() -> io::Result<()> {
        let stdout = io::stdout();
        let mut handle = stdout.lock();

        handle.write_all(b"hello world")?;

        Ok(())
    }
    main().unwrap()
}

pub fn stdout_fn_3() {
    use kumihimo::io::{self, Write};

    fn main() -> io::Result<()> {
        let mut stdout = io::stdout();
        stdout.write_all(b"hello, ")?;
        stdout.flush()?;                // Manual flush
        stdout.write_all(b"world!\n")?; // Automatically flushed
        Ok(())
    }
    main().unwrap()
}

pub fn stderr_fn() {
    use kumihimo::io::{self, Write};

    fn main() -> io::Result<()> {
        io::stderr().write_all(b"hello world")?;

        Ok(())
    }
    main().unwrap()
}

pub fn stderr_fn_2() {
    use kumihimo::io::{self, Write};

    fn main() -> io::Result<()> {
        let stderr = io::stderr();
        let mut handle = stderr.lock();

        handle.write_all(b"hello world")?;

        Ok(())
    }
    main().unwrap()
}

pub fn stdin() {
    use kumihimo::io;

    fn main() -> io::Result<()> {
        let mut buffer = String::new();
        let stdin = io::stdin(); // We get `Stdin` here.
        stdin.read_line(&mut buffer)?;
        Ok(())
    }
    main().unwrap()
}

pub fn stdin_lock() {
    use kumihimo::io::{self, BufRead};

    fn main() -> io::Result<()> {
        let mut buffer = String::new();
        let stdin = io::stdin();
        let mut handle = stdin.lock();

        handle.read_line(&mut buffer)?;
        Ok(())
    }
    main().unwrap()
}

pub fn stdin_read_line() {
    use kumihimo::io;

    let mut input = String::new();
    match io::stdin().read_line(&mut input) {
        Ok(n) => {
            println!("{n} bytes read");
            println!("{input}");
        }
        Err(error) => println!("error: {error}"),
    }
}

pub fn stdin_lines() {
    use kumihimo::io;

    let lines = io::stdin().lines();
    for line in lines {
        println!("got a line: {}", line.unwrap());
    }
}

pub fn stdout_lock() {
    use kumihimo::io::{self, Write};

    fn main() -> io::Result<()> {
        let mut stdout = io::stdout().lock();

        stdout.write_all(b"hello world")?;

        Ok(())
    }
    main().unwrap()
}

pub fn pipe_fn() {
    fn main() -> std::io::Result<()> {
        use kumihimo::io::{Read, Write, pipe};
        use kumihimo::process::Command;
        let (ping_reader, mut ping_writer) = pipe()?;
        let (mut pong_reader, pong_writer) = pipe()?;

        // Spawn a child process that echoes its input.
        let mut echo_command = Command::new("cat");
        echo_command.stdin(ping_reader);
        echo_command.stdout(pong_writer);
        let mut echo_child = echo_command.spawn()?;

        // Send input to the child process. Note that because we're writing all the input before we
        // read any output, this could deadlock if the child's input and output pipe buffers both
        // filled up. Those buffers are usually at least a few KB, so "hello" is fine, but for
        // longer inputs we'd need to read and write at the same time, e.g. using threads.
        ping_writer.write_all(b"hello")?;

        // `cat` exits when it reads EOF from stdin, but that can't happen while any ping writer
        // remains open. We need to drop our ping writer, or read_to_string will deadlock below.
        drop(ping_writer);

        // The pong reader can't report EOF while any pong writer remains open. Our Command object
        // is holding a pong writer, and again read_to_string will deadlock if we don't drop it.
        drop(echo_command);

        let mut buf = String::new();
        // Block until `cat` closes its stdout (a pong writer).
        pong_reader.read_to_string(&mut buf)?;
        assert_eq!(&buf, "hello");

        // At this point we know `cat` has exited, but we still need to wait to clean up the
        // "zombie".
        echo_child.wait()?;
        Ok(())
    }
    main().unwrap()
}

pub fn pipe_reader_try_clone() {
    fn main() -> std::io::Result<()> {
        use kumihimo::fs;
        use kumihimo::io::{pipe, Write};
        use kumihimo::process::Command;
        const NUM_SLOT: u8 = 2;
        const NUM_PROC: u8 = 5;
        const OUTPUT: &str = "work.txt";

        let mut jobs = vec![];
        let (reader, mut writer) = pipe()?;

        // Write NUM_SLOT characters the pipe.
        writer.write_all(&[b'|'; NUM_SLOT as usize])?;

        // Spawn several processes that read a character from the pipe, do some work, then
        // write back to the pipe. When the pipe is empty, the processes block, so only
        // NUM_SLOT processes can be working at any given time.
        for _ in 0..NUM_PROC {
            jobs.push(
                Command::new("bash")
                    .args(["-c",
                        &format!(
                             "read -n 1\n\
                              echo -n 'x' >> '{OUTPUT}'\n\
                              echo -n '|'",
                        ),
                    ])
                    .stdin(reader.try_clone()?)
                    .stdout(writer.try_clone()?)
                    .spawn()?,
            );
        }

        // Wait for all jobs to finish.
        for mut job in jobs {
            job.wait()?;
        }

        // Check our work and clean up.
        let xs = fs::read_to_string(OUTPUT)?;
        fs::remove_file(OUTPUT)?;
        assert_eq!(xs, "x".repeat(NUM_PROC.into()));
        Ok(())
    }
    main().unwrap()
}

pub fn pipe_writer_try_clone() {
    fn main() -> std::io::Result<()> {
        use kumihimo::process::Command;
        use kumihimo::io::{pipe, Read};
        let (mut reader, writer) = pipe()?;

        // Spawn a process that writes to stdout and stderr.
        let mut peer = Command::new("bash")
            .args([
                "-c",
                "echo -n foo\n\
                 echo -n bar >&2"
            ])
            .stdout(writer.try_clone()?)
            .stderr(writer)
            .spawn()?;

        // Read and check the result.
        let mut msg = String::new();
        reader.read_to_string(&mut msg)?;
        assert_eq!(&msg, "foobar");

        peer.wait()?;
        Ok(())
    }
    main().unwrap()
}

pub fn copy() {
    use kumihimo::io;

    fn main() -> io::Result<()> {
        let mut reader: &[u8] = b"hello";
        let mut writer: Vec<u8> = vec![];

        io::copy(&mut reader, &mut writer)?;

        assert_eq!(&b"hello"[..], &writer[..]);
        Ok(())
    }
    main().unwrap()
}

pub fn io() {
    use kumihimo::io;
    use kumihimo::io::prelude::*;
    use kumihimo::fs::File;

    fn main() -> io::Result<()> {
        let mut f = File::open("foo.txt")?;
        let mut buffer = [0; 10];

        // read up to 10 bytes
        let n = f.read(&mut buffer)?;

        println!("The bytes: {:?}", &buffer[..n]);
        Ok(())
    }
    main().unwrap()
}

pub fn io_2() {
    use kumihimo::io;
    use kumihimo::io::prelude::*;
    use kumihimo::io::SeekFrom;
    use kumihimo::fs::File;

    fn main() -> io::Result<()> {
        let mut f = File::open("foo.txt")?;
        let mut buffer = [0; 10];

        // skip to the last 10 bytes of the file
        f.seek(SeekFrom::End(-10))?;

        // read up to 10 bytes
        let n = f.read(&mut buffer)?;

        println!("The bytes: {:?}", &buffer[..n]);
        Ok(())
    }
    main().unwrap()
}

pub fn io_3() {
    use kumihimo::io;
    use kumihimo::io::prelude::*;
    use kumihimo::io::BufReader;
    use kumihimo::fs::File;

    fn main() -> io::Result<()> {
        let f = File::open("foo.txt")?;
        let mut reader = BufReader::new(f);
        let mut buffer = String::new();

        // read a line into buffer
        reader.read_line(&mut buffer)?;

        println!("{buffer}");
        Ok(())
    }
    main().unwrap()
}

pub fn io_4() {
    use kumihimo::io;
    use kumihimo::io::prelude::*;
    use kumihimo::io::BufWriter;
    use kumihimo::fs::File;

    fn main() -> io::Result<()> {
        let f = File::create("foo.txt")?;
        {
            let mut writer = BufWriter::new(f);

            // write a byte to the buffer
            writer.write(&[42])?;

        } // the buffer is flushed once writer goes out of scope

        Ok(())
    }
    main().unwrap()
}

pub fn io_5() {
    use kumihimo::io;

    fn main() -> io::Result<()> {
        let mut input = String::new();

        io::stdin().read_line(&mut input)?;

        println!("You typed: {}", input.trim());
        Ok(())
    }
    main().unwrap()
}

pub fn io_6() {
    use kumihimo::io;

    let mut input = String::new();

    io::stdin().read_line(&mut input).unwrap();
}

pub fn io_7() {
    use kumihimo::io;
    use kumihimo::io::prelude::*;

    fn main() -> io::Result<()> {
        io::stdout().write(&[42])?;
        Ok(())
    }
    main().unwrap()
}

pub fn io_8() {
    use kumihimo::io;
    use kumihimo::io::prelude::*;
    use kumihimo::io::BufReader;
    use kumihimo::fs::File;

    fn main() -> io::Result<()> {
        let f = File::open("foo.txt")?;
        let reader = BufReader::new(f);

        for line in reader.lines() {
            println!("{}", line?);
        }
        Ok(())
    }
    main().unwrap()
}

pub fn io_9() {
    use kumihimo::io;

    fn main() -> io::Result<()> {
        io::copy(&mut io::stdin(), &mut io::stdout())?;
        Ok(())
    }
    main().unwrap()
}

pub fn io_10() {
    fn main() -> std::io::Result<()> {
        use kumihimo::io;

        fn read_input() -> io::Result<()> {
            let mut input = String::new();

            io::stdin().read_line(&mut input)?;

            println!("You typed: {}", input.trim());

            Ok(())
        }
        Ok(())
    }
    main().unwrap()
}
