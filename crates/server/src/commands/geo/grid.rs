//! The grid of positions: a cell is named by the bits of its latitude and longitude in turn, so that
//! near cells often have near numbers.
// Source: Redis 7.2 `geohash.c`, `geohash_helper.c`
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "coordinates become numbers of cells of at most 26 bits"
)]

use super::sphere::{Bounds, LATITUDE_MAX, LONGITUDE_MAX, Position, Shape};

/// Bits of each coordinate in a score.
const STEPS_MAX: u32 = 26;
const SCORE_BITS: u32 = 2 * STEPS_MAX;

/// Bits of the longitude and of the latitude.
const EAST_BITS: u64 = 0xaaaa_aaaa_aaaa_aaaa;
const NORTH_BITS: u64 = 0x5555_5555_5555_5555;

/// Half the length of a parallel or meridian on the map, in meters.
const MAP_METERS_MAX: f64 = 20_037_726.37;

/// A cell of the grid, with `steps` bits of each coordinate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cell {
    bits: u64,
    steps: u32,
}

/// Puts the bits of a number at the even places.
fn spread(number: u32) -> u64 {
    let mut bits = u64::from(number);
    for (shift, mask) in [
        (16, 0x0000_ffff_0000_ffff),
        (8, 0x00ff_00ff_00ff_00ff),
        (4, 0x0f0f_0f0f_0f0f_0f0f),
        (2, 0x3333_3333_3333_3333),
        (1, NORTH_BITS),
    ] {
        bits = (bits | bits << shift) & mask;
    }
    bits
}

/// Collects the bits at the even places.
fn gather(bits: u64) -> u32 {
    let mut bits = bits & NORTH_BITS;
    for (shift, mask) in [
        (1, 0x3333_3333_3333_3333),
        (2, 0x0f0f_0f0f_0f0f_0f0f),
        (4, 0x00ff_00ff_00ff_00ff),
        (8, 0x0000_ffff_0000_ffff),
        (16, 0x0000_0000_ffff_ffff),
    ] {
        bits = (bits | bits >> shift) & mask;
    }
    bits as u32
}

impl Cell {
    /// The cell of a position with all bits.
    pub(super) fn of(position: Position) -> Cell {
        Cell::with_steps(position, STEPS_MAX, LATITUDE_MAX)
    }

    fn with_steps(position: Position, steps: u32, latitude_max: f64) -> Cell {
        let number = |at: f64, max: f64| {
            let share = (at + max) / (max + max);
            (share * (1_u64 << steps) as f64) as u32
        };
        let north = number(position.latitude, latitude_max);
        let east = number(position.longitude, LONGITUDE_MAX);
        Cell { bits: spread(north) | spread(east) << 1, steps }
    }

    /// The cell that a score names. Any score is a cell.
    pub(super) fn of_score(score: f64) -> Cell {
        let bits = if score < 0.0 { (score as i64).cast_unsigned() } else { score as u64 };
        Cell { bits, steps: STEPS_MAX }
    }

    pub(super) fn score(self) -> f64 {
        self.first() as f64
    }

    /// The score of the first cell within this one.
    fn first(self) -> u64 {
        self.bits << (SCORE_BITS - 2 * self.steps)
    }

    /// The first score within the cell, and the first one after it.
    pub(super) fn scores(self) -> (f64, f64) {
        let next = Cell { bits: self.bits + 1, ..self };
        (self.first() as f64, next.first() as f64)
    }

    fn bounds(self) -> Bounds {
        let (north, east) = (gather(self.bits), gather(self.bits >> 1));
        let scale = (1_u64 << self.steps) as f64;
        let edge = |number: u32, max: f64| -max + f64::from(number) / scale * (max + max);
        Bounds {
            west: edge(east, LONGITUDE_MAX),
            south: edge(north, LATITUDE_MAX),
            east: edge(east.wrapping_add(1), LONGITUDE_MAX),
            north: edge(north.wrapping_add(1), LATITUDE_MAX),
        }
    }

    pub(super) fn center(self) -> Position {
        let Bounds { west, south, east, north } = self.bounds();
        let longitude = west.midpoint(east).clamp(-LONGITUDE_MAX, LONGITUDE_MAX);
        let latitude = south.midpoint(north).clamp(-LATITUDE_MAX, LATITUDE_MAX);
        Position { longitude, latitude }
    }

    /// The neighbor at `east` and `north` of -1, 0 or 1, on a map whose edges meet.
    fn neighbor(self, east: i64, north: i64) -> Cell {
        let bits = moved(self.bits & EAST_BITS, NORTH_BITS, self.steps, east)
            | moved(self.bits & NORTH_BITS, EAST_BITS, self.steps, north);
        Cell { bits, ..self }
    }
}

/// Adds to the number at every second bit, by setting the `others` between them so that they pass
/// a carry on.
fn moved(bits: u64, others: u64, steps: u32, by: i64) -> u64 {
    let unused = 64 - 2 * steps;
    let others = others >> unused;
    let moved = match by {
        // At the eastern and northern edge the bits may be one too many, as in Redis.
        0 => return bits,
        1.. => bits.wrapping_add(others + 1),
        _ => (bits | others).wrapping_sub(others + 1),
    };
    moved & !others & (u64::MAX >> unused)
}

