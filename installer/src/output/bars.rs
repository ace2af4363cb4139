//! Progress on a terminal: one line that moves, and above it a line for each step that ended.
//!
//! In: events. Out: a spinner, or a bar while bytes go by. Not here: plain lines and JSON.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::event::{Event, Stage};
use super::lines;

/// Fast enough to be seen to move, slow enough not to be noticed in `top`.
const TICK: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Bars {
    current: Option<ProgressBar>,
    coloured: bool,
}

impl Bars {
    pub(super) fn new(coloured: bool) -> Self {
        Self { current: None, coloured }
    }

    pub(super) fn show(&mut self, event: &Event) {
        match event {
            Event::Begun { step, goal } => {
                self.clear();
                self.bar(step).set_message(goal.clone());
            }
            Event::Waiting { step, waiting_for, stage, .. } => match stage {
                Stage::Begun => {
                    // A bar of its own, for it shows how long it has been there.
                    self.clear();
                    self.bar(step).set_message(format!("waits for {waiting_for}"));
                }
                Stage::Lasting => self.bar(step).set_message(format!("waits for {waiting_for}")),
                Stage::Over => {
                    self.clear();
                    self.print(event);
                }
            },
            Event::Bytes { step, .. } => {
                self.bar(step).set_message(lines::transfer(event).unwrap_or_default());
            }
            Event::Done { .. } | Event::Skipped { .. } => {
                self.clear();
                self.print(event);
            }
            // The bar has what is done of it.
            Event::Effect { .. } => {}
            _ => self.print(event),
        }
    }

    pub(super) fn clear(&mut self) {
        if let Some(bar) = self.current.take() {
            bar.finish_and_clear();
        }
    }

    pub(super) fn suspend(&mut self, write: impl FnOnce()) {
        match &self.current {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    fn print(&mut self, event: &Event) {
        let lines = lines::of(event);
        self.suspend(|| lines.iter().for_each(|line| super::write_line(&mut std::io::stderr().lock(), line)));
    }

    fn bar(&mut self, step: &str) -> &ProgressBar {
        let template = if self.coloured {
            "{spinner:.cyan} {prefix:<10} {msg} {elapsed:.dim}"
        } else {
            "{spinner} {prefix:<10} {msg} {elapsed}"
        };
        if self.current.as_ref().is_some_and(|bar| bar.prefix() != step) {
            self.clear();
        }
        self.current.get_or_insert_with(|| {
            let bar = ProgressBar::new_spinner().with_prefix(step.to_owned());
            let bar = match ProgressStyle::with_template(template) {
                Ok(style) => bar.with_style(style),
                Err(_) => bar,
            };
            bar.enable_steady_tick(TICK);
            bar
        })
    }
}
