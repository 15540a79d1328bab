//! Misuse that must not compile, each beside a twin that must. A file in
//! `ui/` that ends in `_bad.rs` names its error code in the first line, and in
//! lines that begin with `// says: ` what else a reader must be told; its twin
//! ends in `_good.rs`.

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

/// Compiles one file; what the compiler said.
fn compile(file: &Path) -> (bool, String) {
    let out = std::env::temp_dir().join(format!(
        "kinfolk-ui-{}-{}",
        std::process::id(),
        file.file_stem().unwrap_or_default().to_string_lossy()
    ));
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let output = Command::new(rustc)
        .args([
            "--edition",
            "2024",
            "--crate-type",
            "lib",
            "--emit",
            "metadata",
        ])
        .arg("-L")
        .arg(format!("dependency={}", deps().display()))
        .arg("--extern")
        .arg(format!(
            "kinfolk_core={}",
            library("kinfolk_core").display()
        ))
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
