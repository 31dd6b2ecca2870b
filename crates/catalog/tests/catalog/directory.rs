//! The embedded directory: every file is good, every figure sane, every reference known.

use std::collections::BTreeSet;

use canon::{Price, WireFormat};
use catalog::{
    AuthScheme, FieldQuirks, MODALITIES, ModelDirectory, ModelKind, ModelPrices, ParameterRange,
    ParameterSupport,
};

fn directory() -> &'static ModelDirectory {
    ModelDirectory::embedded()
}

/// The present day anywhere on earth.
fn today() -> String {
    let east = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(14);
    east.to_string().chars().take(10).collect()
}

/// Every price list in the directory, with the name of where it stands.
fn lists() -> impl Iterator<Item = (String, &'static ModelPrices)> {
    directory().models().flat_map(|entry| {
        entry.offers.iter().map(|offer| {
            (format!("{} at {}/{}", entry.id, offer.provider, offer.model), &*offer.prices)
        })
    })
}

#[test]
fn the_embedded_files_are_good_and_all_there() {
    let files: BTreeSet<_> = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/data"))
        .unwrap()
        .filter_map(|file| file.unwrap().path().file_stem()?.to_str().map(str::to_owned))
        // A second file of a provider is named after it.
        .filter(|stem| stem != "README" && stem != "openai-earlier")
        .collect();
    let known: BTreeSet<_> = directory().providers().map(|p| p.id.clone()).collect();
    assert_eq!(files, known);
    assert!(directory().models().count() > 0);
}

#[test]
fn ids_and_aliases_are_unique_and_lead_to_their_model() {
    let mut seen = BTreeSet::new();
    for entry in directory().models() {
        for id in entry.aliases.iter().chain([&entry.id]) {
            assert!(seen.insert(id.clone()), "{id} stands twice");
            assert_eq!(directory().model(id).unwrap().id, entry.id);
        }
    }
}

#[test]
fn every_model_belongs_to_and_is_served_by_known_providers() {
    for entry in directory().models() {
        assert!(directory().provider(&entry.provider).is_some(), "{}", entry.id);
        assert!(!entry.offers.is_empty(), "{}", entry.id);
        let mut seen = BTreeSet::new();
        for offer in &entry.offers {
            assert!(directory().provider(&offer.provider).is_some(), "{}", entry.id);
            assert!(seen.insert((&offer.provider, &offer.model)), "{} offered twice", entry.id);
            let (found, _) = directory().find_offer(&offer.provider, &offer.model).unwrap();
            assert_eq!(found.id, entry.id, "{}/{}", offer.provider, offer.model);
        }
    }
}

#[test]
fn the_facts_break_no_rule() {
    let findings = directory().findings(&today());
    assert!(
        findings.is_empty(),
        "{}",
        findings.iter().map(|f| format!("{f}\n")).collect::<String>()
    );
    for (name, prices) in lists() {
        assert!(prices.version.starts_with("p-"), "{name}");
    }
    for entry in directory().models() {
        for word in entry.capabilities.input.iter().chain(&entry.capabilities.output) {
            assert!(MODALITIES.contains(&word.as_str()), "{}: {word}", entry.id);
        }
    }
}

#[test]
fn tags_agree_with_the_capabilities() {
    // The other tags are facts of their own.
    let own = ["streaming", "prompt-caching", "image-edit", "open-weights"];
    for entry in directory().models() {
        let written: Vec<_> = entry.features.iter().filter(|tag| !own.contains(&&***tag)).collect();
        assert_eq!(written, entry.capabilities.implied_features(entry.kind), "{}", entry.id);
        let gives = |word: &str| entry.capabilities.output.iter().any(|own| own == word);
        assert_eq!(gives("vector"), entry.kind == ModelKind::Embedding, "{}", entry.id);
        assert!(entry.kind != ModelKind::Image || gives("image"), "{}", entry.id);
        if entry.kind == ModelKind::Chat {
            let takes_text = entry.capabilities.input.iter().any(|own| own == "text");
            assert!(takes_text && gives("text"), "{}", entry.id);
        }
    }
}

