// The JavaScript hello: the same few bytes for every request, as workerd's script gives them.
addEventListener("fetch", (event) => {
  event.respondWith(new Response("hello, world\n", { headers: { "content-type": "text/plain" } }));
});
