//! std's documentation examples for files, child processes and streams compile with only the `use`
//! changed, and pass.
//!
//! They are those of std 1.95 for `std::fs`, `std::process` and `std::io` (stable ones), one
//! function each; an example that uses `?` outside of a function stands in a `main` of its own.
//! Copyright (c) The Rust Project Contributors, MIT OR Apache-2.0, as this repository.
//!
//! Each runs in a microprocess of a process of its own, since they name files relative to the
//! working directory, and read standard input.

use std::fs::File;
use std::process::Command;

#[allow(unused, deprecated, clippy::all)]
#[rustfmt::skip]
mod entries;
#[allow(unused, deprecated, clippy::all)]
#[rustfmt::skip]
mod file;
#[allow(unused, deprecated, clippy::all)]
#[rustfmt::skip]
mod functions;
#[allow(unused, deprecated, clippy::all)]
#[rustfmt::skip]
mod processes;
#[allow(unused, deprecated, clippy::all)]
#[rustfmt::skip]
mod streams;

type Example = (&'static str, fn());

macro_rules! examples {
    ($module:ident: $($name:ident),*) => {
        &[$((stringify!($name), $module::$name as fn())),*] as &[Example]
    };
}

/// What most of them expect.
const TEXTS: [(&str, &str); 5] = [
    ("foo.txt", "Hello, world!"),
    ("a.txt", "Hello, world!"),
    ("file.txt", "Hello, world!"),
    ("bar.txt", "Hello, world!"),
    ("message.txt", "Hello, world!"),
];

/// Runs the examples of the calling test, each with these files.
fn run(test: &str, files: &[(&str, &str)], all: &[Example]) {
    if let Ok(name) = std::env::var("KUMI_TEST_EXAMPLE") {
        if let Some(&(_, example)) = all.iter().find(|(n, _)| *n == name) {
            kumihimo::thread::spawn(example).join().expect("the example panicked");
            std::process::exit(0);
        }
        return;
    }
    for (name, _) in all {
        let place =
            std::env::temp_dir().join(format!("kumihimo-{}-{test}-{name}", std::process::id()));
        // Some go up and down again.
        let inside = place.join("a");
        std::fs::create_dir_all(&inside).unwrap();
        std::fs::write(place.join("input"), "a line\n").unwrap();
        std::fs::write(place.join("foo.txt"), "").unwrap();
        for (file, text) in files {
            std::fs::write(inside.join(file), text).unwrap();
        }
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env("KUMI_TEST_EXAMPLE", name)
            .current_dir(&inside)
            .stdin(File::open(place.join("input")).unwrap())
            .output()
            .unwrap();
        std::fs::remove_dir_all(&place).unwrap();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        // libtest is content with a name that no test has.
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(!said.contains("running 0 tests"), "there is no test {test}");
    }
}

#[test]
fn files() {
    run(
        "files",
        &TEXTS,
        examples!(
            file:
            file, file_2, file_3, file_open, file_create, file_sync_all, file_sync_data, file_lock,
            file_lock_shared, file_try_lock, file_try_lock_shared, file_unlock, file_set_len, file_metadata,
            file_try_clone, file_set_permissions, file_from, open_options, open_options_2, open_options_new,
            open_options_read, open_options_write, open_options_append, open_options_truncate,
            open_options_create, open_options_create_new, open_options_open
        ),
    );
    run("files", &[("foo.txt", "abcdef\n")], examples!(file: file_try_clone_2));
    run("files", &[("example.log", "")], examples!(file: file_options));
    run("files", &[("src", ""), ("dest", "")], examples!(file: file_set_times));
    run("files", &[], examples!(file: file_create_new));
}

#[test]
fn functions_of_fs() {
    run(
        "functions_of_fs",
        &TEXTS,
        examples!(
            functions:
            canonicalize, copy, hard_link, read_dir, read_dir_2, read_to_string, remove_file, rename,
            set_permissions, soft_link, write
        ),
    );
    // They name paths that only std's page has, or that belong to the machine.
    let _compiled = examples!(
        functions:
        create_dir, create_dir_all, exists, metadata, read, read_link, remove_dir, remove_dir_all,
        symlink_metadata
    );
}

#[test]
fn entries_of_directories() {
    run(
        "entries_of_directories",
        &TEXTS,
        examples!(
            entries:
            dir_builder_new, dir_builder_recursive, dir_entry_path, dir_entry_metadata, dir_entry_file_type,
            dir_entry_file_name, file_type_is_dir, file_type_is_file, file_type_is_symlink,
            metadata_of_file_type, metadata_of_is_dir, metadata_of_is_file, metadata_of_is_symlink,
            metadata_of_permissions, metadata_of_modified, metadata_of_accessed, metadata_of_created,
            permissions_readonly, permissions_set_readonly
        ),
    );
    run("entries_of_directories", &[("foo.txt", "")], examples!(entries: metadata_of_len));
    // Makes directories in /tmp.
    let _compiled = examples!(entries: dir_builder_create);
}

#[test]
fn child_processes() {
    run(
        "child_processes",
        &TEXTS,
        examples!(
            processes:
            command, command_2, command_3, command_new, command_new_2, command_arg_3, command_args,
            command_env, command_envs, command_env_remove, command_env_clear, command_current_dir,
            command_stdin, command_stdout, command_stderr, command_spawn, command_output, command_status,
            command_get_program, command_get_args, command_get_envs, command_get_current_dir, child,
            child_kill, child_id, child_wait, child_try_wait, child_wait_with_output, child_stdin_from,
            child_stdout_from, child_stderr_from, exit_status_success, exit_status_code, stdio_piped,
            stdio_piped_2, stdio_inherit, stdio_inherit_2, stdio_null, stdio_null_2, id, exit_2
        ),
    );
    // They end the process.
    let _compiled = examples!(processes: abort, abort_2, exit_2);
}

#[test]
fn streams_of_io() {
    run(
        "streams_of_io",
        &TEXTS,
        examples!(
            streams:
            stdin_fn, stdin_fn_2, stdout_fn, stdout_fn_2, stdout_fn_3, stderr_fn, stderr_fn_2, stdin,
            stdin_lock, stdin_read_line, stdin_lines, stdout_lock, pipe_fn, pipe_writer_try_clone, copy, io,
            io_2, io_3, io_4, io_5, io_6, io_7, io_8, io_9, io_10
        ),
    );
    run("streams_of_io", &[], examples!(streams: pipe_reader_try_clone));
}
