//! Bad input that the book lists: each in a microprocess beside microprocesses, beside std
//! threads, and on a std thread.

mod bodies;

use bodies::{everywhere, hard, packets, tcp, unix};

#[test]
fn a_peer_that_resets_in_mid_read() {
    everywhere(hard::reset_in_mid_read);
}

#[test]
fn writing_to_a_peer_that_is_gone() {
    everywhere(hard::write_to_the_gone);
}

#[test]
fn connecting_where_nobody_listens() {
    everywhere(tcp::connect_refused);
    everywhere(tcp::connect_to_nothing);
    everywhere(unix::bad_paths);
}

#[test]
fn connecting_to_a_full_backlog() {
    everywhere(hard::connect_times_out);
    everywhere(unix::full_backlog);
}

#[test]
fn closing_a_listener_with_connections_waiting() {
    everywhere(hard::closing_a_listener);
}

#[test]
fn timeouts_of_zero() {
    everywhere(tcp::timeouts_are_checked);
}

#[test]
fn urgent_data_and_descriptors_in_the_stream() {
    everywhere(hard::urgent_data);
    everywhere(unix::descriptors_in_the_stream);
}

#[test]
fn socket_of_packets_in_a_type_for_streams() {
    everywhere(packets::reads_take_one_packet_each);
    everywhere(packets::accepted_sockets_have_packets_too);
    everywhere(packets::writers_send_a_packet_each);
}
