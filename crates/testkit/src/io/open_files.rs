//! [`OpenFiles`]: the files that this process has open.

use std::collections::BTreeMap;

/// The files that this process had open at some moment, by number, from
/// `/proc/self/fd`. Other threads open and close files too: a test that compares
/// two moments must be alone in its process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenFiles(BTreeMap<String, String>);

impl OpenFiles {
    /// Those that are open now.
    ///
    /// # Panics
    /// Where there is no `/proc`.
    pub fn now() -> OpenFiles {
        let dir = std::fs::read_dir("/proc/self/fd").expect("/proc says what is open");
        let open = dir.filter_map(|entry| {
            let entry = entry.ok()?;
            let leads_to = std::fs::read_link(entry.path()).ok()?;
            let leads_to = leads_to.to_string_lossy().into_owned();
            // The file that reads the directory.
            (!leads_to.ends_with("/fd")).then(|| {
                let number = entry.file_name().to_string_lossy().into_owned();
                (number, leads_to)
            })
        });
        OpenFiles(open.collect())
    }

    /// The number of files.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if no file is open.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Panics if more files are open now, and names them.
    #[track_caller]
    pub fn assert_no_more(&self) {
        let now = OpenFiles::now();
        let new: Vec<String> = now
            .0
            .iter()
            .filter(|(number, _)| !self.0.contains_key(*number))
            .map(|(number, leads_to)| format!("{number} ({leads_to})"))
            .collect();
        assert!(
            now.len() <= self.len(),
            "{} files were open, and now {}: {}",
            self.len(),
            now.len(),
            new.join(", ")
        );
    }
}
