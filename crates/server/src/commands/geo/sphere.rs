//! Distances on the sphere, with the figures and the order of operations of Redis.
// Source: Redis 7.2 `geohash_helper.c`

use std::f64::consts::PI;

const EARTH_RADIUS_METERS: f64 = 6_372_797.560_856;

pub(super) const LONGITUDE_MAX: f64 = 180.0;
/// Beyond this latitude a Mercator map is not square.
pub(super) const LATITUDE_MAX: f64 = 85.051_128_78;

fn radians(degrees: f64) -> f64 {
    degrees * (PI / 180.0)
}

fn degrees(radians: f64) -> f64 {
    radians / (PI / 180.0)
}

/// A position in degrees.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Position {
    pub(super) longitude: f64,
    pub(super) latitude: f64,
}

impl Position {
    /// Whether the position can be stored.
    pub(super) fn is_on_map(self) -> bool {
        (-LONGITUDE_MAX..=LONGITUDE_MAX).contains(&self.longitude)
            && (-LATITUDE_MAX..=LATITUDE_MAX).contains(&self.latitude)
    }

    /// The distance in meters, by the haversine formula.
    pub(super) fn distance_to(self, other: Position) -> f64 {
        let (from, to) = (radians(self.latitude), radians(other.latitude));
        let v = ((radians(other.longitude) - radians(self.longitude)) / 2.0).sin();
        if v == 0.0 {
            return EARTH_RADIUS_METERS * (to - from).abs();
        }
        let u = ((to - from) / 2.0).sin();
        let square = u * u + from.cos() * to.cos() * v * v;
        2.0 * EARTH_RADIUS_METERS * square.sqrt().asin()
    }
}

/// What a search covers, in meters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Shape {
    Circle { radius: f64 },
    Box { width: f64, height: f64 },
}

/// The least and greatest coordinates of an area.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Bounds {
    pub(super) west: f64,
    pub(super) south: f64,
    pub(super) east: f64,
    pub(super) north: f64,
}

impl Shape {
    /// The distance of the farthest point from the center.
    pub(super) fn radius(self) -> f64 {
        match self {
            Shape::Circle { radius } => radius,
            Shape::Box { width, height } => {
                (width / 2.0 * (width / 2.0) + height / 2.0 * (height / 2.0)).sqrt()
            }
        }
    }

    /// The area that contains the shape. Parallels are shorter towards the poles.
    pub(super) fn bounds(self, center: Position) -> Bounds {
        let (width, height) = match self {
            Shape::Circle { radius } => (radius, radius),
            Shape::Box { width, height } => (width / 2.0, height / 2.0),
        };
        let Position { longitude, latitude } = center;
        let up = degrees(height / EARTH_RADIUS_METERS);
        let side = |latitude: f64| degrees(width / EARTH_RADIUS_METERS / radians(latitude).cos());
        let side = side(if latitude < 0.0 { latitude - up } else { latitude + up });
        Bounds {
            west: longitude - side,
            south: latitude - up,
            east: longitude + side,
            north: latitude + up,
        }
    }

    /// Returns the distance of a point within the shape.
    pub(super) fn distance_within(self, center: Position, point: Position) -> Option<f64> {
        match self {
            Shape::Circle { radius } => {
                let distance = center.distance_to(point);
                (distance <= radius).then_some(distance)
            }
            Shape::Box { width, height } => {
                let meridian = Position { latitude: center.latitude, ..point };
                if point.distance_to(meridian) > height / 2.0 {
                    return None;
                }
                let parallel = Position { longitude: center.longitude, ..point };
                if point.distance_to(parallel) > width / 2.0 {
                    return None;
                }
                Some(center.distance_to(point))
            }
        }
    }
}
