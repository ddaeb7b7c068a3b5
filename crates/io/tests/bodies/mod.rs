//! The bodies of the tests: run once on plain std threads and once inside microprocesses.
#![allow(dead_code)]

pub mod children;
pub mod datagrams;
pub mod files;
pub mod halves;
pub mod hard;
pub mod hostile;
pub mod limits;
pub mod packets;
pub mod streams;
pub mod tcp;
pub mod udp;
pub mod unix;

use kumihimo_runtime::thread;

/// Waits for what was spawned; panics if it panicked.
pub type Join = Box<dyn FnOnce()>;

/// How a body starts what runs beside it.
#[derive(Clone, Copy)]
pub struct Env {
    pub spawn: fn(Box<dyn FnOnce() + Send>) -> Join,
}

impl Env {
    pub fn spawn(self, f: impl FnOnce() + Send + 'static) -> Join {
        (self.spawn)(Box::new(f))
    }
}

/// On std threads.
pub const STD: Env = Env {
    spawn: |f| {
        let thread = std::thread::spawn(f);
        Box::new(move || thread.join().expect("the other thread panicked"))
    },
};

/// In microprocesses.
pub const MICROPROCESSES: Env = Env {
    spawn: |f| {
        let microprocess = thread::spawn(f);
        Box::new(move || microprocess.join().expect("the other microprocess panicked"))
    },
};

/// A body in a microprocess of its own, and what it starts in `rest`.
pub fn inside(body: fn(Env), rest: Env) {
    if let Err(payload) = thread::spawn(move || body(rest)).join() {
        std::panic::resume_unwind(payload);
    }
}

/// On a std thread, in a microprocess beside std threads, and in one beside microprocesses.
pub fn everywhere(body: fn(Env)) {
    body(STD);
    [STD, MICROPROCESSES].into_iter().for_each(|rest| inside(body, rest));
}

/// Of each body a test that runs it in a microprocess.
#[macro_export]
macro_rules! inside_tests {
    ($($module:ident: $($body:ident),*;)*) => {
        $($(#[test] fn $body() { bodies::inside(bodies::$module::$body, bodies::MICROPROCESSES) })*)*

        /// The body in a microprocess, what it starts on std threads.
        mod with_std_threads {
            use super::bodies;
            $($(#[test] fn $body() { bodies::inside(bodies::$module::$body, bodies::STD) })*)*
        }
    };
}

/// Calls `$with!` with every body.
#[macro_export]
macro_rules! bodies {
    ($with:ident) => {
        $with! {
            tcp: echo, echo_v6, clients_in_turn, connect_refused, connect_to_nothing, second_address_serves,
                names_are_resolved, timeouts_are_checked, read_times_out, write_times_out, timeouts_survive_conversion,
                peek_leaves_it_there, nonblocking_is_shared, shutdown_ends_one_direction, shutdown_ends_a_waiting_read,
                read_and_write_through_clones, vectored, options, closed_on_exec, debug_as_std, incoming_never_ends,
                listener_conversion, raw_descriptors, empty_buffers;
            hard: short_read_then_end, connect_times_out, reset_in_mid_read, write_to_the_gone, closing_a_listener,
                many_acceptors, two_readers, urgent_data, bulk_both_ways, a_thousand_connections;
            unix: pair, by_path, by_abstract_name, bad_paths, full_backlog, descriptors_in_the_stream, timeouts,
                shutdown_and_peek, unix_incoming;
            packets: reads_take_one_packet_each, reads_of_a_clone_take_one_packet_each,
                accepted_sockets_have_packets_too, writers_send_a_packet_each, read_of_nothing_takes_a_packet;
            udp: udp_echo, udp_connected, udp_timeouts, udp_nonblocking_and_conversion, udp_bad_addresses, udp_refused,
                udp_options, udp_multicast, udp_many_receivers;
            datagrams: datagram_pair, datagrams_by_path, datagrams_by_abstract_name, datagrams_wait_for_room,
                datagram_timeouts, datagram_shutdown;
            halves: lent_halves, owned_halves, halves_become_one, keepalive_and_linger, buffer_sizes, shared_ports,
                built_sockets, peer_credentials;
        }
    };
}

/// Calls `$with!` with every body about files, streams and children.
#[macro_export]
macro_rules! file_bodies {
    ($with:ident) => {
        $with! {
            files: whole_files, reading_and_writing, at_offsets, clones_share_the_position, options, attributes, names,
                directories, copies, errors_of_the_device, a_full_disk, locks, conversions, fifos, a_full_fifo,
                a_nonblocking_fifo, a_deadline_ends_a_wait, a_terminal;
            streams: a_pipe, bulk, many_writers, many_readers, without_a_reader, a_deadline_ends_both, flags_stay,
                copy_between_anything, file_in_a_pipe_is_a_copy, copy_that_fills_a_pipe_ends;
            children: output, much_output, through_a_child, waiting, a_deadline_ends_a_wait_for_one, what_cannot_begin,
                what_a_child_is_given, streams_of_ours, child_that_is_to_die_with_its_parent_lives,
                child_inherits_the_signal_mask;
        }
    };
}
