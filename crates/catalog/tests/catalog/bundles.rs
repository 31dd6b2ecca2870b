//! Bundles over the embedded directory: changed facts, refused ones, and the difference.

use std::cmp::Ordering;

use canon::Price;
use catalog::{DirectoryBundle, MAX_BUNDLE_BYTES, ModelDirectory};

const HEAD: &str = "version = 7\nas_of = \"2099-01-01\"\n";
const NEW_MODEL: &str = "[[models]]\nprovider = \"openai\"\nid = \"gpt-99\"\nkind = \"chat\"\n\
    features = [\"streaming\", \"tools\"]\ninput = [\"text\"]\noutput = [\"text\"]\ncontext = 9000\n\
    about = \"A model that is only in this test.\"\nprice = { input = \"1\", output = \"2\" }\n";

fn overlay(text: &str) -> Result<ModelDirectory, String> {
    let bundle = DirectoryBundle::parse(text).map_err(|error| error.to_string())?;
    let overlaid = bundle.overlay().map_err(|error| error.to_string())?;
    assert_eq!(overlaid.outdated, [""; 0]);
    Ok(overlaid.directory)
}

fn refused(text: &str) -> String {
    overlay(&format!("{HEAD}{text}")).err().unwrap_or_default()
}

#[test]
fn a_bundle_changes_prices_and_facts_and_adds_models_and_offers() {
    let text = format!(
        "{HEAD}[[models]]\nprovider = \"openai\"\nid = \"gpt-5\"\ncontext = 500000\n\
         price = {{ input = \"1.00\", output = \"11\" }}\n{NEW_MODEL}\
         [[offers]]\nprovider = \"azure\"\nmodel = \"gpt-99\"\nupstream = \"gpt-99-eu\"\n\
         [[offers]]\nprovider = \"bedrock\"\nmodel = \"claude-opus-5-5\"\n\
         price = {{ input = \"5\", output = \"25\" }}\n"
    );
    let (old, new) = (ModelDirectory::embedded(), overlay(&text).unwrap());
    let entry = new.model("gpt-5").unwrap();
    assert_eq!(entry.capabilities.context_window, Some(500_000));
    assert_eq!(entry.prices.input.to_per_million(), "1");
    let cached = entry.prices.cached_input.map(Price::to_per_million);
    assert_eq!(cached.as_deref(), Some("0.125"), "a price that is not named stays");
    let (_, azure) = new.find_offer("azure", "gpt-5").unwrap();
    assert_eq!(azure.prices, entry.prices, "an offer without prices follows its model");
    assert_eq!(entry.as_of, "2099-01-01");
    let before = old.model("gpt-5").unwrap();
    assert_eq!((&entry.features, &entry.about), (&before.features, &before.about));
    assert_ne!(entry.prices.version, before.prices.version);
    let added = new.model("gpt-99").unwrap();
    let lanes: Vec<_> =
        added.offers.iter().map(|o| format!("{}/{}", o.provider, o.model)).collect();
    assert_eq!(lanes, ["openai/gpt-99", "azure/gpt-99-eu"]);
    let (_, bedrock) = new.find_offer("bedrock", "anthropic.claude-opus-5-5").unwrap();
    assert_eq!(bedrock.prices.input, Price::parse_per_million("5").unwrap());
    let own = |directory: &ModelDirectory| {
        directory.find_offer("anthropic", "claude-opus-5-5").unwrap().1.prices.version.clone()
    };
    assert_eq!(own(old), own(&new), "the vendor's own price stays");
    assert_eq!(
        old.providers().collect::<Vec<_>>(),
        new.providers().collect::<Vec<_>>(),
        "providers are never changed"
    );
    let diff = old.diff(&new);
    assert_eq!(diff.added, ["gpt-99"]);
    assert_eq!(diff.removed, [""; 0]);
    assert_eq!(diff.changed, ["claude-opus-5-5", "gpt-5"]);
    let lines: Vec<_> = diff.prices.iter().map(ToString::to_string).collect();
    assert!(lines.contains(&"down  openai/gpt-5  input: 1.25 -> 1 USD per 1M tokens".to_owned()));
    assert!(lines.contains(&"up    openai/gpt-5  output: 10 -> 11 USD per 1M tokens".to_owned()));
    let offer =
        "[[offers]]\nprovider = \"azure\"\nmodel = \"gpt-5\"\nprice = { input = \"1.5\" }\n";
    let own = overlay(&format!("{HEAD}{offer}")).unwrap();
    let (known, azure) = own.find_offer("azure", "gpt-5").unwrap();
    assert_eq!(azure.prices.input.to_per_million(), "1.5");
    assert_eq!(
        azure.prices.per_search, known.prices.per_search,
        "the others are those of the model"
    );
    let change = &old.diff(&own).prices;
    assert_eq!((change.len(), change[0].direction), (1, Some(Ordering::Less)));
    assert!(old.diff(old).is_empty());
    assert_eq!(new.diff(old).removed, ["gpt-99"]);
}

