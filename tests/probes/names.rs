//! Names of files and directories.

use kinfolk_core::Result;
use kinfolk_runtime::fs::{self, File, FileKind, OpenOptions};

use super::tale::{At, Tale};

pub async fn rename_over_an_open_file(at: At) -> Result<Tale> {
    fs::write(at.path("a"), "old").await.0?;
    fs::write(at.path("b"), "new").await.0?;
    let open = File::open(at.path("a")).await?;
    let mut tale = Tale::new();
    tale.add("rename", fs::rename(at.path("b"), at.path("a")).await);
    let (read, bytes) = open.read_at(Vec::with_capacity(8), 0).await;
    read?;
    tale.say("what was open", String::from_utf8_lossy(&bytes));
    let bytes = fs::read(at.path("a")).await?;
    tale.say("the name", String::from_utf8_lossy(&bytes));
    tale.say("names", open.metadata().await?.links());
    Ok(tale)
}

pub async fn rename_onto_itself(at: At) -> Result<Tale> {
    fs::write(at.path("a"), "words").await.0?;
    let mut tale = Tale::new();
    tale.add("rename", fs::rename(at.path("a"), at.path("a")).await);
    tale.say("length", fs::metadata(at.path("a")).await?.len());
    Ok(tale)
}

pub async fn rename_of_nothing(at: At) -> Result<Tale> {
    fs::write(at.path("b"), "words").await.0?;
    let mut tale = Tale::new();
    tale.add("rename", fs::rename(at.path("a"), at.path("b")).await);
    tale.add("rename", fs::rename(at.path("b"), at.path("none/b")).await);
    tale.say("still there", fs::metadata(at.path("b")).await.is_ok());
    Ok(tale)
}

pub async fn rename_of_a_directory_into_itself(at: At) -> Result<Tale> {
    fs::create_dir_all(at.path("a/b")).await?;
    let mut tale = Tale::new();
    tale.add("rename", fs::rename(at.path("a"), at.path("a/c")).await);
    tale.add("rename", fs::rename(at.path("a"), at.path("a/b/c")).await);
    tale.add(
        "onto the inner",
        fs::rename(at.path("a"), at.path("a/b")).await,
    );
    tale.add(
        "onto the outer",
        fs::rename(at.path("a/b"), at.path("a")).await,
    );
    Ok(tale)
}

pub async fn rename_over_a_full_directory(at: At) -> Result<Tale> {
    fs::create_dir_all(at.path("full/b")).await?;
    fs::create_dir(at.path("empty")).await?;
    let mut tale = Tale::new();
    tale.add(
        "over a full one",
        fs::rename(at.path("empty"), at.path("full")).await,
    );
    tale.add(
        "over an empty one",
        fs::rename(at.path("full"), at.path("empty")).await,
    );
    tale.say("with all", fs::metadata(at.path("empty/b")).await?.is_dir());
    Ok(tale)
}

pub async fn rename_between_a_file_and_a_directory(at: At) -> Result<Tale> {
    fs::create_dir(at.path("dir")).await?;
    fs::write(at.path("file"), "words").await.0?;
    let mut tale = Tale::new();
    tale.add(
        "file over dir",
        fs::rename(at.path("file"), at.path("dir")).await,
    );
    tale.add(
        "dir over file",
        fs::rename(at.path("dir"), at.path("file")).await,
    );
    tale.add(
        "below a file",
        fs::rename(at.path("dir"), at.path("file/a")).await,
    );
    Ok(tale)
}

pub async fn create_new_where_one_is(at: At) -> Result<Tale> {
    let new = OpenOptions::new().write(true).create_new(true);
    let mut tale = Tale::new();
    tale.add("first", new.open(at.path("a")).await.map(drop));
    tale.add("second", new.open(at.path("a")).await.map(drop));
    tale.add("a directory", new.open(&at.dir).await.map(drop));
    Ok(tale)
}

pub async fn open_where_nothing_is(at: At) -> Result<Tale> {
    let write = OpenOptions::new().write(true);
    let mut tale = Tale::new();
    tale.add("read", File::open(at.path("a")).await.map(drop));
    tale.add("write", write.open(at.path("a")).await.map(drop));
    tale.add("create", File::create(at.path("none/a")).await.map(drop));
    tale.add("empty", File::open("").await.map(drop));
    Ok(tale)
}

pub async fn open_below_a_file(at: At) -> Result<Tale> {
    fs::write(at.path("a"), "words").await.0?;
    let mut tale = Tale::new();
    tale.add("open", File::open(at.path("a/b")).await.map(drop));
    tale.add("create", File::create(at.path("a/b")).await.map(drop));
    tale.add("about", fs::metadata(at.path("a/b")).await.map(drop));
    tale.add("remove", fs::remove_file(at.path("a/b")).await);
    tale.add("directory", fs::create_dir(at.path("a/b")).await);
    Ok(tale)
}

pub async fn open_a_directory_for_writing(at: At) -> Result<Tale> {
    let write = OpenOptions::new().write(true);
    let mut tale = Tale::new();
    tale.add("write", write.open(&at.dir).await.map(drop));
    tale.add("create", File::create(&at.dir).await.map(drop));
    tale.add("read", File::open(&at.dir).await.map(drop));
    Ok(tale)
}

