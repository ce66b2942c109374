// Package function is a wasi:http function in Go.
package function

import (
	"fmt"

	. "function.local/internal/wasi_http_types"
	. "function.local/internal/wit/types"
)

const readBytes = 65_536

// Handle answers one request.
func Handle(request *IncomingRequest, out *ResponseOutparam) {
	path := ""
	if it := request.PathWithQuery(); it.IsSome() {
		path = it.Some()
	}
	var posted []byte
	if request.Method().Tag() == Method_Post {
		posted = read(request)
	}
	headers := MakeFields()
	headers.Append("content-type", []byte("text/plain"))
	response := MakeOutgoingResponse(headers)
	body := response.Body().Ok()
	ResponseOutparamSet(out, Ok[*OutgoingResponse, ErrorCode](response))
	stream := body.Write().Ok()
	stream.BlockingWriteAndFlush([]byte(fmt.Sprintf("hello from Go: %s %s\n", path, posted)))
	stream.Drop()
	OutgoingBodyFinish(body, None[*Fields]())
}

// read reads the body to its end, or to where it broke off.
func read(request *IncomingRequest) []byte {
	body := request.Consume().Ok()
	stream := body.Stream().Ok()
	defer body.Drop()
	defer stream.Drop()
	var whole []byte
	for {
		chunk := stream.BlockingRead(readBytes)
		if chunk.IsErr() {
			return whole
		}
		whole = append(whole, chunk.Ok()...)
	}
}
