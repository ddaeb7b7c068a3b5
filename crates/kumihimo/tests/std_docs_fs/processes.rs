//! std 1.95's documentation examples for std::process. See main.rs.

pub fn command() {
    use kumihimo::process::Command;

    let output = if cfg!(target_os = "windows") {
        Command::new("cmd")
            .args(["/C", "echo hello"])
            .output()
            .expect("failed to execute process")
    } else {
        Command::new("sh")
            .arg("-c")
            .arg("echo hello")
            .output()
            .expect("failed to execute process")
    };

    let hello = output.stdout;
}

pub fn command_2() {
    use kumihimo::process::Command;

    let mut echo_hello = Command::new("sh");
    echo_hello.arg("-c").arg("echo hello");
    let hello_1 = echo_hello.output().expect("failed to execute process");
    let hello_2 = echo_hello.output().expect("failed to execute process");
}

pub fn command_3() {
    use kumihimo::process::Command;

    let mut list_dir = Command::new("ls");

    // Execute `ls` in the current directory of the program.
    list_dir.status().expect("process failed to execute");

    println!();

    // Change `ls` to execute in the root directory.
    list_dir.current_dir("/");

    // And then execute `ls` again but in the root directory.
    list_dir.status().expect("process failed to execute");
}

pub fn command_new() {
    use kumihimo::process::Command;

    Command::new("sh")
        .spawn()
        .expect("sh command failed to start");
}

pub fn command_new_2() {
    use kumihimo::process::Command;

    Command::new("ls")
        .arg("-l") // arg passed separately
        .spawn()
        .expect("ls command failed to start");
}

pub fn command_arg_3() {
    use kumihimo::process::Command;

    Command::new("ls")
        .arg("-l")
        .arg("-a")
        .spawn()
        .expect("ls command failed to start");
}

pub fn command_args() {
    use kumihimo::process::Command;

    Command::new("ls")
        .args(["-l", "-a"])
        .spawn()
        .expect("ls command failed to start");
}

pub fn command_env() {
    use kumihimo::process::Command;

    Command::new("ls")
        .env("PATH", "/bin")
        .spawn()
        .expect("ls command failed to start");
}

pub fn command_envs() {
    use kumihimo::process::{Command, Stdio};
    use std::env;
    use std::collections::HashMap;

    let filtered_env : HashMap<String, String> =
        env::vars().filter(|&(ref k, _)|
            k == "TERM" || k == "TZ" || k == "LANG" || k == "PATH"
        ).collect();

    Command::new("printenv")
        .stdin(Stdio::null())
        .stdout(Stdio::inherit())
        .env_clear()
        .envs(&filtered_env)
        .spawn()
        .expect("printenv failed to start");
}

pub fn command_env_remove() {
    fn main() -> std::io::Result<()> {
        use kumihimo::process::Command;

        Command::new("git")
            .arg("commit")
            .env_remove("GIT_DIR")
            .spawn()?;
        Ok(())
    }
    main().unwrap()
}

pub fn command_env_clear() {
    fn main() -> std::io::Result<()> {
        use kumihimo::process::Command;

        Command::new("sort")
            .arg("file.txt")
            .env_clear()
            .spawn()?;
        Ok(())
    }
    main().unwrap()
}

pub fn command_current_dir() {
    use kumihimo::process::Command;

    Command::new("ls")
        .current_dir("/bin")
        .spawn()
        .expect("ls command failed to start");
}

pub fn command_stdin() {
    use kumihimo::process::{Command, Stdio};

    Command::new("ls")
        .stdin(Stdio::null())
        .spawn()
        .expect("ls command failed to start");
}

pub fn command_stdout() {
    use kumihimo::process::{Command, Stdio};

    Command::new("ls")
        .stdout(Stdio::null())
        .spawn()
        .expect("ls command failed to start");
}

pub fn command_stderr() {
    use kumihimo::process::{Command, Stdio};

    Command::new("ls")
        .stderr(Stdio::null())
        .spawn()
        .expect("ls command failed to start");
}

pub fn command_spawn() {
    use kumihimo::process::Command;

    Command::new("ls")
        .spawn()
        .expect("ls command failed to start");
}

