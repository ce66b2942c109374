package app

import java.net.URLDecoder
import java.nio.ByteBuffer
import java.nio.charset.CharacterCodingException
import lighterage.unit.Event
import lighterage.unit.Invalid
import lighterage.unit.Retry
import lighterage.unit.Store
import lighterage.unit.Unavailable

/** The function {{name}}: greets the person named in the data, or in ?name= of the URL, and counts the greetings. */
object Greet {
    /** What is printed, and the stack of what is thrown and not caught, ends up in the function's log. */
    @JvmStatic
    fun handle(event: Event): String {
        val name = data(event).ifEmpty { nameInQuery(event) }
        try {
            val count = Store.increment("{{name}}", "greetings", 1)
            return "hello, $name, greeting $count\n"
        } catch (refused: Unavailable) {
            throw Retry(refused.message)
        }
    }

    private fun data(event: Event): String =
        try {
            Charsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(event.data())).toString()
        } catch (strange: CharacterCodingException) {
            throw Invalid("the data is not UTF-8")
        }

    private fun nameInQuery(event: Event): String {
        val pairs = event.attribute("httpquery").orEmpty().split("&")
        val pair = pairs.firstOrNull { it.startsWith("name=") && it != "name=" } ?: return "world"
        try {
            return URLDecoder.decode(pair.removePrefix("name="), Charsets.UTF_8)
        } catch (strange: IllegalArgumentException) {
            throw Invalid("the name in the URL is not percent-encoded")
        }
    }
}
