//! A browser page in a context of its own, used as a person would.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::cdp::Browser;

/// Timeout of an expected state of a page.
const PAGE_TIMEOUT: Duration = Duration::from_secs(30);

/// A page.
pub(crate) struct Page<'a> {
    browser: &'a mut Browser,
    session: String,
    context: String,
}

/// Screen size and colour scheme of a screenshot.
#[derive(Clone, Copy)]
pub(crate) struct ScreenProfile {
    /// Name in the file name of the screenshot.
    pub(crate) name: &'static str,
    width: u32,
    height: u32,
    scheme: &'static str,
}

/// Default screen.
pub(crate) const DEFAULT_SCREEN: ScreenProfile =
    ScreenProfile { name: "light", width: 1280, height: 800, scheme: "light" };

/// All screens.
pub(crate) const SCREENS: [ScreenProfile; 3] = [
    DEFAULT_SCREEN,
    ScreenProfile { name: "dark", width: 1280, height: 800, scheme: "dark" },
    ScreenProfile { name: "phone", width: 390, height: 844, scheme: "light" },
];

impl<'a> Page<'a> {
    /// Opens an empty page without cookies.
    pub(crate) fn open(browser: &'a mut Browser) -> Result<Self> {
        let text = |value: &Value, field: &str| {
            let text = value.get(field).and_then(Value::as_str).map(str::to_owned);
            text.with_context(|| format!("the browser returned no {field}"))
        };
        let made = browser.call(None, "Target.createBrowserContext", json!({}))?;
        let context = text(&made, "browserContextId")?;
        let asked = json!({ "url": "about:blank", "browserContextId": context });
        let target = text(&browser.call(None, "Target.createTarget", asked)?, "targetId")?;
        let asked = json!({ "targetId": target, "flatten": true });
        let session = text(&browser.call(None, "Target.attachToTarget", asked)?, "sessionId")?;
        let mut page = Self { browser, session, context };
        page.call("Page.enable", json!({}))?;
        page.look(DEFAULT_SCREEN)?;
        Ok(page)
    }

    pub(crate) fn call(&mut self, method: &str, asked: Value) -> Result<Value> {
        self.browser.call(Some(&self.session), method, asked)
    }

    /// Opens a URL and waits until the page is loaded.
    pub(crate) fn go(&mut self, url: &str) -> Result<()> {
        self.eval("void (window.left = true)").ok();
        self.call("Page.navigate", json!({ "url": url }))?;
        self.arrive()
    }

    /// Waits for the next page.
    fn arrive(&mut self) -> Result<()> {
        self.wait("!window.left && document.readyState === 'complete'")
    }

    /// Returns the value of an expression.
    pub(crate) fn eval(&mut self, script: &str) -> Result<Value> {
        let asked = json!({ "expression": script, "returnByValue": true, "awaitPromise": true });
        let mut told = self.call("Runtime.evaluate", asked)?;
        if let Some(failed) = told.get("exceptionDetails") {
            bail!("`{script}`: {failed}");
        }
        Ok(told.pointer_mut("/result/value").map(Value::take).unwrap_or_default())
    }

    /// Returns the value of an expression as text.
    pub(crate) fn text(&mut self, script: &str) -> Result<String> {
        let value = self.eval(script)?;
        value.as_str().map(str::to_owned).with_context(|| format!("`{script}` is no text: {value}"))
    }

    /// Waits until an expression is true.
    pub(crate) fn wait(&mut self, script: &str) -> Result<()> {
        let begin = Instant::now();
        // Between two pages the evaluation fails.
        while self.eval(script).ok() != Some(Value::Bool(true)) {
            if begin.elapsed() > PAGE_TIMEOUT {
                let place = self.text("location.href").unwrap_or_default();
                let seen = self.text("document.body.innerText").unwrap_or_default();
                bail!("timeout waiting for `{script}` at {place}:\n{seen}");
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Waits until the page contains a text.
    pub(crate) fn says(&mut self, text: &str) -> Result<()> {
        self.wait(&format!("document.body.innerText.includes({})", json!(text)))
    }

    /// Replaces the content of a field.
    pub(crate) fn fill(&mut self, field: &str, text: &str) -> Result<()> {
        let focus = format!(
            "(() => {{ const f = document.querySelector({}); f.focus(); f.select(); return true }})()",
            json!(field)
        );
        self.wait(&focus)?;
        self.call("Input.insertText", json!({ "text": text }))?;
        Ok(())
    }

    /// Clicks an element that stays on the page.
    pub(crate) fn press(&mut self, what: &str) -> Result<()> {
        self.eval(&format!("document.querySelector({}).click()", json!(what)))?;
        Ok(())
    }

    /// Clicks an element that leads to another page, and waits for that page.
    pub(crate) fn follow(&mut self, what: &str) -> Result<()> {
        let script =
            format!("window.left = true; document.querySelector({}).click(); true", json!(what));
        // The answer may be lost together with the page.
        self.eval(&script).ok();
        self.arrive()
    }

    /// Presses the enter key.
    pub(crate) fn enter(&mut self) -> Result<()> {
        for kind in ["keyDown", "keyUp"] {
            let key = json!({
                "type": kind, "key": "Enter", "code": "Enter", "text": "\r", "windowsVirtualKeyCode": 13,
            });
            self.call("Input.dispatchKeyEvent", key)?;
        }
        Ok(())
    }

    /// Drags the mouse from one place of the screen to another.
    pub(crate) fn drag(&mut self, from: (f64, f64), to: (f64, f64)) -> Result<()> {
        for (kind, (x, y)) in [("mousePressed", from), ("mouseMoved", to), ("mouseReleased", to)] {
            let mouse = json!({ "type": kind, "x": x, "y": y, "button": "left", "buttons": 1, "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", mouse)?;
        }
        Ok(())
    }

    /// Clicks the button with that text and waits for the next page.
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

    /// Changes the screen size and colour scheme.
    pub(crate) fn look(&mut self, look: ScreenProfile) -> Result<()> {
        let ScreenProfile { width, height, scheme, .. } = look;
        let screen =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", screen)?;
        let media = json!({ "features": [
            { "name": "prefers-color-scheme", "value": scheme },
            // Transitions would show intermediate colours.
            { "name": "prefers-reduced-motion", "value": "reduce" },
        ] });
        self.call("Emulation.setEmulatedMedia", media)?;
        Ok(())
    }

    /// Takes a screenshot on every screen. Fails if the page has an accessibility violation or does
    /// not fit the screen.
    pub(crate) fn inspect(&mut self, name: &str, shots: &Path, axe: &str) -> Result<()> {
        for look in SCREENS {
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
            ensure!(wide == Value::Bool(false), "{name}: wider than the {} screen", look.name);
            if self.eval("typeof axe")? == "undefined" {
                self.eval(&format!("{axe}; 0"))?;
            }
            let told = self.text(
                "axe.run().then((told) => told.violations.map((v) => `${v.id}: ${v.help}\\n` + \
                 v.nodes.map((n) => `  ${n.html}\\n  ${n.failureSummary}`).join('\\n')).join('\\n'))",
            )?;
            ensure!(told.is_empty(), "{name}, {}: accessibility violations:\n{told}", look.name);
        }
        self.look(DEFAULT_SCREEN)
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
