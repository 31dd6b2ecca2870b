//! Models of the file, and models of the directory whose provider is enabled.

use catalog::{
    CapabilityError, Catalog, Lane, Model, ModelCapabilities, ModelCounts, ModelDirectory,
    ModelKind, PriceList, PriceListError,
};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use upstream::Provider;

use crate::entry::{EntryError, EntryName};
use crate::error::FieldError;
use crate::providers::EndpointsByProvider;
use crate::raw::{RawLane, RawModel};
use crate::units::nearest_word;

/// Checks the models. The catalog holds only models that have a lane.
pub(super) fn check(
    (raw, directory): (&BTreeMap<String, RawModel>, &ModelDirectory),
    providers: &[Arc<Provider>],
    endpoints: &EndpointsByProvider,
    warnings: &mut Vec<String>,
) -> Result<Catalog, EntryError> {
    let mut models = Vec::new();
    for (id, raw) in raw {
        let entry_error =
            |why: FieldError| EntryError::for_entry(EntryName::Model(id.clone()), why);
        if id.is_empty() || id.len() > 256 || id.chars().any(char::is_control) {
            return Err(entry_error(FieldError::new("", "this id cannot be used")));
        }
        let built = build_model((id, raw), directory, providers, endpoints, warnings);
        models.push(built.map_err(entry_error)?);
    }
    for entry in directory.models() {
        if raw.contains_key(&entry.id) {
            continue;
        }
        let on = |name: &str| providers.iter().any(|provider| provider.name == name);
        models.extend(entry.served_by(on));
    }
    check_aliases(&mut models, raw)?;
    Ok(Catalog::new(models))
}

/// Makes every alias unique. A taken alias in the file is an error; a taken alias of the directory
/// is dropped.
fn check_aliases(models: &mut [Model], raw: &BTreeMap<String, RawModel>) -> Result<(), EntryError> {
    let mut taken: HashSet<String> = models.iter().map(|model| model.id.clone()).collect();
    for (id, raw) in raw {
        for alias in &raw.aliases {
            if alias.is_empty() || !taken.insert(alias.clone()) {
                let why = FieldError::new("aliases", format_args!("`{alias}` is already taken"));
                return Err(EntryError::for_entry(EntryName::Model(id.clone()), why));
            }
        }
    }
    for model in models {
        let own = raw.get(&model.id).map(|raw| raw.aliases.as_slice()).unwrap_or_default();
        model.aliases.retain(|alias| own.contains(alias) || taken.insert(alias.clone()));
        model.aliases.sort_unstable();
        model.aliases.dedup();
    }
    Ok(())
}

