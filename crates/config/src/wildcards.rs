//! Models with a wildcard: every model of a provider under one entry.
//!
//! `[models."openai/*"]` stands for one entry for each model that the directory knows at the provider
//! `openai`. What follows is the same as for entries that were written one by one: prices, lists of models,
//! permissions of keys. A model that the directory does not know has no price, and a call must not be free
//! because of that; so it is not served until it has an entry of its own with a price.

use catalog::{Lane, ModelDirectory};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use upstream::Provider;

use crate::entry::{EntryError, EntryName};
use crate::error::FieldError;
use crate::providers::EndpointsByProvider;
use crate::raw::{RawLane, RawLaneTable, RawModel};

const WILDCARD: char = '*';
/// Name that stands for every provider.
const EVERY_PROVIDER: &str = "*/*";

/// Replaces entries with a wildcard by entries of the models that they stand for. An entry of its own
/// replaces that of a wildcard, and a longer wildcard a shorter one.
pub(super) fn expand(
    models: &mut BTreeMap<String, RawModel>,
    directory: &ModelDirectory,
    providers: &[Arc<Provider>],
    endpoints: &EndpointsByProvider,
    warnings: &mut Vec<String>,
) -> Result<(), EntryError> {
    let mut wildcards: Vec<(String, RawModel)> =
        models.extract_if(.., |id, _| id.ends_with(WILDCARD)).collect();
    wildcards.sort_by_key(|(id, _)| std::cmp::Reverse(id.len()));
    let known_as = |provider: &str| endpoints.get(provider).map(|own| own.provider.as_str());
    for (id, raw) in wildcards {
        let wrong = |why: FieldError| EntryError::for_entry(EntryName::Model(id.clone()), why);
        let mut count = 0;
        for (prefix, lanes) in patterns(&id, &raw, providers).map_err(wrong)? {
            for tail in tails(&lanes, directory, known_as) {
                let lanes = lanes.iter().filter_map(|(lane, pattern)| {
                    let model = format!("{}{tail}", pattern.model);
                    directory.find_offer(known_as(&pattern.provider)?, &model)?;
                    Some(with_model(lane, &Lane::new(&pattern.provider, &model)))
                });
                let one = RawModel { lanes: lanes.collect(), ..raw.clone() };
                count += 1;
                models.entry(format!("{prefix}{tail}")).or_insert(one);
            }
        }
        if count == 0 {
            warnings.push(format!(
                "models.\"{id}\" stands for no model: the directory knows none of these at the provider; \
                 give each model an entry with a price"
            ));
        }
    }
    Ok(())
}

/// Start of ids, with the lanes that they have.
type LanePattern = (String, Vec<(RawLane, Lane)>);

/// Returns the patterns of an entry.
fn patterns(
    id: &str,
    raw: &RawModel,
    providers: &[Arc<Provider>],
) -> Result<Vec<LanePattern>, FieldError> {
    if !raw.aliases.is_empty() {
        return Err(FieldError::new("aliases", "an entry with a wildcard has none"));
    }
    if id == EVERY_PROVIDER && raw.lanes.is_empty() {
        let every = providers.iter().map(|provider| {
            let lane = RawLane::Name(format!("{}/{WILDCARD}", provider.name));
            (format!("{}/", provider.name), vec![(lane, Lane::new(&provider.name, ""))])
        });
        return Ok(every.collect());
    }
    let prefix = id.trim_end_matches(WILDCARD);
    if prefix.is_empty() || prefix.contains(WILDCARD) {
        let why = "a wildcard stands at the end of an id, such as \"openai/*\"; \"*/*\" is every provider";
        return Err(FieldError::new("", why));
    }
    let own = [RawLane::Name(id.to_owned())];
    let written = if raw.lanes.is_empty() { own.as_slice() } else { &raw.lanes };
    let mut lanes = Vec::new();
    for lane in written {
        let text = lane.name();
        let pattern = text.strip_suffix(WILDCARD).and_then(|start| start.split_once('/'));
        let Some((provider, model)) = pattern.filter(|(_, model)| !model.contains(WILDCARD)) else {
            let why = format!("`{text}` needs a wildcard at its end too, such as \"openai/*\"");
            return Err(FieldError::new("lanes", why));
        };
        if !providers.iter().any(|own| own.name == provider) {
            let why = format!("there is no provider `{provider}`; add [providers.{provider}]");
            return Err(FieldError::new("lanes", why));
        }
        lanes.push((lane.clone(), Lane::new(provider, model)));
    }
    Ok(vec![(prefix.to_owned(), lanes)])
}

/// Returns the texts for which the wildcard stands.
fn tails<'d, 'e>(
    lanes: &[(RawLane, Lane)],
    directory: &'d ModelDirectory,
    known_as: impl Fn(&str) -> Option<&'e str>,
) -> BTreeSet<&'d str> {
    let mut tails = BTreeSet::new();
    for (_, pattern) in lanes {
        let provider = known_as(&pattern.provider);
        let offers = directory.models().flat_map(|entry| &entry.offers);
        let offers = offers.filter(|offer| Some(offer.provider.as_str()) == provider);
        tails.extend(offers.filter_map(|offer| offer.model.strip_prefix(pattern.model.as_str())));
    }
    tails
}

fn with_model(lane: &RawLane, model: &Lane) -> RawLane {
    match lane {
        RawLane::Name(_) => RawLane::Name(model.name()),
        RawLane::Table(table) => {
            RawLane::Table(RawLaneTable { lane: model.name(), ..table.clone() })
        }
    }
}
