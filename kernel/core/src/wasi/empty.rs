//! Files and sockets: interfaces in which nothing is there, and nothing can be made.
//!
//! Their functions are read off the component and answered by the type of what they return: no folders, no error of a
//! file, no socket. Those that take a file or a socket can never be called, because no unit ever has one. So neither
//! of these large interfaces needs code of its own in the kernel.

use super::Nothing;
use crate::program::Unit;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, Linker, Resource, ResourceType, Type, Val};
use wasmtime::{Engine, Result, StoreContextMut, bail, format_err};

/// What begins the names of interfaces that are empty.
const EMPTY: [&str; 2] = ["wasi:filesystem/", "wasi:sockets/"];

/// Resources of other interfaces that these name too.
const OTHERS: [&str; 4] = ["error", "pollable", "input-stream", "output-stream"];

/// What a refusal says, by the enumeration it is of: sockets, files.
const REFUSALS: [&str; 2] = ["access-denied", "access"];

pub fn add_to_linker(linker: &mut Linker<Unit>, engine: &Engine, component: &Component) -> Result<()> {
    let imports = component.component_type();
    for (interface, import) in imports.imports(engine) {
        let ComponentItem::ComponentInstance(instance) = import.ty else { continue };
        if !EMPTY.iter().any(|empty| interface.starts_with(empty)) {
            continue;
        }
        let mut place = linker.instance(interface)?;
        for (name, export) in instance.exports(engine) {
            match export.ty {
                ComponentItem::Resource(_) if !OTHERS.contains(&name) => {
                    place.resource(name, ResourceType::host::<Nothing>(), |_, _| Ok(()))?;
                }
                ComponentItem::ComponentFunc(_) => {
                    let called = String::from(interface) + "#" + name;
                    place.func_new(name, move |mut store, function, arguments, results| {
                        // What was lent by its own type is given back by itself; what is read by any type is not.
                        for argument in arguments {
                            if let Val::Resource(lent) = argument {
                                lent.resource_drop(&mut store)?;
                            }
                        }
                        for (result, ty) in results.iter_mut().zip(function.results()) {
                            *result = nothing(&mut store, &ty, &called)?;
                        }
                        Ok(())
                    })?;
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// What says that there is nothing, in this type.
fn nothing(store: &mut StoreContextMut<'_, Unit>, ty: &Type, called: &str) -> Result<Val> {
    Ok(match ty {
        Type::List(_) => Val::List(Vec::new()),
        Type::Option(_) => Val::Option(None),
        // `instance-network`, by which nothing can be reached.
        Type::Own(_) => Val::Resource(Resource::<Nothing>::new_own(0).try_into_resource_any(store)?),
        Type::Result(result) => Val::Result(Err(Some(Box::new(refusal(result.err().as_ref(), called)?)))),
        _ => bail!("{called}: there are no files and no sockets"),
    })
}

fn refusal(ty: Option<&Type>, called: &str) -> Result<Val> {
    let Some(Type::Enum(codes)) = ty else { bail!("{called}: there are no files and no sockets") };
    let refusal = codes.names().find(|name| REFUSALS.contains(name));
    let refusal = refusal.ok_or_else(|| format_err!("{called}: there are no files and no sockets"))?;
    Ok(Val::Enum(refusal.to_string()))
}