fn build_model(
    (id, raw): (&str, &RawModel),
    directory: &ModelDirectory,
    providers: &[Arc<Provider>],
    endpoints: &EndpointsByProvider,
    warnings: &mut Vec<String>,
) -> Result<Model, FieldError> {
    let RawModel { lanes, price, kind, features, about, retires, aliases, .. } = raw;
    if lanes.is_empty() {
        return Err(FieldError::new(
            "lanes",
            "is missing; write for instance [\"provider/model\"]",
        ));
    }
    let price =
        price.as_ref().or_else(|| lanes.iter().find_map(|lane| lane.table()?.price.as_ref()));
    let lanes: Vec<Lane> =
        lanes.iter().map(|raw| parse_lane(raw, providers)).collect::<Result<_, _>>()?;
    let known = directory.model(id).or_else(|| {
        lanes.iter().find_map(|lane| {
            let known_as = &endpoints.get(&lane.provider)?.provider;
            directory.find_offer(known_as, &lane.model).map(|(entry, _)| entry)
        })
    });
    // A lane of another model may do more, or less, than the record says.
    let is_of_record = |lane: &Lane| {
        let known_as = endpoints.get(&lane.provider).map(|own| own.provider.as_str());
        let offer = known_as.and_then(|provider| {
            directory.find_offer(provider, &lane.model).map(|(entry, _)| entry)
        });
        offer.map(|entry| &entry.id) == known.map(|known| &known.id)
    };
    let is_described = lanes.iter().all(is_of_record);
    let kind = match kind.as_deref() {
        Some(word) => ModelKind::parse(word).ok_or_else(|| {
            FieldError::new(
                "kind",
                format_args!("`{word}` is not known; write \"chat\", \"image\" or \"embedding\""),
            )
        })?,
        None => known.map_or(ModelKind::Chat, |known| known.kind),
    };
    let prices = match (price, known) {
        (Some(list), _) => {
            let named = |PriceListError { key, text, why }| {
                FieldError::new(format_args!("price.{key}"), format_args!("\"{text}\" is {why}"))
            };
            Arc::new(list.prices().map_err(named)?)
        }
        (None, Some(known)) => Arc::clone(&known.prices),
        (None, None) => {
            warnings.push(format!("models.\"{id}\" has no price, so its calls cost nothing"));
            Arc::new(PriceList::default().prices().map_err(|e| FieldError::new("price", e))?)
        }
    };
    let fallback = lanes.first().map(|lane| lane.provider.clone()).unwrap_or_default();
    let fallback_name = directory.provider(&fallback).map(|provider| provider.name.clone());
    let mut model = match known {
        Some(known) => Model { id: id.to_owned(), prices, ..known.with_lanes(lanes) },
        None => Model {
            id: id.to_owned(),
            aliases: Vec::new(),
            provider_name: fallback_name.unwrap_or_else(|| fallback.clone()),
            provider: fallback,
            kind,
            features: Vec::new(),
            capabilities: ModelCapabilities::default(),
            counts: ModelCounts::default(),
            prices,
            about: String::new(),
            as_of: String::new(),
            released: None,
            retires: None,
            lanes,
        },
    };
    // Aliases of the directory belong to the model with that id, not to other models on the same
    // lane.
    if known.is_none_or(|known| known.id != id) {
        model.aliases.clear();
    }
    model.aliases.extend(aliases.iter().cloned());
    model.kind = kind;
    if !is_described {
        model.capabilities.forget_limits();
    }
    apply_written(raw, &mut model.capabilities)?;
    match features {
        Some(features) => model.features.clone_from(features),
        // Every conversation can be streamed.
        None if known.is_none() => {
            let implied = model.capabilities.implied_features(kind);
            let streams = (kind != ModelKind::Embedding).then_some("streaming");
            model.features = streams.into_iter().chain(implied).map(str::to_owned).collect();
        }
        None => {}
    }
    if retires.is_some() {
        model.retires.clone_from(retires);
    }
    if let Some(about) = about {
        model.about.clone_from(about);
    }
    Ok(model)
}

/// Puts the capabilities that the operator wrote in place of those that are known.
pub(super) fn apply_written(
    raw: &RawModel,
    capabilities: &mut ModelCapabilities,
) -> Result<(), FieldError> {
    raw.capabilities()
        .apply(capabilities)
        .map_err(|CapabilityError { key, reason }| FieldError::new(key, reason))?;
    if let Some(features) = &raw.features {
        capabilities.add_input_of(features);
    }
    Ok(())
}

fn parse_lane(raw: &RawLane, providers: &[Arc<Provider>]) -> Result<Lane, FieldError> {
    let (text, weight) = match raw {
        RawLane::Name(text) => (text, 1),
        RawLane::Table(table) => (&table.lane, table.weight.unwrap_or(1)),
    };
    if weight == 0 {
        return Err(FieldError::new(
            "lanes",
            format_args!("`{text}`: a weight is at least 1; leave the lane out instead"),
        ));
    }
    let lane = Lane::parse(text)
        .map_err(|e| FieldError::new("lanes", format_args!("`{text}`: {e}")))?
        .with_weight(weight);
    if providers.iter().any(|provider| provider.name == lane.provider) {
        return Ok(lane);
    }
    let near =
        nearest_word(&lane.provider, providers.iter().map(|provider| provider.name.as_str()));
    let near = near.map_or_else(
        || format!("; add [providers.{}]", lane.provider),
        |near| format!("; did you mean `{near}`?"),
    );
    Err(FieldError::new("lanes", format_args!("there is no provider `{}`{near}", lane.provider)))
}
