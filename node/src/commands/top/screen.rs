//! The screen of `sinter top`.

use super::usage::Usage;
use super::{Round, Source};
use crate::cli::Top;
use crate::failure::{Exit, Failure};
use crate::table::duration;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Row, Table, Wrap};
use ratatui::{DefaultTerminal, Frame};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// Longest time for which a key waits for its effect.
const KEYS: Duration = Duration::from_millis(50);
/// The views, in the order of their keys, from 1.
const VIEWS: [&str; 5] = ["operations", "files", "clients", "locks", "device"];
/// Lines above and below a view: the summary, the verdict, the names of the views, and the keys.
const SUMMARY_LINES: u16 = 1;
const VERDICT_LINES: u16 = 2;

/// The user's choices.
#[derive(Default)]
struct View {
    /// Number of the view.
    shown: usize,
    /// First line that is shown.
    first: usize,
    /// The screen stays as it is.
    held: bool,
}

/// Shows rounds until the user ends it. A thread of its own looks, so that keys have their effect meanwhile.
pub fn run(options: &Top, mut source: Source) -> Result<Exit, Failure> {
    // One round waits at most: a screen that is not read must not fill memory.
    let (sender, receiver): (SyncSender<Result<Round, Failure>>, _) = sync_channel(1);
    let looker = std::thread::Builder::new().name("sinter-top".into()).spawn(move || {
        loop {
            let round = source.round();
            let over = round.is_err();
            if sender.send(round).is_err() || over {
                return;
            }
        }
    });
    looker.map_err(|error| Failure::io("can't start a thread", &error))?;
    let mut terminal = ratatui::try_init().map_err(|error| Failure::io("can't use the terminal", &error))?;
    let shown = show(options, &mut terminal, &receiver);
    ratatui::restore();
    shown.map(|()| Exit::Done)
}

