//! An invitation as a QR code on a terminal: two modules in each character, dark on light whatever the colours are.

use crate::token::Token;
use problem::{Code, Problem};
use qrcode::{EcLevel, QrCode};

/// Lines of text, without colours. Modules that are drawn are the light ones, because most terminals are dark.
///
/// # Errors
/// [`Code::Usage`]: the token is too long for a picture that a camera reads from a screen. The text does it then.
pub fn picture(token: &Token) -> Result<String, Problem> {
    let too_long = |error| Problem::new(Code::Usage, format!("the invitation is too long for a QR code: {error}"));
    let code = QrCode::with_error_correction_level(token.to_string(), EcLevel::L).map_err(too_long)?;
    let (width, colors) = (code.width(), code.to_colors());
    // The quiet zone that readers want around it.
    let is_light = |x: usize, y: usize| {
        let inside = (QUIET..QUIET + width).contains(&x) && (QUIET..QUIET + width).contains(&y);
        !inside || colors[(y - QUIET) * width + x - QUIET] == qrcode::Color::Light
    };
    let size = width + 2 * QUIET;
    let mut drawn = String::new();
    for y in (0..size).step_by(2) {
        drawn.extend((0..size).map(|x| match (is_light(x, y), y + 1 < size && is_light(x, y + 1)) {
            (true, true) => '█',
            (true, false) => '▀',
            (false, true) => '▄',
            (false, false) => ' ',
        }));
        drawn.push('\n');
    }
    Ok(drawn)
}

const QUIET: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::{ADDRESSES_MAX, Address};

    #[test]
    fn a_camera_reads_the_token() {
        for count in 1..=ADDRESSES_MAX {
            let anchors = vec![Address::read("anchor.campus.example.org:8702").unwrap(); count];
            let token = Token { ca_hash: [3; 32], secret: [4; 16], anchors };
            let lines: Vec<Vec<char>> = picture(&token).unwrap().lines().map(|line| line.chars().collect()).collect();
            let is_light = |x: usize, y: usize| {
                let half = if y % 2 == 0 { '▀' } else { '▄' };
                lines.get(y / 2).and_then(|line| line.get(x)).is_none_or(|one| [half, '█'].contains(one))
            };
            // As a camera sees it: every module is some pixels.
            let (size, zoom) = (lines[0].len(), 4);
            let pixel = |x: usize, y: usize| if is_light(x / zoom, y / zoom) { 255 } else { 0 };
            let mut image = rqrr::PreparedImage::prepare_from_greyscale(size * zoom, size * zoom, pixel);
            let grids = image.detect_grids();
            let [grid] = &grids[..] else { panic!("{} codes are seen", grids.len()) };
            assert_eq!(Token::read(&grid.decode().unwrap().1), Ok(token));
        }
    }
}
