//! A page in a browser that shares nothing with other pages, as a person would use it.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::cdp::Browser;

/// How long a page may take until it is as expected.
const PATIENCE: Duration = Duration::from_secs(30);

/// A page.
pub(crate) struct Page<'a> {
    browser: &'a mut Browser,
    session: String,
    context: String,
}

/// How a page is looked at.
#[derive(Clone, Copy)]
pub(crate) struct Look {
    /// Its name in the name of the picture.
    pub(crate) name: &'static str,
    width: u32,
    height: u32,
    scheme: &'static str,
}

/// How a page is looked at first.
const FIRST: Look = Look { name: "light", width: 1280, height: 800, scheme: "light" };

/// Every way a page is looked at.
pub(crate) const LOOKS: [Look; 3] = [
    FIRST,
    Look { name: "dark", width: 1280, height: 800, scheme: "dark" },
    Look { name: "phone", width: 390, height: 844, scheme: "light" },
];

impl<'a> Page<'a> {
    /// An empty page without any cookies.
    pub(crate) fn open(browser: &'a mut Browser) -> Result<Self> {
        let text = |value: &Value, field: &str| {
            let text = value.get(field).and_then(Value::as_str).map(str::to_owned);
            text.with_context(|| format!("the browser told no {field}"))
        };
        let made = browser.call(None, "Target.createBrowserContext", json!({}))?;
        let context = text(&made, "browserContextId")?;
        let asked = json!({ "url": "about:blank", "browserContextId": context });
        let target = text(&browser.call(None, "Target.createTarget", asked)?, "targetId")?;
        let asked = json!({ "targetId": target, "flatten": true });
        let session = text(&browser.call(None, "Target.attachToTarget", asked)?, "sessionId")?;
        let mut page = Self { browser, session, context };
        page.call("Page.enable", json!({}))?;
        page.look(FIRST)?;
        Ok(page)
    }

    pub(crate) fn call(&mut self, method: &str, asked: Value) -> Result<Value> {
        self.browser.call(Some(&self.session), method, asked)
    }

    /// Goes to an address and waits until its page is there.
    pub(crate) fn go(&mut self, url: &str) -> Result<()> {
        self.eval("void (window.left = true)").ok();
        self.call("Page.navigate", json!({ "url": url }))?;
        self.arrive()
    }

    /// Waits for the page after the one that was left.
    fn arrive(&mut self) -> Result<()> {
        self.wait("!window.left && document.readyState === 'complete'")
    }

    /// The value of an expression.
    pub(crate) fn eval(&mut self, script: &str) -> Result<Value> {
        let asked = json!({ "expression": script, "returnByValue": true, "awaitPromise": true });
        let mut told = self.call("Runtime.evaluate", asked)?;
        if let Some(failed) = told.get("exceptionDetails") {
            bail!("`{script}`: {failed}");
        }
        Ok(told.pointer_mut("/result/value").map(Value::take).unwrap_or_default())
    }

    /// The text of an expression.
    pub(crate) fn text(&mut self, script: &str) -> Result<String> {
        let value = self.eval(script)?;
        value.as_str().map(str::to_owned).with_context(|| format!("`{script}` is no text: {value}"))
    }

