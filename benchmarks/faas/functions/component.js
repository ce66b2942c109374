// The same as a component for `wasmtime serve`, which gives each request a fresh instance.
import { answer } from "./work.js";

addEventListener("fetch", (event) => event.respondWith(answer(event.request)));
