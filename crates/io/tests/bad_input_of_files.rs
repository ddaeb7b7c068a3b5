//! Bad input about files and children that the book lists: each in a microprocess beside
//! microprocesses, beside std threads, and on a std thread.

mod bodies;

use bodies::{children, everywhere, files, streams};

#[test]
fn full_disks_and_devices_that_fail() {
    everywhere(files::a_full_disk);
    everywhere(files::errors_of_the_device);
}

#[test]
fn paths_and_options_that_mean_nothing() {
    everywhere(files::options);
    everywhere(files::directories);
}

#[test]
fn full_and_empty_fifos() {
    everywhere(files::a_full_fifo);
    everywhere(files::a_deadline_ends_a_wait);
    everywhere(streams::a_deadline_ends_both);
}

#[test]
fn a_fifo_that_is_not_to_wait() {
    everywhere(files::a_nonblocking_fifo);
}

#[test]
fn a_pipe_without_readers() {
    everywhere(streams::without_a_reader);
}

#[test]
fn children_that_cannot_begin() {
    everywhere(children::what_cannot_begin);
}

#[test]
fn file_that_changes_after_it_was_copied_into_a_pipe() {
    everywhere(streams::file_in_a_pipe_is_a_copy);
    everywhere(streams::copy_that_fills_a_pipe_ends);
}

#[test]
fn child_that_is_to_die_with_its_parent() {
    everywhere(children::child_that_is_to_die_with_its_parent_lives);
    everywhere(children::child_inherits_the_signal_mask);
}
