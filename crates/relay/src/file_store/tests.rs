//! Tests of stored files: links, sweeping, sealing.

use super::*;
use canon::Micros;
use config::LoadOptions;
use ledger::TestClock;
use store::{Vault, VaultKeys};

const SECOND: Micros = Micros::from_secs(1);
const HOUR: Micros = Micros::from_hours(1);

struct FilesFixture {
    files: FileStore,
    clock: Arc<TestClock>,
    folder: PathBuf,
}

impl Drop for FilesFixture {
    fn drop(&mut self) {
        // The data folder, in which the files have one of their own.
        let _ = self.folder.parent().map(std::fs::remove_dir_all);
    }
}

const VAULT_KEYS: [&str; 2] = [
    "old:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
    "new:ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=",
];

/// Returns a vault with one of the keys.
fn vault(key: usize) -> Arc<Vault> {
    let keys = VaultKeys::read(VAULT_KEYS[key]).expect("a key");
    Arc::new(Vault::new(PathBuf::new(), Some(keys), true))
}

async fn fixture(config: &str) -> FilesFixture {
    let store = Store::open("sqlite::memory:").await.expect("a store");
    fixture_with(config, store.with_vault(vault(0)))
}

fn fixture_with(config: &str, store: Store) -> FilesFixture {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let folder = std::env::temp_dir().join(format!("portunus-files-{}", uuid::Uuid::now_v7()));
    let given = LoadOptions { file: None, listen_address: None, data_folder: folder.clone() };
    let config =
        Config::parse(config, std::path::Path::new("t"), &given, &|_| None).expect("a config");
    let clock = Arc::new(TestClock::at(Micros::from_secs(1_763_200_000)));
    let files =
        FileStore::open(&config, "secret", Arc::clone(&clock) as _, store).expect("a folder");
    FilesFixture { files, clock, folder: folder.join("files") }
}

/// Splits a link into name, expiry and signature.
fn parts(link: &FileLink) -> (String, String, String) {
    let (_, rest) = link.url.split_once("/files/").unwrap();
    let (name, query) = rest.split_once("?expires=").unwrap();
    let (expires, signature) = query.split_once("&signature=").unwrap();
    (name.to_owned(), expires.to_owned(), signature.to_owned())
}

#[tokio::test]
async fn link_opens_only_its_file_until_expiry() {
    let fixture = fixture("[files]\nkeep = \"2h\"").await;
    let files = &fixture.files;
    let link = files.put("ada", Bytes::from_static(b"\x89PNG"), "image/png").await.unwrap();
    let other = files.put("bob", Bytes::from_static(b"{}"), "text/html").await.unwrap();
    assert!(link.url.starts_with("http://127.0.0.1:8080/files/"), "{}", link.url);
    let (name, expires, signature) = parts(&link);
    let read = files.verify_link(&name, &expires, &signature).unwrap();
    assert_eq!((read.mime, read.is_raster_image()), ("image/png", true));
    assert_eq!(files.read(read.text).await.unwrap(), Bytes::from_static(b"\x89PNG"));
    let (other, ..) = parts(&other);
    let later = (link.expires_at + 1).to_string();
    for (name, expires, signature) in [
        (other.as_str(), expires.as_str(), signature.as_str()),
        (&name, &later, &signature),
        (&name, &expires, ""),
        (&name, "", &signature),
        ("../portunus.db", &expires, &signature),
    ] {
        let error = files.verify_link(name, expires, signature).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Forbidden, "{name} {expires} {signature}");
    }
    fixture.clock.pass(2 * HOUR - SECOND);
    assert!(files.verify_link(&name, &expires, &signature).is_ok());
    fixture.clock.pass(SECOND);
    let error = files.verify_link(&name, &expires, &signature).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::Gone, Some("link_expired")));
}

#[tokio::test]
async fn sweep_deletes_only_expired_files() {
    let fixture = fixture("[files]\nkeep = \"2h\"").await;
    let files = &fixture.files;
    let first = files.put("ada", Bytes::from_static(b"1"), "image/png").await.unwrap();
    fixture.clock.pass(HOUR);
    let second = files.put("ada", Bytes::from_static(b"2"), "image/png").await.unwrap();
    std::fs::write(fixture.folder.join("notes.txt"), "not ours").unwrap();
    assert_eq!(files.sweep_expired().await.unwrap(), 0);
    fixture.clock.pass(HOUR);
    assert_eq!(files.sweep_expired().await.unwrap(), 1);
    let gone = files.read(&first.name).await.unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound);
    assert_eq!(files.read(&second.name).await.unwrap(), Bytes::from_static(b"2"));
    files.delete(&second.name).await;
    assert!(files.read(&second.name).await.is_err());
    assert!(fixture.folder.join("notes.txt").exists());
}

