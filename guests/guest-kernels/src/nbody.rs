//! Five bodies that attract each other, as in the Computer Language Benchmarks Game.

/// Steps in time of a round.
const STEPS: usize = 1_000;
const STEP: f64 = 0.01;
const SOLAR_MASS: f64 = 4.0 * std::f64::consts::PI * std::f64::consts::PI;
const YEAR: f64 = 365.24;

#[derive(Clone, Copy)]
struct Body {
    at: [f64; 3],
    speed: [f64; 3],
    mass: f64,
}

#[inline(never)]
pub fn run(rounds: u32) -> u64 {
    let mut bodies = system();
    for _ in 0..rounds {
        for _ in 0..STEPS {
            advance(&mut bodies);
        }
    }
    energy(&bodies).to_bits()
}

#[inline(never)]
fn advance(bodies: &mut [Body; 5]) {
    for first in 0..bodies.len() {
        for second in first + 1..bodies.len() {
            let (one, other) = (bodies[first], bodies[second]);
            let apart: [f64; 3] = std::array::from_fn(|axis| one.at[axis] - other.at[axis]);
            let square = apart[0] * apart[0] + apart[1] * apart[1] + apart[2] * apart[2];
            let pull = STEP / (square * square.sqrt());
            for (axis, apart) in apart.into_iter().enumerate() {
                bodies[first].speed[axis] -= apart * other.mass * pull;
                bodies[second].speed[axis] += apart * one.mass * pull;
            }
        }
    }
    for body in bodies {
        for axis in 0..3 {
            body.at[axis] += STEP * body.speed[axis];
        }
    }
}

fn energy(bodies: &[Body; 5]) -> f64 {
    let mut energy = 0.0;
    for (at, one) in bodies.iter().enumerate() {
        energy += 0.5 * one.mass * one.speed.iter().map(|speed| speed * speed).sum::<f64>();
        for other in &bodies[at + 1..] {
            let square: f64 = (0..3).map(|axis| (one.at[axis] - other.at[axis]).powi(2)).sum();
            energy -= one.mass * other.mass / square.sqrt();
        }
    }
    energy
}

/// The sun, Jupiter, Saturn, Uranus and Neptune; the sun moves so that the whole stands still.
fn system() -> [Body; 5] {
    let planet = |at, speed: [f64; 3], mass| Body { at, speed: speed.map(|day| day * YEAR), mass: mass * SOLAR_MASS };
    let mut bodies = [
        planet([0.0; 3], [0.0; 3], 1.0),
        planet(
            [4.841_431_442_464_72, -1.160_320_044_027_428_4, -0.103_622_044_471_123_11],
            [0.001_660_076_642_744_037, 0.007_699_011_184_197_404, -0.000_069_046_001_697_206_3],
            0.000_954_791_938_424_326_6,
        ),
        planet(
            [8.343_366_718_244_58, 4.124_798_564_124_305, -0.403_523_417_114_321],
            [-0.002_767_425_107_268_624, 0.004_998_528_012_349_172, 0.000_023_041_729_757_376_39],
            0.000_285_885_980_666_130_8,
        ),
        planet(
            [12.894_369_562_139_131, -15.111_151_401_698_631, -0.223_307_578_892_655_73],
            [0.002_964_601_375_647_616, 0.002_378_471_739_594_809_5, -0.000_029_658_956_854_023_756],
            0.000_043_662_440_433_515_63,
        ),
        planet(
            [15.379_697_114_850_917, -25.919_314_609_987_964, 0.179_258_772_950_371_18],
            [0.002_680_677_724_903_893_2, 0.001_628_241_700_382_423, -0.000_095_159_225_451_971_59],
            0.000_051_513_890_204_661_145,
        ),
    ];
    for axis in 0..3 {
        let momentum: f64 = bodies.iter().map(|body| body.speed[axis] * body.mass).sum();
        bodies[0].speed[axis] = -momentum / SOLAR_MASS;
    }
    bodies
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn energies_are_those_that_are_published() {
        let mut bodies = system();
        assert!((energy(&bodies) - -0.169_075_164).abs() < 1e-9);
        for _ in 0..1_000 {
            advance(&mut bodies);
        }
        assert!((energy(&bodies) - -0.169_087_605).abs() < 1e-9);
    }
}
