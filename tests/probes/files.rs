//! What is in files.

use kinfolk_core::Result;
use kinfolk_runtime::fs::{self, File, OpenOptions};

use super::tale::{At, Tale, outcome};

/// What is in a file from some place on, in words.
async fn from(file: &File, at: u64, most: usize) -> String {
    let (read, bytes) = file.read_at(Vec::with_capacity(most), at).await;
    match read {
        Ok(_) => format!("{:?}", String::from_utf8_lossy(&bytes)),
        Err(error) => outcome::<()>(Err(error)),
    }
}

fn both() -> OpenOptions {
    OpenOptions::new().read(true).write(true).create(true)
}

pub async fn append_goes_to_the_end(at: At) -> Result<Tale> {
    let path = at.path("a");
    fs::write(&path, "begun").await.0?;
    let file = OpenOptions::new().append(true).open(&path).await?;
    let mut tale = Tale::new();
    tale.add("write at 0", file.write_at(" and", 0).await.0);
    tale.add("write at 2", file.write_at(" ended", 2).await.0);
    let bytes = fs::read(&path).await?;
    tale.say("read", String::from_utf8_lossy(&bytes));
    Ok(tale)
}

pub async fn read_past_the_end(at: At) -> Result<Tale> {
    let file = both().open(at.path("a")).await?;
    file.write_all_at("words", 0).await.0?;
    let mut tale = Tale::new();
    tale.say("at the end", from(&file, 5, 8).await);
    tale.say("far behind", from(&file, 1 << 40, 8).await);
    tale.add("exactly", file.read_exact_at(vec![0; 4], 3).await.0);
    Ok(tale)
}

pub async fn read_across_the_end(at: At) -> Result<Tale> {
    let file = both().open(at.path("a")).await?;
    file.write_all_at("words", 0).await.0?;
    let mut tale = Tale::new();
    tale.say("read", from(&file, 3, 100).await);
    tale.say("nothing", from(&file, 1, 0).await);
    Ok(tale)
}

pub async fn a_hole_reads_as_zeroes(at: At) -> Result<Tale> {
    let file = both().open(at.path("a")).await?;
    let mut tale = Tale::new();
    tale.add("write", file.write_at("end", 10_000).await.0);
    tale.say("length", file.metadata().await?.len());
    tale.say("read", from(&file, 9_998, 8).await);
    Ok(tale)
}

pub async fn nothing_is_written_far_away(at: At) -> Result<Tale> {
    let file = both().open(at.path("a")).await?;
    let mut tale = Tale::new();
    tale.add("write", file.write_at("", 10_000).await.0);
    tale.say("length", file.metadata().await?.len());
    Ok(tale)
}

pub async fn cut_and_made_longer(at: At) -> Result<Tale> {
    let file = both().open(at.path("a")).await?;
    file.write_all_at("some words", 0).await.0?;
    let mut tale = Tale::new();
    tale.add("cut", file.set_len(4).await);
    tale.say("read", from(&file, 0, 100).await);
    tale.add("longer", file.set_len(6).await);
    tale.say("read", from(&file, 0, 100).await);
    Ok(tale)
}

pub async fn emptied_while_open(at: At) -> Result<Tale> {
    let file = both().open(at.path("a")).await?;
    file.write_all_at("some words", 0).await.0?;
    drop(File::create(at.path("a")).await?);
    let mut tale = Tale::new();
    tale.say("read", from(&file, 0, 100).await);
    tale.add("write", file.write_at("x", 2).await.0);
    tale.say("read", from(&file, 0, 100).await);
    Ok(tale)
}

pub async fn two_opens_see_each_other(at: At) -> Result<Tale> {
    let one = both().open(at.path("a")).await?;
    let two = both().open(at.path("a")).await?;
    one.write_all_at("from one", 0).await.0?;
    let mut tale = Tale::new();
    tale.say("read", from(&two, 0, 100).await);
    Ok(tale)
}

pub async fn reads_have_no_common_place(at: At) -> Result<Tale> {
    let file = both().open(at.path("a")).await?;
    file.write_all_at("0123456789", 0).await.0?;
    let mut tale = Tale::new();
    tale.say("at 5", from(&file, 5, 2).await);
    tale.say("at 0", from(&file, 0, 2).await);
    tale.say("at 5", from(&file, 5, 2).await);
    Ok(tale)
}