#[test]
fn records_are_sane() {
    for entry in directory().models() {
        let can = &entry.capabilities;
        let id = &entry.id;
        for list in can.tools.iter() {
            assert!(list.is_sorted_by(|a, b| a < b), "{id}: {list:?}");
        }
        for (name, support) in &can.parameters {
            let ParameterSupport::Supported(range) = support else { continue };
            let ParameterRange { min, max, default } = *range;
            let (low, high) = (min.unwrap_or(f64::MIN), max.unwrap_or(f64::MAX));
            assert!(low <= high, "{id}: {name}");
            assert!(default.is_none_or(|usual| (low..=high).contains(&usual)), "{id}: {name}");
        }
        for word in can.media_limits.keys() {
            assert!(can.input.contains(word), "{id}: limits of {word}, which it does not read");
        }
        if let Some(lengths) = &can.dimensions {
            assert_eq!(entry.kind, ModelKind::Embedding, "{id}");
            assert!(lengths.default.is_none_or(|usual| lengths.accepts(usual)), "{id}");
            assert!(lengths.values.iter().all(|length| lengths.accepts(*length)), "{id}");
        }
    }
}

/// The rules find what they are for: a valid model with one fact changed has one finding.
#[test]
fn a_broken_rule_is_found() {
    let provider = "[provider]\nid = \"x\"\nname = \"X\"\nspeaks = [\"chat\", \"images\"]\n\
                    base = \"https://x.example\"\nauth = \"bearer\"\n";
    let model = "[[models]]\nid = \"m\"\nkind = \"chat\"\nfeatures = [\"streaming\"]\n\
                 input = [\"text\"]\noutput = [\"text\"]\ncontext = 8000\nmax_output = 4000\n\
                 about = \"A model that is only in this test.\"\nas_of = \"2026-01-01\"\n\
                 price = { input = \"2\", output = \"4\" }\n";
    let found = |from: &str, to: &str| {
        assert!(model.contains(from), "{from}");
        let text = format!("{provider}{}", model.replace(from, to));
        let read = ModelDirectory::read(&[("x.toml", &text)]).unwrap();
        let all = read.findings(&today()).into_iter().map(|finding| finding.reason);
        all.collect::<Vec<_>>().join("; ")
    };
    assert_eq!(found("m", "m"), "");
    for (from, to, reason) in [
        ("[\"streaming\"]", "[\"streaming\", \"vision\"]", "the feature `vision` and its input"),
        ("input = [\"text\"]", "input = [\"text\", \"audio\"]", "the feature `audio-input`"),
        ("[\"streaming\"]", "[\"streaming\", \"thinking\"]", "the feature `thinking`"),
        ("[\"streaming\"]", "[\"tools\", \"streaming\"]", "the order of the list"),
        ("max_output = 4000", "max_output = 9000", "longer than its window"),
        ("context = 8000\n", "", "its window is missing"),
        ("2026-01-01", "2999-01-01", "in the future"),
        ("2026-01-01", "2026-13-01", "YYYY-MM-DD"),
        ("input = \"2\"", "input = \"1000\"", "beyond what exists"),
        ("input = \"2\"", "input = \"2\", cached_input = \"3\"", "dearer than input"),
        ("\"2\", output = \"4\"", "\"0\", output = \"0\"", "it is free"),
        ("\"2\", output = \"4\"", "\"2\"", "no price for input or output"),
        ("input = \"2\"", "input = \"2\", thinking = \"0\"", "its thinking is free"),
        ("input = \"2\"", "input = \"2\", per_code_run = \"9\"", "beyond what exists"),
        (
            "output = \"4\" }",
            "output = \"4\", batch = { rates = { input = \"3\", output = \"4\" } } }",
            "wrong side",
        ),
    ] {
        let reasons = found(from, to);
        assert!(reasons.contains(reason), "{to}: {reasons}");
    }
    let image = model
        .replace("\"chat\"", "\"image\"")
        .replace("output = [\"text\"]", "output = [\"image\"]");
    let image = image.replace("[\"streaming\"]", "[\"image-output\"]").replace("\"4\"", "\"0\"");
    let read = |text: &str| {
        let text = format!("{provider}{text}");
        ModelDirectory::read(&[("x.toml", text.as_str())]).unwrap().findings(&today())
    };
    assert!(read(&image)[0].reason.contains("no price for its images"), "{:?}", read(&image));
    assert!(read(&image.replace("input = \"2\"", "per_image = \"0.1\"")).is_empty());
}

