//! Misuse that must not compile, each beside a twin that must. A file in
//! `ui/` that ends in `_bad.rs` names its error code in the first line, and in
//! lines that begin with `// says: ` what else a reader must be told; its twin
//! ends in `_good.rs`. A file uses `kinfolk_core`, or the crate in its line `// with: `. `ui/panics.rs` is a program, built with both ways to panic.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The directory of this test's own build, where the libraries are.
fn deps() -> PathBuf {
    let exe = std::env::current_exe().expect("a test has a path");
    exe.parent().expect("in a directory").to_path_buf()
}

/// The newest build of a library.
fn library(name: &str) -> PathBuf {
    let prefix = format!("lib{name}-");
    std::fs::read_dir(deps())
        .expect("the build directory")
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| {
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            file.starts_with(&prefix) && file.ends_with(".rlib")
        })
        .max_by_key(|path| path.metadata().and_then(|m| m.modified()).ok())
        .unwrap_or_else(|| panic!("no build of {name}"))
}

/// Where the compiler is to put something of that name.
fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("kinfolk-ui-{}-{name}", std::process::id()))
}

/// The compiler, with one of our libraries at hand.
fn rustc(name: &str) -> Command {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let mut command = Command::new(rustc);
    // The paths of our sources in its words are those from here: it shows their lines.
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    command
        .args(["--edition", "2024"])
        .arg("-L")
        .arg(format!("dependency={}", deps().display()))
        .arg("--extern")
        .arg(format!("{name}={}", library(name).display()));
    command
}

/// Compiles one file; what the compiler said.
fn compile(file: &Path) -> (bool, String) {
    let out = scratch(&file.file_stem().unwrap_or_default().to_string_lossy());
    let text = std::fs::read_to_string(file).expect("readable");
    let with = text.lines().find_map(|line| line.strip_prefix("// with: "));
    let output = rustc(with.unwrap_or("kinfolk_core"))
        .args(["--crate-type", "lib", "--emit", "metadata"])
        .arg("-o")
        .arg(&out)
        .arg(file)
        .output()
        .expect("rustc runs");
    let _ = std::fs::remove_file(&out);
    (
        output.status.success(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

#[test]
fn misuse_is_refused_with_the_right_code_and_its_twin_compiles() {
    let ui = Path::new(env!("CARGO_MANIFEST_DIR")).join("ui");
    let mut pairs = 0;
    for entry in std::fs::read_dir(ui).expect("tests/ui") {
        let bad = entry.expect("a file").path();
        let name = bad.to_string_lossy().into_owned();
        let Some(stem) = name.strip_suffix("_bad.rs") else {
            continue;
        };
        let text = std::fs::read_to_string(&bad).expect("readable");
        let code = text
            .lines()
            .next()
            .and_then(|line| line.strip_prefix("// error: "))
            .unwrap_or_else(|| panic!("{name} does not name its error code"));
        let (compiled, said) = compile(&bad);
        assert!(!compiled, "{name} compiles");
        // Some errors have no code: those are named by their words.
        let wanted = if code.starts_with('E') {
            format!("error[{code}]")
        } else {
            format!("error: {code}")
        };
        assert!(
            said.contains(&wanted),
            "{name}: expected {code}, got:\n{said}"
        );
        for words in text.lines().filter_map(|l| l.strip_prefix("// says: ")) {
            assert!(said.contains(words), "{name}: no `{words}` in:\n{said}");
        }
        let good = PathBuf::from(format!("{stem}_good.rs"));
        let (compiled, said) = compile(&good);
        assert!(compiled, "{} does not compile:\n{said}", good.display());
        pairs += 1;
    }
    assert!(pairs >= 6, "only {pairs} pairs in tests/ui");
}

/// outcome-1: a panic fails its job, and the program goes on. With `panic = "abort"`
/// there is nothing to catch: the process is aborted there and then, no destructor
/// runs, and no job is told.
#[test]
fn outcome_1_with_panic_abort_a_panic_aborts() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("ui/panics.rs");
    let run = |panic: &str| {
        let program = scratch(panic);
        let built = rustc("kinfolk_tests")
            .args(["-C", &format!("panic={panic}")])
            .arg("-o")
            .arg(&program)
            .arg(&file)
            .output()
            .expect("rustc runs");
        let said = String::from_utf8_lossy(&built.stderr);
        assert!(built.status.success(), "panic={panic}: {said}");
        let ran = Command::new(&program).output().expect("it runs");
        let _ = std::fs::remove_file(&program);
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(said.contains("in a child"), "panic={panic}: {said}");
        (
            ran.status,
            String::from_utf8_lossy(&ran.stdout).into_owned(),
        )
    };
    let (status, said) = run("unwind");
    assert!(status.success(), "{status}");
    assert_eq!(
        said,
        "the child begins\nthe child is unwound\nthe parent goes on: Panicked\n"
    );
    let (status, said) = run("abort");
    assert_eq!(status.signal(), Some(libc::SIGABRT), "{status}");
    assert_eq!(said, "the child begins\n");
}