pub async fn file_in_pieces(at: At) -> Result<Tale> {
    let file = both().open(at.path("a")).await?;
    let mut tale = Tale::new();
    let written = file.write_vectored_at(vec!["one", "", " two"], 0).await.0;
    tale.add("write", written);
    let room = vec![
        Vec::with_capacity(2),
        Vec::with_capacity(0),
        Vec::with_capacity(9),
    ];
    let (read, bufs) = file.read_vectored_at(room, 0).await;
    tale.add("read", read);
    let words = bufs.iter().map(|buf| String::from_utf8_lossy(buf));
    tale.say("as", words.collect::<Vec<_>>().join("|"));
    Ok(tale)
}

pub async fn not_opened_for_writing(at: At) -> Result<Tale> {
    fs::write(at.path("a"), "words").await.0?;
    let file = File::open(at.path("a")).await?;
    let mut tale = Tale::new();
    tale.add("write", file.write_at("x", 0).await.0);
    tale.add("cut", file.set_len(1).await);
    tale.add("room", file.allocate(0, 100).await);
    tale.add("sync", file.sync_all().await);
    Ok(tale)
}

pub async fn not_opened_for_reading(at: At) -> Result<Tale> {
    let file = OpenOptions::new().write(true).create(true);
    let file = file.open(at.path("a")).await?;
    let mut tale = Tale::new();
    tale.say("read", from(&file, 0, 8).await);
    tale.add("write", file.write_at("x", 0).await.0);
    Ok(tale)
}

pub async fn written_too_far(at: At) -> Result<Tale> {
    let file = both().open(at.path("a")).await?;
    let mut tale = Tale::new();
    tale.add("write", file.write_at("x", i64::MAX as u64).await.0);
    tale.add("write", file.write_at("x", 1 << 63).await.0);
    tale.add("longer", file.set_len(1 << 63).await);
    Ok(tale)
}

pub async fn room_is_made(at: At) -> Result<Tale> {
    let file = both().open(at.path("a")).await?;
    file.write_all_at("words", 0).await.0?;
    let mut tale = Tale::new();
    tale.add("grow", file.allocate(0, 100).await);
    tale.say("length", file.metadata().await?.len());
    tale.add("nothing", file.allocate(5, 0).await);
    tale.add("hole", file.punch_hole(1, 3).await);
    tale.add("beyond", file.punch_hole(90, 100).await);
    tale.add("no hole", file.punch_hole(5, 0).await);
    tale.say("length", file.metadata().await?.len());
    tale.say("bytes", from(&file, 0, 5).await);
    Ok(tale)
}

pub async fn a_directory_is_synced(at: At) -> Result<Tale> {
    let dir = File::open(&at.dir).await?;
    let mut tale = Tale::new();
    tale.add("all", dir.sync_all().await);
    tale.add("data", dir.sync_data().await);
    Ok(tale)
}

pub async fn a_directory_is_read_like_a_file(at: At) -> Result<Tale> {
    let dir = File::open(&at.dir).await?;
    let mut tale = Tale::new();
    tale.say("read", from(&dir, 0, 8).await);
    tale.add("write", dir.write_at("x", 0).await.0);
    tale.add("cut", dir.set_len(0).await);
    tale.add("whole", fs::read(&at.dir).await);
    Ok(tale)
}

pub async fn about_a_file(at: At) -> Result<Tale> {
    let file = both().open(at.path("a")).await?;
    file.write_all_at("words", 0).await.0?;
    let (own, named) = (file.metadata().await?, fs::metadata(at.path("a")).await?);
    let mut tale = Tale::new();
    tale.say("length", own.len());
    tale.say("is a file", own.is_file());
    tale.say("names", own.links());
    tale.say("the same", own.inode() == named.inode());
    tale.say("is a directory", fs::metadata(&at.dir).await?.is_dir());
    Ok(tale)
}

pub async fn unlinked_while_open(at: At) -> Result<Tale> {
    let file = both().open(at.path("a")).await?;
    file.write_all_at("words", 0).await.0?;
    fs::remove_file(at.path("a")).await?;
    let mut tale = Tale::new();
    tale.add("write", file.write_at("!", 5).await.0);
    tale.say("read", from(&file, 0, 100).await);
    tale.say("names", file.metadata().await?.links());
    tale.add("open", File::open(at.path("a")).await.map(drop));
    let new = both().open(at.path("a")).await?;
    tale.say("a new one", from(&new, 0, 100).await);
    tale.add("sync", file.sync_all().await);
    Ok(tale)
}