#[test]
fn providers_can_be_addressed() {
    for provider in directory().providers() {
        let id = &provider.id;
        assert!(!id.is_empty() && !id.contains('/'), "{id}: a lane divides at the first slash");
        assert!(!provider.name.is_empty() && !provider.formats.is_empty(), "{id}");
        assert!(!provider.base.ends_with('/'), "{id}");
        if id == "demo" {
            continue;
        }
        let local = provider.base.starts_with("http://127.0.0.1");
        let blank = provider.base.starts_with('{');
        assert!(local || blank || provider.base.starts_with("https://"), "{id}");
        match &provider.auth {
            AuthScheme::Bearer
            | AuthScheme::Header(_)
            | AuthScheme::Google
            | AuthScheme::SigV4(_) => {
                assert!(!provider.key_env.is_empty(), "{id}");
            }
            AuthScheme::None => assert!(local, "{id}"),
        }
        let filled: Vec<&str> =
            provider.placeholder_env.iter().map(|(blank, _)| blank.as_str()).collect();
        let mut blanks = provider.placeholders();
        blanks.sort_unstable();
        assert_eq!(blanks, filled, "{id}: every blank has its usual variable");
        assert!(provider.placeholder_env.iter().all(|(_, names)| !names.is_empty()), "{id}");
    }
}

#[test]
fn the_page_for_users_lists_every_provider_as_it_is() {
    let page = include_str!("../../../../docs/providers.md");
    for provider in directory().providers().filter(|provider| provider.id != "demo") {
        let row = page.lines().find(|line| line.contains(&format!("| `{}` |", provider.id)));
        let row = row.unwrap_or_else(|| panic!("{} is not on the page", provider.id));
        assert!(row.starts_with(&format!("| {} |", provider.name)), "{row}");
        let speaks: Vec<&str> = provider.formats.iter().map(|origin| origin.as_str()).collect();
        assert!(row.ends_with(&format!("| {} |", speaks.join(", "))), "{row}");
        assert!(
            provider.key_env.first().is_none_or(|name| row.contains(&format!("`{name}`"))),
            "{row}"
        );
    }
}

#[test]
fn ways_are_written_for_formats_that_are_spoken_and_contradict_nothing() {
    for provider in directory().providers() {
        let (id, ways) = (&provider.id, &provider.endpoints);
        assert_eq!(&ways.provider, id);
        for (origin, path) in &ways.paths {
            assert!(provider.formats.contains(origin), "{id}: {origin}");
            assert!(path.whole.starts_with('/') && path.stream.starts_with('/'), "{id}");
        }
        for (origin, quirks) in &ways.quirks {
            assert!(provider.formats.contains(origin), "{id}: {origin}");
            assert_ne!(quirks, &FieldQuirks::default(), "{id}: says nothing");
            let FieldQuirks { renames, refuses, needless, sets, headers, .. } = quirks;
            let mut gone: Vec<&String> = renames.keys().chain(refuses).chain(needless).collect();
            let count = gone.len();
            gone.sort_unstable();
            gone.dedup();
            assert_eq!(gone.len(), count, "{id}: a field is treated twice");
            let made = renames.values().chain(sets.keys()).chain(headers.values());
            assert!(made.into_iter().all(|field| !gone.contains(&field)), "{id}");
        }
    }
}

#[test]
fn the_demo_models_are_all_there_and_cost_something() {
    let demo = [
        "demo-chat",
        "demo-responses",
        "demo-messages",
        "demo-native",
        "demo-echo",
        "demo-image",
        "demo-image-native",
        "demo-image-url",
        "demo-embed",
    ];
    for id in demo {
        let entry = directory().model(id).unwrap();
        assert_eq!(entry.provider, "demo");
        assert!(!entry.prices.is_free(), "{id}");
        let model = entry.served_by(|provider| provider == "demo").unwrap();
        assert_eq!(model.lanes[0].name(), format!("demo/{id}"));
    }
    assert_eq!(directory().provider("demo").unwrap().formats.len(), WireFormat::ALL.len());
}

