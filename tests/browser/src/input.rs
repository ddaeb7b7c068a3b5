//! Input to a page: mouse and keys, as a user gives them.

use serde_json::json;

use crate::page::Page;

/// Bits of `modifiers` in the protocol.
const CTRL: u32 = 2;
const SHIFT: u32 = 8;

impl Page {
    /// Clicks into the middle of the first element that matches `selector`, which is scrolled into
    /// view.
    ///
    /// # Panics
    /// If there is none, or if another element covers it.
    pub fn click(&self, selector: &str) {
        let (x, y) = self.place(selector, 0.5, 0.5);
        let hit = self.evaluate(&format!(
            "(() => {{
                const wanted = document.querySelector({selector:?});
                const hit = document.elementFromPoint({x}, {y});
                return wanted.contains(hit) || (hit !== null && hit.contains(wanted));
            }})()"
        ));
        assert_eq!(hit, true, "{selector} is covered at {x}, {y}");
        self.click_at(x, y);
    }

    /// Clicks at a place of the page, in pixels.
    pub fn click_at(&self, x: f64, y: f64) {
        self.mouse("mouseMoved", x, y, false);
        self.mouse("mousePressed", x, y, true);
        self.mouse("mouseReleased", x, y, false);
    }

    /// Moves the mouse to a place of the page, in pixels.
    pub fn point_at(&self, x: f64, y: f64) {
        self.mouse("mouseMoved", x, y, false);
    }

    /// Drags with the left button from one place of the page to another one.
    pub fn drag(&self, (x, y): (f64, f64), (to_x, to_y): (f64, f64)) {
        self.mouse("mouseMoved", x, y, false);
        self.mouse("mousePressed", x, y, true);
        for step in 1..=4 {
            let part = f64::from(step) / 4.0;
            self.mouse("mouseMoved", x + (to_x - x) * part, y + (to_y - y) * part, true);
        }
        self.mouse("mouseReleased", to_x, to_y, false);
    }

    /// Turns the wheel at a place of the page; a positive `turn` scrolls down.
    pub fn wheel(&self, (x, y): (f64, f64), turn: f64) {
        let event = json!({ "type": "mouseWheel", "x": x, "y": y, "deltaX": 0, "deltaY": turn });
        self.request("Input.dispatchMouseEvent", event);
    }

    /// Scrolls the first element that matches `selector` into view, and returns a place in it: 0, 0
    /// is its upper left corner, and 1, 1 the lower right one.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn place(&self, selector: &str, right: f64, down: f64) -> (f64, f64) {
        let place = self.evaluate(&format!(
            "(() => {{
                const it = document.querySelector({selector:?});
                if (it === null) throw new Error('no such element');
                it.scrollIntoView({{ block: 'center', inline: 'center', behavior: 'instant' }});
                const at = it.getBoundingClientRect();
                return [at.x + at.width * {right}, at.y + at.height * {down}];
            }})()"
        ));
        let number = |i: usize| place[i].as_f64().expect("coordinates are numbers");
        (number(0), number(1))
    }

    fn mouse(&self, kind: &str, x: f64, y: f64, pressed: bool) {
        let button = if kind == "mouseMoved" && !pressed { "none" } else { "left" };
        let event = json!({
            "type": kind, "x": x, "y": y, "button": button, "buttons": u32::from(pressed),
            "clickCount": u32::from(kind != "mouseMoved"),
        });
        self.request("Input.dispatchMouseEvent", event);
    }

    /// Presses and releases a key by its name: a character, or `Enter`, `Tab`, `ArrowLeft` and
    /// others as in `KeyboardEvent.key`. `Shift+` and `Ctrl+` may precede it.
    ///
    /// # Panics
    /// If the name is unknown.
    pub fn press(&self, key: &str) {
        let (mut modifiers, mut name) = (0, key);
        for (prefix, bit) in [("Ctrl+", CTRL), ("Shift+", SHIFT)] {
            if let Some(rest) = name.strip_prefix(prefix) {
                (modifiers, name) = (modifiers | bit, rest);
            }
        }
        let mut event = json!({
            "type": "keyDown", "key": name, "code": name, "modifiers": modifiers,
            "windowsVirtualKeyCode": key_code(name),
        });
        let text = match name {
            "Enter" => Some("\r"),
            one if one.chars().count() == 1 && modifiers & CTRL == 0 => Some(one),
            _ => None,
        };
        if let Some(text) = text {
            event["text"] = text.into();
        }
        self.request("Input.dispatchKeyEvent", event.clone());
        event["type"] = "keyUp".into();
        self.request("Input.dispatchKeyEvent", event);
    }

    /// Types a text into the element that has the focus.
    pub fn type_text(&self, text: &str) {
        self.request("Input.insertText", json!({ "text": text }));
    }
}

/// Returns the number of a key, by which the browser itself acts (focus, scrolling).
fn key_code(name: &str) -> u32 {
    match name {
        "Backspace" => 8,
        "Tab" => 9,
        "Enter" => 13,
        "Escape" => 27,
        "PageUp" => 33,
        "PageDown" => 34,
        "End" => 35,
        "Home" => 36,
        "ArrowLeft" => 37,
        "ArrowUp" => 38,
        "ArrowRight" => 39,
        "ArrowDown" => 40,
        "Delete" => 46,
        one => {
            let mut chars = one.chars();
            match (chars.next(), chars.next()) {
                (Some(c), None) if c.is_ascii() => u32::from(c.to_ascii_uppercase()),
                (Some(_), None) => 0,
                _ => panic!("unknown key {name}"),
            }
        }
    }
}
