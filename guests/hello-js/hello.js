// A wasi:http function in JavaScript, the way web workers are written: answers to "fetch" events.
addEventListener("fetch", (event) => event.respondWith(answer(event.request)));

async function answer(request) {
  const { pathname } = new URL(request.url);
  const body = request.method === "POST" ? await request.text() : "";
  return new Response(`hello from JavaScript: ${request.method} ${pathname} ${body}\n`, {
    headers: { "content-type": "text/plain" },
  });
}
