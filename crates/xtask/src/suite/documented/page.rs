//! A page of the documentation, taken apart into what its reader would do.
//!
//! - A block of the language `console` has commands behind `$ ` and what they print. `…` stands for
//!   any text, and alone on a line for any lines. Without output any output is right. The exit code
//!   is 0, or N with the comment `# exits with N`.
//! - A block with a file name behind its language (`toml portunus.toml`) is that file, and a later
//!   block with the same name is added to it.
//! - `<!-- setup` on a line of its own begins commands that make the state which the page speaks of.
//! - `<!-- run in: STEP -->` before a block names another step of the suite that runs it, and
//!   `<!-- not run: REASON -->` why none does.

use anyhow::{Context, Result, bail, ensure};

/// Reasons for which a block may stay without a run. Nothing else is accepted.
pub(super) const REASONS: [&str; 5] = [
    "builds programs from source",
    "needs Homebrew",
    "needs a Kubernetes cluster",
    "needs a container engine",
    "needs systemd as the first process",
];

/// Programs whose name begins a command, if words follow it in a code span.
const PROGRAMS: [&str; 17] = [
    "apt",
    "brew",
    "cargo",
    "createdb",
    "curl",
    "docker",
    "helm",
    "journalctl",
    "jq",
    "kubectl",
    "nginx",
    "pg_dump",
    "podman",
    "portunus",
    "psql",
    "sqlite3",
    "systemctl",
];

/// Place at which a command is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandPlace {
    /// The step of the documentation.
    Docs,
    /// The step of packages, in a copy of the machine.
    Package,
    /// The step of the Helm chart, as `helm template`.
    Chart,
    /// Nowhere, for one of [`REASONS`].
    NotRun(&'static str),
}

/// A command of a block.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PageCommand {
    /// Line on the page, from 1.
    pub(super) line: usize,
    /// Words as the reader types them.
    pub(super) text: String,
    /// Lines that follow on the page.
    pub(super) output: Vec<String>,
    /// Exit code.
    pub(super) code: i32,
    /// Place of the run.
    pub(super) place: CommandPlace,
}

/// One thing to do, in the order of the page.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PageAction {
    /// A command of the reader.
    Command(PageCommand),
    /// Commands that make the state of the page.
    Setup { line: usize, text: String },
    /// Text that belongs to a file.
    File { name: String, text: String },
}

/// A page.
#[derive(Debug)]
pub(super) struct OperatorPage {
    /// Path from the root of the workspace.
    pub(super) path: String,
    /// The whole text.
    pub(super) text: String,
    /// Things to do.
    pub(super) actions: Vec<PageAction>,
    /// Commands in code spans of the text, with their lines.
    pub(super) spans: Vec<(usize, String)>,
}

impl OperatorPage {
    /// Reads a page. Fails at a block that is neither run nor has a reason.
    pub(super) fn parse(path: &str, text: &str) -> Result<Self> {
        let mut page = Self {
            path: path.to_owned(),
            text: text.to_owned(),
            actions: Vec::new(),
            spans: Vec::new(),
        };
        let mut place = None;
        let mut lines = (1..).zip(text.lines());
        while let Some((line, text)) = lines.next() {
            let here = || format!("{path}:{line}");
            if let Some(mark) = text.strip_prefix("<!-- ").and_then(|t| t.strip_suffix(" -->")) {
                place = Some(read_place(mark).with_context(here)?);
            } else if text == "<!-- setup" {
                let mut inner = lines.by_ref().take_while(|(_, text)| *text != "-->");
                let text = join(&mut inner);
                page.actions.push(PageAction::Setup { line, text });
            } else if let Some(info) = text.strip_prefix("```") {
                let inner: Vec<_> = lines.by_ref().take_while(|(_, text)| *text != "```").collect();
                let mut words = info.split(' ');
                let (language, name) = (words.next().unwrap_or_default(), words.next());
                match (language, name) {
                    ("console", None) => {
                        let place = place.take().unwrap_or(CommandPlace::Docs);
                        page.add_commands(&inner, place).with_context(here)?;
                    }
                    ("sh" | "bash" | "shell" | "", _) => {
                        let is_shell = !language.is_empty()
                            || inner.iter().any(|(_, text)| text.starts_with("$ "));
                        ensure!(!is_shell, "{}: commands belong into a block `console`", here());
                    }
                    ("toml" | "nginx", None) => {
                        bail!("{}: the block has no file name, so nothing reads it", here())
                    }
                    (_, Some(name)) => {
                        let text = join(&mut inner.into_iter());
                        page.actions.push(PageAction::File { name: name.to_owned(), text });
                    }
                    (_, None) => {}
                }
                ensure!(place.is_none(), "{}: the comment before it is for commands", here());
            } else {
                page.add_spans(line, text);
                ensure!(
                    place.is_none() || text.is_empty(),
                    "{}: a block has to follow the comment",
                    here()
                );
            }
        }
        Ok(page)
    }