pub fn command_output() {
    fn main() -> std::io::Result<()> {
        use kumihimo::process::Command;
        use kumihimo::io::{self, Write};
        let output = Command::new("/bin/cat")
            .arg("file.txt")
            .output()?;

        println!("status: {}", output.status);
        io::stdout().write_all(&output.stdout)?;
        io::stderr().write_all(&output.stderr)?;

        assert!(output.status.success());
        Ok(())
    }
    main().unwrap()
}

pub fn command_status() {
    use kumihimo::process::Command;

    let status = Command::new("/bin/cat")
        .arg("file.txt")
        .status()
        .expect("failed to execute process");

    println!("process finished with: {status}");

    assert!(status.success());
}

pub fn command_get_program() {
    use kumihimo::process::Command;

    let cmd = Command::new("echo");
    assert_eq!(cmd.get_program(), "echo");
}

pub fn command_get_args() {
    use std::ffi::OsStr;
    use kumihimo::process::Command;

    let mut cmd = Command::new("echo");
    cmd.arg("first").arg("second");
    let args: Vec<&OsStr> = cmd.get_args().collect();
    assert_eq!(args, &["first", "second"]);
}

pub fn command_get_envs() {
    use std::ffi::OsStr;
    use kumihimo::process::Command;

    let mut cmd = Command::new("ls");
    cmd.env("TERM", "dumb").env_remove("TZ");
    let envs: Vec<(&OsStr, Option<&OsStr>)> = cmd.get_envs().collect();
    assert_eq!(envs, &[
        (OsStr::new("TERM"), Some(OsStr::new("dumb"))),
        (OsStr::new("TZ"), None)
    ]);
}

pub fn command_get_current_dir() {
    use std::path::Path;
    use kumihimo::process::Command;

    let mut cmd = Command::new("ls");
    assert_eq!(cmd.get_current_dir(), None);
    cmd.current_dir("/bin");
    assert_eq!(cmd.get_current_dir(), Some(Path::new("/bin")));
}

pub fn child() {
    use kumihimo::process::Command;

    let mut child = Command::new("/bin/cat")
        .arg("file.txt")
        .spawn()
        .expect("failed to execute child");

    let ecode = child.wait().expect("failed to wait on child");

    assert!(ecode.success());
}

pub fn child_kill() {
    use kumihimo::process::Command;

    let mut command = Command::new("yes");
    if let Ok(mut child) = command.spawn() {
        child.kill().expect("command couldn't be killed");
    } else {
        println!("yes command didn't start");
    }
}

pub fn child_id() {
    use kumihimo::process::Command;

    let mut command = Command::new("ls");
    if let Ok(child) = command.spawn() {
        println!("Child's ID is {}", child.id());
    } else {
        println!("ls command didn't start");
    }
}

pub fn child_wait() {
    use kumihimo::process::Command;

    let mut command = Command::new("ls");
    if let Ok(mut child) = command.spawn() {
        child.wait().expect("command wasn't running");
        println!("Child has finished its execution!");
    } else {
        println!("ls command didn't start");
    }
}

pub fn child_try_wait() {
    fn main() -> std::io::Result<()> {
        use kumihimo::process::Command;

        let mut child = Command::new("ls").spawn()?;

        match child.try_wait() {
            Ok(Some(status)) => println!("exited with: {status}"),
            Ok(None) => {
                println!("status not ready yet, let's really wait");
                let res = child.wait();
                println!("result: {res:?}");
            }
            Err(e) => println!("error attempting to wait: {e}"),
        }
        Ok(())
    }
    main().unwrap()
}

pub fn child_wait_with_output() {
    use kumihimo::process::{Command, Stdio};

    let child = Command::new("/bin/cat")
        .arg("file.txt")
        .stdout(Stdio::piped())
        .spawn()
        .expect("failed to execute child");

    let output = child
        .wait_with_output()
        .expect("failed to wait on child");

    assert!(output.status.success());
}

pub fn child_stdin_from() {
    use kumihimo::process::{Command, Stdio};

    let reverse = Command::new("rev")
        .stdin(Stdio::piped())
        .spawn()
        .expect("failed reverse command");

    let _echo = Command::new("echo")
        .arg("Hello, world!")
        .stdout(reverse.stdin.unwrap()) // Converted into a Stdio here
        .output()
        .expect("failed echo command");

    // "!dlrow ,olleH" echoed to console
}

