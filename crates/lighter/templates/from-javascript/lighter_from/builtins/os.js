// What a unit knows of its machine: nothing but the shape of lines.
export const EOL = "\n";
export const platform = () => "linux";
export const arch = () => "wasm32";
export const type = () => "Linux";
export const hostname = () => "unit";
export const tmpdir = () => "/tmp";
export const cpus = () => [];
export default { EOL, platform, arch, type, hostname, tmpdir, cpus };
