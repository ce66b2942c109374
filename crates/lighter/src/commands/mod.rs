//! The commands that need more than a node's API: they start a node, open its data folder, or know what a gate knows.

mod mqtt_password;
mod restore;
mod salvage;
mod up;

use crate::classes;
use cli::{Brought, Extra};

/// All that the program brings to the command line, its classes' part with it.
pub fn brought() -> Brought {
    let mut brought = Brought { state_format: state::STATE_FORMAT, ..Brought::default() };
    brought.commands.push(up::COMMAND);
    brought.commands.push(Extra::new::<salvage::Salvage>(
        "salvage",
        "Copy what can be read out of a damaged data folder",
        Some("dump"),
        &["lighter salvage rescued", "lighter salvage --data-folder /var/lib/lighter /media/usb/rescued"],
    ));
    brought.commands.push(Extra::new::<restore::Restore>(
        "restore",
        "Put a backup into a data folder",
        Some("backup"),
        &[
            "lighter restore node.backup",
            "lighter restore node.backup --data-folder /var/lib/lighter --without-secrets",
        ],
    ));
    brought.commands.push(Extra::new::<mqtt_password::MqttPassword>(
        "mqtt-password",
        "Hash the password of an MQTT user, for node.toml",
        Some("audit"),
        &["lighter mqtt-password"],
    ));
    classes::bring(&mut brought);
    brought
}

#[cfg(test)]
mod tests;
