//! The pages for operators: each command in them is run, on the services that they speak of.

mod elsewhere;
mod page;
mod run;

pub(super) use elsewhere::{run_chart, run_installation};

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};

use self::page::{CommandPlace, OperatorPage, covers};
use self::run::{PageRunner, program_folder};
use super::postgres::Postgres;
use crate::gateway::Binary;
use crate::process::{ChildServer, TempFolder, free_port};
use crate::tools;
use crate::workspace;

/// Pages that are run at the same time.
const WORKERS: usize = 4;
/// Ports of the pages. Each page has free ones instead.
const PORTS: [&str; 6] = [":8000", ":8080", ":8081", ":9001", ":9464", ":9465"];
/// Timeout from the start of a server to its first connection.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs the step.
pub(super) fn run() -> Result<()> {
    run_pages(&Binary::build()?.path)
}

/// Runs all pages with that program.
fn run_pages(binary: &Path) -> Result<()> {
    let pages = read_pages()?;
    check_sentences(&pages)?;
    let scratch = TempFolder::new("docs")?;
    let path = search_path(scratch.path(), binary)?;
    let waiting = Mutex::new(pages.iter());
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some(page) = waiting.lock().ok().and_then(|mut pages| pages.next()) {
                    let result = run_page(page, scratch.path(), &path);
                    results.lock().map(|mut results| results.push(result)).ok();
                }
            });
        }
    });
    let results = results.into_inner().ok().context("a page ended in a panic")?;
    ensure!(results.len() == pages.len(), "not every page was run");
    let mut count = 0;
    let mut failures = 0;
    for result in results {
        match result {
            Ok(commands) => count += commands,
            Err(error) => {
                failures += 1;
                println!("{error:#}\n");
            }
        }
    }
    ensure!(failures == 0, "{failures} pages are wrong");
    println!("{count} commands of {} pages were run", pages.len());
    tell_places(&pages);
    Ok(())
}

/// Runs a page in an empty folder, with the servers and ports that it names. Returns the number of
/// commands.
fn run_page(page: &OperatorPage, scratch: &Path, path: &OsStr) -> Result<usize> {
    let name = page.path.replace('/', "-");
    let make = |kind: &str| -> Result<PathBuf> {
        let folder = scratch.join(kind).join(&name);
        fs::create_dir_all(&folder)?;
        Ok(folder)
    };
    let mut services = PageServices::start(&page.text, scratch)?;
    let runner = PageRunner {
        folder: make("pages")?,
        outputs: make("outputs")?,
        path: path.to_owned(),
        addresses: std::mem::take(&mut services.addresses),
        place: CommandPlace::Docs,
        shell: "bash".into(),
    };
    let begin = Instant::now();
    let result = runner.run(page);
    println!("{}: {:.1} s", page.path, begin.elapsed().as_secs_f64());
    match services.postgres {
        Some(postgres) => {
            postgres.end(result.as_ref().map(|_| ()).map_err(|error| anyhow!("{error:#}")))?;
            result
        }
        None => result,
    }
}

/// Returns the search path of the pages: the program, PostgreSQL's programs, nginx, and the usual.
fn search_path(scratch: &Path, binary: &Path) -> Result<OsString> {
    for program in ["curl", "jq", "openssl", "sqlite3"] {
        if tools::find(program).is_none() {
            tools::apt(program)?;
        }
    }
    let own = std::env::var_os("PATH").unwrap_or_default();
    let nginx = tools::nginx()?;
    let nginx = nginx.parent().context("nginx has no folder")?.to_path_buf();
    let first = [program_folder(scratch, binary)?, tools::postgres()?];
    let folders = first.into_iter().chain(std::env::split_paths(&own)).chain([nginx]);
    Ok(std::env::join_paths(folders)?)
}

/// Prints how many commands are run elsewhere or nowhere.
fn tell_places(pages: &[OperatorPage]) {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for command in pages.iter().flat_map(OperatorPage::commands) {
        let place = match command.place {
            CommandPlace::Docs => continue,
            CommandPlace::Package => "run in package".to_owned(),
            CommandPlace::Chart => "run in chart".to_owned(),
            CommandPlace::NotRun(reason) => format!("not run: {reason}"),
        };
        *counts.entry(place).or_default() += 1;
    }
    for (place, count) in counts {
        println!("{count} commands: {place}");
    }
}

