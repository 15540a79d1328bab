//! Probes of the kernel: each asks one small question over the public types, on Linux
//! and on the simulation, and the answers are compared as text.
//!
//! What differs stands in a table of `docs/testing.md`, with the reason. This test
//! writes the table when `KINFOLK_WRITE=1`, and checks it otherwise.

mod datagrams;
mod files;
mod listeners;
mod names;
mod pipes;
mod streams;
mod tale;
mod unix;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use kinfolk_core::{Error, Result};
use kinfolk_runtime::Runtime;
use kinfolk_runtime::io::IoDriver;
use kinfolk_testkit::{GuardedRun, Sim, guarded};

use tale::{At, Tale};

type Probe = fn(At) -> Pin<Box<dyn Future<Output = Result<Tale>> + Send>>;

macro_rules! probes {
    ($($module:ident: $($name:ident),* $(,)?;)*) => {
        /// Every probe, by name.
        const PROBES: &[(&str, Probe)] = &[
            $($((stringify!($name), |at| Box::pin($module::$name(at))),)*)*
        ];
    };
}

probes! {
    streams:
        write_after_the_peer_closed,
        read_after_the_peer_closed,
        read_after_the_peer_left_bytes_unread,
        write_after_the_peer_left_bytes_unread,
        answer_before_a_close_with_unread_bytes,
        half_closed_it_is_answered,
        half_closed_both_ways,
        write_after_the_own_half_close,
        half_closed_twice,
        shut_for_reading_it_reads_the_end,
        shut_for_reading_the_peer_still_writes,
        bytes_that_came_before_the_shut,
        a_read_that_waits_is_ended_by_a_shut,
        shut_after_a_reset,
        shut_both_ways,
        addresses_after_the_peer_closed,
        addresses_after_a_reset,
        nothing_is_written,
        nothing_is_read_where_nothing_is,
        nothing_is_read_where_something_is,
        several_pieces_arrive_in_order,
        bytes_before_a_close_arrive,
        a_large_write_is_taken_in_part,
        a_write_that_waits_hears_of_a_reset,
        a_read_that_waits_hears_of_a_reset,
        a_read_that_waits_hears_of_the_end;
    listeners:
        connect_where_nobody_listens,
        connect_to_port_zero,
        connect_to_any_address,
        connect_on_the_other_protocol,
        listen_where_one_listens,
        listen_everywhere_where_one_listens,
        listen_at_a_neighbour,
        listen_again_while_a_connection_lives,
        listen_at_an_address_of_another_machine,
        ports_are_chosen,
        written_before_it_was_accepted,
        accepted_in_order,
        accepted_after_the_client_left,
        a_listener_leaves_with_connections_waiting,
        addresses_of_both_sides,
        accept_waits,
        tcp_and_udp_share_a_port;
    datagrams:
        a_message_is_cut_to_the_buffer,
        an_empty_message_arrives,
        a_message_to_nobody,
        a_message_to_nobody_connected_and_read,
        a_message_to_nobody_connected_and_sent,
        connected_it_hears_one_peer,
        sent_without_a_peer,
        a_message_too_long,
        the_longest_message_arrives,
        messages_at_one_port,
        more_messages_than_fit,
        connected_it_may_send_elsewhere,
        messages_stay_in_order;
    unix:
        unix_write_after_the_peer_closed,
        unix_close_with_unread_bytes,
        unix_shut_for_reading,
        unix_connect_to_nothing,
        unix_connect_to_a_file,
        unix_name_outlives_its_listener,
        unix_bind_where_no_directory_is,
        unix_message_to_nothing,
        unix_message_is_cut,
        unix_messages_wait_for_room,
        unix_message_after_the_peer_left,
        unix_names_of_a_pair,
        unix_name_is_renamed,
        unix_listener_leaves_with_connections_waiting;
    pipes:
        pipe_write_without_a_reader,
        pipe_read_without_a_writer,
        pipe_holds_so_much,
        pipe_small_write_is_whole,
        pipe_large_write_is_taken_in_part,
        pipe_room_comes_in_pages,
        pipe_nothing_is_written,
        pipe_nothing_is_read,
        pipe_write_that_waits_loses_its_reader;
    files:
        append_goes_to_the_end,
        read_past_the_end,
        read_across_the_end,
        a_hole_reads_as_zeroes,
        nothing_is_written_far_away,
        cut_and_made_longer,
        emptied_while_open,
        two_opens_see_each_other,
        reads_have_no_common_place,
        file_in_pieces,
        not_opened_for_writing,
        not_opened_for_reading,
        written_too_far,
        room_is_made,
        a_directory_is_synced,
        a_directory_is_read_like_a_file,
        about_a_file,
        unlinked_while_open;
    names:
        rename_over_an_open_file,
        rename_onto_itself,
        rename_of_nothing,
        rename_of_a_directory_into_itself,
        rename_over_a_full_directory,
        rename_between_a_file_and_a_directory,
        create_new_where_one_is,
        open_where_nothing_is,
        open_below_a_file,
        open_a_directory_for_writing,
        open_a_file_as_a_directory,
        a_slash_behind_a_file,
        a_way_through_nothing,
        a_name_too_long,
        remove_a_full_directory,
        remove_the_wrong_sort,
        make_a_directory_twice,
        make_a_directory_below_nothing,
        list_a_directory,
        rights_of_what_is_made;
}

/// Why an answer differs. A probe that is not here and differs is a fault of the
/// simulation that has not been mended.
const ON_PURPOSE: &[(&str, &str)] = &[
    (
        "listen_at_an_address_of_another_machine",
        "a simulation stands for several machines: each address can be had",
    ),
    (
        "rights_of_what_is_made",
        "there are no users and no umask: rights are kept, and nothing is refused",
    ),
];

