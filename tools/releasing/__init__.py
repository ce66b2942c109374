"""The parts of tools/release: one for each kind of file that is handed out."""
