//! Every body inside a microprocess, with what it starts in microprocesses of their own.

mod bodies;

bodies!(inside_tests);