/// Compared by hand with the tables named in `data/README.md`.
#[test]
fn figures_are_those_of_the_lists() {
    let figures = [
        ("gpt-6-astra", "10", "50", Some("1"), Some(1_050_000)),
        ("gpt-5", "1.25", "10", Some("0.125"), Some(400_000)),
        ("gpt-4o-mini", "0.15", "0.6", Some("0.075"), Some(128_000)),
        ("claude-opus-5-5", "4", "20", Some("0.2"), Some(1_000_000)),
        ("claude-sonnet-4-5", "3", "15", Some("0.3"), Some(200_000)),
        ("claude-haiku-5-5", "0.1", "0.5", Some("0.01"), Some(1_000_000)),
        ("gemini-2.5-pro", "1.25", "10", Some("0.125"), Some(1_048_576)),
        ("gemini-2.5-flash", "0.3", "2.5", Some("0.03"), Some(1_048_576)),
        ("gemini-4-argon", "4", "20", Some("0.2"), Some(1_048_576)),
        ("grok-4.7", "2", "6", Some("0.5"), Some(500_000)),
        ("kimi-k3", "3", "15", Some("0.3"), Some(1_048_576)),
        ("command-a-03-2025", "2.5", "10", None, Some(256_000)),
        ("text-embedding-3-large", "0.13", "0", None, Some(8191)),
    ];
    for (id, input, output, cached, context) in figures {
        let entry = directory().model(id).unwrap();
        assert_eq!(entry.prices.input.to_per_million(), input, "{id}");
        assert_eq!(entry.prices.output.to_per_million(), output, "{id}");
        let told = entry.prices.cached_input.map(Price::to_per_million);
        assert_eq!(told.as_deref(), cached, "{id}");
        assert_eq!(entry.capabilities.context_window, context, "{id}");
    }
    let long = &directory().model("claude-haiku-5-5").unwrap().prices.long_prompts;
    assert_eq!((long.len(), long[0].above_tokens), (1, 100_000));
    assert_eq!(long[0].rates.input.to_per_million(), "0.5");
    let audio = directory().model("gemini-2.5-flash").unwrap().prices.input_audio;
    assert_eq!(audio.map(Price::to_per_million).as_deref(), Some("1"));
}

#[test]
fn a_key_alone_switches_a_provider_and_its_models_on() {
    for (variable, provider) in [
        ("OPENAI_API_KEY", "openai"),
        ("ANTHROPIC_API_KEY", "anthropic"),
        ("GEMINI_API_KEY", "gemini"),
        ("MISTRAL_API_KEY", "mistral"),
        ("OPENROUTER_API_KEY", "openrouter"),
    ] {
        let found =
            directory().providers().find(|p| p.key_env.first().is_some_and(|v| v == variable));
        let found = found.unwrap();
        assert_eq!(found.id, provider);
        assert!(found.placeholders().is_empty(), "{provider}");
        assert!(directory().models().any(|e| e.served_by(|p| p == provider).is_some()));
    }
    assert_eq!(directory().provider("azure").unwrap().placeholders(), ["endpoint"]);
    assert_eq!(directory().provider("vertex").unwrap().placeholders(), ["region", "project"]);
}

#[test]
fn lanes_follow_the_chosen_providers_and_so_does_the_price() {
    let entry = directory().model("claude-opus-5-5").unwrap();
    let lanes = |chosen: &[&str]| {
        let model = entry.served_by(|provider| chosen.contains(&provider)).unwrap();
        let names: Vec<_> = model.lanes.iter().map(|lane| lane.name()).collect();
        (names.join(" "), model.prices.input.to_per_million())
    };
    let (both, price) = lanes(&["bedrock", "anthropic"]);
    assert_eq!(both, "anthropic/claude-opus-5-5 bedrock/anthropic.claude-opus-5-5");
    assert_eq!(price, "4");
    let (one, price) = lanes(&["bedrock"]);
    assert_eq!((one.as_str(), price.as_str()), ("bedrock/anthropic.claude-opus-5-5", "4.4"));
    assert!(entry.served_by(|provider| provider == "ollama").is_none());
    let renamed = entry.with_lanes(vec![catalog::Lane::new("mine", "whatever")]);
    assert_eq!(renamed.prices, entry.prices);
}