pub async fn open_a_file_as_a_directory(at: At) -> Result<Tale> {
    fs::write(at.path("a"), "words").await.0?;
    let dir = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECTORY);
    let mut tale = Tale::new();
    tale.add("open", dir.open(at.path("a")).await.map(drop));
    tale.add("a directory", dir.open(&at.dir).await.map(drop));
    Ok(tale)
}

pub async fn a_slash_behind_a_file(at: At) -> Result<Tale> {
    fs::write(at.path("a"), "words").await.0?;
    fs::create_dir(at.path("d")).await?;
    let mut tale = Tale::new();
    tale.add("open", File::open(at.path("a/")).await.map(drop));
    tale.add("about", fs::metadata(at.path("a/")).await.map(drop));
    tale.add("create", File::create(at.path("b/")).await.map(drop));
    tale.add("a directory", fs::metadata(at.path("d/")).await.map(drop));
    tale.add("make one", fs::create_dir(at.path("e/")).await);
    tale.add("rename", fs::rename(at.path("a"), at.path("c/")).await);
    tale.add("rename one", fs::rename(at.path("d/"), at.path("f/")).await);
    Ok(tale)
}

pub async fn a_way_through_nothing(at: At) -> Result<Tale> {
    fs::write(at.path("a"), "words").await.0?;
    fs::create_dir(at.path("d")).await?;
    let mut tale = Tale::new();
    tale.add(
        "through nothing",
        fs::metadata(at.path("none/../a")).await.map(drop),
    );
    tale.add(
        "through a file",
        fs::metadata(at.path("a/../a")).await.map(drop),
    );
    tale.add(
        "through one",
        fs::metadata(at.path("d/../a")).await.map(drop),
    );
    tale.add("remove a dot", fs::remove_dir(at.path("d/.")).await);
    tale.add("remove dots", fs::remove_dir(at.path("d/..")).await);
    Ok(tale)
}

pub async fn a_name_too_long(at: At) -> Result<Tale> {
    let (fits, long) = ("n".repeat(255), "n".repeat(256));
    let mut tale = Tale::new();
    tale.add("255", File::create(at.path(&fits)).await.map(drop));
    tale.add("256", File::create(at.path(&long)).await.map(drop));
    tale.add("about", fs::metadata(at.path(&long)).await.map(drop));
    tale.add(
        "path",
        fs::metadata(at.path(&"n/".repeat(2100))).await.map(drop),
    );
    Ok(tale)
}

pub async fn remove_a_full_directory(at: At) -> Result<Tale> {
    fs::create_dir_all(at.path("a/b")).await?;
    let mut tale = Tale::new();
    tale.add("full", fs::remove_dir(at.path("a")).await);
    tale.add("empty", fs::remove_dir(at.path("a/b")).await);
    tale.add("now empty", fs::remove_dir(at.path("a")).await);
    tale.add("again", fs::remove_dir(at.path("a")).await);
    Ok(tale)
}

pub async fn remove_the_wrong_sort(at: At) -> Result<Tale> {
    fs::create_dir(at.path("dir")).await?;
    fs::write(at.path("file"), "words").await.0?;
    let mut tale = Tale::new();
    tale.add("dir as file", fs::remove_file(at.path("dir")).await);
    tale.add("file as dir", fs::remove_dir(at.path("file")).await);
    tale.add("nothing", fs::remove_file(at.path("none")).await);
    Ok(tale)
}

pub async fn make_a_directory_twice(at: At) -> Result<Tale> {
    fs::write(at.path("file"), "words").await.0?;
    let mut tale = Tale::new();
    tale.add("first", fs::create_dir(at.path("a")).await);
    tale.add("second", fs::create_dir(at.path("a")).await);
    tale.add("where a file is", fs::create_dir(at.path("file")).await);
    tale.add("all", fs::create_dir_all(at.path("a/b/c")).await);
    tale.add("all again", fs::create_dir_all(at.path("a/b/c")).await);
    tale.add(
        "all over a file",
        fs::create_dir_all(at.path("file/b")).await,
    );
    Ok(tale)
}

pub async fn make_a_directory_below_nothing(at: At) -> Result<Tale> {
    let mut tale = Tale::new();
    tale.add("make", fs::create_dir(at.path("none/a")).await);
    Ok(tale)
}

pub async fn list_a_directory(at: At) -> Result<Tale> {
    fs::write(at.path("b"), "words").await.0?;
    fs::create_dir(at.path("a")).await?;
    let mut names: Vec<(String, Option<FileKind>)> = fs::read_dir(&at.dir)
        .await?
        .map(|entry| {
            (
                entry.file_name().to_string_lossy().into_owned(),
                entry.kind(),
            )
        })
        .collect();
    names.sort_by(|one, two| one.0.cmp(&two.0));
    let mut tale = Tale::new();
    tale.say("listed", format!("{names:?}"));
    tale.add("a file", fs::read_dir(at.path("b")).await.map(drop));
    tale.add("nothing", fs::read_dir(at.path("none")).await.map(drop));
    Ok(tale)
}

pub async fn rights_of_what_is_made(at: At) -> Result<Tale> {
    let options = OpenOptions::new().write(true).create(true);
    let file = options.mode(0o666).open(at.path("a")).await?;
    let mut tale = Tale::new();
    let mode = file.metadata().await?.mode() & 0o777;
    tale.say("a umask takes some away", mode < 0o666);
    Ok(tale)
}