/// A bundle that could name an address would send the operator's credentials there.
#[test]
fn a_bundle_never_says_where_credentials_go() {
    let evil = "https://evil.example";
    for text in [
        format!("[provider]\nid = \"openai\"\nbase = \"{evil}\"\n"),
        format!("[[providers]]\nid = \"openai\"\nbase = \"{evil}\"\n"),
        format!("base = \"{evil}\"\n"),
        "[quirks.chat]\nheaders = { x = \"y\" }\n".to_owned(),
    ] {
        assert!(refused(&text).contains("where requests and credentials go"), "{text}");
    }
    for field in ["base", "auth", "env", "paths", "headers", "hosts", "fill", "bases", "quirks"] {
        let text = NEW_MODEL.replace("kind = ", &format!("{field} = \"{evil}\"\nkind = "));
        assert!(refused(&text).contains("where requests and credentials go"), "{field}");
        let offer =
            format!("[[offers]]\nprovider = \"azure\"\nmodel = \"gpt-5\"\n{field} = \"x\"\n");
        assert!(refused(&offer).contains("where requests and credentials go"), "{field}");
    }
    // A name that leaves its place in a path could reach another endpoint of the provider.
    for name in
        ["../../evil", "a/../b", "a?key=", "a#b", "{base}", "/a", "a//b", "a b", "a%2f", ".."]
    {
        let text = NEW_MODEL.replace("kind = ", &format!("upstream = \"{name}\"\nkind = "));
        assert!(refused(&text).contains("cannot be the name"), "{name}");
        assert!(
            refused(&NEW_MODEL.replace("gpt-99", name)).contains("cannot be the name"),
            "{name}"
        );
    }
    for (field, value) in [("upstream", "\"gpt-4o\""), ("kind", "\"image\""), ("elsewhere", "true")]
    {
        let text =
            format!("[[models]]\nprovider = \"openai\"\nid = \"gpt-5\"\n{field} = {value}\n");
        assert!(refused(&text).contains("changes only with the program"), "{field}");
    }
}

#[test]
fn a_wrong_bundle_is_refused_with_its_place() {
    for (from, to, reason) in [
        ("\"openai\"", "\"nobody\"", "models[0] nobody/gpt-99: there is no provider `nobody`"),
        ("context", "contxt", "models[0] openai/gpt-99: unknown field `contxt`"),
        ("input = \"1\"", "input = \"-1\"", "model `gpt-99`: price `input` = \"-1\": below zero"),
        ("input = \"1\"", "inptu = \"1\"", "models[0] openai/gpt-99: unknown field `inptu`"),
        ("[\"streaming\", \"tools\"]", "[\"magic\"]", "there is no feature `magic`"),
        ("kind = \"chat\"\n", "", "models[0] openai/gpt-99: missing field `kind`"),
        ("id = \"gpt-99\"\n", "", "models[0]: `id` is missing"),
        ("provider = \"openai\"\n", "", "models[0]: `provider` is missing"),
        ("gpt-99", "claude-opus-5-5", "another provider owns this model"),
        ("kind = ", "as_of = \"soon\"\nkind = ", "`as_of` is not a date"),
        ("kind = ", "as_of = \"2099-01-02\"\nkind = ", "later than that of the bundle"),
        ("kind = ", "aliases = [\"gpt-4o\"]\nkind = ", "`gpt-4o` stands here twice"),
        ("kind = ", "upstream = \"gpt-4o\"\nkind = ", "two models are `openai/gpt-4o`"),
    ] {
        assert!(NEW_MODEL.contains(from), "{from}");
        let why = refused(&NEW_MODEL.replace(from, to));
        assert!(why.contains(reason), "{to}: {why}");
    }
    assert!(refused(&format!("{NEW_MODEL}{NEW_MODEL}")).contains("stands here twice"));
    assert!(refused("surprise = 1\n").contains("unknown field `surprise`"));
    let lost = "[[offers]]\nprovider = \"azure\"\nmodel = \"nothing\"\nupstream = \"x\"\n";
    assert!(refused(lost).contains("which no file describes"));
    assert!(overlay("as_of = \"2099-01-01\"\n").unwrap_err().contains("missing field `version`"));
    assert!(overlay("version = 1\nas_of = \"today\"\n").unwrap_err().contains("is not a date"));
    assert!(overlay("version = -1\nas_of = \"2099-01-01\"\n").is_err());
    assert!(overlay("[[[").unwrap_err().starts_with("bundle: "));
    let large = format!("{HEAD}# {}\n", "x".repeat(MAX_BUNDLE_BYTES));
    assert!(overlay(&large).unwrap_err().contains("larger than"));
}

/// The program may be updated after a bundle was installed. Its newer facts win then.
#[test]
fn facts_that_are_older_than_the_embedded_ones_are_left_out() {
    let old = "version = 1\nas_of = \"2020-01-01\"\n[[models]]\nprovider = \"openai\"\nid = \"gpt-5\"\n\
               price = { input = \"99\", output = \"99\" }\n[[offers]]\nprovider = \"bedrock\"\n\
               model = \"claude-opus-5-5\"\nprice = { input = \"99\", output = \"99\" }\n";
    let overlaid = DirectoryBundle::parse(old).unwrap().overlay().unwrap();
    assert_eq!(overlaid.outdated, ["models[0] openai/gpt-5", "offers[0] bedrock/claude-opus-5-5"]);
    assert!(ModelDirectory::embedded().diff(&overlaid.directory).is_empty());
}
