package upstream

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/internal/header"
)

// The headers by which a control plane knows who asks: the relay's own, and those of a
// group's clients (NODE-13).

// own are the relay's headers for the next stream. If they cannot be had, that is how
// the attempt ends: the control plane has said nothing.
func (e *Endpoint) own() ([]header.Header, error) {
	if e.Headers == nil {
		return nil, nil
	}
	headers, err := e.Headers()
	if err != nil {
		return nil, status.Error(codes.Unavailable, fmt.Sprintf("cannot get the headers for the control plane: %v", err))
	}
	return headers, nil
}

// withHeaders is a context whose streams have some headers.
func withHeaders(ctx context.Context, headers []header.Header) context.Context {
	for _, h := range headers {
		ctx = metadata.AppendToOutgoingContext(ctx, h.Name, string(h.Value))
	}
	return ctx
}

// hide takes from the words of a control plane what they repeat of the headers.
func hide(err error, headers []header.Header) error {
	st, ok := status.FromError(err)
	if text := header.Hide(st.Message(), headers); ok && text != st.Message() {
		return status.Error(st.Code(), text)
	}
	return err
}