#[tokio::test]
async fn failed_write_returns_an_error() {
    let fixture = fixture("[files]\nsize = \"10\"").await;
    let large = fixture.files.put("ada", Bytes::from_static(&[0; 11]), "image/png").await;
    assert!(large.unwrap_err().message().contains("11 bytes"));
    std::fs::remove_dir_all(&fixture.folder).unwrap();
    std::fs::write(&fixture.folder, "a file where the folder was").unwrap();
    let error = fixture.files.put("ada", Bytes::from_static(b"1"), "image/png").await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Overloaded);
    std::fs::remove_file(&fixture.folder).unwrap();
    let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
    let full = object_store::Error::Generic { store: "files", source: full.into() };
    assert!(write_error("ada", &full).message().contains("no room"));
}

/// Content of that size in which no two segments are alike.
fn content(size: usize) -> Bytes {
    (0..size).map(|place| (place / 7 + place / 65_536) as u8).collect()
}

async fn put(files: &FileStore, content: &Bytes) -> String {
    files.put("ada", content.clone(), "image/png").await.unwrap().name
}

/// Reads a part of a file. A changed segment fails while it is read.
async fn read_part(files: &FileStore, name: &str, part: Range<u64>) -> Result<Bytes, ApiError> {
    let content = files.find(name).await?.read_part(part).await?;
    let pieces: Vec<Bytes> = within_time(content.stream.try_collect()).await?;
    let bytes = Bytes::from(pieces.concat());
    assert_eq!(content.length, bytes.len() as u64);
    Ok(bytes)
}

const SEGMENT: usize = 65_536;
const HEADER: usize = HEADER_BYTES;
const STORED: usize = SEGMENT + 16;

#[tokio::test]
async fn sealed_files_are_read_whole_and_in_part() {
    let fixture = fixture("").await;
    let files = &fixture.files;
    for size in [0, 1, SEGMENT - 1, SEGMENT, SEGMENT + 1, 3 * SEGMENT + 5] {
        let content = content(size);
        let name = put(files, &content).await;
        assert!(is_sealed(&name), "{name}");
        assert_eq!(files.read(&name).await.unwrap(), content, "{size}");
        assert_eq!(files.get(&name).await.unwrap().length, size as u64);
        assert_eq!(files.find(&name).await.unwrap().size, size as u64);
        let stored = std::fs::read(fixture.folder.join(&name)).unwrap();
        assert_eq!(stored.len(), HEADER + size + 16 * size.div_ceil(SEGMENT).max(1));
        if let Some(piece) = content.get(size.saturating_sub(40)..).filter(|p| p.len() == 40) {
            assert!(!stored.windows(40).any(|window| window == piece), "{size}");
        }
        let edges = [0, 1, SEGMENT - 1, SEGMENT, SEGMENT + 1, 2 * SEGMENT, size];
        for start in edges {
            for end in edges.into_iter().filter(|end| start < *end && *end <= size) {
                let got = read_part(files, &name, start as u64..end as u64).await.unwrap();
                assert_eq!(got, content.slice(start..end), "{start}..{end} of {size}");
            }
        }
    }
}

#[tokio::test]
async fn changed_files_are_refused() {
    let fixture = fixture("").await;
    let files = &fixture.files;
    let size = 2 * SEGMENT + 100;
    let (name, other) = (put(files, &content(size)).await, put(files, &content(size)).await);
    let path = fixture.folder.join(&name);
    let good = std::fs::read(&path).unwrap();
    let foreign = std::fs::read(fixture.folder.join(&other)).unwrap();
    let segments = |order: [usize; 3]| {
        let segment = |nth: usize| {
            &good[HEADER + nth * STORED..(HEADER + (nth + 1) * STORED).min(good.len())]
        };
        [&good[..HEADER], segment(order[0]), segment(order[1]), segment(order[2])].concat()
    };
    let mut changes = vec![
        ("cut after a segment", good[..HEADER + STORED].to_vec()),
        ("cut within a segment", good[..good.len() - 1].to_vec()),
        ("cut within the header", good[..20].to_vec()),
        ("empty", Vec::new()),
        ("longer", [good.as_slice(), b"x"].concat()),
        ("swapped segments", segments([1, 0, 2])),
        ("repeated segment", segments([0, 0, 2])),
        ("another file", foreign.clone()),
        ("header of another file", [&foreign[..HEADER], &good[HEADER..]].concat()),
        ("segment of another file", [&good[..HEADER], &foreign[HEADER..]].concat()),
        ("unsealed", content(size).to_vec()),
    ];
    // A shorter file whose header says so.
    let mut shorter = good[..HEADER + STORED].to_vec();
    shorter[HEADER - 8..HEADER].copy_from_slice(&(SEGMENT as u64).to_be_bytes());
    changes.push(("cut, with a matching size", shorter));
    for place in (0..HEADER).chain([HEADER, HEADER + STORED - 1, HEADER + STORED, good.len() - 1]) {
        let mut flipped = good.clone();
        flipped[place] ^= 1;
        changes.push(("a flipped bit", flipped));
    }
    for (what, changed) in changes {
        std::fs::write(&path, &changed).unwrap();
        // A change is an error before the first byte, and a retry does not help.
        let errors = [
            files.read(&name).await.map(drop),
            files.get(&name).await.map(drop),
            async { files.find(&name).await?.read_part(0..size as u64).await.map(drop) }.await,
        ];
        for (way, error) in errors.into_iter().enumerate() {
            let error = error.expect_err(what);
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{what} {way}: {error}");
            assert!(!error.is_retryable(), "{what} {way}: {error}");
            assert!(!error.message().contains("retry"), "{what} {way}: {error}");
        }
    }
    std::fs::write(&path, &good).unwrap();
    assert_eq!(files.read(&name).await.unwrap(), content(size));
}