pub fn child_stdout_from() {
    use kumihimo::process::{Command, Stdio};

    let hello = Command::new("echo")
        .arg("Hello, world!")
        .stdout(Stdio::piped())
        .spawn()
        .expect("failed echo command");

    let reverse = Command::new("rev")
        .stdin(hello.stdout.unwrap())  // Converted into a Stdio here
        .output()
        .expect("failed reverse command");

    assert_eq!(reverse.stdout, b"!dlrow ,olleH\n");
}

pub fn child_stderr_from() {
    use kumihimo::process::{Command, Stdio};

    let reverse = Command::new("rev")
        .arg("non_existing_file.txt")
        .stderr(Stdio::piped())
        .spawn()
        .expect("failed reverse command");

    let cat = Command::new("cat")
        .arg("-")
        .stdin(reverse.stderr.unwrap()) // Converted into a Stdio here
        .output()
        .expect("failed echo command");

    assert_eq!(
        String::from_utf8_lossy(&cat.stdout),
        "rev: cannot open non_existing_file.txt: No such file or directory\n"
    );
}

pub fn exit_status_success() {
    use kumihimo::process::Command;

    let status = Command::new("mkdir")
        .arg("projects")
        .status()
        .expect("failed to execute mkdir");

    if status.success() {
        println!("'projects/' directory created");
    } else {
        println!("failed to create 'projects/' directory: {status}");
    }
}

pub fn exit_status_code() {
    use kumihimo::process::Command;

    let status = Command::new("mkdir")
        .arg("projects")
        .status()
        .expect("failed to execute mkdir");

    match status.code() {
        Some(code) => println!("Exited with status code: {code}"),
        None => println!("Process terminated by signal")
    }
}

pub fn stdio_piped() {
    use kumihimo::process::{Command, Stdio};

    let output = Command::new("echo")
        .arg("Hello, world!")
        .stdout(Stdio::piped())
        .output()
        .expect("Failed to execute command");

    assert_eq!(String::from_utf8_lossy(&output.stdout), "Hello, world!\n");
    // Nothing echoed to console
}

pub fn stdio_piped_2() {
    use kumihimo::io::Write;
    use kumihimo::process::{Command, Stdio};

    let mut child = Command::new("rev")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("Failed to spawn child process");

    let mut stdin = child.stdin.take().expect("Failed to open stdin");
    std::thread::spawn(move || {
        stdin.write_all("Hello, world!".as_bytes()).expect("Failed to write to stdin");
    });

    let output = child.wait_with_output().expect("Failed to read stdout");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "!dlrow ,olleH");
}

pub fn stdio_inherit() {
    use kumihimo::process::{Command, Stdio};

    let output = Command::new("echo")
        .arg("Hello, world!")
        .stdout(Stdio::inherit())
        .output()
        .expect("Failed to execute command");

    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    // "Hello, world!" echoed to console
}

pub fn stdio_inherit_2() {
    fn main() -> std::io::Result<()> {
        use kumihimo::process::{Command, Stdio};
        use kumihimo::io::{self, Write};

        let output = Command::new("rev")
            .stdin(Stdio::inherit())
            .stdout(Stdio::piped())
            .output()?;

        print!("You piped in the reverse of: ");
        io::stdout().write_all(&output.stdout)?;
        Ok(())
    }
    main().unwrap()
}

pub fn stdio_null() {
    use kumihimo::process::{Command, Stdio};

    let output = Command::new("echo")
        .arg("Hello, world!")
        .stdout(Stdio::null())
        .output()
        .expect("Failed to execute command");

    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    // Nothing echoed to console
}

pub fn stdio_null_2() {
    use kumihimo::process::{Command, Stdio};

    let output = Command::new("rev")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .output()
        .expect("Failed to execute command");

    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    // Ignores any piped-in input
}

pub fn id() {
    use kumihimo::process;

    println!("My pid is {}", process::id());
}

pub fn exit_2() {
    use kumihimo::process;

    process::exit(0x0100);
}

pub fn abort() {
    use kumihimo::process;

    fn main() {
        println!("aborting");

        process::abort();

        // execution never gets here
    }
    main()
}

pub fn abort_2() {
    use kumihimo::process;

    struct HasDrop;

    impl Drop for HasDrop {
        fn drop(&mut self) {
            println!("This will never be printed!");
        }
    }

    fn main() {
        let _x = HasDrop;
        process::abort();
        // the destructor implemented for HasDrop will never get run
    }
    main()
}