    /// Returns the commands of all blocks.
    pub(super) fn commands(&self) -> impl Iterator<Item = &PageCommand> {
        self.actions.iter().filter_map(|action| match action {
            PageAction::Command(command) => Some(command),
            PageAction::Setup { .. } | PageAction::File { .. } => None,
        })
    }

    fn add_commands(&mut self, block: &[(usize, &str)], place: CommandPlace) -> Result<()> {
        let mut open: Option<PageCommand> = None;
        for (line, text) in block {
            if let Some(begun) = open.as_mut().filter(|begun| begun.text.ends_with('\\')) {
                begun.text.push('\n');
                begun.text.push_str(text);
            } else if let Some(text) = text.strip_prefix("$ ") {
                self.actions.extend(open.take().map(PageAction::Command));
                let (text, output) = (text.to_owned(), Vec::new());
                open = Some(PageCommand { line: *line, text, output, code: 0, place });
            } else {
                let command = open.as_mut().context("the block begins without a command")?;
                command.output.push((*text).to_owned());
            }
            if let Some(begun) = open.as_mut()
                && let Some((_, code)) = begun.text.split_once("# exits with ")
            {
                begun.code = code.trim().parse().context("the exit code is not a number")?;
            }
        }
        ensure!(open.is_some(), "the block has no command");
        self.actions.extend(open.take().map(PageAction::Command));
        Ok(())
    }

    fn add_spans(&mut self, line: usize, text: &str) {
        for span in text.split('`').skip(1).step_by(2) {
            let mut words = span.split_whitespace();
            let is_command = words.next().is_some_and(|first| PROGRAMS.contains(&first));
            if is_command && words.next().is_some() {
                self.spans.push((line, span.to_owned()));
            }
        }
    }
}

fn read_place(mark: &str) -> Result<CommandPlace> {
    if let Some(step) = mark.strip_prefix("run in: ") {
        return match step {
            "package" => Ok(CommandPlace::Package),
            "chart" => Ok(CommandPlace::Chart),
            other => bail!("the step `{other}` runs no pages"),
        };
    }
    let reason = mark.strip_prefix("not run: ").context("a comment that nothing reads")?;
    let known = REASONS.into_iter().find(|known| *known == reason);
    Ok(CommandPlace::NotRun(known.with_context(|| {
        format!("`{reason}` is no reason to leave out a run; reasons are {REASONS:?}")
    })?))
}

fn join(lines: &mut dyn Iterator<Item = (usize, &str)>) -> String {
    lines.map(|(_, text)| format!("{text}\n")).collect()
}

/// Returns true if a command of a block does what a code span says: it has all of its words, except
/// those that stand for something (`FILE`, `…`).
pub(super) fn covers(command: &str, span: &str) -> bool {
    let mut words = command.split(|c: char| c.is_whitespace() || "();|".contains(c));
    let stands_for = |word: &str| {
        word.contains('…') || word.chars().all(|c| c.is_uppercase() || c == '_' || c == '-')
    };
    let mut wanted = span.split_whitespace().filter(|word| !stands_for(word));
    wanted.all(|word| words.any(|other| other == word))
}