/// Takes bytes of content until it ends or breaks off, and returns their number.
async fn bytes_before_error(content: FileContent) -> Result<u64, u64> {
    let FileContent { length, mut stream } = content;
    let mut came = 0;
    loop {
        match stream.next().await {
            Some(Ok(bytes)) => came += bytes.len() as u64,
            Some(Err(_)) => return Err(came),
            None if came == length => return Ok(came),
            None => panic!("{came} of {length} bytes and a clean end"),
        }
    }
}

#[tokio::test]
async fn large_files_and_those_without_memory_break_off() {
    let fixture = fixture("[files]\nsize = \"16MiB\"").await;
    let files = &fixture.files;
    let damage = |name: &str| {
        let path = fixture.folder.join(name);
        let mut changed = std::fs::read(&path).unwrap();
        let last = changed.len() - 1;
        changed[last] ^= 1;
        std::fs::write(&path, &changed).unwrap();
    };
    // The last segment of the large one has a single byte.
    let large = put(files, &content(usize::try_from(MAX_VERIFIED_BYTES).unwrap() + 1)).await;
    let small = put(files, &content(2 * SEGMENT)).await;
    let sent = files.get(&large).await.unwrap();
    assert_eq!(bytes_before_error(sent).await, Ok(MAX_VERIFIED_BYTES + 1));
    damage(&large);
    let sent = files.get(&large).await.unwrap();
    assert_eq!(bytes_before_error(sent).await, Err(MAX_VERIFIED_BYTES));

    // A reader that takes nothing holds memory, and its share is bounded.
    let free = || files.verified_buffer.available_permits();
    assert_eq!(free(), VERIFIED_BUFFER_BYTES);
    let held = files.get(&small).await.unwrap();
    assert_eq!(free(), VERIFIED_BUFFER_BYTES - 2 * SEGMENT);
    damage(&small);
    assert!(files.get(&small).await.is_err());
    assert_eq!(free(), VERIFIED_BUFFER_BYTES - 2 * SEGMENT, "a failed read keeps none");
    let rest = files.verified_buffer.try_acquire_many(u32::try_from(free()).unwrap()).unwrap();
    let sent = files.get(&small).await.unwrap();
    assert_eq!(bytes_before_error(sent).await, Err(SEGMENT as u64));
    drop(rest);
    assert_eq!(bytes_before_error(held).await, Ok(2 * SEGMENT as u64));
    assert_eq!(free(), VERIFIED_BUFFER_BYTES);
}

#[tokio::test]
async fn files_from_before_stay_readable_and_a_lost_key_is_an_error() {
    let database = std::env::temp_dir().join(format!("files-{}.db", uuid::Uuid::now_v7()));
    let url = format!("sqlite:{}", database.display());
    let plain = fixture_with("", Store::open(&url).await.unwrap());
    let old = put(&plain.files, &content(100)).await;
    assert!(!is_sealed(&old), "{old}");
    assert_eq!(std::fs::read(plain.folder.join(&old)).unwrap(), content(100));

    let sealed = fixture_with("", Store::open(&url).await.unwrap().with_vault(vault(0)));
    std::fs::copy(plain.folder.join(&old), sealed.folder.join(&old)).unwrap();
    assert_eq!(sealed.files.read(&old).await.unwrap(), content(100));
    assert_eq!(read_part(&sealed.files, &old, 10..20).await.unwrap(), content(100).slice(10..20));
    let new = put(&sealed.files, &content(100)).await;

    let other = fixture_with("", Store::open(&url).await.unwrap().with_vault(vault(1)));
    std::fs::copy(sealed.folder.join(&new), other.folder.join(&new)).unwrap();
    let error = other.files.read(&new).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.message().contains("cannot be decrypted"), "{error}");
    assert!(other.files.find(&new).await.is_err());
    // It still stores new files, under a key of its own.
    let own = put(&other.files, &content(10)).await;
    assert_eq!(other.files.read(&own).await.unwrap(), content(10));
    std::fs::remove_file(database).unwrap();
}