    /// Waits until an expression is true.
    pub(crate) fn wait(&mut self, script: &str) -> Result<()> {
        let begin = Instant::now();
        // While a page gives way to the next there is nothing to ask.
        while self.eval(script).ok() != Some(Value::Bool(true)) {
            if begin.elapsed() > PATIENCE {
                let place = self.text("location.href").unwrap_or_default();
                let seen = self.text("document.body.innerText").unwrap_or_default();
                bail!("waited in vain for `{script}` at {place}:\n{seen}");
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Waits until the page says something.
    pub(crate) fn says(&mut self, text: &str) -> Result<()> {
        self.wait(&format!("document.body.innerText.includes({})", json!(text)))
    }

    /// Types into a field, in place of what was there.
    pub(crate) fn fill(&mut self, field: &str, text: &str) -> Result<()> {
        let focus = format!(
            "(() => {{ const f = document.querySelector({}); f.focus(); f.select(); return true }})()",
            json!(field)
        );
        self.wait(&focus)?;
        self.call("Input.insertText", json!({ "text": text }))?;
        Ok(())
    }

    /// Presses something that stays on the page.
    pub(crate) fn press(&mut self, what: &str) -> Result<()> {
        self.eval(&format!("document.querySelector({}).click()", json!(what)))?;
        Ok(())
    }

    /// Presses something that leads to another page, and waits for it.
    pub(crate) fn follow(&mut self, what: &str) -> Result<()> {
        let script =
            format!("window.left = true; document.querySelector({}).click(); true", json!(what));
        // The answer may be lost with the page that was asked.
        self.eval(&script).ok();
        self.arrive()
    }

    /// Presses the button with that text and waits for the page behind it.
    pub(crate) fn send(&mut self, label: &str) -> Result<()> {
        let find = format!(
            "[...document.querySelectorAll('button, a.button')].find((b) => \
             b.textContent.trim().startsWith({0}) && b.offsetParent)",
            json!(label)
        );
        self.wait(&format!("Boolean({find})"))?;
        self.eval(&format!("window.left = true; ({find}).click(); true")).ok();
        self.arrive()
    }

    /// Looks at the page on another screen or in other light.
    pub(crate) fn look(&mut self, look: Look) -> Result<()> {
        let Look { width, height, scheme, .. } = look;
        let screen =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", screen)?;
        let media = json!({ "features": [
            { "name": "prefers-color-scheme", "value": scheme },
            // A colour on its way to another is neither.
            { "name": "prefers-reduced-motion", "value": "reduce" },
        ] });
        self.call("Emulation.setEmulatedMedia", media)?;
        Ok(())
    }

    /// Looks at the page in every way: keeps a picture of each, and fails if it cannot be used by
    /// everyone or does not fit the screen.
    pub(crate) fn inspect(&mut self, name: &str, shots: &Path, axe: &str) -> Result<()> {
        for look in LOOKS {
            self.look(look)?;
            let wide = self.eval("document.documentElement.scrollWidth > innerWidth")?;
            let metrics = self.call("Page.getLayoutMetrics", json!({}))?;
            let height = metrics.pointer("/cssContentSize/height").and_then(Value::as_f64);
            let clip = json!({
                "x": 0, "y": 0, "width": look.width, "height": height.unwrap_or(800.0), "scale": 1,
            });
            let asked = json!({ "clip": clip, "captureBeyondViewport": true });
            let shot = self.call("Page.captureScreenshot", asked)?;
            let data = shot.get("data").and_then(Value::as_str).context("no picture")?;
            fs::create_dir_all(shots)?;
            fs::write(shots.join(format!("{name}-{}.png", look.name)), STANDARD.decode(data)?)?;
            ensure!(wide == Value::Bool(false), "{name}: wider than a {} screen", look.name);
            if self.eval("typeof axe")? == "undefined" {
                self.eval(&format!("{axe}; 0"))?;
            }
            let told = self.text(
                "axe.run().then((told) => told.violations.map((v) => `${v.id}: ${v.help}\\n` + \
                 v.nodes.map((n) => `  ${n.html}\\n  ${n.failureSummary}`).join('\\n')).join('\\n'))",
            )?;
            ensure!(told.is_empty(), "{name}, {}: not for everyone:\n{told}", look.name);
        }
        self.look(FIRST)
    }
}

impl Drop for Page<'_> {
    fn drop(&mut self) {
        let asked = json!({ "browserContextId": self.context });
        if let Err(error) = self.browser.call(None, "Target.disposeBrowserContext", asked) {
            println!("{error:#}");
        }
    }
}
