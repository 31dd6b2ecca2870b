//! Journals of a data folder. Each belongs to a node of its own.
//!
//! Usually there is one, `journal`. A process that takes over from a running one cannot wait for its
//! journal, because the old process writes it until its last call has ended. So it uses the next one
//! that is free, `journal-2`, and is another node of the store: the leases, the count of posted calls
//! and the heartbeats of the two are apart, as those of two machines are.

use std::io;
use std::path::{Path, PathBuf};

/// Journals that a data folder can have. Each running process has one, and a process that was taken
/// over runs as long as its last call.
const MAX_JOURNALS: usize = 16;

/// One journal of a data folder, and the name of its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFolder {
    data_folder: PathBuf,
    /// 1 for the first.
    number: usize,
}

impl NodeFolder {
    /// The first journal of a data folder.
    pub fn first(data_folder: &Path) -> Self {
        Self { data_folder: data_folder.to_owned(), number: 1 }
    }

    /// All journals that a data folder can have, existing or not.
    pub fn all(data_folder: &Path) -> impl Iterator<Item = Self> + use<> {
        let data_folder = data_folder.to_owned();
        (1..=MAX_JOURNALS).map(move |number| Self { data_folder: data_folder.clone(), number })
    }

    /// The journals that a data folder has. The first one counts always.
    pub fn existing(data_folder: &Path) -> impl Iterator<Item = Self> + use<> {
        Self::all(data_folder).filter(|one| one.number == 1 || one.journal().is_dir())
    }

    /// Returns the folder of the journal.
    pub fn journal(&self) -> PathBuf {
        self.data_folder.join(self.file_name("journal"))
    }

    /// Returns the name of the node, creating it on first use. It survives restarts, so that the node
    /// finds its leases again.
    pub fn node_name(&self) -> anyhow::Result<String> {
        if let Ok(name) = std::fs::read_to_string(self.name_file())
            && !name.trim().is_empty()
        {
            return Ok(name.trim().to_owned());
        }
        let name = uuid::Uuid::now_v7().to_string();
        self.write_name(&name)?;
        Ok(name)
    }

    /// Writes the name of the node.
    pub fn write_name(&self, name: &str) -> anyhow::Result<()> {
        self.try_write_name(name).map_err(|e| {
            anyhow::anyhow!("the data folder {} cannot be written: {e}", self.data_folder.display())
        })
    }

    fn try_write_name(&self, name: &str) -> io::Result<()> {
        std::fs::write(self.name_file(), format!("{name}\n"))
    }

    fn name_file(&self) -> PathBuf {
        self.data_folder.join(self.file_name("node"))
    }

    fn file_name(&self, word: &str) -> String {
        if self.number == 1 { word.to_owned() } else { format!("{word}-{}", self.number) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_journal_has_the_names_of_earlier_versions() {
        let folder = Path::new("data");
        let journals: Vec<PathBuf> = NodeFolder::all(folder).map(|one| one.journal()).collect();
        assert_eq!(journals.len(), MAX_JOURNALS);
        assert!(journals.starts_with(&["data/journal".into(), "data/journal-2".into()]));
        let names: Vec<PathBuf> = NodeFolder::all(folder).map(|one| one.name_file()).collect();
        assert!(names.starts_with(&["data/node".into(), "data/node-2".into()]));
    }
}
