//! Answers in the form that each provider documents: their counts, and their price by the directory.
//! The figures are the tests' own; `source` is the page that describes the form.

use canon::{Usage, WireFormat};
use catalog::{BilledUnits, ModelDirectory};
use dialects::images::{ImageAnswer, ImageProtocol};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::Path;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedAnswer {
    source: String,
    provider: String,
    /// Name at the provider; none where the directory has no model of it.
    model: Option<String>,
    format: String,
    body: Box<serde_json::value::RawValue>,
    usage: Usage,
    usd: Option<String>,
}

fn answers() -> Vec<(String, RecordedAnswer)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/portunus/money/recorded");
    let mut files: Vec<_> =
        Path::new(folder).read_dir().unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    files
        .into_iter()
        .map(|file| {
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            let text = std::fs::read_to_string(file).unwrap();
            let answer = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
            (name, answer)
        })
        .collect()
}

#[test]
fn counts_and_prices_are_those_of_the_provider() {
    let directory = ModelDirectory::embedded();
    for (name, answer) in answers() {
        assert!(answer.source.starts_with("https://"), "{name}");
        let model = answer.model.as_deref();
        let offer = model.and_then(|model| directory.find_offer(&answer.provider, model));
        let body = answer.body.get().as_bytes();
        let mut units = BilledUnits::default();
        let format = WireFormat::parse(&answer.format).unwrap();
        if let Some(dialect) = dialects::get(format) {
            let meter = dialect.meter_reply(body).unwrap();
            assert_eq!(meter.usage, Some(answer.usage), "{name}");
            let read = dialect.read_reply(body).unwrap();
            assert_eq!(read.usage, Some(answer.usage), "{name}: translated");
        } else {
            let family = offer.unwrap().0.capabilities.images.as_ref().unwrap().family;
            let read = ImageProtocol::Images(family).read(body).unwrap();
            let ImageAnswer::Finished(reply) = read else { panic!("{name}: pending") };
            assert_eq!(reply.usage, Some(answer.usage), "{name}");
            units.images = u64::try_from(reply.count()).unwrap();
        }
        let cost =
            offer.map(|(_, offer)| offer.prices.cost_with(&answer.usage, &units).to_string());
        assert_eq!(cost, answer.usd, "{name}");
        assert_eq!(model.is_some(), offer.is_some(), "{name}");
    }
}

#[test]
fn every_provider_has_an_answer() {
    let answers = answers();
    let recorded: BTreeSet<&str> =
        answers.iter().map(|(_, answer)| answer.provider.as_str()).collect();
    let directory = ModelDirectory::embedded();
    let known: BTreeSet<&str> = directory.providers().map(|entry| entry.id.as_str()).collect();
    assert_eq!(recorded, known);
}
