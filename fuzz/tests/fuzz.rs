//! Runs every target on the stable compiler: first the kept inputs, then mutations of them.
//!
//! `FUZZ_ITERATIONS` and `FUZZ_SEED` change how many mutations run and which. An input that panics
//! is written to `fuzz/artifacts/`.

use fuzz::mutate::Mutator;
use fuzz::targets::{ALL, Target};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};

/// Takes well under a second for each target, unoptimised.
const ITERATIONS: u64 = 300;
const MAX_CORPUS_BYTES: u64 = 300 << 10;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().expect("a number"))
}

/// The kept inputs of a target, in the order of their names.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = folder().join("corpus").join(name);
    let entries =
        std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.expect("a file").path()).collect();
    files.sort();
    files.iter().map(|file| std::fs::read(file).expect("a readable file")).collect()
}

/// Runs one input, and keeps it where it panics.
fn run((name, target): Target, input: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(input))) {
        let artifacts = folder().join("artifacts");
        let file = artifacts.join(format!("{name}-{:08x}", crc32fast::hash(input)));
        let kept = std::fs::create_dir_all(&artifacts).and_then(|()| std::fs::write(&file, input));
        eprintln!("{name}: the input is in {} ({kept:?})", file.display());
        resume_unwind(panic);
    }
}

fn fuzz(name: &str) {
    let target = *ALL.iter().find(|(known, _)| *known == name).expect("a target of that name");
    let corpus = corpus(name);
    assert!(!corpus.is_empty(), "{name} has no kept inputs");
    for input in &corpus {
        run(target, input);
    }
    let mut mutator = Mutator::new(number("FUZZ_SEED", 1));
    for _ in 0..number("FUZZ_ITERATIONS", ITERATIONS) {
        run(target, &mutator.mutate(&corpus));
    }
}

macro_rules! tests {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            fuzz(stringify!($name));
        })*

        #[test]
        fn every_target_has_a_test_and_a_binary() {
            let tested = [$(stringify!($name)),*];
            let targets: Vec<_> = ALL.iter().map(|(name, _)| *name).collect();
            assert_eq!(targets, tested);
            for name in tested {
                let file = folder().join("fuzz_targets").join(name).with_extension("rs");
                assert!(file.exists(), "{}", file.display());
            }
        }
    };
}

tests!(
    frames requests answers streams multipart event_stream journal media http_requests http_answers
);

#[test]
fn the_kept_inputs_stay_small() {
    fn size(path: &Path) -> u64 {
        let entries =
            std::fs::read_dir(path).expect("a folder").map(|entry| entry.expect("a file"));
        entries
            .map(|entry| match entry.path() {
                path if path.is_dir() => size(&path),
                path => path.metadata().map_or(0, |file| file.len()),
            })
            .sum()
    }
    assert!(size(&folder().join("corpus")) < MAX_CORPUS_BYTES);
}
