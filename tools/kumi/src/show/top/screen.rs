//! The terminal: switched to full-screen mode, and restored however `kumi top` ends.

use std::io::{self, IsTerminal, Stdout, stdin, stdout};
use std::mem::ManuallyDrop;
use std::panic;
use std::sync::mpsc::Sender;
use std::thread;

use crossterm::{cursor, event, execute, terminal};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::layout::{Position, Rect};
use rustix::event::{PollFd, PollFlags, poll};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use super::message::Message;
use super::model::Model;
use super::view;

/// The terminal in full-screen mode. Ratatui's own drop prints errors to standard error, which
/// panics if the terminal is gone.
pub struct Screen(ManuallyDrop<Terminal<CrosstermBackend<Stdout>>>);

/// Restores the terminal. Errors are ignored, because the terminal may be gone.
fn give_back() {
    let _ = execute!(stdout(), terminal::LeaveAlternateScreen, cursor::Show);
    let _ = terminal::disable_raw_mode();
}

fn take() -> io::Result<()> {
    terminal::enable_raw_mode()?;
    execute!(stdout(), terminal::EnterAlternateScreen, cursor::Hide)
}

impl Screen {
    /// Switches the terminal to full-screen mode.
    ///
    /// # Errors
    /// If there is no usable terminal.
    pub fn take() -> Result<Screen, String> {
        if !stdin().is_terminal() || !stdout().is_terminal() {
            return Err("top needs a terminal; use kumi ps to print the same once".to_owned());
        }
        if std::env::var("TERM").is_ok_and(|term| term == "dumb") {
            return Err(
                "top needs a terminal with cursor addressing, and TERM is dumb; use kumi ps to print the same once".to_owned()
            );
        }
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |what| {
            give_back();
            before(what);
        }));
        let no_terminal = |e: io::Error| {
            give_back();
            format!("cannot set up the terminal: {e}")
        };
        take().map_err(no_terminal)?;
        let screen = Terminal::new(CrosstermBackend::new(stdout())).map_err(no_terminal)?;
        Ok(Screen(ManuallyDrop::new(screen)))
    }

    /// Draws the model in the terminal's current size.
    ///
    /// # Errors
    /// If the terminal is gone.
    pub fn draw(&mut self, model: &mut Model) -> io::Result<()> {
        self.0.draw(|frame| view::draw(frame, model)).map(drop)
    }

    /// Makes the next drawing complete, because other programs may have written to the terminal.
    ///
    /// # Errors
    /// If the terminal is gone.
    pub fn redraw(&mut self) -> io::Result<()> {
        // `clear` is not used: it queries the cursor position, and the reply would be read by the
        // thread that reads the keys.
        let size = self.0.size()?;
        self.0.resize(Rect::from((Position::ORIGIN, size)))
    }

    /// Stops the process like a shell's job. Returns when it continues.
    ///
    /// # Errors
    /// If the terminal is gone.
    pub fn stop(&mut self) -> io::Result<()> {
        give_back();
        emulate_default_handler(SIGTSTP)?;
        self.retake()
    }

    /// Sets the terminal up again after a stop, because the shell has used it meanwhile.
    ///
    /// # Errors
    /// If the terminal is gone.
    pub fn retake(&mut self) -> io::Result<()> {
        terminal::disable_raw_mode()?;
        take()?;
        self.redraw()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// Reports signals and the loss of the terminal. Crossterm's reader does not detect the loss, but
/// reads in a loop.
///
/// # Errors
/// As sigaction(2), or if no kernel thread can be created.
pub fn watch(to: &Sender<Message>) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGCONT])?;
    let told = to.clone();
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            let message =
                if signal == SIGCONT { Message::Continued } else { Message::Signal(signal) };
            if told.send(message).is_err() {
                return;
            }
        }
    })?;
    let told = to.clone();
    thread::Builder::new().name("hang-up".to_owned()).spawn(move || {
        let terminal = stdin();
        loop {
            // With no events requested, poll(2) returns only for POLLHUP and POLLERR, never for
            // input.
            let mut fds = [PollFd::new(&terminal, PollFlags::empty())];
            match poll(&mut fds, None) {
                Err(rustix::io::Errno::INTR) => {}
                _ => break,
            }
        }
        let _ = told.send(Message::Gone);
    })?;
    Ok(())
}

/// Forwards keys and changes of the size.
///
/// # Errors
/// If no kernel thread can be created.
pub fn keys(to: &Sender<Message>) -> io::Result<()> {
    let told = to.clone();
    thread::Builder::new().name("keys".to_owned()).spawn(move || {
        loop {
            let message = match event::read() {
                Ok(event::Event::Key(key)) if key.kind != event::KeyEventKind::Release => {
                    Message::Key(key)
                }
                Ok(event::Event::Resize(..)) => Message::Resized,
                Ok(_) => continue,
                Err(_) => Message::Gone,
            };
            let last = matches!(message, Message::Gone);
            if told.send(message).is_err() || last {
                return;
            }
        }
    })?;
    Ok(())
}
