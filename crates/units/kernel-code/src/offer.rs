//! What the kernel offers a component in a machine of the class microvm: `lighter:unit`, WASI 0.2 with `wasi:http`, and
//! the proposals for stores, values and logs.

use component::{OFFERED, Outermost, Shape};
use problem::Problem;

/// Says what the image is, if a machine runs it.
///
/// # Errors
/// It is no component, exports no handler, or imports what is not [`OFFERED`].
pub fn shape_for_machines(image: &[u8]) -> Result<Shape, Problem> {
    let outermost = Outermost::read(image)?;
    let contract = outermost.contract()?;
    for import in &outermost.imports {
        component::offered(import, OFFERED)?;
    }
    Ok(Shape { contract, imports: outermost.imports })
}
