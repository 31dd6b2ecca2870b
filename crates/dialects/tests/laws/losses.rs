//! Writes `docs/losses.md`, the losses of each pair of formats for users of the gateway, from the
//! same list as the golden files.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::cases::{here, pairs};
use crate::pairs::{REFUSED, lost};

const INTRODUCTION: &str = "\
# What a translation cannot carry

<!-- Written by `cargo xtask losses` from what the translations do to the fixtures. Do not edit. -->

If the provider uses your format, the call passes unchanged and nothing below applies, with one
exception: content that another provider left in the history (foreign signatures, unsigned thinking,
searches) would be refused. It is removed and reported under the names below. Between two formats most
fields have a counterpart. A field without one is left out and reported:

- the response header `x-portunus-loss` names what your call lost: at most 50 names of at most 100 characters, then
  `and N more` (`sampling.top_k, request.foo, and 39950 more`). In a name, spaces, commas, quotes, `%` and all
  characters outside ASCII are percent-encoded, and the encoded name has at most 100 characters. Receipts, dry runs
  and the 400 of strict mode have the same bound;
- with the request header `x-portunus-strict: true`, a call with losses is refused and the error lists the same names;
- media are never left out: a call whose media no lane can carry is a 400 that names their place. With the request
  header `x-portunus-lossy: true` they are left out and reported;
- with `x-portunus-dry-run: true`, you get the translated request and its losses, and no provider is called.

There is one table per caller's format. *Request* is the direction to the provider, *answer* the direction
back. *Provider's format* is the format of your model's provider. The names are those of the header:
`sampling.top_k`, `part.cache`, or the field's own name if only one format has it.

A field that means nothing outside its own format is not a loss: ids, the build of a provider's software
(`system_fingerprint`) and the usual `service_tier`. An unusual tier is translated into your format, and is a
loss if your format has no equivalent.

Signatures, the opaque tokens on thinking and tool calls, are not lost: they return to the provider that
issued them byte for byte. The few that cannot are named here as `reply.seal`, `reply.part` and `part.seal`.
Some signatures have no safe place in your format: all of them in chat, and in messages the one that some native
models put on the end of their text. The gateway keeps those for a while and restores them when the same
call or text returns.
";

/// Returns the whole document.
fn document() -> String {
    let mut rows: BTreeMap<_, BTreeMap<(bool, String, String), BTreeSet<_>>> = BTreeMap::new();
    for (from, to) in pairs() {
        for line in lost(from, to) {
            let row = (line.way == "answer", line.what, line.why);
            let table = rows.entry(from.origin()).or_default();
            table.entry(row).or_default().insert(to.origin());
        }
    }
    let mut text = INTRODUCTION.to_owned();
    for (from, table) in rows {
        write!(text, "\n## Callers of {from}\n\n").unwrap();
        text.push_str("| | What | Provider's format | Why |\n| - | - | - | - |\n");
        for ((answer, what, why), formats) in table {
            let way = if answer { "answer" } else { "request" };
            let formats: Vec<&str> = formats.iter().map(|format| format.as_str()).collect();
            let what = if what == REFUSED { "the whole request" } else { &format!("`{what}`") };
            let why = why.replace('|', "\\|");
            writeln!(text, "| {way} | {what} | {} | {why} |", formats.join(", ")).unwrap();
        }
    }
    text
}

#[test]
fn losses_document_is_up_to_date() {
    let path = here().join("../../../docs/losses.md");
    let text = document();
    if std::env::var_os("BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &text).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == text, "docs/losses.md is outdated: run `cargo xtask losses`");
}
