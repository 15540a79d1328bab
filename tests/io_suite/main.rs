//! The i/o suite: cases that every driver passes, written once over the public
//! types. Each runs on the simulation, on a hundred seeds with fair i/o and with
//! rough, and on the native runtime.

mod broken;
mod bytes;
mod errors;
mod files;
mod hosts;
mod lab;
mod limits;
mod misuse;
mod registered;
mod series;
mod simulated;
mod sockets;
mod streams;
mod telling;

macro_rules! suite {
    ($($host:ident),*; $cases:tt) => {
        $(suite!(@ $host $cases);)*
    };
    (@ $host:ident { $($module:ident: $($name:ident),* $(,)?;)* }) => {
        mod $host {
            $($(#[test]
            fn $name() {
                crate::hosts::$host(
                    concat!(stringify!($host), "::", stringify!($name)),
                    |lab| Box::pin(crate::$module::$name(lab)),
                );
            })*)*
        }
    };
}

suite! {
    sim, rough_sim, ring_alone, ring_two, rough_ring_two,
    readiness_alone, readiness_two, rough_readiness_two;
    {
        bytes:
            io_1_a_file_is_written_and_read,
            io_1_a_pipe_carries_bytes_in_order,
            io_1_appended_records_stay_in_order,
            io_1_two_readers_of_one_pipe_lose_no_byte,
            io_1_a_race_of_two_reads_loses_no_byte;
        telling:
            case_j13_told_at_entry_nothing_is_submitted,
            case_j10_told_while_it_waits_it_goes_on_after_the_end,
            io_1_what_succeeded_is_returned_though_told,
            io_3_dropped_half_way_it_is_adopted,
            io_3_opened_for_nobody_it_is_closed,
            io_1_a_timeout_around_a_read_loses_nothing,
            io_1_a_cancel_during_a_cancel,
            io_3_dropped_while_its_cancel_is_under_way,
            io_1_a_file_is_closed_though_told,
            io_2_what_was_started_goes_on_though_told,
            io_2_what_was_started_ends_with_its_job,
            shutdown_1_operations_in_flight_end;
        limits:
            io_3_beyond_the_limit_they_wait_in_order,
            io_3_beyond_the_limit_they_are_cancelled_there,
            io_1_a_close_beyond_the_limit_closes_though_told,
            io_3_who_waits_for_another_side_takes_no_place;
        errors:
            io_1_each_error_comes_with_the_buffer,
            io_1_interrupted_it_is_begun_again,
            io_1_a_full_disk_is_an_error_of_one_write,
            io_1_too_many_files;
        files:
            io_5_names_are_given_changed_and_taken_away,
            io_5_a_file_in_several_pieces,
            io_5_a_file_is_written_to_the_disk_and_cut,
            io_5_a_hole_is_punched;
        registered:
            io_1_registered_buffers_carry_bytes_and_come_back,
            io_1_registered_buffers_come_back_with_errors_and_cancels,
            io_3_a_pool_is_dropped_while_its_buffer_is_under_way,
            io_1_those_who_wait_for_a_buffer_are_served_in_order;
        sockets:
            io_5_a_server_sends_every_byte_back,
            io_5_accepted_for_nobody_it_is_closed,
            io_5_told_while_it_accepts_connects_and_receives,
            io_5_a_connection_that_is_refused_or_reset,
            io_5_messages_stay_whole,
            io_5_sockets_with_a_name_on_the_disk;
        series:
            io_5_connections_come_by_themselves,
            io_5_what_a_dropped_stream_has_not_given_is_accepted_next,
            io_5_told_between_connections_none_is_lost,
            io_5_in_clean_up_connections_come,
            io_5_connections_nobody_takes_are_closed,
            io_5_an_error_is_one_item_of_many,
            io_5_a_timeout_around_a_stream_loses_nothing,
            io_5_bytes_come_in_chunks_of_a_pool,
            io_5_what_dropped_chunks_have_not_given_is_read_next,
            io_5_told_between_chunks_no_byte_is_lost,
            io_5_without_a_buffer_it_waits_for_one,
            io_5_told_without_a_buffer_no_byte_is_lost,
            io_5_a_connection_that_is_reset_is_an_item,
            io_5_idle_streams_share_a_few_buffers,
            io_5_the_end_of_a_stream_needs_no_buffer;
        streams:
            io_7_lines_are_read_whole,
            io_7_parts_are_read_whole,
            io_7_a_line_that_is_no_text_or_too_long_is_an_error,
            io_7_a_told_wait_keeps_its_part_of_a_line,
            io_7_told_at_entry_a_line_is_left,
            io_7_a_dropped_wait_loses_no_byte,
            io_7_a_told_flush_says_what_is_written,
            io_7_small_writes_go_together,
            io_7_a_copy_copies_to_the_end,
            io_7_a_told_copy_keeps_its_progress,
            io_7_a_half_close_is_passed_on,
            io_7_a_told_copy_in_both_directions_reports,
            io_7_an_interrupt_stops_both_directions,
            shutdown_1_streams_that_wait_end;
    }
}