/// Reads the pages for operators, and that of the whole project.
fn read_pages() -> Result<Vec<OperatorPage>> {
    let folder = workspace::root().join("docs/operate");
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.retain(|name| name.ends_with(".md"));
    names.sort();
    ensure!(names.len() > 10, "only {} pages were found", names.len());
    let names = names.iter().map(|name| format!("docs/operate/{name}"));
    let read = |path: String| {
        OperatorPage::parse(&path, &fs::read_to_string(workspace::root().join(&path))?)
    };
    names.chain(["README.md".to_owned()]).map(read).collect()
}

/// Fails if a sentence names a command that no block has.
fn check_sentences(pages: &[OperatorPage]) -> Result<()> {
    let commands: Vec<&str> =
        pages.iter().flat_map(OperatorPage::commands).map(|one| one.text.as_str()).collect();
    let mut lost = Vec::new();
    for page in pages {
        for (line, span) in &page.spans {
            if !commands.iter().any(|command| covers(command, span)) {
                lost.push(format!("{}:{line}: no block runs `{span}`", page.path));
            }
        }
    }
    ensure!(lost.is_empty(), "{}", lost.join("\n"));
    Ok(())
}

/// Servers that a page names, each started for it alone. Dropping it stops them.
#[derive(Default)]
struct PageServices {
    postgres: Option<Postgres>,
    others: Vec<ChildServer>,
    /// Addresses on the page, with those in use.
    addresses: Vec<(String, String)>,
}

impl PageServices {
    fn start(text: &str, scratch: &Path) -> Result<Self> {
        let mut services = Self::default();
        if text.contains("db.internal") {
            let postgres = Postgres::start()?;
            let address = postgres.url.split(['@', '/']).nth(3).context("no address")?;
            services.addresses.push(("db.internal".to_owned(), address.to_owned()));
            services.postgres = Some(postgres);
        }
        if text.contains("valkey.internal") {
            let mut valkey = Command::new(tools::valkey()?);
            let flags = ["--save", "", "--appendonly", "no", "--port"];
            let address = services.add("valkey", valkey.args(flags), scratch)?;
            services.addresses.push(("valkey.internal:6379".to_owned(), address));
        }
        if text.contains("minio.internal") {
            let python = tools::python("s3", &workspace::root().join("tests/s3/requirements.txt"))?;
            let mut bucket = Command::new(python.with_file_name("moto_server"));
            let address = services.add("moto", bucket.args(["-H", "127.0.0.1", "-p"]), scratch)?;
            let address = format!("http://{address}");
            services.addresses.push(("https://minio.internal:9000".to_owned(), address));
        }
        for port in PORTS {
            services.addresses.push((port.to_owned(), format!(":{}", free_port()?)));
        }
        Ok(services)
    }

    /// Starts a server whose last argument is its port, and returns its address.
    fn add(&mut self, name: &str, command: &mut Command, scratch: &Path) -> Result<String> {
        let port = free_port()?;
        let log = scratch.join(format!("{name}-{port}.log"));
        let mut server = ChildServer::start(name, command.arg(port.to_string()), &log)?;
        let address = format!("127.0.0.1:{port}");
        server.wait_until(START_TIMEOUT, || TcpStream::connect(&address).is_ok())?;
        self.others.push(server);
        Ok(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block that is neither run nor marked fails here, without any service.
    #[test]
    fn every_page_can_be_read_and_has_few_commands_that_are_not_run() {
        let pages = read_pages().unwrap();
        let (unrun, all): (Vec<_>, Vec<_>) = pages
            .iter()
            .flat_map(OperatorPage::commands)
            .partition(|command| matches!(command.place, CommandPlace::NotRun(_)));
        assert!(all.len() > 100 && unrun.len() <= 20, "{} run, {} not", all.len(), unrun.len());
    }

    /// A command in a sentence is one that a block has.
    #[test]
    fn commands_in_sentences_are_those_of_a_block() {
        check_sentences(&read_pages().unwrap()).unwrap();
    }
}