fn show(
    options: &Top,
    terminal: &mut DefaultTerminal,
    receiver: &Receiver<Result<Round, Failure>>,
) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::io("can't use the terminal", &error);
    let title = options.data.display().to_string();
    let (mut view, mut round, mut left) = (View::default(), None, options.rounds);
    while left != Some(0) {
        match receiver.recv_timeout(KEYS) {
            Ok(Ok(_)) if view.held => {}
            Ok(Ok(next)) => {
                round = Some(next);
                left = left.map(|left| left - 1);
            }
            Ok(Err(failure)) => return Err(failure),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        terminal.draw(|frame| draw(frame, &title, &view, round.as_ref())).map_err(failed)?;
        while event::poll(Duration::ZERO).map_err(failed)? {
            if let Event::Key(key) = event::read().map_err(failed)?
                && pressed(key, &mut view)
            {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// The effect of a key. Returns true if it is the end.
fn pressed(key: KeyEvent, view: &mut View) -> bool {
    if key.kind == KeyEventKind::Release {
        return false;
    }
    let to = |shown: usize, view: &mut View| (view.shown, view.first) = (shown % VIEWS.len(), 0);
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return true,
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
        KeyCode::Char(digit @ '1'..='5') => to(digit as usize - '1' as usize, view),
        KeyCode::Tab | KeyCode::Right => to(view.shown + 1, view),
        KeyCode::BackTab | KeyCode::Left => to(view.shown + VIEWS.len() - 1, view),
        KeyCode::Down | KeyCode::Char('j') => view.first += 1,
        KeyCode::Up | KeyCode::Char('k') => view.first = view.first.saturating_sub(1),
        KeyCode::Char('p' | ' ') => view.held = !view.held,
        _ => {}
    }
    false
}

fn draw(frame: &mut Frame, title: &str, view: &View, round: Option<&Round>) {
    let heights = [SUMMARY_LINES, VERDICT_LINES, 1].map(Constraint::Length);
    let [summary, verdict, names, body, keys] =
        Layout::vertical([heights[0], heights[1], heights[2], Constraint::Min(0), Constraint::Length(1)])
            .areas(frame.area());
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let Some(round) = round else {
        frame.render_widget(Paragraph::new(format!("sinter top {title}: looking for the first second")), summary);
        return;
    };
    let cores: Vec<String> = round.running.iter().map(|share| format!("{:.0}%", share * 100.0)).collect();
    let text = format!(
        "{title}: {:.0} requests/s, {:.1} in flight, cores run {}{}",
        round.per_second,
        round.in_flight,
        cores.join(" "),
        if view.held { "  [held]" } else { "" }
    );
    frame.render_widget(Paragraph::new(text), summary);
    frame.render_widget(Paragraph::new(Span::styled(&*round.verdict, bold)).wrap(Wrap { trim: true }), verdict);
    let tab = |(number, name): (usize, &&str)| {
        let style = if number == view.shown { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
        [Span::styled(format!("{} {name}", number + 1), style), Span::raw("  ")]
    };
    frame.render_widget(Line::from_iter(VIEWS.iter().enumerate().flat_map(tab)), names);
    match view.shown {
        0 => draw_usages(frame, body, "operation", &round.operations, view.first),
        1 => draw_usages(frame, body, "file", &round.files, view.first),
        2 => draw_usages(frame, body, "client", &round.clients, view.first),
        locks_or_device => draw_text(frame, body, &round.tables[locks_or_device - 3], view.first),
    }
    frame.render_widget(Paragraph::new("1-5, Tab: view   arrows: scroll   p: hold   q: end"), keys);
}

fn draw_usages(frame: &mut Frame, area: Rect, what: &str, usages: &[Usage], first: usize) {
    let row = |usage: &Usage| {
        let mostly = usage.mostly.as_ref().map(|(stage, share)| format!("{stage} {:.0}%", share * 100.0));
        Row::new([
            format!("{:>10.0}", usage.per_second),
            format!("{:>6.1}%", usage.share * 100.0),
            format!("{:>9}", duration(usage.mean_ns)),
            mostly.unwrap_or_default(),
            usage.name.clone(),
        ])
    };
    let first = first.min(usages.len().saturating_sub(1));
    let widths = [10, 7, 9, 18].map(Constraint::Length).into_iter().chain([Constraint::Min(10)]);
    let heads = ["requests/s", "of time", "     mean", "mostly in", what].map(str::to_string);
    let table = Table::new(usages[first..].iter().map(row), widths)
        .header(Row::new(heads).style(Style::new().add_modifier(Modifier::BOLD)));
    frame.render_widget(table, area);
}

fn draw_text(frame: &mut Frame, area: Rect, text: &str, first: usize) {
    let (head, rest) = text.split_once('\n').unwrap_or((text, ""));
    let first = first.min(rest.lines().count().saturating_sub(1));
    let head = Line::styled(head, Style::new().add_modifier(Modifier::BOLD));
    let lines = std::iter::once(head).chain(rest.lines().skip(first).map(Line::raw));
    frame.render_widget(Paragraph::new(Vec::from_iter(lines)), area);
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn usage(name: &str, share: f64) -> Usage {
        Usage { name: name.into(), per_second: 1234.0, share, mean_ns: 56_000, mostly: Some(("read".into(), 0.5)) }
    }

    fn screen(view: &View, round: Option<&Round>, width: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, 9)).expect("no device fails");
        terminal.draw(|frame| draw(frame, "/brick", view, round)).expect("no device fails");
        let buffer = terminal.backend().buffer().clone();
        let rows = buffer.content.chunks(usize::from(width));
        let line = |row: &[ratatui::buffer::Cell]| row.iter().map(|cell| cell.symbol()).collect::<String>();
        rows.map(line).map(|line| line.trim_end().to_string() + "\n").collect()
    }

    fn round() -> Round {
        Round {
            seconds: 1.0,
            per_second: 2468.0,
            in_flight: 3.25,
            running: vec![0.5, 0.25],
            verdict: "No bottleneck: clients offer no more load.".into(),
            operations: vec![usage("read", 0.7), usage("write", 0.3)],
            files: vec![usage("/mnt/a file", 1.0)],
            clients: Vec::new(),
            tables: ["lock   waited\ngroup  3\nlog    2\n".into(), String::new()],
        }
    }

    #[test]
    fn views_show_what_they_are_called() {
        let (mut view, round) = (View::default(), round());
        let shown = screen(&view, Some(&round), 80);
        for part in ["/brick: 2468 requests/s, 3.2 in flight, cores run 50% 25%", "No bottleneck", "70.0%", "56.0 us"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(shown.lines().nth(4).is_some_and(|head| head.ends_with("operation")), "{shown}");
        for (key, part) in [('2', "/mnt/a file"), ('4', "group  3"), ('1', "read 50%           write")] {
            assert!(!pressed(KeyCode::Char(key).into(), &mut view));
            let shown = screen(&view, Some(&round), 80);
            assert!(shown.contains(part), "{key}: {shown}");
        }
        // Scrolling stops at the last line; another view begins at its first.
        (0..9).for_each(|_| assert!(!pressed(KeyCode::Down.into(), &mut view)));
        let shown = screen(&view, Some(&round), 80);
        assert!(shown.contains("write") && !shown.contains("50%           read"), "{shown}");
        assert!(!pressed(KeyCode::Tab.into(), &mut view) && (view.shown, view.first) == (1, 0));
        assert!(!pressed(KeyCode::Char('p').into(), &mut view) && view.held);
        assert!(pressed(KeyCode::Char('q').into(), &mut view));
    }

    #[test]
    fn no_width_and_no_figures_break_it() {
        for width in [1, 10, 200] {
            for shown in 0..VIEWS.len() {
                let view = View { shown, first: 7, held: true };
                screen(&view, Some(&round()), width);
            }
            screen(&View::default(), None, width);
        }
    }
}
