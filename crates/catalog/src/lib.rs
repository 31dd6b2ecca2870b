//! Models, their capabilities, their prices and the lanes that serve them.
//!
//! The [`Directory`] is the source of facts: providers, models, limits and prices. It is embedded
//! in the binary and updated with each release (`data/README.md`). The [`Catalog`] is the offer of
//! one gateway: the models that have a lane, with facts from the directory or from the operator's
//! configuration. Neither knows of running calls, the database or HTTP.
//!
//! ```
//! use catalog::{Catalog, Directory, Filter, Record};
//!
//! let demo = Directory::embedded()
//!     .models()
//!     .filter_map(|entry| entry.served_by(|provider| provider == "demo"));
//! let catalog = Catalog::new(demo.collect());
//! let page = catalog.list(&Filter::default(), 1, 20);
//! let record = Record::new(&page.models[0], "https://gateway.example");
//! assert_eq!(record.provider, "demo");
//! ```

mod data;
mod directory;
mod feature;
mod filter;
mod kind;
mod lane;
mod listing;
mod model;
mod palette;
mod pictures;
mod price_list;
mod price_version;
mod prices;
mod provider;
mod record;
mod ways;

pub use directory::{Directory, DirectoryFault, Entry, Offer};
pub use feature::{FEATURES, MODALITIES, feature_about};
pub use filter::Filter;
pub use kind::Kind;
pub use lane::{Lane, LaneFault};
pub use listing::{Catalog, Page};
pub use model::{Model, Thinking};
pub use palette::{AnySize, Palette};
pub use pictures::{Picture, PicturePrice, PictureRate};
pub use price_list::{LongList, PictureList, PriceFault, PriceList, RateList, ServiceList};
pub use prices::{LongPrices, Prices, Rates, Service, ServicePrices, Units};
pub use provider::{Auth, Fetches, ProviderEntry};
pub use record::{Pricing, Record};
pub use ways::{Path, Quirks, Ways};
