//! The drawing for a terminal, with box characters.

use crate::layers::{Item, Layered};
use crate::place::{Channel, Placed, Spot};
use manifest::flow::{Flow, Stage};

/// Corners and edges: top left, top right, bottom left, bottom right, across, down.
const SHARP: [char; 6] = ['┌', '┐', '└', '┘', '─', '│'];
const ROUND: [char; 6] = ['╭', '╮', '╰', '╯', '─', '│'];
const DOUBLE: [char; 6] = ['╔', '╗', '╚', '╝', '═', '║'];
const DASHED: [char; 6] = ['┌', '┐', '└', '┘', '╌', '╎'];

/// The directions in which a line leaves a cell.
const UP: u8 = 1;
const RIGHT: u8 = 2;
const DOWN: u8 = 4;
const LEFT: u8 = 8;

pub fn draw(flow: &Flow, layered: &Layered, placed: &Placed) -> String {
    let mut grid = Grid::new(placed.width, placed.height);
    for (item, spot) in placed.spots.iter().enumerate() {
        match layered.items[item] {
            Item::Line => grid.across(item, spot.row_out(), spot.x, spot.x + spot.width),
            Item::Stage(stage) => {
                grid.card(&flow.stages[stage], spot);
                if !layered.targets(item).is_empty() {
                    grid.across(item, spot.row_out(), spot.x + spot.own_width, spot.x + spot.width);
                }
            }
        }
    }
    for (column, channel) in placed.channels.iter().enumerate() {
        for item in layered.layers[column].iter().filter(|item| !layered.targets(**item).is_empty()) {
            net(&mut grid, layered, placed, channel, *item);
        }
    }
    let mut text = grid.text();
    for (from, to) in layered.back.iter().filter(|(from, to)| from != to) {
        text += &format!("and back: {} to {}\n", flow.stages[*from].name(), flow.stages[*to].name());
    }
    text
}

/// The line from one item to all its targets.
fn net(grid: &mut Grid, layered: &Layered, placed: &Placed, channel: &Channel, item: usize) {
    let end = channel.x + channel.width;
    let from = placed.spots[item].row_out();
    let rows: Vec<i64> = layered.targets(item).iter().map(|to| placed.spots[*to].row_in(item)).collect();
    match channel.tracks.get(&item) {
        None => grid.across(item, from, channel.x, end),
        Some(track) => {
            let x = channel.x + 1 + track;
            grid.across(item, from, channel.x, x);
            grid.add(item, from, x, LEFT);
            let (top, bottom) = rows.iter().fold((from, from), |(top, bottom), row| (top.min(*row), bottom.max(*row)));
            for row in top..=bottom {
                grid.add(item, row, x, if row > top { UP } else { 0 } | if row < bottom { DOWN } else { 0 });
            }
            for row in &rows {
                grid.add(item, *row, x, RIGHT);
                grid.across(item, *row, x + 1, end);
            }
        }
    }
    for (to, row) in layered.targets(item).iter().zip(rows) {
        if layered.items[*to] != Item::Line {
            grid.put(row, end - 1, '▶');
        }
    }
}

#[derive(Clone, Copy)]
enum Cell {
    Empty,
    Letter(char),
    /// The line of an item, and the directions it goes in.
    Line(usize, u8),
}

struct Grid {
    cells: Vec<Vec<Cell>>,
}

impl Grid {
    fn new(width: usize, height: usize) -> Self {
        Self { cells: vec![vec![Cell::Empty; width]; height] }
    }

    fn put(&mut self, row: i64, x: usize, letter: char) {
        self.cells[row as usize][x] = Cell::Letter(letter);
    }

    fn write(&mut self, row: i64, x: usize, text: &str) {
        for (index, letter) in text.chars().enumerate() {
            self.put(row, x + index, letter);
        }
    }

    /// Where two lines cross, the one that goes down is seen and the other passes below.
    fn add(&mut self, item: usize, row: i64, x: usize, directions: u8) {
        let cell = &mut self.cells[row as usize][x];
        *cell = match *cell {
            Cell::Line(other, there) if other == item => Cell::Line(item, there | directions),
            Cell::Line(other, there) if directions & (UP | DOWN) == 0 => Cell::Line(other, there),
            _ => Cell::Line(item, directions),
        };
    }

    fn across(&mut self, item: usize, row: i64, from: usize, to: usize) {
        for x in from..to {
            self.add(item, row, x, LEFT | RIGHT);
        }
    }

    fn card(&mut self, stage: &Stage, spot: &Spot) {
        let [top_left, top_right, bottom_left, bottom_right, across, down] = match stage {
            Stage::Trigger { .. } => ROUND,
            Stage::Function { .. } => SHARP,
            Stage::Queue { .. } => DASHED,
            Stage::Sink { .. } => DOUBLE,
        };
        let (left, right) = (spot.x, spot.x + spot.own_width - 1);
        let (top, bottom) = (spot.y, spot.y + spot.height - 1);
        for x in left..right {
            self.put(top, x, across);
            self.put(bottom, x, across);
        }
        for row in top..bottom {
            self.put(row, left, down);
            self.put(row, right, down);
        }
        for (row, x, corner) in
            [(top, left, top_left), (top, right, top_right), (bottom, left, bottom_left), (bottom, right, bottom_right)]
        {
            self.put(row, x, corner);
        }
        if !spot.card.edge.is_empty() {
            self.write(top, left + 1, &format!(" {} ", spot.card.edge));
        }
        for (row, line) in (top + 1..).zip(&spot.card.lines) {
            self.write(row, left + 2, line);
        }
    }

    fn text(&self) -> String {
        let letter = |cell: &Cell| match *cell {
            Cell::Empty => ' ',
            Cell::Letter(letter) => letter,
            Cell::Line(_, directions) => corner(directions),
        };
        self.cells.iter().map(|row| row.iter().map(letter).collect::<String>().trim_end().to_owned() + "\n").collect()
    }
}

fn corner(directions: u8) -> char {
    const LETTERS: [char; 16] = [' ', '╵', '╶', '└', '╷', '│', '┌', '├', '╴', '┘', '─', '┴', '┐', '┤', '┬', '┼'];
    LETTERS[usize::from(directions & 15)]
}