#[test]
fn every_lane_has_a_format_that_carries_its_kind() {
    for entry in directory().models() {
        for offer in &entry.offers {
            let speaks = directory().formats(&offer.provider, &offer.model);
            assert!(!speaks.is_empty(), "{} at {}", entry.id, offer.provider);
            let provider = directory().provider(&offer.provider).unwrap();
            assert!(speaks.iter().all(|origin| provider.formats.contains(origin)), "{}", entry.id);
        }
    }
    let speaks = |provider, model| directory().formats(provider, model);
    assert_eq!(speaks("openai", "gpt-5.5-pro"), [WireFormat::Responses]);
    assert_eq!(speaks("openai", "gpt-5.5"), [WireFormat::Responses, WireFormat::Chat]);
    assert_eq!(speaks("openai", "gpt-image-2"), [WireFormat::Images]);
    assert_eq!(speaks("openai", "text-embedding-3-small"), [WireFormat::Chat]);
    assert_eq!(speaks("gemini", "gemini-3-pro-image"), [WireFormat::Native]);
    assert_eq!(speaks("vertex", "claude-opus-5-5"), [WireFormat::Messages]);
    assert_eq!(speaks("ollama", "anything").first(), Some(&WireFormat::Chat));
    assert!(speaks("nobody", "anything").is_empty());
}

#[test]
fn a_slip_in_the_data_is_refused_with_its_place() {
    let provider = "[provider]\nid = \"x\"\nname = \"X\"\nspeaks = [\"chat\"]\n\
                    base = \"https://x.example\"\nauth = \"bearer\"\n";
    let model = "[[models]]\nid = \"m\"\nkind = \"chat\"\nfeatures = []\ninput = [\"text\"]\n\
                 output = [\"text\"]\nabout = \"A.\"\nas_of = \"2026-01-01\"\n";
    let why = |text: &str| ModelDirectory::read(&[("x.toml", text)]).unwrap_err();
    let good = format!("{provider}{model}price = {{ input = \"1\" }}\n");
    assert!(ModelDirectory::read(&[("x.toml", good.as_str())]).is_ok());
    assert_eq!(why("[provider]").file, "x.toml");
    let reason = why(&format!("{provider}{model}")).reason;
    assert!(reason.contains("the price is missing"), "{reason}");
    assert!(why(&format!("{good}{model}price = {{ input = \"1\" }}\n")).reason.contains("twice"));
    assert!(why(&good.replace("[]", "[\"magic\"]")).reason.contains("`magic`"));
    assert!(why(&good.replace("\"1\"", "\"one\"")).reason.contains("price `input`"));
    let reason = why(&format!("{good}surprise = 1\n")).reason;
    assert!(reason.contains("surprise") && reason.contains("begins in line 7"), "{reason}");
    let reason = why(&format!("{good}{provider}")).reason;
    assert!(reason.contains("second `provider`"), "{reason}");
    let second = |of: &str| ModelDirectory::read(&[("x.toml", good.as_str()), ("x-2.toml", of)]);
    assert!(second("of = \"x\"\n").is_ok());
    assert!(second("of = \"y\"\n").unwrap_err().reason.contains("`y` is not known"));
    assert!(second(provider).unwrap_err().reason.contains("`x` stands here twice"));
    assert!(second("").unwrap_err().reason.contains("either"));
    let lost = format!("{provider}[[offers]]\nmodel = \"m\"\nupstream = \"u\"\n");
    assert!(why(&lost).reason.contains("no file describes"));
    let nobody = format!("{provider}{model}elsewhere = true\n");
    assert!(why(&nobody).reason.contains("nobody serves `m`"));
}
