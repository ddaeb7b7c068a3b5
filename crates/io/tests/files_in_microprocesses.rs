//! Every body inside a microprocess, with what it starts in microprocesses of their own.

mod bodies;

file_bodies!(inside_tests);
