//! Progress display: an updated line on a terminal, plain lines elsewhere.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::progress::{News, Progress, Step};
use super::summary::{line, parameters};

/// Displays progress on standard error, because results go to standard output.
#[derive(Debug)]
pub struct Terminal {
    bar: ProgressBar,
    /// The updated line, up to the rate.
    status: String,
    number: usize,
    count: usize,
}

impl Default for Terminal {
    fn default() -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg}");
        bar.set_style(style.expect("the template is a constant"));
        bar.enable_steady_tick(Duration::from_millis(250));
        Self { bar, status: String::new(), number: 0, count: 0 }
    }
}

impl Progress for Terminal {
    fn report(&mut self, news: &News<'_>) {
        match news {
            News::Started { folder, measurements, done } => {
                self.count = *measurements;
                self.number = *done;
                self.bar.set_length(*measurements as u64);
                self.bar.set_position(*done as u64);
                let mut text = format!("{measurements} measurements into {}", folder.display());
                if *done > 0 {
                    text = format!("{text}, {done} of them done");
                }
                self.say(&text);
            }
            News::Phase(step) => {
                self.status = status(step);
                self.bar.set_message(self.status.clone());
            }
            News::Rate { operations_per_second } => {
                self.bar.set_message(format!("{}, {operations_per_second:.0}/s", self.status));
            }
            News::Row(row) => {
                self.number += 1;
                self.bar.set_position(self.number as u64);
                self.say(&format!("[{}/{}] {}", self.number, self.count, line(row)));
            }
            News::Ended { .. } => self.bar.finish_and_clear(),
        }
    }
}

impl Terminal {
    /// Prints a permanent line.
    fn say(&self, text: &str) {
        if std::io::stderr().is_terminal() {
            self.bar.println(text);
        } else {
            base::messages::print_error(text);
        }
    }
}

fn status(step: &Step) -> String {
    let left = match step.left_s {
        seconds @ ..60 => format!("{seconds} s left"),
        seconds => format!("{} min {:02} s left", seconds / 60, seconds % 60),
    };
    let cell = parameters(&step.parameters);
    format!("{left}, repeat {}, {cell} {}", step.repeat + 1, step.phase)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_says_what_and_how_long() {
        let mut step = Step {
            number: 3,
            count: 10,
            cell: 1,
            cells: 5,
            repeat: 0,
            phase: "measuring".into(),
            parameters: [("load.users".to_owned(), 8.into())].into(),
            left_s: 59,
        };
        assert_eq!(status(&step), "59 s left, repeat 1, users=8 measuring");
        step.left_s = 125;
        assert_eq!(status(&step), "2 min 05 s left, repeat 1, users=8 measuring");
    }
}