/// Cells that together contain a shape, the one with its center first.
pub(super) fn covering(shape: Shape, center: Position) -> Vec<Cell> {
    let bounds = shape.bounds(center);
    let mut steps = steps_for(shape.radius(), center.latitude);
    let mut cell = Cell::with_steps(center, steps, LATITUDE_MAX);
    if steps > 1 && reaches_beyond_neighbors(cell, bounds) {
        steps -= 1;
        cell = Cell::with_steps(center, steps, LATITUDE_MAX);
    }
    let own = cell.bounds();
    let is_needed = |east: i64, north: i64| {
        steps < 2
            || !((north < 0 && own.south < bounds.south)
                || (north > 0 && own.north > bounds.north)
                || (east < 0 && own.west < bounds.west)
                || (east > 0 && own.east > bounds.east))
    };
    let order = [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)];
    let mut cells: Vec<Cell> = Vec::with_capacity(order.len());
    for (at, (east, north)) in order.into_iter().enumerate() {
        let neighbor = cell.neighbor(east, north);
        // With few steps neighbors are equal. As in Redis, the center is not compared.
        if !is_needed(east, north) || (at > 1 && cells.len() > 1 && cells.last() == Some(&neighbor))
        {
            continue;
        }
        cells.push(neighbor);
    }
    cells
}

/// Steps with which a cell and its neighbors contain a circle in most cases.
fn steps_for(radius: f64, latitude: f64) -> u32 {
    if radius == 0.0 {
        return STEPS_MAX;
    }
    let (mut steps, mut meters) = (1_i32, radius);
    while meters < MAP_METERS_MAX {
        meters *= 2.0;
        steps += 1;
    }
    steps -= 2;
    // Meridians are closer to each other towards the poles.
    steps -= i32::from(latitude.abs() > 66.0) + i32::from(latitude.abs() > 80.0);
    steps.clamp(1, STEPS_MAX.cast_signed()).cast_unsigned()
}

fn reaches_beyond_neighbors(cell: Cell, bounds: Bounds) -> bool {
    cell.neighbor(0, 1).bounds().north < bounds.north
        || cell.neighbor(0, -1).bounds().south > bounds.south
        || cell.neighbor(1, 0).bounds().east < bounds.east
        || cell.neighbor(-1, 0).bounds().west > bounds.west
}

/// The standard geohash, whose latitudes reach to the poles. The last of its characters would need
/// more bits than there are.
pub(super) fn geohash(position: Position) -> [u8; 11] {
    const ALPHABET: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
    const LATITUDE_OF_POLE: f64 = 90.0;
    let bits = Cell::with_steps(position, STEPS_MAX, LATITUDE_OF_POLE).bits;
    let mut text = [ALPHABET[0]; 11];
    for (at, character) in (1..).zip(&mut text[..10]) {
        *character = ALPHABET[(bits >> (SCORE_BITS - 5 * at) & 0x1f) as usize];
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn positions() -> impl Strategy<Value = Position> {
        (-LONGITUDE_MAX..LONGITUDE_MAX, -LATITUDE_MAX..LATITUDE_MAX)
            .prop_map(|(longitude, latitude)| Position { longitude, latitude })
    }

    #[test]
    fn a_position_has_the_score_and_geohash_of_redis() {
        let palermo = Position { longitude: 13.361_389, latitude: 38.115_556 };
        assert_eq!(Cell::of(palermo).first(), 3_479_099_956_230_698);
        assert_eq!(&geohash(Cell::of(palermo).center()), b"sqc8b49rny0");
    }

    proptest! {
        #[test]
        fn a_cell_contains_its_position(position in positions()) {
            let cell = Cell::of(position);
            let center = Cell::of_score(cell.score()).center();
            prop_assert!(position.distance_to(center) < 0.7);
        }

        #[test]
        fn neighbors_are_where_they_came_from(
            position in positions(),
            steps in 1..=STEPS_MAX,
            east in -1..=1_i64,
            north in -1..=1_i64,
        ) {
            let cell = Cell::with_steps(position, steps, LATITUDE_MAX);
            prop_assert_eq!(cell.neighbor(east, north).neighbor(-east, -north), cell);
        }

        /// Away from the edges of the map, at which Redis does not continue.
        #[test]
        fn a_circle_is_covered(
            longitude in -90.0..90.0_f64,
            latitude in -60.0..60.0_f64,
            radius in 1.0..500_000.0_f64,
            (dx, dy) in (-1.0..1.0_f64, -1.0..1.0_f64),
        ) {
            let center = Position { longitude, latitude };
            let shape = Shape::Circle { radius };
            let Bounds { west, south, east, north } = shape.bounds(center);
            let point = Position {
                longitude: longitude + dx * (east - west) / 2.0,
                latitude: latitude + dy * (north - south) / 2.0,
            };
            let stored = Cell::of(point);
            if shape.distance_within(center, stored.center()).is_some() {
                let score = stored.score();
                let cells = covering(shape, center);
                let is_in = |cell: &Cell| (cell.scores().0..cell.scores().1).contains(&score);
                prop_assert!(cells.iter().any(is_in));
            }
        }
    }
}
