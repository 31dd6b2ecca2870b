//! Models, their capabilities, their prices and the lanes that serve them.
//!
//! The [`ModelDirectory`] is the source of facts: providers, models, limits and prices. It is embedded
//! in the binary and updated with each release (`data/README.md`); a [`DirectoryBundle`] overlays newer
//! facts of models in between. The [`Catalog`] is the offer of
//! one gateway: the models that have a lane, with facts from the directory or from the operator's
//! configuration. Neither knows of running calls, the database or HTTP.
//!
//! ```
//! use catalog::{Catalog, ModelDirectory, ModelFilter, ModelListing};
//!
//! let demo = ModelDirectory::embedded()
//!     .models()
//!     .filter_map(|entry| entry.served_by(|provider| provider == "demo"));
//! let catalog = Catalog::new(demo.collect());
//! let page = catalog.list(&ModelFilter::default(), 1, 20);
//! let record = ModelListing::new(&page.models[0], "https://gateway.example");
//! assert_eq!(record.provider, "Demo");
//! ```

mod capabilities;
mod catalog;
mod data;
mod directory;
mod directory_bundle;
mod directory_diff;
mod directory_rules;
mod endpoints;
mod feature;
mod filter;
mod image_capabilities;
mod image_prices;
mod lane;
mod listing;
mod media_tokens;
mod model;
mod model_needs;
mod price_dimensions;
mod price_list;
mod price_version;
mod prices;
mod provider;

pub use canon::ModelKind;
pub use capabilities::{
    CapabilityError, CapabilityTable, MediaLimits, ModelCapabilities, ParameterRange,
    ParameterSupport, VectorDimensions,
};
pub use catalog::{Catalog, CatalogPage};
pub use directory::{DirectoryError, ModelDirectory, ModelEntry, ModelOffer};
pub use directory_bundle::{DirectoryBundle, MAX_BUNDLE_BYTES, OverlaidDirectory};
pub use directory_diff::{DirectoryDiff, PriceChange};
pub use directory_rules::{DirectoryFinding, is_day};
pub use endpoints::{EndpointPath, Endpoints, FieldQuirks};
pub use feature::{FEATURES, MODALITIES, feature_about};
pub use filter::ModelFilter;
pub use image_capabilities::{ImageCapabilities, SizeRule};
pub use image_prices::{ImagePrice, ImageRate, ImageSpec};
pub use lane::{Lane, LaneError};
pub use listing::{ListedPrice, ListedPricing, ModelListing};
pub use media_tokens::MediaTokens;
pub use model::{Model, ModelCounts, ThinkingSupport};
pub use price_dimensions::DimensionPrice;
pub use price_list::{
    ImagePriceRow, LongPromptList, PriceList, PriceListError, RateList, TierPriceList,
};
pub use prices::{BilledTier, BilledUnits, LongPromptPrices, ModelPrices, TierPrices, TokenRates};
pub use provider::{AuthScheme, MediaFetch, ProviderEntry};
