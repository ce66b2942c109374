// Package function is {{name}}: it greets the person named in the data, or in ?name= of the URL, and counts the greetings.
package function

import (
	"fmt"
	"net/url"
	"unicode/utf8"

	store "function.local/internal/lighter_unit_store"
	. "function.local/internal/lighter_unit_types"
	. "function.local/internal/wit/types"
)

// Handle handles one event. What it prints ends up in the function's log, a panic too.
func Handle(event Event) Result[[]uint8, Failure] {
	if !utf8.Valid(event.Data) {
		return Err[[]uint8](MakeFailureInvalid("the data is not UTF-8"))
	}
	name := string(event.Data)
	if name == "" {
		name = nameInQuery(event)
	}
	count := store.Increment("{{name}}", "greetings", 1)
	if count.IsErr() {
		return Err[[]uint8](failure(count.Err()))
	}
	return Ok[[]uint8, Failure]([]byte(fmt.Sprintf("hello, %s, greeting %d\n", name, count.Ok())))
}

func nameInQuery(event Event) string {
	for _, attribute := range event.Attributes {
		if attribute.F0 == "httpquery" {
			query, _ := url.ParseQuery(attribute.F1)
			if name := query.Get("name"); name != "" {
				return name
			}
		}
	}
	return "world"
}

// failure says whether trying again later may help with what the host refused.
func failure(refused Error) Failure {
	switch refused.Tag() {
	case Error_Unavailable:
		return MakeFailureRetry(refused.Unavailable())
	case Error_Denied:
		return MakeFailureFatal(refused.Denied())
	default:
		return MakeFailureFatal(refused.Invalid())
	}
}
