//! Models: those in the file, and those of the directory whose provider is switched on.
//!
//! A model's lanes are resolved into a [`Route`] here, so that a call never looks up a provider.

use canon::{Level, Origin};
use catalog::{Catalog, Directory, Kind, Lane, Model, PriceList, Thinking};
use dialects::Steering;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use upstream::{Health, Provider, Timeouts};

use super::nearest;
use super::raw::{RawLane, RawModel};

/// A model and the lanes that serve it, in order of preference.
#[derive(Debug)]
pub struct Route {
    /// The model.
    pub model: Arc<Model>,
    /// Its lanes.
    pub lanes: Vec<Arc<LiveLane>>,
}

/// One provider serving one model.
#[derive(Debug)]
pub struct LiveLane {
    /// `provider/model`.
    pub name: String,
    /// The provider.
    pub provider: Arc<Provider>,
    /// The model's name there.
    pub model: String,
    /// The formats it can be asked in, the best one first.
    pub speaks: Vec<Origin>,
    /// How the model lets its thinking be steered, where the directory knows it.
    pub steering: Option<Steering>,
    /// How long it may take.
    pub timeouts: Timeouts,
    /// Whether it can be expected to answer.
    pub health: Health,
}

/// Checks the models. Only models that have a lane are in the catalog.
pub(super) fn check(
    raw: BTreeMap<String, RawModel>,
    providers: &[Arc<Provider>],
    warnings: &mut Vec<String>,
) -> Result<(Catalog, HashMap<String, Arc<Route>>), String> {
    let mut models = Vec::new();
    for (id, raw) in &raw {
        let path = format!("models.\"{id}\"");
        if id.is_empty() || id.len() > 256 || id.chars().any(char::is_control) {
            return Err(format!("{path}: this id cannot be used"));
        }
        models.push(model(id, raw, providers, warnings).map_err(|why| format!("{path}{why}"))?);
    }
    for entry in Directory::embedded().models() {
        if raw.contains_key(&entry.id) || !matches!(entry.kind, Kind::Chat | Kind::Embedding) {
            // Models of other kinds are listed once there is an address that serves them.
            continue;
        }
        let on = |name: &str| providers.iter().any(|provider| provider.name == name);
        models.extend(entry.served_by(on));
    }
    let catalog = Catalog::new(models);
    let mut routes = HashMap::new();
    for model in catalog.iter() {
        let times = raw.get(&model.id).map(|raw| raw.timeouts.clone()).unwrap_or_default();
        let path = format!("models.\"{}\".timeouts", model.id);
        let mut lanes = Vec::new();
        for lane in &model.lanes {
            let provider = providers.iter().find(|provider| provider.name == lane.provider);
            let Some(provider) = provider else { continue };
            lanes.push(Arc::new(LiveLane {
                name: lane.name(),
                provider: Arc::clone(provider),
                model: lane.model.clone(),
                speaks: speaks(provider, &lane.model),
                steering: steering(&lane.provider, &lane.model),
                timeouts: super::overlay(provider.timeouts, &times, &path)?,
                health: Health::default(),
            }));
        }
        let route = Route { model: Arc::clone(model), lanes };
        routes.insert(model.id.clone(), Arc::new(route));
    }
    Ok((catalog, routes))
}

/// What the directory knows of this very model there, else what the provider speaks.
fn speaks(provider: &Provider, model: &str) -> Vec<Origin> {
    let mut known = Directory::embedded().speaks(&provider.name, model);
    known.retain(|origin| provider.speaks.contains(origin));
    if known.is_empty() { provider.speaks.clone() } else { known }
}

/// What the directory knows of the model a lane leads to, which may be another than the callers'.
fn steering(provider: &str, model: &str) -> Option<Steering> {
    let directory = Directory::embedded();
    let known = directory.offered(provider, model).map(|(entry, _)| entry);
    let thinking = known.or_else(|| directory.model(model))?.thinking.as_ref()?;
    let Thinking { min, max, can_disable, dynamic, levels } = thinking;
    let levels: Vec<Level> = levels.iter().filter_map(|word| Level::by_word(word)).collect();
    if max.is_none() && !dynamic && levels.is_empty() {
        // That it thinks is known, but not how it is told to.
        return None;
    }
    let budget = max.map(|max| (min.unwrap_or(0), max));
    Some(Steering { budget, dynamic: *dynamic, can_disable: *can_disable, levels })
}

fn model(
    id: &str,
    raw: &RawModel,
    providers: &[Arc<Provider>],
    warnings: &mut Vec<String>,
) -> Result<Model, String> {
    let RawModel { lanes, price, kind, context, max_output, features, about, timeouts: _ } = raw;
    if lanes.is_empty() {
        return Err(".lanes: is missing; write for instance [\"provider/model\"]".to_owned());
    }
    let lanes: Vec<Lane> =
        lanes.iter().map(|raw| lane(raw, providers)).collect::<Result<_, _>>()?;
    let known = Directory::embedded().model(id).or_else(|| {
        lanes.iter().find_map(|lane| {
            Directory::embedded().offered(&lane.provider, &lane.model).map(|(entry, _)| entry)
        })
    });
    let kind = match kind.as_deref() {
        Some(word) => Kind::by_word(word).ok_or_else(|| {
            format!(".kind: `{word}` is not known; write \"chat\", \"image\" or \"embedding\"")
        })?,
        None => known.map_or(Kind::Chat, |known| known.kind),
    };
    let prices = match (price, known) {
        (Some(list), _) => Arc::new(list.prices().map_err(|e| format!(".price: {e}"))?),
        (None, Some(known)) => Arc::clone(&known.prices),
        (None, None) => {
            warnings.push(format!("models.\"{id}\" has no price, so its calls cost nothing"));
            Arc::new(PriceList::default().prices().map_err(|e| format!(".price: {e}"))?)
        }
    };
    let fallback = lanes.first().map(|lane| lane.provider.clone()).unwrap_or_default();
    let mut model = match known {
        Some(known) => Model { id: id.to_owned(), prices, ..known.with_lanes(lanes) },
        None => Model {
            id: id.to_owned(),
            provider: fallback,
            kind,
            features: vec!["streaming".to_owned(), "tools".to_owned()],
            context: None,
            max_output: None,
            input: vec!["text".to_owned()],
            output: vec!["text".to_owned()],
            thinking: None,
            prices,
            about: String::new(),
            as_of: String::new(),
            released: None,
            lanes,
        },
    };
    model.kind = kind;
    model.context = context.or(model.context);
    model.max_output = max_output.or(model.max_output);
    if let Some(features) = features {
        model.features.clone_from(features);
    }
    if let Some(about) = about {
        model.about.clone_from(about);
    }
    Ok(model)
}

fn lane(raw: &RawLane, providers: &[Arc<Provider>]) -> Result<Lane, String> {
    let (text, weight) = match raw {
        RawLane::Name(text) => (text, 1),
        RawLane::Weighted { lane, weight } => (lane, *weight),
    };
    let lane = Lane::parse(text).map_err(|e| format!(".lanes: `{text}`: {e}"))?.weighing(weight);
    if providers.iter().any(|provider| provider.name == lane.provider) {
        return Ok(lane);
    }
    let near = nearest(&lane.provider, providers.iter().map(|provider| provider.name.as_str()));
    let near = near.map_or_else(
        || format!("; add [providers.{}]", lane.provider),
        |near| format!("; did you mean `{near}`?"),
    );
    Err(format!(".lanes: there is no provider `{}`{near}", lane.provider))
}