/// Returns true if the output is what the page shows.
pub(super) fn matches(shown: &[String], output: &[&str]) -> bool {
    let Some((first, rest)) = shown.split_first() else { return output.is_empty() };
    if first.trim() == "…" {
        return (0..=output.len())
            .any(|from| matches(rest, output.get(from..).unwrap_or_default()));
    }
    output.split_first().is_some_and(|(line, others)| {
        line_matches(first.trim_end(), line.trim_end()) && matches(rest, others)
    })
}

fn line_matches(shown: &str, line: &str) -> bool {
    let Some((before, after)) = shown.split_once('…') else { return shown == line };
    let Some(rest) = line.strip_prefix(before) else { return false };
    let mut starts = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
    starts.any(|at| rest.get(at..).is_some_and(|rest| line_matches(after, rest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    fn error(text: &str) -> String {
        format!("{:#}", OperatorPage::parse("p.md", text).unwrap_err())
    }

    #[test]
    fn commands_files_and_setups_come_in_the_order_of_the_page() {
        let text = "<!-- setup\nstart\n-->\n```toml a.toml\nx = 1\n```\n\
            ```console\n$ one \\\n  two   # exits with 3\nout\n$ three\n```\n";
        let page = OperatorPage::parse("p.md", text).unwrap();
        let place = CommandPlace::Docs;
        let one = PageCommand {
            line: 8,
            text: "one \\\n  two   # exits with 3".into(),
            output: lines("out"),
            code: 3,
            place,
        };
        let three =
            PageCommand { line: 11, text: "three".into(), output: Vec::new(), code: 0, place };
        let expected = [
            PageAction::Setup { line: 1, text: "start\n".into() },
            PageAction::File { name: "a.toml".into(), text: "x = 1\n".into() },
            PageAction::Command(one),
            PageAction::Command(three),
        ];
        assert_eq!(page.actions, expected);
    }

    #[test]
    fn a_block_without_a_run_needs_a_reason_of_the_list() {
        let block = "```console\n$ brew install x\n```\n";
        let page =
            OperatorPage::parse("p.md", &format!("<!-- not run: needs Homebrew -->\n{block}"));
        let places: Vec<_> = page.unwrap().commands().map(|command| command.place).collect();
        assert_eq!(places, [CommandPlace::NotRun("needs Homebrew")]);
        assert!(error(&format!("<!-- not run: too slow -->\n{block}")).contains("too slow"));
        assert!(error(&format!("<!-- run in: nodes -->\n{block}")).contains("nodes"));
        assert!(error("<!-- not run: needs Homebrew -->\ntext").contains("has to follow"));
        assert!(error("```sh\nls\n```\n").contains("console"));
        assert!(error("```\n$ ls\n```\n").contains("console"));
        assert!(error("```toml\nx = 1\n```\n").contains("p.md:1"));
    }

    #[test]
    fn commands_of_the_text_are_found_and_compared() {
        let page =
            OperatorPage::parse("p.md", "`portunus backup FILE`, `portunus`, `a b`").unwrap();
        assert_eq!(page.spans, [(1, "portunus backup FILE".to_owned())]);
        assert!(covers("cd x && portunus backup a.backup --json", "portunus backup FILE"));
        assert!(!covers("portunus backup a", "portunus backup FILE --with-vault-key"));
        assert!(!covers("portunus keys list", "portunus list keys"));
    }

    #[test]
    fn output_is_compared_with_gaps() {
        let shown = lines("a … c\n…\nend");
        assert!(matches(&shown, &["a b c", "x", "y", "end"]));
        assert!(matches(&shown, &["a  c", "end"]));
        assert!(!matches(&shown, &["a b d", "end"]));
        assert!(!matches(&shown, &["a b c", "end", "more"]));
        assert!(matches(&lines("…abc…abd"), &["abcabcabd"]));
    }
}
