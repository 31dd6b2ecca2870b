//! Runs the commands of one page in one shell.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::page::{CommandPlace, OperatorPage, PageAction, matches};
use crate::process::kill_group;

/// Timeout of a page. It decides only how long a broken page takes to fail.
const PAGE_TIMEOUT: Duration = Duration::from_secs(180);

/// Functions for set-up comments.
const PRELUDE: &str = include_str!("prelude.sh");

/// Surroundings of a page.
pub(super) struct PageRunner {
    /// Folder of the commands.
    pub(super) folder: PathBuf,
    /// Folder of outputs, which the commands do not see.
    pub(super) outputs: PathBuf,
    /// Search path.
    pub(super) path: OsString,
    /// Addresses of the page, each with the one that is used instead.
    pub(super) addresses: Vec<(String, String)>,
    /// Place whose commands are run.
    pub(super) place: CommandPlace,
    /// Shell that reads the script.
    pub(super) shell: PathBuf,
}

/// A piece of the script with what has to come of it.
struct ScriptPiece<'a> {
    line: usize,
    text: &'a str,
    output: &'a [String],
    code: i32,
}

impl PageRunner {
    /// Runs the commands in order. Returns their number.
    pub(super) fn run(&self, page: &OperatorPage) -> Result<usize> {
        let mut pieces = Vec::new();
        let mut files = BTreeSet::new();
        let mut script = format!("{}\nset -o pipefail\n", self.replace(PRELUDE));
        let mut count = 0;
        for (number, action) in page.actions.iter().enumerate() {
            let piece = match action {
                PageAction::Command(command) if command.place == self.place => {
                    count += 1;
                    let (text, output) = (command.text.as_str(), command.output.as_slice());
                    ScriptPiece { line: command.line, text, output, code: command.code }
                }
                PageAction::Command(_) => continue,
                PageAction::Setup { line, text } => {
                    ScriptPiece { line: *line, text, output: &[], code: 0 }
                }
                PageAction::File { name, text } => {
                    let stored = self.outputs.join(format!("{number}.file"));
                    fs::write(&stored, self.replace(text))?;
                    let sign = if files.insert(name) { ">" } else { ">>" };
                    writeln!(script, "cat '{}' {sign} '{name}'", stored.display())?;
                    continue;
                }
            };
            let stem = self.outputs.join(pieces.len().to_string());
            let stem = stem.display();
            fs::write(format!("{stem}.sh"), self.replace(piece.text))?;
            // Read as a file of its own, so that an open quote ends with its command.
            writeln!(script, ". '{stem}.sh' >'{stem}.out' 2>&1 </dev/null; code=$?")?;
            writeln!(script, "echo $code >'{stem}.code'; [ $code = {} ] || exit 0", piece.code)?;
            pieces.push(piece);
        }
        let main = self.outputs.join("page.sh");
        fs::write(&main, script)?;
        self.shell(&main, &page.path)?;
        for (number, piece) in pieces.iter().enumerate() {
            self.check(number, piece, &page.path)?;
        }
        Ok(count)
    }

    /// Runs the script. All processes that it leaves behind are killed.
    fn shell(&self, script: &Path, path: &str) -> Result<()> {
        let mut command = Command::new(&self.shell);
        let log = fs::File::create(self.outputs.join("shell.log"))?;
        command.arg(script).current_dir(&self.folder).process_group(0).stdin(Stdio::null());
        command.env_clear().env("PATH", &self.path).env("HOME", &self.folder);
        command.env("LANG", "C.UTF-8").env("PORTUNUS_SERVER_LINGER", "0s");
        let mut child = command.stdout(log.try_clone()?).stderr(log).spawn()?;
        let begin = Instant::now();
        let ended = loop {
            if child.try_wait()?.is_some() {
                break true;
            }
            if begin.elapsed() > PAGE_TIMEOUT {
                break false;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        kill_group(child.id())?;
        child.wait()?;
        if !ended {
            println!("{path}: it took more than {PAGE_TIMEOUT:?} and was ended");
        }
        Ok(())
    }

    /// Compares what came of a piece with what the page says.
    fn check(&self, number: usize, piece: &ScriptPiece<'_>, path: &str) -> Result<()> {
        let read = |kind: &str| fs::read_to_string(self.outputs.join(format!("{number}.{kind}")));
        let output = self.replace_back(&read("out").unwrap_or_default());
        let Ok(code) = read("code") else {
            let log = fs::read_to_string(self.outputs.join("shell.log")).unwrap_or_default();
            bail!(
                "{path}:{}: it did not end\n$ {}\n{output}{log}",
                piece.line,
                piece.text.trim_end()
            );
        };
        let (text, line) = (piece.text.trim_end(), piece.line);
        ensure!(
            code.trim() == piece.code.to_string(),
            "{path}:{line}: exit code {} and not {}\n$ {text}\n{output}",
            code.trim(),
            piece.code
        );
        let printed: Vec<&str> = output.lines().collect();
        ensure!(
            piece.output.is_empty() || matches(piece.output, &printed),
            "{path}:{line}: it prints something else\n$ {text}\n{output}and not\n{}",
            piece.output.join("\n")
        );
        Ok(())
    }

    fn replace(&self, text: &str) -> String {
        self.addresses.iter().fold(text.to_owned(), |text, (shown, used)| text.replace(shown, used))
    }

    fn replace_back(&self, text: &str) -> String {
        self.addresses.iter().fold(text.to_owned(), |text, (shown, used)| text.replace(used, shown))
    }
}

/// Makes a folder with a link to the program, for the search path.
pub(super) fn program_folder(scratch: &Path, program: &Path) -> Result<PathBuf> {
    let folder = scratch.join("bin");
    fs::create_dir_all(&folder)?;
    std::os::unix::fs::symlink(program, folder.join("portunus")).context("linking the program")?;
    Ok(folder)
}