fn words(name: &str) -> String {
    name.replace('_', " ")
}

/// A scratch directory, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(driver: IoDriver) -> Scratch {
        let dir = format!("kinfolk-probes-{}-{driver:?}", std::process::id());
        let dir = std::env::temp_dir().join(dir);
        std::fs::create_dir_all(&dir).expect("a scratch directory");
        Scratch(dir)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// By name, what the answer is.
type Answers = BTreeMap<&'static str, String>;

async fn answer(name: &str, probe: Probe, dir: &Path) -> String {
    let at = At {
        dir: dir.join(name),
    };
    if let Err(error) = kinfolk_runtime::fs::create_dir_all(&at.dir).await {
        return format!("no directory: {error}");
    }
    match probe(at).await {
        Ok(tale) => tale.to_string(),
        Err(error) => format!("failed: {error}"),
    }
}

fn on_linux(driver: IoDriver, watched: &GuardedRun) -> Option<Answers> {
    let rt = Runtime::builder().workers(1).io(driver).build().ok()?;
    watched.watch(rt.tree());
    let scratch = Scratch::new(driver);
    let (dir, scope) = (scratch.0.clone(), rt.scope());
    let main = rt.scope().task("probes").spawn(async move {
        kinfolk_runtime::fs::metadata(&dir).await?;
        let begun: Vec<_> = PROBES
            .iter()
            .map(|&(name, probe)| {
                let dir = dir.clone();
                let probe = async move { answer(name, probe, &dir).await };
                (name, scope.task(name).spawn(probe))
            })
            .collect();
        let mut answers = Answers::new();
        for (name, task) in begun {
            answers.insert(name, task.await?);
        }
        Ok::<_, Error>(answers)
    });
    let outcome = rt.wait_for(main.outcome()).expect("awaited outside a job");
    let answers = outcome.expect("the probes end");
    rt.shutdown(Duration::from_secs(5)).expect("a report");
    match (answers, driver) {
        (kinfolk_core::Outcome::Completed(answers), _) => Some(answers),
        // No ring here.
        (_, IoDriver::Ring) => None,
        (other, _) => panic!("{other:?}"),
    }
}

fn on_the_simulation(seed: u64, watched: &GuardedRun) -> Answers {
    let one = |&(name, probe): &(&'static str, Probe)| {
        let mut sim = Sim::seeded(seed);
        watched.watch(sim.tree());
        let dir = PathBuf::from("/tmp");
        let said = sim.run(async move { Ok::<_, Error>(answer(name, probe, &dir).await) });
        sim.finish();
        (name, said.expect("a probe does not fail"))
    };
    PROBES.iter().map(one).collect()
}

/// What differs, for `docs/testing.md`.
fn table(linux: &Answers, simulation: &Answers) -> (usize, String) {
    let differs: Vec<&str> = PROBES
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| linux[name] != simulation[name])
        .collect();
    let (all, same) = (PROBES.len(), PROBES.len() - differs.len());
    let mut out = format!(
        "Of {all} probes of the kernel, {same} have the same answer on Linux and on the \
         simulation. These do not:\n\n| probe | Linux | simulation | why |\n|---|---|---|---|\n"
    );
    for name in differs {
        let why = ON_PURPOSE.iter().find(|(own, _)| *own == name);
        let why = why.map_or("not on purpose", |(_, why)| why);
        let (linux, simulation) = (&linux[name], &simulation[name]);
        out += &format!("| {} | {linux} | {simulation} | {why} |\n", words(name));
    }
    (same, out)
}

const BEGIN: &str =
    "<!-- written by KINFOLK_WRITE=1 cargo test -p kinfolk-tests --test probes -->\n";
const END: &str = "<!-- end of what is written -->";

fn compare_with_the_document(table: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/testing.md");
    let text = std::fs::read_to_string(&path).expect("docs/testing.md");
    let begin = text.find(BEGIN).expect("the mark before the table") + BEGIN.len();
    let end = text.find(END).expect("the mark behind the table");
    if std::env::var_os("KINFOLK_WRITE").is_some() {
        let new = [&text[..begin], table, &text[end..]].concat();
        std::fs::write(&path, new).expect("docs/testing.md");
        return;
    }
    assert_eq!(
        &text[begin..end],
        table,
        "docs/testing.md does not say what differs: \
         KINFOLK_WRITE=1 cargo test -p kinfolk-tests --test probes"
    );
}

#[cfg(target_os = "linux")]
#[test]
fn the_simulation_answers_as_linux_does() {
    guarded("the_simulation_answers_as_linux_does", |watched| {
        let linux = on_linux(IoDriver::Readiness, &watched).expect("every Linux has epoll");
        if let Some(ring) = on_linux(IoDriver::Ring, &watched) {
            for (name, answer) in &ring {
                assert_eq!(answer, &linux[name], "{name}: a ring, and readiness");
            }
        }
        let simulation = on_the_simulation(0, &watched);
        for seed in 1..5 {
            for (name, answer) in on_the_simulation(seed, &watched) {
                assert_eq!(answer, simulation[name], "{name}: seed {seed}, and seed 0");
            }
        }
        for (name, answer) in &linux {
            let differs = if *answer == simulation[name] {
                ""
            } else {
                " !!"
            };
            println!("{}: {answer} | {}{differs}", words(name), simulation[name]);
        }
        let (same, table) = table(&linux, &simulation);
        assert!(PROBES.len() >= 75, "{} probes", PROBES.len());
        // Seventy of seventy-five.
        assert!(same * 75 >= 70 * PROBES.len(), "{same} are the same");
        compare_with_the_document(&table);
    });
}
